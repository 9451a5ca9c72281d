//! The life of one lane: open, serve, redial, close.
//!
//! Owns the lease and what is carried from one connection to the next. Ends only when asked to stop or on a fault that a
//! fresh connection cannot mend; in both cases every task is joined, the lease is released by its revision and every
//! client handle is dropped. It must not decide whether to open again: whoever holds the lane does.

use std::{path::PathBuf, sync::Arc, time::Duration};

use lanekeeper_wire::Space;
use rand::RngExt as _;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    admission,
    fan_out::Judged,
    fault::{Fault, FaultKind},
    lease::{Identity, Lease},
    link::Link,
    permit::{Grantor, Permit, permit},
    session::{Kept, Session},
    stage::Counters,
    verify,
};

/// The pause before a redial: at least, and at most.
const REDIAL_PAUSE_MS: std::ops::Range<u64> = 50..400;
/// How long closing may flush.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

/// What a lane is opened with.
#[derive(Debug, Clone)]
pub struct LaneConfig {
    /// The space.
    pub space: Space,
    /// The brokers, tried in order.
    pub servers: Vec<async_nats::ServerAddr>,
    /// The directory with the lane's credential files.
    pub credentials: PathBuf,
    /// The limits.
    pub limits: Limits,
}

/// What bounds a lane.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The ack wait of the durables, where this lane creates them.
    pub ack_wait: Duration,
    /// How long a lane that has served tries to reach its broker again before it gives up its connection's worth of
    /// work and ends with a fault.
    pub broker_window: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { ack_wait: Duration::from_secs(60), broker_window: Duration::from_secs(30) }
    }
}

/// Where a lane is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Reading, connecting, verifying, claiming, binding.
    Opening,
    /// Lease held and ready, everything bound.
    Serving,
    /// The connection ended; trying to reach the broker again.
    Redialling,
    /// Stopping and handing back.
    Closing,
    /// Every task joined, every handle dropped.
    Closed,
}

/// What others may see of a lane.
#[derive(Debug, Clone)]
pub struct Watch {
    /// The state.
    pub state: watch::Receiver<State>,
    /// What fan-out did.
    pub fan_out: Arc<Counters>,
    /// What the reader did.
    pub reader: Arc<Counters>,
}

/// A lane that is ready to run.
pub struct Lane {
    config: LaneConfig,
    state: watch::Sender<State>,
    fan_out: Arc<Counters>,
    reader: Arc<Counters>,
}

impl Lane {
    /// A lane and what others may see of it. Nothing happens before [`Lane::run`].
    #[must_use]
    pub fn new(config: LaneConfig) -> (Self, Watch) {
        let (state, seen) = watch::channel(State::Opening);
        let (fan_out, reader) = (Arc::<Counters>::default(), Arc::<Counters>::default());
        let watch = Watch { state: seen, fan_out: Arc::clone(&fan_out), reader: Arc::clone(&reader) };
        (Self { config, state, fan_out, reader }, watch)
    }

    /// Runs until `stop` or a fault. The stop is honoured at every point, also before and while the lease is claimed.
    ///
    /// # Errors
    /// The fault that refused or ended the lane, with its space.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Fault> {
        let space = self.config.space.clone();
        let state = self.state.clone();
        let result = self.live(&stop).await.map_err(|kind| Fault::new(&space, kind));
        state.send_replace(State::Closed);
        result
    }

    async fn live(self, stop: &CancellationToken) -> Result<(), FaultKind> {
        let credential = admission::admit(&self.config.credentials, &self.config.space)?;
        let me = Identity {
            holder: credential.holder().to_owned(),
            incarnation: format!("{:032x}", rand::random::<u128>()),
        };
        let (grantor, permit) = permit();
        let mut kept = Kept {
            space: self.config.space.clone(),
            ack_wait: self.config.limits.ack_wait,
            permit: permit.clone(),
            judged: Arc::new(Judged::default()),
            recovered: false,
            posts: Vec::new(),
            entries: Vec::new(),
            fan_out: Arc::clone(&self.fan_out),
            reader: Arc::clone(&self.reader),
            settled_posts: Arc::default(),
            settled_entries: Arc::default(),
            writer: me.holder.clone(),
        };
        let mut life = Life { lane: &self, me, grantor: Some(grantor), lease: None, permit };
        let mut lost_at: Option<Instant> = None;
        loop {
            let fault = match life.serve(&mut kept, stop, &mut lost_at).await {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            };
            if stop.is_cancelled() {
                return Ok(());
            }
            // Only a lane that has served keeps trying: at the start, the first fault is the answer.
            let again =
                lost_at.is_some_and(|at| fault.is_of_the_link() && at.elapsed() < self.config.limits.broker_window);
            if !again {
                return Err(fault);
            }
            self.state.send_replace(State::Redialling);
            tracing::warn!(%fault, "connection lost, dialling again");
            let pause = Duration::from_millis(rand::rng().random_range(REDIAL_PAUSE_MS));
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

struct Life<'a> {
    lane: &'a Lane,
    me: Identity,
    grantor: Option<Grantor>,
    lease: Option<Box<Lease>>,
    #[allow(dead_code, reason = "keeps one receiver alive, so that a grant is never sent into the void")]
    permit: Permit,
}

impl Life<'_> {
    /// One connection's worth: dial, verify, claim, bind, serve, end. `Ok` after a stop.
    async fn serve(
        &mut self,
        kept: &mut Kept,
        stop: &CancellationToken,
        lost_at: &mut Option<Instant>,
    ) -> Result<(), FaultKind> {
        let config = &self.lane.config;
        // Read again on every dial: a rotated file is used by the next connection.
        let credential = admission::admit(&config.credentials, &config.space)?;
        let name = format!("lanekeeper {}", config.space);
        let link = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            link = Link::dial(&config.servers, &credential, &name) => link?,
        };
        let facts = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            facts = verify::streams(&link, &config.space) => facts,
        };
        let facts = match facts {
            Ok(facts) => facts,
            Err(fault) => {
                let lease = self.lease.take();
                self.end(&link, lease, kept, &fault).await;
                return Err(fault);
            }
        };
        let mut lease = match (self.lease.take(), self.grantor.take()) {
            (Some(lease), _) => lease,
            (None, Some(grantor)) => Box::new(Lease::new(&config.space, self.me.clone(), facts.lease_ttl, grantor)),
            (None, None) => {
                let reason = "its task was lost".to_owned();
                return Err(FaultKind::PartEnded { part: "lease", reason });
            }
        };
        // From the claim on, nothing is abandoned half way: a stop is honoured after each step, and then releases.
        if let Err(fault) = lease.claim(&link).await {
            self.lease = Some(lease);
            return Err(fault);
        }
        if stop.is_cancelled() {
            self.finish(&link, lease).await;
            return Ok(());
        }
        let session = match Session::open(&link, &facts, kept, lease).await {
            Ok(session) => session,
            Err((lease, fault)) => {
                self.end(&link, Some(lease), kept, &fault).await;
                return Err(fault);
            }
        };
        *lost_at = None;
        self.lane.state.send_replace(State::Serving);
        tracing::info!("serving");
        let closed = session.run(kept, stop).await;
        *lost_at = Some(Instant::now());
        match closed.fault {
            Some(fault) if !stop.is_cancelled() => {
                self.end(&link, closed.lease, kept, &fault).await;
                Err(fault)
            }
            Some(_) | None => {
                self.lane.state.send_replace(State::Closing);
                if let Some(lease) = closed.lease {
                    self.finish(&link, lease).await;
                }
                Ok(())
            }
        }
    }

    /// After a fault: a lease that a fresh connection will resume is kept quiet, any other is released.
    async fn end(&mut self, link: &Link, lease: Option<Box<Lease>>, kept: &mut Kept, fault: &FaultKind) {
        if !fault.is_of_the_link() {
            self.lane.state.send_replace(State::Closing);
            kept.hand_back(link).await;
        }
        let Some(mut lease) = lease else { return };
        lease.go_quiet();
        if fault.is_of_the_link() {
            self.lease = Some(lease);
        } else {
            self.finish(link, lease).await;
        }
    }

    /// Releases the lease and has everything that was sent arrive.
    async fn finish(&mut self, link: &Link, mut lease: Box<Lease>) {
        link.flush(FLUSH_PATIENCE).await;
        let released = lease.release(link).await;
        link.flush(FLUSH_PATIENCE).await;
        tracing::info!(released, "closed");
    }
}
