//! Two hosts with one manifest: every space has one owner, and the other host takes over.

use std::{collections::BTreeSet, time::Duration};

use lanekeeper::supervisor::{HostStatus, LaneState};
use tokio::time::Instant;

use crate::fleet::{Fleet, Host, command};

const SPACES: [&str; 6] = ["ada", "bob", "cyd", "dan", "eve", "fay"];
const PAIR: &str = "hosts = [\"one\", \"two\"]\n";
/// The lease TTL of these tests is 2 s.
const TAKEOVER: Duration = Duration::from_secs(2 + 5);

fn serving(status: &HostStatus) -> BTreeSet<String> {
    let lanes = status.lanes.iter().filter(|lane| lane.state == LaneState::Serving);
    lanes.map(|lane| lane.space.to_string()).collect()
}

async fn pair(fleet: &Fleet) -> (Host, Host) {
    fleet.write("conf/spaces.toml", &fleet.manifest(&SPACES));
    let one = fleet.start_with("one", PAIR, "conf/spaces.toml", &[], &[]).await;
    let two = fleet.start_with("two", PAIR, "conf/spaces.toml", &[], &[]).await;
    for host in [&one, &two] {
        let settled = |status: &HostStatus| {
            status.count(LaneState::Serving) + status.count(LaneState::Standby) == SPACES.len() && status.ready
        };
        host.until("every lane serves or stands by", settled).await;
    }
    (one, two)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_space_has_one_owner_and_a_killed_host_is_replaced() {
    let fleet = Fleet::new(&SPACES).await;
    let (one, two) = pair(&fleet).await;
    let (of_one, of_two) = (serving(&one.status().unwrap()), serving(&two.status().unwrap()));
    assert!(of_one.is_disjoint(&of_two), "{of_one:?} {of_two:?}");
    assert_eq!(of_one.len() + of_two.len(), SPACES.len());
    let (dead, alive) = if of_one.is_empty() { (two, one) } else { (one, two) };
    let standby = alive.status().unwrap().lanes.into_iter().find(|lane| lane.state == LaneState::Standby).unwrap();
    assert!(standby.lease_holder.is_some() && standby.preferred_host.is_some(), "{standby:?}");
    let killed = Instant::now();
    dead.daemon.kill().await;
    alive.until_within("it serves all", TAKEOVER, |status| serving(status).len() == SPACES.len()).await;
    eprintln!("taken over after {:?}", killed.elapsed());
    alive.stop().await;
    fleet.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_host_hands_over_at_once_and_takes_part_again() {
    let fleet = Fleet::new(&SPACES).await;
    let (one, two) = pair(&fleet).await;
    let (busy, idle) = if serving(&one.status().unwrap()).is_empty() { (two, one) } else { (one, two) };
    let count = serving(&busy.status().unwrap()).len();
    let log = fleet.path("drain.log");
    let asked = Instant::now();
    assert!(command(&busy, &["drain"], &log).await);
    idle.until("the other serves all", |status| serving(status).len() == SPACES.len()).await;
    eprintln!("{count} lanes handed over after {:?}", asked.elapsed());
    let drained = busy.until("drained", |status| status.count(LaneState::Waiting) == SPACES.len()).await;
    assert!(drained.draining && drained.lanes.iter().all(|lane| lane.drained));
    assert!(command(&busy, &["undrain"], &log).await);
    busy.until("it stands by", |status| status.count(LaneState::Standby) == SPACES.len()).await;
    // Back again, one lane.
    assert!(command(&idle, &["drain", "ada"], &log).await);
    busy.until("ada is back", |status| serving(status) == BTreeSet::from(["ada".to_owned()])).await;
    idle.stop().await;
    busy.stop().await;
    fleet.assert_no_violations();
}
