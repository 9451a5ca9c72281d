//! What may stand in `lanekeeper.toml`: keys, kinds, bounds and defaults, for the loader and for the JSON Schema.
//!
//! Owns the file's form. It must not check how values relate to each other or to the world; [`super::validate`] does.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::document::FileType;

/// The host: who it is, which brokers it talks to, where its admin server listens, and its limits. Relative paths start
/// at the directory of this file.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "lanekeeper.toml")]
pub(crate) struct ConfigFile {
    /// The name of this host among `hosts`. Without it, the name the operating system has.
    #[schemars(with = "Option<String>", length(min = 1, max = 253))]
    pub(crate) host: Option<Spanned<String>>,
    /// The names of all hosts that share the manifest, this one among them. They agree on which of them prefers which
    /// space; without it every host prefers every space.
    #[schemars(with = "Option<Vec<HostName>>", length(min = 1))]
    pub(crate) hosts: Option<Spanned<Vec<Spanned<String>>>>,
    /// The brokers of every space that names none, as `nats://host:port`, or `tls://host:port` to insist on TLS. All of
    /// one cluster. Without it, `nats://127.0.0.1:4222`.
    #[schemars(with = "Option<Vec<ServerUrl>>", length(min = 1))]
    pub(crate) servers: Option<Spanned<Vec<Spanned<String>>>>,
    /// The space manifest, a file or a directory of `*.toml`. Without it, `spaces.toml` or else `spaces.d` beside this
    /// file.
    #[schemars(with = "Option<String>", length(min = 1))]
    pub(crate) manifest: Option<Spanned<String>>,
    /// The admin server: health, lanes, reload.
    pub(crate) admin: AdminSection,
    /// What bounds the host.
    pub(crate) limits: HostLimits,
    /// What bounds each lane whose space sets nothing else.
    pub(crate) lane: LaneSection,
}

/// An address such as `nats://host:4222`. Never with a user or password.
#[derive(JsonSchema)]
#[schemars(transparent, inline)]
pub(crate) struct ServerUrl(
    #[allow(dead_code, reason = "only its schema is used")]
    #[schemars(length(min = 1))]
    String,
);

/// The name of a host.
#[derive(JsonSchema)]
#[schemars(transparent, inline)]
pub(crate) struct HostName(
    #[allow(dead_code, reason = "only its schema is used")]
    #[schemars(length(min = 1, max = 253))]
    String,
);

impl FileType for ConfigFile {
    const RESERVED: &'static [(&'static str, &'static str)] = &[
        ("telemetry", "remove the section"),
        ("tls", "remove the section and write the servers as tls://host:port; SSL_CERT_FILE names a CA of your own"),
    ];
}

/// The admin server: health, lanes, reload.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AdminSection {
    /// The address and port it listens on. Without it, `127.0.0.1:8470`. Beyond loopback only with `token_file`.
    #[schemars(with = "Option<String>", length(min = 1))]
    pub(crate) listen: Option<Spanned<String>>,
    /// A file with the bearer token that requests must carry, at least 16 characters, readable by its owner alone.
    #[schemars(with = "Option<String>", length(min = 1))]
    pub(crate) token_file: Option<Spanned<String>>,
}

/// What bounds the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostLimits {
    /// How many lanes open at once.
    #[schemars(range(min = 1, max = 256))]
    pub opens_at_once: usize,
    /// How long one lane may take to open, milliseconds, before it is aborted and tried again later.
    #[schemars(range(min = 1_000, max = 600_000))]
    pub open_timeout_ms: u64,
    /// How long one lane may take to close, milliseconds, before it is aborted.
    #[schemars(range(min = 1_000, max = 600_000))]
    pub close_timeout_ms: u64,
    /// How long a lane serves, milliseconds, until it counts as settled and its backoff starts over.
    #[schemars(range(min = 1_000, max = 3_600_000))]
    pub settle_ms: u64,
    /// The first pause before a lane is opened again, milliseconds, before jitter.
    #[schemars(range(min = 10, max = 60_000))]
    pub backoff_first_ms: u64,
    /// The longest pause before a lane is opened again, milliseconds, before jitter.
    #[schemars(range(min = 100, max = 3_600_000))]
    pub backoff_cap_ms: u64,
    /// The pause, milliseconds, where somebody has to mend the broker's side first.
    #[schemars(range(min = 1_000, max = 3_600_000))]
    pub slow_pause_ms: u64,
    /// How often the manifest is looked at, milliseconds, where no file event was seen.
    #[schemars(range(min = 1_000, max = 3_600_000))]
    pub poll_ms: u64,
    /// How long a free lease is left to the preferred host of its space, milliseconds.
    #[schemars(range(min = 0, max = 600_000))]
    pub head_start_ms: u64,
}

impl Default for HostLimits {
    fn default() -> Self {
        Self {
            opens_at_once: 16,
            open_timeout_ms: 30_000,
            close_timeout_ms: 10_000,
            settle_ms: 30_000,
            backoff_first_ms: 250,
            backoff_cap_ms: 30_000,
            slow_pause_ms: 30_000,
            poll_ms: 30_000,
            head_start_ms: 3_000,
        }
    }
}

/// What bounds a lane.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LaneSection {
    /// The ack wait of the durables `fanout` and `reader`, milliseconds, where a lane creates them. Else 60000.
    #[schemars(range(min = 1_000, max = 600_000))]
    pub(crate) ack_wait_ms: Option<u64>,
    /// How long a lane that has served dials a lost broker, milliseconds, before it is closed and opened anew. Else
    /// 30000.
    #[schemars(range(min = 500, max = 600_000))]
    pub(crate) broker_window_ms: Option<u64>,
    /// The most posts, and the most entries, between taken and settled. Else 4096.
    #[schemars(range(min = 64, max = 4_096))]
    pub(crate) max_in_hand: Option<usize>,
    /// The most copies of one stage that are sent and not yet confirmed. Else 4096.
    #[schemars(range(min = 64, max = 8_192))]
    pub(crate) max_in_flight: Option<usize>,
}

impl LaneSection {
    /// These limits, with what is not set taken from `base`.
    pub(crate) fn over(&self, base: &lanekeeper_lane::Limits) -> lanekeeper_lane::Limits {
        let millis = |set: Option<u64>, base| set.map_or(base, std::time::Duration::from_millis);
        lanekeeper_lane::Limits {
            ack_wait: millis(self.ack_wait_ms, base.ack_wait),
            broker_window: millis(self.broker_window_ms, base.broker_window),
            max_in_hand: self.max_in_hand.unwrap_or(base.max_in_hand),
            max_in_flight: self.max_in_flight.unwrap_or(base.max_in_flight),
        }
    }
}
