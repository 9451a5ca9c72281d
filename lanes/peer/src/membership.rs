//! Owns the channels a member has joined: the live subscription and the durable membership of each, in that order, and
//! the retry that establishes the latter when a daemon appears. It must not report more than was established.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lanekeeper_wire::{Channel, ChannelPattern, MembershipItem, names, subject};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::backoff::Backoff;
use crate::control::{ControlError, data, join_args, leave_args};
use crate::join::{JoinState, Joined, Left, Shortfall, judge};
use crate::live::LiveTask;
use crate::peer::{Core, Peer};

/// The broker's refusal of a subscription is reported beside the answers, not with them. It was sent before the answer
/// to the request that followed, so this only covers the way through the client.
const REFUSAL_GRACE: Duration = Duration::from_millis(25);
/// First cap of a retry, before a reason is known.
const RETRY_CAP: Duration = Duration::from_secs(2);

/// Why a channel was not joined at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The broker refused the live subscription.
    #[error("broker refused the subscription {subject}: the credential may not read this channel")]
    Denied {
        /// The refused subject.
        subject: String,
    },
    /// The connection has ended.
    #[error("channel {channel} was not joined: the connection has ended")]
    Ended {
        /// The channel.
        channel: String,
    },
}

/// All channels of one member.
#[derive(Debug, Default)]
pub(crate) struct Memberships {
    table: Mutex<HashMap<ChannelPattern, Arc<Membership>>>,
    /// Wakes the retry.
    short: Notify,
}

/// One joined channel.
#[derive(Debug)]
pub(crate) struct Membership {
    pattern: ChannelPattern,
    /// Held over each request about this channel, so that a late join can never follow a leave.
    turn: tokio::sync::Mutex<()>,
    live: AtomicBool,
    /// Joined, and not only subscribed to.
    joined: AtomicBool,
    left: AtomicBool,
    stop_live: CancellationToken,
    state: watch::Sender<JoinState>,
    retry: Mutex<Retry>,
}

#[derive(Debug)]
struct Retry {
    backoff: Backoff,
    due: Instant,
}

impl Memberships {
    fn lock(&self) -> MutexGuard<'_, HashMap<ChannelPattern, Arc<Membership>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, pattern: &ChannelPattern) -> Option<Arc<Membership>> {
        self.lock().get(pattern).cloned()
    }

    fn get_or_new(&self, pattern: &ChannelPattern, stop: &CancellationToken) -> Arc<Membership> {
        let mut table = self.lock();
        Arc::clone(table.entry(pattern.clone()).or_insert_with(|| Arc::new(Membership::new(pattern, stop))))
    }

    /// Forgets `membership`, unless the channel was joined anew meanwhile.
    fn remove(&self, membership: &Arc<Membership>) {
        let mut table = self.lock();
        if table.get(&membership.pattern).is_some_and(|held| Arc::ptr_eq(held, membership)) {
            table.remove(&membership.pattern);
        }
    }

    fn short_of_durable(&self) -> Vec<Arc<Membership>> {
        self.lock().values().filter(|membership| membership.is_short()).cloned().collect()
    }
}

impl Membership {
    fn new(pattern: &ChannelPattern, stop: &CancellationToken) -> Self {
        Self {
            pattern: pattern.clone(),
            turn: tokio::sync::Mutex::new(()),
            live: AtomicBool::new(false),
            joined: AtomicBool::new(false),
            left: AtomicBool::new(false),
            stop_live: stop.child_token(),
            state: watch::Sender::new(JoinState::LiveOnly { reason: Shortfall::NotAsked }),
            retry: Mutex::new(Retry { backoff: Backoff::new(RETRY_CAP), due: Instant::now() }),
        }
    }

    fn is_short(&self) -> bool {
        let set = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        !set(&self.left) && set(&self.live) && set(&self.joined) && !self.state.borrow().is_durable()
    }

    fn retry(&self) -> MutexGuard<'_, Retry> {
        self.retry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what the daemon said, and plans the next attempt if it fell short.
    fn settle(&self, state: JoinState) {
        {
            let mut retry = self.retry();
            match &state {
                JoinState::Durable { .. } => retry.backoff.reset(),
                JoinState::LiveOnly { reason } => {
                    retry.backoff.set_cap(reason.retry_cap());
                    retry.due = Instant::now() + retry.backoff.next_delay();
                }
            }
        }
        self.state.send_replace(state);
    }

    fn generation(&self) -> Option<u64> {
        match &*self.state.borrow() {
            JoinState::Durable { generation, .. } => Some(*generation),
            JoinState::LiveOnly { .. } => None,
        }
    }
}

impl Core {
    /// Asks for a durable membership; the caller holds the turn.
    async fn ask_durable(&self, membership: &Membership) -> JoinState {
        let outcome = self.control("durableJoin", join_args(&membership.pattern)).await;
        judge(self.options.lifecycle.uid(), outcome)
    }

    /// One attempt of the retry.
    async fn retry_durable(&self, membership: &Membership) {
        let _turn = membership.turn.lock().await;
        if !membership.is_short() {
            return;
        }
        let state = self.ask_durable(membership).await;
        if state.is_durable() {
            info!(member = %self.options.lifecycle, channel = %membership.pattern, "{state}");
        }
        membership.settle(state);
    }

    fn report_shortfall(&self, pattern: &ChannelPattern, reason: &Shortfall) {
        let lifecycle = &self.options.lifecycle;
        warn!(
            member = %lifecycle, channel = %pattern, space = %self.options.space,
            durable = %names::dlv_durable(lifecycle), %reason,
            "joined live, backstop unestablished: posts made while this member is away will not reach it"
        );
    }
}

/// Keeps asking for the durable memberships that fell short, until the member is closed.
pub(crate) async fn keep_durable(core: Arc<Core>) {
    let mut epoch = core.link.epoch.clone();
    epoch.mark_unchanged();
    loop {
        let due = core.memberships.short_of_durable().iter().map(|membership| membership.retry().due).min();
        let wait = async {
            match due {
                Some(due) => tokio::time::sleep(due.saturating_duration_since(Instant::now())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = core.stop.cancelled() => return,
            () = core.link.ended.cancelled() => return,
            () = core.memberships.short.notified() => continue,
            changed = epoch.changed() => {
                if changed.is_err() {
                    return;
                }
                // Another broker may have another daemon; the delay's jitter still spreads the members.
                for membership in core.memberships.short_of_durable() {
                    let mut retry = membership.retry();
                    retry.backoff.reset();
                    retry.due = Instant::now() + retry.backoff.next_delay();
                }
                continue;
            }
            () = wait => {}
        }
        for membership in core.memberships.short_of_durable() {
            if membership.retry().due > Instant::now() {
                continue;
            }
            tokio::select! {
                biased;
                () = core.stop.cancelled() => return,
                () = core.retry_durable(&membership) => {}
            }
        }
    }
}

impl Peer {
    /// Joins a channel: first the live subscription, then the durable membership. Joining again asks again.
    ///
    /// The channel is joined also when the durable part falls short; see [`JoinState`]. It is then asked for again in
    /// the background, unless the options say otherwise.
    ///
    /// # Errors
    /// [`JoinError`] if there is no live subscription.
    pub async fn join(&self, channel: &Channel) -> Result<Joined, JoinError> {
        self.join_pattern(&channel.to_pattern()).await
    }

    /// Joins a channel or a family of channels, such as `team.>`.
    ///
    /// # Errors
    /// As [`Peer::join`].
    pub async fn join_pattern(&self, pattern: &ChannelPattern) -> Result<Joined, JoinError> {
        let core = self.core();
        let mark = core.link.violations.mark();
        let membership = self.subscribed(pattern).await?;
        let _turn = membership.turn.lock().await;
        membership.joined.store(true, Ordering::Release);
        let state = core.ask_durable(&membership).await;
        let filter = subject::chat_channel_filter(self.space(), pattern);
        let refusal = core.link.violations.wait_since(mark, |violation| violation.subject == filter);
        if let Ok(refusal) = tokio::time::timeout(REFUSAL_GRACE, refusal).await {
            membership.left.store(true, Ordering::Release);
            membership.stop_live.cancel();
            core.memberships.remove(&membership);
            if let JoinState::Durable { generation, .. } = state {
                // Without the live half it is not joined, so the durable half must not stay behind.
                let _ = self.leave_generation(pattern, generation).await;
            }
            return Err(JoinError::Denied { subject: refusal.subject });
        }
        membership.settle(state.clone());
        if let JoinState::LiveOnly { reason } = &state {
            core.report_shortfall(pattern, reason);
            core.memberships.short.notify_one();
        }
        Ok(Joined { state })
    }

    /// Opens only the live subscription: the member gets what is posted while it is connected.
    ///
    /// # Errors
    /// As [`Peer::join`], except that a refusal by the broker is only recorded in [`Peer::violations`].
    pub async fn subscribe(&self, pattern: &ChannelPattern) -> Result<(), JoinError> {
        self.subscribed(pattern).await.map(drop)
    }

    /// The membership of a channel with its live subscription open, never one that is being left.
    async fn subscribed(&self, pattern: &ChannelPattern) -> Result<Arc<Membership>, JoinError> {
        let core = self.core();
        loop {
            let membership = core.memberships.get_or_new(pattern, &core.stop);
            let turn = membership.turn.lock().await;
            if membership.left.load(Ordering::Acquire) {
                core.memberships.remove(&membership);
                continue;
            }
            let subscribed = self.subscribe_live(&membership).await;
            drop(turn);
            if let Err(fault) = subscribed {
                core.memberships.remove(&membership);
                return Err(fault);
            }
            return Ok(membership);
        }
    }

    /// How the member is joined to a channel; `None` if it is not.
    pub fn join_state(&self, pattern: &ChannelPattern) -> Option<JoinState> {
        let membership = self.core().memberships.get(pattern)?;
        let state = membership.state.borrow().clone();
        Some(state)
    }

    /// Asks for the durable membership of a joined channel now, and again and again until it is established or
    /// `limit` has passed; the state then, or `None` if the channel is not joined.
    pub async fn ensure_durable(&self, pattern: &ChannelPattern, limit: Duration) -> Option<JoinState> {
        let core = self.core();
        let membership = core.memberships.get(pattern)?;
        let mut state = membership.state.subscribe();
        let establish = async {
            if core.options.retry_durable {
                core.retry_durable(&membership).await;
                core.memberships.short.notify_one();
                let _ = state.wait_for(JoinState::is_durable).await;
            } else {
                while membership.is_short() {
                    core.retry_durable(&membership).await;
                    let due = membership.retry().due;
                    tokio::time::sleep(due.saturating_duration_since(Instant::now())).await;
                }
            }
        };
        let _ = tokio::time::timeout(limit, establish).await.is_ok();
        self.join_state(pattern)
    }

    /// Leaves a channel: closes the live subscription and ends the durable membership, also one whose generation this
    /// member does not know.
    pub async fn leave(&self, channel: &Channel) -> Left {
        self.leave_pattern(&channel.to_pattern()).await
    }

    /// Leaves a channel or a family, by the pattern it was joined with.
    pub async fn leave_pattern(&self, pattern: &ChannelPattern) -> Left {
        let core = self.core();
        let membership = core.memberships.get_or_new(pattern, &core.stop);
        membership.left.store(true, Ordering::Release);
        membership.stop_live.cancel();
        let _turn = membership.turn.lock().await;
        let known = membership.generation();
        let left = self.leave_durable(pattern, known).await;
        core.memberships.remove(&membership);
        left
    }

    async fn leave_durable(&self, pattern: &ChannelPattern, known: Option<u64>) -> Left {
        if let Some(generation) = known {
            match self.leave_generation(pattern, generation).await {
                Ok(left) => return left,
                // A refusal may mean that the row has moved on: look at what is there before giving up.
                Err(ControlError::Refused { .. }) => {}
                Err(reason @ (ControlError::Unanswered(_) | ControlError::Malformed { .. })) => {
                    return Left::Unconfirmed { reason };
                }
            }
        }
        let rows: Vec<MembershipItem> = match self.memberships().await {
            Ok(rows) => rows,
            Err(reason) => return Left::Unconfirmed { reason },
        };
        let Some(row) = rows.into_iter().find(|row| row.channel == *pattern) else { return Left::WasNotDurable };
        match self.leave_generation(pattern, row.generation).await {
            Ok(left) => left,
            Err(reason) => Left::Unconfirmed { reason },
        }
    }

    async fn leave_generation(&self, pattern: &ChannelPattern, generation: u64) -> Result<Left, ControlError> {
        let args = leave_args(pattern, generation, self.lifecycle().uid());
        let reply = self.control("durableLeave", args).await?;
        // The data says only how, and a daemon may answer without any.
        if reply.ok && reply.data.is_none() {
            return Ok(Left::Ended { generation });
        }
        let answer: Value = data("durableLeave", reply)?;
        let already = answer.get("alreadyLeft").and_then(Value::as_bool).unwrap_or(false);
        Ok(if already { Left::WasNotDurable } else { Left::Ended { generation } })
    }

    /// Opens the live subscription of a membership unless it is open; the caller holds the turn.
    async fn subscribe_live(&self, membership: &Membership) -> Result<(), JoinError> {
        if membership.live.load(Ordering::Acquire) {
            return Ok(());
        }
        let ended = || JoinError::Ended { channel: membership.pattern.to_string() };
        let link = self.link();
        let filter = subject::chat_channel_filter(self.space(), &membership.pattern);
        let messages = link.client.subscribe(filter).await.map_err(|_| ended())?;
        let task = LiveTask {
            space: self.space().clone(),
            own: self.principal().clone(),
            pattern: membership.pattern.clone(),
            messages,
            queue: self.queue().ok_or_else(ended)?,
            counters: Arc::clone(&link.counters),
            stop: membership.stop_live.clone(),
        };
        self.tasks().spawn(task.run());
        membership.live.store(true, Ordering::Release);
        Ok(())
    }
}
