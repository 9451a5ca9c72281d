//! Two hosts, one manifest.

use std::{collections::BTreeMap, time::Duration};

use lanekeeper::supervisor::status::{HostStatus, LaneState};
use lanekeeper_broker::wait_until;
use lanekeeper_wire::Space;
use tokio::time::Instant;

use crate::{
    fleet::{Fleet, QUICK},
    host::Host,
    posts::Talk,
    support::PATIENCE,
};

const SPACES: usize = 20;
const LEASE_TTL: Duration = Duration::from_secs(5);
const HOSTS: [&str; 2] = ["one", "two"];
/// How long after the end of a dead host's leases every space must be served again. The figure is printed, and 5 s is what
/// it should be; the bound only tells a takeover from a hang.
const TAKEOVER_MARGIN: Duration = Duration::from_secs(20);
/// How long a space may be without a host when it is handed over. The figure is printed, and 2 s is what it should be; the
/// bound only tells a hand-over from a hang, because other tests share the machine.
const HAND_OVER: Duration = Duration::from_secs(20);

async fn start(fleet: &Fleet, name: &str, head_start_ms: u32) -> Host {
    let more = format!("[limits]\nhead_start_ms = {head_start_ms}\n{QUICK}");
    Host::start(fleet.path(), name, &[fleet.mesh.broker.url()], &HOSTS, &more).await
}

/// Which host serves which space, where each is served by exactly one and stood by for by the other.
async fn wait_shared(one: &Host, two: &Host) -> BTreeMap<Space, String> {
    let shared = async || {
        let statuses = [one.status().await, two.status().await];
        let mut served = BTreeMap::new();
        for status in &statuses {
            let serving = status.lanes.iter().filter(|lane| lane.state == LaneState::Serving);
            for lane in serving {
                let other = served.insert(lane.space.clone(), status.host.clone());
                assert!(other.is_none(), "{} is served by both", lane.space);
            }
        }
        let standing_by: usize = statuses.iter().map(|status| status.count(LaneState::Standby)).sum();
        ((served.len(), standing_by) == (SPACES, SPACES)).then_some(served)
    };
    match wait_until("every space served once and stood by for", PATIENCE, shared).await {
        Ok(served) => served,
        Err(error) => panic!("{error}: {:#?} {:#?}", one.brief().await, two.brief().await),
    }
}

fn preferred(status: &HostStatus) -> BTreeMap<Space, String> {
    status.lanes.iter().map(|lane| (lane.space.clone(), lane.preferred_host.clone().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_host_is_taken_over_without_a_loss() {
    let fleet = Fleet::new(SPACES, LEASE_TTL).await;
    let (one, two) = tokio::join!(start(&fleet, "one", 1_000), start(&fleet, "two", 1_000));
    let before = wait_shared(&one, &two).await;
    let talk = Talk::open(&fleet.sites, &fleet.mesh.broker.url()).await;
    talk.wait_more(10).await;
    let doomed = before.values().filter(|host| *host == "one").count();
    let untouched = two.status().await;
    let killed_at = Instant::now();
    one.kill().await;
    two.wait_serving(SPACES, LEASE_TTL + TAKEOVER_MARGIN).await;
    eprintln!("{doomed} of {SPACES} spaces taken over within {:?}", killed_at.elapsed());
    talk.wait_more(10).await;
    let account = talk.close().await;
    eprintln!("{account:?}");
    assert_eq!((account.lost, account.duplicated), (0, 0), "{account:?}\n{}", two.log_tail());
    // What it served before did not notice.
    let after = two.status().await;
    for lane in untouched.lanes.iter().filter(|lane| lane.state == LaneState::Serving) {
        assert_eq!(after.lane(&lane.space).unwrap().incarnation, lane.incarnation, "{}", lane.space);
    }
    two.stop().await;
    fleet.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_host_hands_every_space_over_without_a_loss() {
    let fleet = Fleet::new(SPACES, LEASE_TTL).await;
    let (one, two) = tokio::join!(start(&fleet, "one", 0), start(&fleet, "two", 0));
    let before = wait_shared(&one, &two).await;
    let talk = Talk::open(&fleet.sites, &fleet.mesh.broker.url()).await;
    talk.wait_more(5).await;
    let (from, to) = if before.values().any(|host| host == "one") { (one, two) } else { (two, one) };
    let alone: Space = before.iter().find(|(_, host)| **host == from.name).unwrap().0.clone();
    let started = Instant::now();
    from.order(&format!("/lanes/{alone}/drain")).await;
    let served = async || to.served().await.contains(&alone).then_some(());
    wait_until("the one space at the other host", PATIENCE, served).await.unwrap();
    eprintln!("{alone} handed over within {:?}", started.elapsed());
    let started = Instant::now();
    from.order("/drain").await;
    to.wait_serving(SPACES, PATIENCE).await;
    let took = started.elapsed();
    eprintln!("{} spaces handed over within {took:?}", before.values().filter(|host| **host == from.name).count() - 1);
    let status = from.status().await;
    assert!(status.draining && status.lanes.iter().all(|lane| lane.drained), "{:#?}", from.brief().await);
    talk.wait_more(5).await;
    from.order("/undrain").await;
    // It stands by again, and takes nothing away from who serves.
    let after = wait_shared(&from, &to).await;
    assert!(after.values().all(|host| *host == to.name), "{after:?}");
    let account = talk.close().await;
    eprintln!("{account:?}");
    assert_eq!((account.lost, account.duplicated), (0, 0), "{account:?}");
    assert!(took < HAND_OVER, "{took:?}");
    from.stop().await;
    to.stop().await;
    fleet.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_handed_over_goes_to_the_host_that_is_preferred() {
    let fleet = Fleet::new(SPACES, LEASE_TTL).await;
    let hosts = ["one", "two", "three"];
    let start = async |name| Host::start(fleet.path(), name, &[fleet.mesh.broker.url()], &hosts, QUICK).await;
    // Alone, it serves what the others prefer as well.
    let one = start("one").await;
    one.wait_serving(SPACES, PATIENCE).await;
    let (two, three) = tokio::join!(start("two"), start("three"));
    for host in [&two, &three] {
        let all = async || (host.status().await.count(LaneState::Standby) == SPACES).then_some(());
        wait_until("a host that stands by for everything", PATIENCE, all).await.unwrap();
    }
    one.order("/drain").await;
    let served = async || {
        let (two, three) = (two.served().await, three.served().await);
        (two.len() + three.len() == SPACES).then_some((two, three))
    };
    let (at_two, at_three) = wait_until("every space served again", PATIENCE, served).await.unwrap();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (space, preferred) in preferred(&one.status().await) {
        *counts.entry(preferred.clone()).or_default() += 1;
        let right = match preferred.as_str() {
            "two" => at_two.contains(&space),
            "three" => at_three.contains(&space),
            _ => at_two.contains(&space) != at_three.contains(&space),
        };
        assert!(right, "{space} should be at {preferred}: {at_two:?} {at_three:?}");
    }
    assert_eq!(counts.len(), hosts.len(), "each is preferred somewhere: {counts:?}");
    for host in [one, two, three] {
        host.stop().await;
    }
    fleet.assert_no_violations();
}
