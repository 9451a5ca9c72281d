//! One host with many lanes, and the frame of every case: one lane goes bad, and the others must not notice.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use lanekeeper::{
    mesh::{Mesh, MeshOptions, Site},
    supervisor::{HostStatus, LaneState, LaneStatus},
};
use lanekeeper_provision::{DeliveryExtras, LaneCredentialSettings, SpaceSettings};
use lanekeeper_wire::Space;
use tempfile::TempDir;
use tokio::{
    task::JoinHandle,
    time::{Instant, interval},
};

use crate::{
    host::{Host, read_status},
    inside::{FLOOD, FLOOD_LANE},
    support::{Power, secrets},
    traffic::Traffic,
};

/// How many lanes there are.
pub(crate) const LANES: usize = 50;
/// Long enough for a busy machine, short enough that every lane renews within a case.
const LEASE_TTL: Duration = Duration::from_secs(4);
/// How many posts make a measurement.
const SAMPLES: usize = 60;
/// How often the neighbours are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Far beyond what a healthy neighbour needs, on any machine: what counts is printed.
const FAR_TOO_LONG: Duration = Duration::from_secs(10);
/// Short pauses, so that a lane whose cause is gone need not be waited for.
const LIMITS: &str = "settle_ms = 1000\nbackoff_cap_ms = 1000\nslow_pause_ms = 1000\nclose_timeout_ms = 5000";

/// A broker, a host with a lane for each of its spaces, and traffic on all of them.
pub(crate) struct Ground {
    pub(crate) mesh: Mesh,
    pub(crate) sites: Vec<Site>,
    pub(crate) host: Host,
    pub(crate) traffic: Traffic,
    undisturbed: Duration,
    dir: TempDir,
}

impl Ground {
    /// All lanes serve, and the undisturbed traffic is measured.
    pub(crate) async fn open() -> Self {
        let begun = Instant::now();
        let dir = TempDir::new().unwrap();
        let mesh = Mesh::start(&dir.path().join("mesh"), MeshOptions::default()).await.unwrap();
        let settings = SpaceSettings { lease_ttl: LEASE_TTL, ..SpaceSettings::default() };
        let lane = LaneCredentialSettings { extras: DeliveryExtras::None, ..LaneCredentialSettings::default() };
        let made = stream::iter(0..LANES).map(|number| {
            let (mesh, lane) = (&mesh, &lane);
            let mut settings = settings.clone();
            if number == FLOOD_LANE {
                settings.messages_per_subject = 2 * u32::try_from(FLOOD).unwrap();
            }
            async move {
                let space: Space = format!("s{number:02}").parse().unwrap();
                mesh.space(&space, &settings, lane).await.unwrap()
            }
        });
        let sites: Vec<Site> = made.buffered(8).collect().await;
        println!("{LANES} spaces after {} ms", begun.elapsed().as_millis());
        let host = Host::start(dir.path(), &sites, LIMITS).await;
        host.all_serving(LANES).await;
        println!("all serve after {} ms", begun.elapsed().as_millis());
        let traffic = Traffic::start(&sites).await;
        println!("traffic after {} ms", begun.elapsed().as_millis());
        // What comes right after the start is not what is undisturbed.
        traffic.wait_samples(traffic.now(), SAMPLES).await;
        let from = traffic.now();
        traffic.wait_samples(from, 2 * SAMPLES).await;
        let undisturbed = traffic.p99(from, traffic.now(), |_| true);
        println!("undisturbed: p99 from post to receipt {:.1} ms", millis(undisturbed));
        Self { mesh, sites, host, traffic, undisturbed, dir }
    }

    /// One case: `lane` goes bad and is well again when `story` is over, and nobody else notices.
    pub(crate) async fn case(&mut self, name: &str, lane: usize, story: impl AsyncFnOnce(&mut Bad<'_>)) {
        let (begun, from) = (Instant::now(), self.traffic.now());
        let before = self.host.status();
        let space = self.sites[lane].space.clone();
        let neighbours = Neighbours::watch(&self.host.status_path(), &before, &space);
        self.traffic.leave(lane).await;
        let mut bad = Bad { ground: self, lane, space: space.clone(), marked: Instant::now(), noticed: Vec::new() };
        story(&mut bad).await;
        let noticed = std::mem::take(&mut bad.noticed);
        self.host.wait_lane(&space, "serves again", |lane| lane.state == LaneState::Serving).await;
        // Within its time to live, every other lane has renewed its lease.
        self.host.wait("every lease is renewed", |now| renewed(&before, now, &space)).await;
        self.traffic.wait_samples(from, SAMPLES).await;
        let to = self.traffic.now();
        self.traffic.arrived(|other| other != lane).await;
        let seen = neighbours.stop().await;
        assert!(seen.is_empty(), "{name}: {seen:#?}\n{}", self.host.log_text());
        let p99 = self.traffic.p99(from, to, |other| other != lane);
        let factor = p99.as_secs_f64() / self.undisturbed.as_secs_f64();
        let site = self.sites[lane].clone();
        self.traffic.come_back(lane, &site).await;
        assert_eq!(self.traffic.refused(), Vec::<String>::new(), "{name}");
        println!(
            "{name}: right after {noticed:?} ms; p99 of the others {:.1} ms, undisturbed {:.1} ms, factor {factor:.2}; {} ms in all",
            millis(p99),
            millis(self.undisturbed),
            begun.elapsed().as_millis()
        );
        assert!(p99 < FAR_TOO_LONG, "{name}: {p99:?}");
    }

    /// Ends everything; the host must end well, and no secret may stand in a log.
    pub(crate) async fn close(self) {
        let begun = Instant::now();
        self.traffic.stop().await;
        println!("members gone after {} ms", begun.elapsed().as_millis());
        self.host.stop().await;
        println!("host stopped after {} ms", begun.elapsed().as_millis());
        secrets::assert_none_in_logs(self.dir.path(), self.mesh.dir());
        println!("logs read after {} ms", begun.elapsed().as_millis());
    }
}

/// The lane that goes bad.
pub(crate) struct Bad<'a> {
    pub(crate) ground: &'a mut Ground,
    pub(crate) lane: usize,
    pub(crate) space: Space,
    marked: Instant,
    noticed: Vec<u128>,
}

impl Bad<'_> {
    pub(crate) fn site(&self) -> &Site {
        &self.ground.sites[self.lane]
    }

    /// One of its credential files.
    pub(crate) fn credential(&self, name: &str) -> PathBuf {
        self.site().credentials.join(name)
    }

    /// Everything in its account.
    pub(crate) async fn power(&self) -> Power {
        Power::over(&self.ground.mesh, self.site()).await
    }

    /// From here on it is bad: what is [`Bad::expect`]ed counts from now.
    pub(crate) fn mark(&mut self) {
        self.marked = Instant::now();
    }

    /// How long ago that was.
    pub(crate) fn since_mark_ms(&self) -> u128 {
        self.marked.elapsed().as_millis()
    }

    /// Waits until the lane is in this state, for a reason that ends in this code and says `why`.
    pub(crate) async fn expect(&mut self, state: LaneState, code: &str, why: &str) -> LaneStatus {
        let is = |lane: &LaneStatus| {
            let fault = lane.last_fault.as_ref();
            lane.state == state
                && lane.reason.contains(&format!("[{code}]"))
                && lane.reason.contains(why)
                && fault.is_some_and(|fault| fault.code == code)
        };
        let lane = self.ground.host.wait_lane(&self.space, &format!("{state} with {code}: {why}"), is).await;
        self.noticed.push(self.since_mark_ms());
        lane
    }

    /// Waits until its last fault is a new one with this code that says `why`.
    pub(crate) async fn fault(&mut self, code: &str, why: &str, before: &LaneStatus) -> LaneStatus {
        let is = |lane: &LaneStatus| {
            let fault = lane.last_fault.as_ref().filter(|_| lane.last_fault != before.last_fault);
            fault.is_some_and(|fault| fault.code == code && fault.text.contains(why))
        };
        let lane = self.ground.host.wait_lane(&self.space, &format!("{code}: {why}"), is).await;
        self.noticed.push(self.since_mark_ms());
        lane
    }

    /// Waits until it serves in a later run than the one with this generation.
    pub(crate) async fn serves_after(&self, generation: u64) -> LaneStatus {
        let is = |lane: &LaneStatus| lane.state == LaneState::Serving && lane.generation > generation;
        self.ground.host.wait_lane(&self.space, "serves in a later run", is).await
    }

    /// The lane as it is.
    pub(crate) fn now(&self) -> LaneStatus {
        self.ground.host.lane(&self.space)
    }
}

/// Looks at every other lane all the time.
struct Neighbours {
    task: JoinHandle<()>,
    seen: Arc<Mutex<BTreeMap<Space, String>>>,
}

impl Neighbours {
    fn watch(path: &Path, before: &HostStatus, bad: &Space) -> Self {
        let seen = Arc::<Mutex<BTreeMap<Space, String>>>::default();
        let (path, bad, before, noted) = (path.to_owned(), bad.clone(), before.clone(), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            let mut pace = interval(LOOK_EVERY);
            loop {
                pace.tick().await;
                let Some(now) = read_status(&path) else { continue };
                for was in before.lanes.iter().filter(|lane| lane.space != bad) {
                    let is = now.lane(&was.space);
                    if !is.is_some_and(|is| is_untouched(was, is)) {
                        noted.lock().unwrap().entry(was.space.clone()).or_insert_with(|| format!("{is:#?}"));
                    }
                }
            }
        });
        Self { task, seen }
    }

    /// What was seen that must not be.
    async fn stop(self) -> BTreeMap<Space, String> {
        self.task.abort();
        let _ = self.task.await;
        self.seen.lock().unwrap().clone()
    }
}

/// Serving all the time, in the same run, on the same connection.
fn is_untouched(was: &LaneStatus, is: &LaneStatus) -> bool {
    is.state == LaneState::Serving
        && is.generation == was.generation
        && is.incarnation == was.incarnation
        && is.connections == 1
        && is.last_fault == was.last_fault
        && is.lease_revision >= was.lease_revision
}

fn renewed(before: &HostStatus, now: &HostStatus, bad: &Space) -> bool {
    let others = before.lanes.iter().filter(|lane| &lane.space != bad);
    others.into_iter().all(|was| now.lane(&was.space).is_some_and(|is| is.lease_revision > was.lease_revision))
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1000.0
}
