//! SIGTERM at any moment: the process ends in time and leaves no lease behind.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::Instant;

use crate::{fleet::Fleet, support::Power};

const SPACES: [&str; 5] = ["ada", "bob", "cyd", "dan", "eve"];
/// The close timeout of these tests is 5 s; a healthy stop needs a fraction.
const STOP_BOUND: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_moment_of_the_start_leaves_no_lease() {
    let fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.toml", &fleet.manifest(&SPACES));
    let mut powers = Vec::new();
    for space in SPACES {
        powers.push(Power::over(&fleet.mesh, &fleet.sites[space]).await);
    }
    for count in 0..=SPACES.len() {
        let mut host = fleet.start().await;
        // So many lanes have claimed by then; the others are anywhere before.
        let claimed = async || {
            let mut rows = 0;
            for power in &powers {
                rows += usize::from(power.lease_row().await.is_some());
            }
            (rows >= count).then_some(())
        };
        lanekeeper_broker::wait_until("leases", crate::support::PATIENCE, claimed).await.unwrap();
        let asked = Instant::now();
        host.daemon.signal(Signal::TERM);
        let status = host.daemon.ended(STOP_BOUND).await;
        eprintln!("stopped with {count} leases after {:?}", asked.elapsed());
        assert!(status.success(), "{status}\n{}", host.log_tail());
        for (space, power) in SPACES.iter().zip(&powers) {
            assert_eq!(power.lease_row().await, None, "{space} is still held:\n{}", host.log_tail());
        }
    }
    fleet.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_during_a_reload_is_not_lost() {
    let fleet = Fleet::new(&SPACES).await;
    for round in 0..5u64 {
        fleet.write("conf/spaces.toml", &fleet.manifest(&SPACES[..3]));
        let mut host = fleet.start().await;
        host.until_serving(&SPACES[..3]).await;
        fleet.replace("conf/spaces.toml", &fleet.manifest(&SPACES[1..]));
        if round % 2 == 1 {
            host.until("applied", |status| status.generation == 2).await;
        }
        host.daemon.signal(Signal::TERM);
        let status = host.daemon.ended(STOP_BOUND).await;
        assert!(status.success(), "{status}\n{}", host.log_tail());
        for space in SPACES {
            let power = Power::over(&fleet.mesh, &fleet.sites[space]).await;
            assert_eq!(power.lease_row().await, None, "{space} is still held:\n{}", host.log_tail());
        }
    }
    fleet.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_without_a_broker_is_as_bounded() {
    let mut fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.toml", &fleet.manifest(&SPACES));
    let mut host = fleet.start().await;
    host.until_serving(&SPACES).await;
    fleet.mesh.broker.pause().await.unwrap();
    host.daemon.signal(Signal::TERM);
    let asked = Instant::now();
    let status = host.daemon.ended(STOP_BOUND * 3).await;
    eprintln!("stopped without an answering broker after {:?}: {status}", asked.elapsed());
    assert!(status.success(), "{status}\n{}", host.log_tail());
    fleet.mesh.broker.resume().await.unwrap();
}
