//! The life of one lane: open, serve, redial, close.
//!
//! Owns the lease and what is carried from one connection to the next. Ends only when asked to stop or on a fault that a
//! fresh connection cannot mend; in both cases every task is joined, the lease is released by its revision and every
//! client handle is dropped. It must not decide whether to open again: whoever holds the lane does.

use std::{sync::Arc, time::Duration};

use rand::RngExt as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::{
    config::{LaneConfig, Standby},
    credential_files,
    fan_out::Judged,
    fault::{Fault, FaultKind},
    lease::{Identity, Lease},
    link::Link,
    permit::{Grantor, permit},
    session::{Kept, Session},
    verify,
    watch::{self, Shown, State, Watch},
};

/// The pause before a redial: at least, and at most. Wide, so that the lanes of a host do not all dial in the same moment.
const REDIAL_PAUSE_MS: std::ops::Range<u64> = 50..1_500;
/// How long closing may flush.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);

/// A lane that is ready to run.
pub struct Lane {
    config: LaneConfig,
    shown: Shown,
}

impl Lane {
    /// A lane and what others may see of it. Nothing happens before [`Lane::run`].
    #[must_use]
    pub fn new(config: LaneConfig) -> (Self, Watch) {
        let (shown, watch) = watch::pair(config.limits);
        (Self { config, shown }, watch)
    }

    /// Runs until `stop` or a fault. The stop is honoured at every point, also before and while the lease is claimed.
    ///
    /// # Errors
    /// The fault that refused or ended the lane, with its space.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Fault> {
        let space = self.config.space.clone();
        let span = tracing::info_span!("lane", %space);
        async {
            let result = Box::pin(self.live(&stop)).await.map_err(|kind| Fault::new(&space, kind));
            self.shown.details.send_modify(|details| {
                details.connections = 0;
                details.connected_to = None;
                details.lease_revision = None;
            });
            self.shown.state.send_replace(State::Closed);
            result
        }
        .instrument(span)
        .await
    }

    async fn live(&self, stop: &CancellationToken) -> Result<(), FaultKind> {
        let Some(credential) = until(stop, credential_files::read(&self.config)).await? else { return Ok(()) };
        let me = Identity {
            holder: credential.holder().to_owned(),
            incarnation: format!("{:032x}", rand::random::<u128>()),
        };
        self.shown.details.send_modify(|details| details.incarnation = Some(me.incarnation.clone()));
        let (grantor, permit) = permit();
        let mut kept = Kept {
            space: self.config.space.clone(),
            limits: self.shown.limits.clone(),
            permit,
            judged: Arc::new(Judged::default()),
            recovered: false,
            posts: Vec::new(),
            entries: Vec::new(),
            fan_out: Arc::clone(&self.shown.fan_out),
            reader: Arc::clone(&self.shown.reader),
            settled_posts: Arc::default(),
            settled_entries: Arc::default(),
            writer: me.holder.clone(),
        };
        let mut life = Life { lane: self, me, grantor: Some(grantor), lease: None };
        let mut lost_at: Option<Instant> = None;
        loop {
            let fault = match life.serve(&mut kept, stop, &mut lost_at).await {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            };
            if stop.is_cancelled() {
                return Ok(());
            }
            self.shown.details.send_modify(|details| details.connections = 0);
            // Only a lane that was connected keeps trying: at the start, the first fault is the answer.
            let window = self.shown.limits.borrow().broker_window;
            if !lost_at.is_some_and(|at| fault.is_of_the_link() && at.elapsed() < window) {
                return Err(fault);
            }
            self.shown.state.send_replace(State::Redialling);
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

/// Connects with the lane's credentials on a throw-away connection and verifies its streams; touches no lease.
///
/// # Errors
/// What would refuse the lane.
pub async fn preflight(config: &LaneConfig) -> Result<(), Fault> {
    let check = async {
        let credential = credential_files::read(config).await?;
        let link = Link::dial(&config.servers, &credential, &format!("lanekeeper preflight {}", config.space)).await?;
        verify::streams(&link, &config.space).await.map(drop)
    };
    check.await.map_err(|kind| Fault::new(&config.space, kind))
}

/// A refusal that met the end of the connection is that end: a request on a closing connection fails in many words.
fn of_link(link: &Link, fault: FaultKind) -> FaultKind {
    link.look();
    let met_the_end = link.over().is_cancelled();
    let any_words = matches!(fault, FaultKind::Refused { .. } | FaultKind::ConsumerGone { .. });
    if met_the_end && any_words { FaultKind::Disconnected } else { fault }
}

/// The outcome of `work`, or `None` after a stop.
async fn until<T>(
    stop: &CancellationToken,
    work: impl Future<Output = Result<T, FaultKind>>,
) -> Result<Option<T>, FaultKind> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Ok(None),
        result = work => result.map(Some),
    }
}

struct Life<'a> {
    lane: &'a Lane,
    me: Identity,
    grantor: Option<Grantor>,
    lease: Option<Box<Lease>>,
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
        let Some(credential) = until(stop, credential_files::read(config)).await? else { return Ok(()) };
        let name = format!("lanekeeper {}", config.space);
        let dialled = until(stop, Link::dial(&config.servers, &credential, &name)).await?;
        let Some(link) = dialled else { return Ok(()) };
        self.lane.shown.details.send_modify(|details| {
            details.connections = 1;
            details.connected_to = Some(link.server());
            details.credential_expires_at_s = credential.expires_at();
            details.credential_fingerprint = Some(credential.fingerprint());
        });
        let facts = match until(stop, verify::streams(&link, &config.space)).await {
            Ok(None) => return Ok(()),
            Ok(Some(facts)) => Ok(facts),
            Err(fault) => Err(fault),
        };
        let facts = match facts {
            Ok(facts) => facts,
            Err(fault) => {
                let fault = of_link(&link, fault);
                let lease = self.lease.take();
                self.end(&link, lease, kept, &fault).await;
                return Err(fault);
            }
        };
        let mut lease = match (self.lease.take(), self.grantor.take()) {
            (Some(lease), _) => lease,
            (None, Some(grantor)) => Box::new(Lease::new(
                &config.space,
                self.me.clone(),
                facts.lease_ttl,
                grantor,
                self.lane.shown.details.clone(),
            )),
            (None, None) => {
                let reason = "its task was lost".to_owned();
                return Err(FaultKind::PartEnded { part: "lease", reason });
            }
        };
        // From the claim on, nothing is abandoned half way: a stop is honoured after each step, and then releases.
        if let Err(fault) = self.claim(&link, &mut lease, stop, lost_at).await {
            self.lease = Some(lease);
            return Err(of_link(&link, fault));
        }
        if stop.is_cancelled() {
            self.finish(&link, lease).await;
            return Ok(());
        }
        let session = match Session::open(&link, &facts, kept, lease).await {
            Ok(session) => session,
            Err((lease, fault)) => {
                let fault = of_link(&link, fault);
                self.end(&link, Some(lease), kept, &fault).await;
                return Err(fault);
            }
        };
        self.serve_session(session, &link, kept, stop, lost_at).await
    }

    /// Runs an open session to its end.
    async fn serve_session(
        &mut self,
        session: Session,
        link: &Link,
        kept: &mut Kept,
        stop: &CancellationToken,
        lost_at: &mut Option<Instant>,
    ) -> Result<(), FaultKind> {
        *lost_at = None;
        self.lane.shown.details.send_modify(|details| details.lease_holder = None);
        self.lane.shown.state.send_replace(State::Serving);
        tracing::info!("serving");
        let closed = session.run(kept, stop).await;
        *lost_at = Some(Instant::now());
        match closed.fault.map(|fault| of_link(link, fault)) {
            Some(fault) if !stop.is_cancelled() => {
                self.end(link, closed.lease, kept, &fault).await;
                Err(fault)
            }
            Some(_) | None => {
                self.lane.shown.state.send_replace(State::Closing);
                if let Some(lease) = closed.lease {
                    self.finish(link, lease).await;
                }
                Ok(())
            }
        }
    }

    /// Claims the lease, or waits for it as a standby. Returns without it only after a stop.
    async fn claim(
        &mut self,
        link: &Link,
        lease: &mut Lease,
        stop: &CancellationToken,
        lost_at: &mut Option<Instant>,
    ) -> Result<(), FaultKind> {
        if let Standby::Wait { head_start } = self.lane.config.standby
            && until(stop, lease.give_way(link, head_start)).await?.is_none()
        {
            return Ok(());
        }
        loop {
            let fault = match lease.claim(link).await {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            };
            let (FaultKind::LeaseHeld { holder, incarnation, .. }, Standby::Wait { head_start }) =
                (&fault, self.lane.config.standby)
            else {
                return Err(fault);
            };
            tracing::info!(%holder, %incarnation, "the lease is held elsewhere, standing by");
            self.lane.shown.details.send_modify(|details| details.lease_holder = Some(holder.clone()));
            self.lane.shown.state.send_replace(State::Standby);
            *lost_at = Some(Instant::now());
            if until(stop, lease.wait_free(link, head_start)).await?.is_none() {
                return Ok(());
            }
            *lost_at = None;
        }
    }

    /// After a fault: a lease that a fresh connection will resume is kept quiet, any other is released.
    async fn end(&mut self, link: &Link, lease: Option<Box<Lease>>, kept: &mut Kept, fault: &FaultKind) {
        if !fault.is_of_the_link() {
            self.lane.shown.state.send_replace(State::Closing);
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
