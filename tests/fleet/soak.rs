//! Reloads without end: what they add and remove leaves nothing behind.

use std::{fmt, sync::Mutex, time::Duration};

use lanekeeper_broker::{process_rss_bytes, wait_until};
use time::OffsetDateTime;

use crate::{
    connz,
    fleet::{Fleet, QUICK},
    host::Host,
    support::PATIENCE,
};

const SPACES: usize = 5;
/// The space that comes and goes.
const GUEST: usize = 4;
/// How many reloads, half of which add and half of which remove.
const RELOADS: usize = 200;
/// Another number of reloads.
const RELOADS_VARIABLE: &str = "LANEKEEPER_TEST_RELOADS";
/// What memory and pools settle at is reached by then.
const WARM_UP: usize = 100;
/// What may grow after it, of what there was.
const GROWTH_PERCENT: u64 = 5;

/// What the host uses while the guest is away.
#[derive(Debug, Clone, Copy)]
struct Used {
    files: u64,
    threads: u64,
    connections: u64,
    rss_bytes: u64,
}

impl Used {
    async fn by(host: &Host, fleet: &Fleet) -> Self {
        let count = |what: &str| std::fs::read_dir(format!("/proc/{}/{what}", host.pid())).unwrap().count() as u64;
        let open = connz::open(fleet.monitor).await;
        Self {
            files: count("fd"),
            threads: count("task"),
            connections: open.iter().filter(|connection| is_of_a_lane(connection)).count() as u64,
            rss_bytes: process_rss_bytes(host.pid()).unwrap(),
        }
    }

    fn is_as_little_as(&self, before: &Self) -> bool {
        let figures = [
            (before.files, self.files),
            (before.threads, self.threads),
            (before.connections, self.connections),
            (before.rss_bytes, self.rss_bytes),
        ];
        figures.iter().all(|(before, now)| now * 100 <= before * (100 + GROWTH_PERCENT))
    }

    /// The middle one of each figure: a single look may fall on a request in progress.
    fn middle(looks: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> u64| {
            let mut figures: Vec<u64> = looks.iter().map(figure).collect();
            figures.sort_unstable();
            figures[figures.len() / 2]
        };
        Self {
            files: of(|used| used.files),
            threads: of(|used| used.threads),
            connections: of(|used| used.connections),
            rss_bytes: of(|used| used.rss_bytes),
        }
    }
}

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, threads, connections, rss_bytes } = self;
        write!(f, "{files} files, {threads} threads, {connections} connections, {} KiB", rss_bytes / 1024)
    }
}

/// What a provisioner of the test has opened is not counted.
fn is_of_a_lane(connection: &connz::Connection) -> bool {
    (0..SPACES).any(|space| connection.is_of(&format!("s{space}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn reloads_that_add_and_remove_a_lane_leave_nothing_behind() {
    let reloads = std::env::var(RELOADS_VARIABLE).map_or(RELOADS, |text| text.parse().unwrap());
    let fleet = Fleet::new(SPACES, Duration::from_secs(30)).await;
    fleet.write_manifest(|index| index != GUEST);
    let host = Host::start(fleet.path(), "one", &[fleet.mesh.broker.url()], &[], QUICK).await;
    let before = host.wait_serving(SPACES - 1, PATIENCE).await;
    let (mut looks, mut away, mut removed_at) = (Vec::new(), Vec::new(), None);
    for reload in 0..reloads {
        let is_guest_away = reload % 2 == 1;
        if let Some(removed_at) = removed_at.take() {
            away.push((removed_at, OffsetDateTime::now_utc()));
        }
        fleet.write_manifest(|index| index != GUEST || !is_guest_away);
        host.reload().await;
        host.wait_serving(if is_guest_away { SPACES - 1 } else { SPACES }, PATIENCE).await;
        if is_guest_away {
            removed_at = Some(OffsetDateTime::now_utc());
            looks.push(Used::by(&host, &fleet).await);
        }
    }
    let first = Used::middle(&looks[WARM_UP / 2..][..10]);
    let busy = Used::middle(&looks[looks.len() - 10..]);
    eprintln!("{reloads} reloads: at first {}; after {WARM_UP} {first}; at the end {busy}", looks[0]);
    // Threads of a pool that had much to do at once go away only when they have had nothing to do for some seconds.
    let last = Mutex::new(busy);
    let at_rest = async || {
        let now = Used::by(&host, &fleet).await;
        *last.lock().unwrap() = now;
        now.is_as_little_as(&first).then_some(now)
    };
    match wait_until("a host that uses no more than before", PATIENCE, at_rest).await {
        Ok(last) => eprintln!("at rest {last}"),
        Err(error) => panic!("{error}: {first} after {WARM_UP} reloads, {} at rest", last.lock().unwrap()),
    }
    away.extend(removed_at.map(|removed_at| (removed_at, OffsetDateTime::now_utc())));
    never_while_away(&fleet, &away).await;
    let after = host.status().await;
    for lane in &before.lanes {
        assert_eq!(after.lane(&lane.space).unwrap().incarnation, lane.incarnation, "{} was touched", lane.space);
    }
    host.stop().await;
    fleet.assert_no_violations();
}

/// The guest came to the broker in none of these spans.
async fn never_while_away(fleet: &Fleet, away: &[(OffsetDateTime, OffsetDateTime)]) {
    let guest = format!("s{GUEST}");
    let all = connz::all(fleet.monitor).await;
    let came: Vec<OffsetDateTime> =
        all.iter().filter(|known| known.is_of(&guest)).map(connz::Connection::start).collect();
    assert!(came.len() >= away.len(), "{} connections for {} removals", came.len(), away.len());
    for (removed, added) in away {
        assert!(!came.iter().any(|at| at > removed && at < added), "it came between {removed} and {added}");
    }
}
