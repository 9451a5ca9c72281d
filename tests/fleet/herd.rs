//! A broker that restarts under many lanes.

use std::{collections::BTreeMap, time::Duration};

use lanekeeper::supervisor::status::HostStatus;
use lanekeeper_wire::{Bucket, Space, StreamKind};
use tokio::time::Instant;

use crate::{
    connz,
    fleet::{Fleet, QUICK},
    host::Host,
    support::PATIENCE,
};

const LANES: usize = 100;
/// The usual lease: lanes have it for longer than the restart takes.
const LEASE_TTL: Duration = Duration::from_secs(30);
/// All lanes serve again within this.
const BACK_WITHIN: Duration = Duration::from_secs(25);
/// The first and the last lane come back at least this far from each other.
const LEAST_SPREAD: Duration = Duration::from_secs(1);
/// What the first start of so many lanes may take.
const START_PATIENCE: Duration = Duration::from_secs(90);
const RESTARTS: usize = 3;

/// The consumers of every stream of every space.
async fn consumers(fleet: &Fleet) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for site in &fleet.sites {
        let streams = StreamKind::ALL.iter().map(|kind| kind.name(&site.space));
        for name in streams.chain(Bucket::ALL.iter().map(|bucket| bucket.stream(&site.space))) {
            let stream = site.provisioner().get_stream(&name).await.unwrap();
            counts.insert(name, stream.cached_info().state.consumer_count);
        }
    }
    counts
}

/// How far the first and the last of these were accepted from each other.
fn spread<'a>(connections: impl Iterator<Item = &'a connz::Connection>) -> Duration {
    let mut starts: Vec<_> = connections.map(connz::Connection::start).collect();
    starts.sort();
    let between = starts.last().zip(starts.first()).map(|(last, first)| *last - *first);
    between.map_or(Duration::ZERO, |between| between.unsigned_abs())
}

fn runs(status: &HostStatus) -> BTreeMap<Space, Option<String>> {
    status.lanes.iter().map(|lane| (lane.space.clone(), lane.incarnation.clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_lanes_come_back_spread_out_and_keep_their_leases() {
    let mut fleet = Fleet::new(LANES, LEASE_TTL).await;
    let host = Host::start(fleet.path(), "one", &[fleet.mesh.broker.url()], &[], QUICK).await;
    let started = Instant::now();
    let before = host.wait_serving(LANES, START_PATIENCE).await;
    eprintln!("{LANES} lanes serve after {:?}", started.elapsed());
    let consumers_before = consumers(&fleet).await;
    for restart in 0..RESTARTS {
        fleet.mesh.broker.restart().await.unwrap();
        let up = Instant::now();
        // A status may still be that of before the end of the broker; the broker's own word counts.
        let back = async || {
            let open = connz::open(fleet.monitor).await;
            let lanes = open.iter().filter(|connection| connection.name.starts_with("lanekeeper s"));
            (lanes.count() == LANES).then_some(open)
        };
        let open = lanekeeper_broker::wait_until("every lane's connection", PATIENCE, back).await.unwrap();
        let status = host.wait_serving(LANES, BACK_WITHIN.saturating_sub(up.elapsed())).await;
        let lanes = || open.iter().filter(|connection| connection.name.starts_with("lanekeeper s"));
        let all = connz::all(fleet.monitor).await;
        let spread = spread(lanes());
        eprintln!(
            "restart {restart}: serving again {:?} after the broker was up, {} connections in all, accepted over {spread:?}",
            up.elapsed(),
            all.len()
        );
        assert!(spread >= LEAST_SPREAD, "{spread:?}");
        assert_eq!(runs(&status), runs(&before), "no lease was lost");
    }
    assert_eq!(consumers(&fleet).await, consumers_before);
    host.stop().await;
    fleet.assert_no_violations();
}
