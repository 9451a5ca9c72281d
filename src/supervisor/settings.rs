//! The host's limits as the supervisor uses them.
//!
//! Owns the translation from the configuration and the bounds that are not configurable.

use std::{path::PathBuf, sync::Arc, time::Duration};

use super::backoff::Curve;
use crate::config::HostConfig;

/// How long after the last file event the manifest is read, so that a half-written one is seldom seen.
const DEBOUNCE: Duration = Duration::from_millis(150);
/// How long a stream of file events may put the reading off.
const DEBOUNCE_CAP: Duration = Duration::from_secs(1);
/// How long an aborted task may take until its slot is parked as wedged.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after another daemon took the lease.
const LEASE_PAUSE: Duration = Duration::from_secs(2);

/// What the supervisor is started with.
#[derive(Debug, Clone)]
pub struct SupervisorConfig {
    /// The host's configuration.
    pub host: HostConfig,
    /// The manifest, a file or a directory.
    pub manifest_path: PathBuf,
    /// Where lanes run. Their load must never starve what watches over them, so it is another runtime than the
    /// supervisor's own.
    pub lanes: tokio::runtime::Handle,
    /// Whether file changes are watched; without it they are noticed by polling.
    pub is_watching: bool,
}

/// The bounds the loop works with.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) host: Arc<HostConfig>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) is_watching: bool,
    pub(crate) opens_at_once: usize,
    pub(crate) open_timeout: Duration,
    pub(crate) close_timeout: Duration,
    pub(crate) abort_timeout: Duration,
    pub(crate) curve: Curve,
    pub(crate) poll: Duration,
    pub(crate) debounce: Duration,
    pub(crate) debounce_cap: Duration,
    pub(crate) head_start: Duration,
}

impl Settings {
    pub(crate) fn new(config: &SupervisorConfig) -> Self {
        let limits = &config.host.limits;
        Self {
            host: Arc::new(config.host.clone()),
            manifest_path: config.manifest_path.clone(),
            is_watching: config.is_watching,
            opens_at_once: limits.opens_at_once.max(1),
            open_timeout: Duration::from_millis(limits.open_timeout_ms),
            close_timeout: Duration::from_millis(limits.close_timeout_ms),
            abort_timeout: ABORT_TIMEOUT,
            curve: Curve {
                first: Duration::from_millis(limits.backoff_first_ms),
                cap: Duration::from_millis(limits.backoff_cap_ms),
                settle: Duration::from_millis(limits.settle_ms),
                slow: Duration::from_millis(limits.slow_pause_ms),
                lease: LEASE_PAUSE,
            },
            poll: Duration::from_millis(limits.poll_ms),
            debounce: DEBOUNCE,
            debounce_cap: DEBOUNCE_CAP,
            head_start: Duration::from_millis(limits.head_start_ms),
        }
    }

    /// The longest an orderly stop of everything can take.
    pub(crate) fn stop_bound(&self) -> Duration {
        self.close_timeout + self.abort_timeout + Duration::from_secs(1)
    }
}
