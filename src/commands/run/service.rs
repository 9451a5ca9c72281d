//! What the service manager is told: ready, reloading, stopping, a status line, and that the process is alive.
//!
//! Owns the protocol's messages and their moments. Where no service manager asked to be told, nothing is sent.

use std::{sync::Arc, time::Duration};

use sd_notify::NotifyState;
use tokio::{
    runtime,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::supervisor::{Handle, HostStatus, LaneState, Nudge};

/// The variable with the service manager's socket.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
/// How often the status line is looked at.
const LINE_PAUSE: Duration = Duration::from_secs(1);
/// How much more time a start asks for that is not through, microseconds.
const EXTENSION_US: u32 = 30_000_000;

/// Tells until the process ends.
pub(super) async fn report(handle: Handle, lanes: runtime::Handle, stop: CancellationToken) {
    if std::env::var_os(SOCKET_VARIABLE).is_none() {
        return;
    }
    // Twice as often as needed, so that one beat may be late.
    let watchdog = sd_notify::watchdog_enabled().map(|period| period / 2);
    let mut ticks = interval(watchdog.map_or(LINE_PAUSE, |beat| beat.min(LINE_PAUSE)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut is_ready, mut line, mut beat_at) = (false, String::new(), None::<Instant>);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            _ = ticks.tick() => {}
        }
        let status = handle.status();
        if status.ready && !is_ready {
            is_ready = true;
            tell(&[NotifyState::Ready]);
        } else if !is_ready {
            tell(&[NotifyState::ExtendTimeoutUsec(EXTENSION_US)]);
        }
        let now = line_of(&status);
        if now != line {
            tell(&[NotifyState::Status(&now)]);
            line = now;
        }
        if let Some(beat) = watchdog
            && beat_at.is_none_or(|at| at.elapsed() >= beat)
            && is_alive(&handle, &lanes, beat).await
        {
            beat_at = Some(Instant::now());
            tell(&[NotifyState::Watchdog]);
        }
    }
    tell(&[NotifyState::Stopping, NotifyState::Status("closing every lane")]);
}

/// Reloads as the service manager expects it: it is told when it begins and when it is done.
pub(super) async fn reload(handle: &Handle) {
    // Before the first readiness a reload must not look like one.
    if std::env::var_os(SOCKET_VARIABLE).is_none() || !handle.status().ready {
        return handle.nudge(Nudge::Asked);
    }
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the service manager cannot be told of the reload"),
    }
    handle.reload(false).await;
    tell(&[NotifyState::Ready]);
}

/// True where both the supervisor's loop and the runtime of the lanes get something done.
async fn is_alive(handle: &Handle, lanes: &runtime::Handle, within: Duration) -> bool {
    let both = async {
        let lane_side = lanes.spawn(async {});
        handle.ping().await.is_ok() && lane_side.await.is_ok()
    };
    timeout(within, both).await.unwrap_or(false)
}

fn line_of(status: &Arc<HostStatus>) -> String {
    let counts = LaneState::ALL.iter().map(|state| (state, status.count(*state))).filter(|(_, count)| *count > 0);
    let counts: Vec<String> = counts.map(|(state, count)| format!("{count} {state}")).collect();
    let counts = if counts.is_empty() { "no lanes".to_owned() } else { counts.join(", ") };
    let refused = status.last_reload.as_ref().is_some_and(|reload| !reload.applied);
    let refused = if refused { "; the last manifest was refused" } else { "" };
    format!("{counts}; manifest generation {}{refused}", status.generation)
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager cannot be told");
    }
}

#[cfg(test)]
mod tests {
    use crate::supervisor::Outcome;

    use super::*;

    #[test]
    fn the_line_says_what_matters() {
        let status = Arc::new(HostStatus { generation: 3, ..HostStatus::default() });
        assert_eq!(line_of(&status), "no lanes; manifest generation 3");
        let refused = Some(Outcome::default());
        let status = Arc::new(HostStatus { last_reload: refused, ..HostStatus::default() });
        assert_eq!(line_of(&status), "no lanes; manifest generation 0; the last manifest was refused");
    }
}
