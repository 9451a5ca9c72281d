//! Owns what a member is told at connect and the bounds it keeps. It must not read files or the environment.

use std::path::PathBuf;
use std::time::Duration;

use lanekeeper_wire::{Lifecycle, Role, Space};

use crate::coalesce::DEFAULT_WINDOW;
use crate::creds::Creds;

/// How copies of one post are surfaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Each post once: a durable copy of something already surfaced is acknowledged and dropped.
    #[default]
    Coalesced,
    /// Every copy, live and durable, as it comes; nothing is acknowledged on the caller's behalf.
    Raw,
}

/// What a member needs to connect. Made by [`PeerOptions::new`] and adjusted field by field.
#[derive(Debug, Clone)]
pub struct PeerOptions {
    /// One broker URL, or several separated by commas.
    pub url: String,
    /// The space.
    pub space: Space,
    /// The member's credential; never printed.
    pub creds: Creds,
    /// Who the member is, and in which incarnation.
    pub lifecycle: Lifecycle,
    /// The name others see, used in presence and as the author of posts.
    pub name: String,
    /// The role the member announces.
    pub role: Option<Role>,
    /// How copies are surfaced.
    pub mode: Mode,
    /// Bind the provisioned hand-over consumer and receive durable copies.
    pub receive_durable: bool,
    /// Keep asking for a durable membership that could not be established at join.
    pub retry_durable: bool,
    /// How often presence is refreshed; `None` writes no presence at all. The bucket forgets a key after 6 s.
    pub presence_interval: Option<Duration>,
    /// Posts remembered for coalescing.
    pub coalesce_window: usize,
    /// Messages waiting for the application before receiving pauses.
    pub queue_capacity: usize,
    /// Messages the client buffers for one live subscription before it drops.
    pub live_capacity: usize,
    /// Durable copies asked for in one pull.
    pub pull_batch: usize,
    /// How long a request to the daemon may take.
    pub control_timeout: Duration,
    /// How long a liveness probe waits for its answer.
    pub probe_timeout: Duration,
    /// How long the broker may take to confirm a stored post or an acknowledgement.
    pub ack_timeout: Duration,
    /// Dials without success, over all URLs, after which the member counts as cut off.
    pub max_reconnects: usize,
    /// Shortest and longest wait between two dials; the wait is drawn between them.
    pub reconnect_delay: (Duration, Duration),
    /// Refuse a broker without TLS.
    pub require_tls: bool,
    /// A certificate authority to trust besides the system's.
    pub root_ca: Option<PathBuf>,
}

impl PeerOptions {
    /// Options with the usual bounds.
    pub fn new(
        url: impl Into<String>,
        space: Space,
        creds: Creds,
        lifecycle: Lifecycle,
        name: impl Into<String>,
    ) -> Self {
        Self {
            url: url.into(),
            space,
            creds,
            lifecycle,
            name: name.into(),
            role: None,
            mode: Mode::Coalesced,
            receive_durable: true,
            retry_durable: true,
            presence_interval: Some(Duration::from_secs(2)),
            coalesce_window: DEFAULT_WINDOW,
            queue_capacity: 2048,
            live_capacity: 8192,
            pull_batch: 256,
            control_timeout: Duration::from_secs(5),
            probe_timeout: Duration::from_secs(2),
            ack_timeout: Duration::from_secs(5),
            max_reconnects: 240,
            reconnect_delay: (Duration::from_millis(100), Duration::from_millis(500)),
            require_tls: false,
            root_ca: None,
        }
    }

    /// The same options with a role.
    #[must_use]
    pub fn with_role(mut self, role: Role) -> Self {
        self.role = Some(role);
        self
    }

    /// The same options with every copy surfaced.
    #[must_use]
    pub fn raw(mut self) -> Self {
        self.mode = Mode::Raw;
        self
    }
}
