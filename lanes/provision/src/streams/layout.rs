//! The configuration of every stream and bucket of a space, from its settings. Pure. Wire contract, section 3.

use super::StreamFault;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use lanekeeper_wire::{Bucket, DeliveryClass, Space, StreamKind};
use std::time::Duration;

pub use async_nats::jetstream::stream::Placement;

const HOUR: Duration = Duration::from_secs(3600);
/// A stored copy of a post is not stored again within this time.
const COPY_DUPLICATE_WINDOW: Duration = Duration::from_secs(2 * 3600);
/// A post sent again is not stored again within this time.
const POST_DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
/// A request to arm a timer that nobody took is void after this.
const TIMER_REQUEST_AGE: Duration = Duration::from_secs(24 * 3600);
/// The longest a timer may be armed.
const TIMER_AGE: Duration = Duration::from_secs(31 * 24 * 3600);

/// What becomes of an acknowledged entry in INBOX or DLV.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// It is gone.
    #[default]
    WorkQueue,
    /// It stays until a limit is reached or it is purged.
    Limits,
}

impl Retention {
    const fn policy(self) -> RetentionPolicy {
        match self {
            Self::WorkQueue => RetentionPolicy::WorkQueue,
            Self::Limits => RetentionPolicy::Limits,
        }
    }
}

/// How the streams and buckets of a space are made.
#[derive(Clone, Debug, PartialEq)]
pub struct SpaceSettings {
    /// Copies of every stream in a cluster: 1, 3 or 5.
    pub replicas: usize,
    /// Where in a cluster the streams are put; `None` leaves it to the broker.
    pub placement: Option<Placement>,
    /// Consumers a stream may have. Said outright, because a broker's own default (1,000) ends a space at its 1,001st
    /// member.
    pub max_consumers: u32,
    /// After this long without renewal the delivery lease is free.
    pub lease_ttl: Duration,
    /// After this long without renewal a presence row is gone.
    pub presence_ttl: Duration,
    /// Messages kept of one subject in CHAT, INBOX and DLV: of one sender in one channel, and of one lifecycle.
    pub messages_per_subject: u32,
    /// Retention of INBOX.
    pub inbox_retention: Retention,
    /// Retention of DLV.
    pub dlv_retention: Retention,
    /// How long a post is kept; `None` leaves it to `messages_per_subject`.
    pub chat_max_age: Option<Duration>,
    /// Bytes CHAT may hold. `None` for no limit, since a limit is *reserved* on the broker the moment the stream is made
    /// and a few generous spaces starve the next one.
    pub chat_max_bytes: Option<u64>,
    /// Bytes the membership feed may hold. `None` for no limit, for the same reason; the contract's 64 MiB are far above
    /// what a feed with one entry a key ever holds.
    pub feed_max_bytes: Option<u64>,
    /// Delivery class of channels that say none.
    pub default_class: DeliveryClass,
}

impl Default for SpaceSettings {
    fn default() -> Self {
        Self {
            replicas: 1,
            placement: None,
            max_consumers: 100_000,
            lease_ttl: Duration::from_secs(30),
            presence_ttl: Duration::from_secs(6),
            messages_per_subject: 1000,
            inbox_retention: Retention::WorkQueue,
            dlv_retention: Retention::WorkQueue,
            chat_max_age: None,
            chat_max_bytes: None,
            feed_max_bytes: None,
            default_class: DeliveryClass::Durable,
        }
    }
}

impl SpaceSettings {
    pub(super) fn check(&self) -> Result<(), StreamFault> {
        let fault = |setting, found: String, rule| Err(StreamFault::Setting { setting, found, rule });
        if !matches!(self.replicas, 1 | 3 | 5) {
            return fault("replicas", self.replicas.to_string(), "1, 3 or 5");
        }
        if self.max_consumers == 0 || i32::try_from(self.max_consumers).is_err() {
            return fault("max_consumers", self.max_consumers.to_string(), "from 1 to 2147483647");
        }
        if self.messages_per_subject == 0 {
            return fault("messages_per_subject", "0".to_owned(), "at least 1");
        }
        // The broker takes nothing below 100 ms as an age, and a lease cannot be renewed in less than a second.
        if self.lease_ttl < Duration::from_secs(1) {
            return fault("lease_ttl", format!("{:?}", self.lease_ttl), "at least 1 s");
        }
        if self.presence_ttl < Duration::from_secs(1) {
            return fault("presence_ttl", format!("{:?}", self.presence_ttl), "at least 1 s");
        }
        if self.chat_max_age.is_some_and(|age| age < HOUR) {
            return fault("chat_max_age", format!("{:?}", self.chat_max_age), "at least 1 h, or none");
        }
        for (setting, bytes) in [("chat_max_bytes", self.chat_max_bytes), ("feed_max_bytes", self.feed_max_bytes)] {
            if bytes.is_some_and(|bytes| bytes == 0 || i64::try_from(bytes).is_err()) {
                return fault(setting, format!("{bytes:?}"), "at least 1, or none");
            }
        }
        Ok(())
    }

    fn base(&self, name: String, subjects: Vec<String>) -> Config {
        Config {
            name,
            subjects,
            storage: StorageType::File,
            discard: DiscardPolicy::Old,
            retention: RetentionPolicy::Limits,
            num_replicas: self.replicas,
            placement: self.placement.clone(),
            // `check` has seen that it fits.
            max_consumers: i32::try_from(self.max_consumers).unwrap_or(i32::MAX),
            max_bytes: -1,
            max_messages: -1,
            max_messages_per_subject: -1,
            max_message_size: -1,
            ..Config::default()
        }
    }
}

/// All of them, streams first.
pub(super) fn all(space: &Space, settings: &SpaceSettings) -> Vec<Config> {
    let streams = StreamKind::ALL.iter().map(|kind| stream(*kind, space, settings));
    let buckets = Bucket::ALL.iter().map(|kind| bucket(*kind, space, settings));
    streams.chain(buckets).collect()
}

fn stream(kind: StreamKind, space: &Space, settings: &SpaceSettings) -> Config {
    let base = settings.base(kind.name(space), kind.subjects(space));
    let per_subject = i64::from(settings.messages_per_subject);
    match kind {
        StreamKind::Chat => Config {
            max_messages_per_subject: per_subject,
            max_age: settings.chat_max_age.unwrap_or_default(),
            max_bytes: limit(settings.chat_max_bytes),
            allow_direct: true,
            duplicate_window: POST_DUPLICATE_WINDOW,
            ..base
        },
        // No direct get: it would be a way around the durables, which are all a member may use here.
        StreamKind::Dm => base,
        StreamKind::Task => Config { retention: RetentionPolicy::WorkQueue, ..base },
        StreamKind::Inbox => Config {
            max_messages_per_subject: per_subject,
            retention: settings.inbox_retention.policy(),
            duplicate_window: COPY_DUPLICATE_WINDOW,
            ..base
        },
        StreamKind::Dlv => Config {
            max_messages_per_subject: per_subject,
            retention: settings.dlv_retention.policy(),
            duplicate_window: COPY_DUPLICATE_WINDOW,
            ..base
        },
        StreamKind::EptReq => Config { max_age: TIMER_REQUEST_AGE, ..base },
        // A schedule that has fired is rolled up; the broker switches that on by itself where schedules are.
        StreamKind::Ept => Config { max_age: TIMER_AGE, allow_message_schedules: true, allow_rollup: true, ..base },
    }
}

/// A bucket is a stream with the settings every key-value client expects.
fn bucket(kind: Bucket, space: &Space, settings: &SpaceSettings) -> Config {
    let base = Config {
        discard: DiscardPolicy::New,
        max_messages_per_subject: 1,
        allow_rollup: true,
        allow_direct: true,
        deny_delete: true,
        ..settings.base(kind.stream(space), vec![kind.subject(space, ">")])
    };
    match kind {
        Bucket::Presence => Config { max_age: settings.presence_ttl, ..base },
        Bucket::Delivery => Config { max_age: settings.lease_ttl, ..base },
        Bucket::Membership => Config { max_bytes: limit(settings.feed_max_bytes), ..base },
        // A purge is a rollup, which the broker refuses to allow where purging is denied.
        Bucket::Records => Config { deny_purge: true, allow_rollup: false, ..base },
        Bucket::Channels | Bucket::Members | Bucket::Acl => base,
    }
}

fn limit(bytes: Option<u64>) -> i64 {
    // `check` has seen that it fits.
    bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX))
}
