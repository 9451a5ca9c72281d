//! What must be true of a space's streams and consumers before a lane touches them.
//!
//! Owns the comparison with the contract, the creation of the two durables where they are missing, and drift reports. It
//! never alters what exists: that would replay or lose a floor.

use std::time::Duration;

use async_nats::jetstream::{
    consumer::{self, AckPolicy, DeliverPolicy, pull},
    stream::{Config, ConsumerErrorKind, DiscardPolicy, Info, RetentionPolicy},
};
use lanekeeper_wire::{Bucket, FANOUT_DURABLE, READER_DURABLE, Space, StreamKind, subject};

use crate::{
    fault::FaultKind,
    link::Link,
    registry::stream_info,
    stage::{MAX_ENTRIES_IN_HAND, MAX_IN_HAND},
};

/// The shortest duplicate window under which a copy made twice is stored once.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(2 * 60 * 60);
/// The longest lease a bucket may give: a crashed daemon blocks the space for that long.
const LONGEST_LEASE: Duration = Duration::from_secs(5 * 60);
/// The shortest lease that survives two requests without an answer.
const SHORTEST_LEASE: Duration = Duration::from_secs(2);

/// What a lane needs to know of its streams.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// CHAT's creation time, unix nanoseconds: part of every suppression key.
    pub chat_created_ns: i128,
    /// The delivery bucket's max age.
    pub lease_ttl: Duration,
    /// INBOX.
    pub inbox: StoreFacts,
    /// DLV.
    pub dlv: StoreFacts,
}

/// What a lane needs to know of a member store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreFacts {
    /// How many messages one member's subject holds; `None` without a limit.
    pub per_member: Option<u64>,
    /// True where an acknowledged message is gone, so that what is there is what is unacknowledged.
    pub work_queue: bool,
}

/// A bound durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Durable {
    /// Its ack wait.
    pub ack_wait: Duration,
    /// How many deliveries it lets be in hand.
    pub max_in_hand: usize,
    /// Deliveries inherited from a run that did not settle them.
    pub inherited: usize,
    /// Everything up to this stream sequence was acknowledged.
    pub floor: u64,
    /// Everything up to this stream sequence was delivered.
    pub delivered: u64,
}

/// Reads every stream and bucket of the space, and the two durables where they exist, and compares.
///
/// # Errors
/// The first that is missing or contradicts the contract.
pub(crate) async fn streams(link: &Link, space: &Space) -> Result<Facts, FaultKind> {
    let chat = stream_info(link, &StreamKind::Chat.name(space)).await?;
    has_subject(&chat.config, &subject::chat_filter(space))?;
    let inbox = member_store(link, space, StreamKind::Inbox, &subject::dinbox_filter(space)).await?;
    let dlv = member_store(link, space, StreamKind::Dlv, &subject::dlv_filter(space)).await?;
    for bucket in [Bucket::Members, Bucket::Acl, Bucket::Channels] {
        let info = stream_info(link, &bucket.stream(space)).await?;
        if !info.config.max_age.is_zero() {
            return Err(contradicts(&info, "max_age", info.config.max_age, "0, its rows must not vanish"));
        }
    }
    stream_info(link, &Bucket::Presence.stream(space)).await?;
    let delivery = stream_info(link, &Bucket::Delivery.stream(space)).await?;
    let lease_ttl = delivery.config.max_age;
    if lease_ttl < SHORTEST_LEASE || lease_ttl > LONGEST_LEASE {
        return Err(contradicts(
            &delivery,
            "max_age",
            lease_ttl,
            "between 2 s and 5 min (30 s), or a lease never expires",
        ));
    }
    // Before anything is claimed: a consumer that this lane cannot work with is refused without a lease.
    for (stream, name, filter) in [
        (StreamKind::Chat.name(space), FANOUT_DURABLE, subject::chat_filter(space)),
        (StreamKind::Inbox.name(space), READER_DURABLE, subject::dinbox_filter(space)),
    ] {
        if let Some(info) = consumer_info(link, &stream, name).await? {
            refuse_contradiction(&format!("{stream}/{name}"), &info.config, &filter)?;
        }
    }
    let chat_created_ns = chat.created.unix_timestamp_nanos();
    Ok(Facts { chat_created_ns, lease_ttl, inbox, dlv })
}

async fn member_store(link: &Link, space: &Space, kind: StreamKind, filter: &str) -> Result<StoreFacts, FaultKind> {
    let info = stream_info(link, &kind.name(space)).await?;
    let config = &info.config;
    has_subject(config, filter)?;
    let work_queue = match config.retention {
        RetentionPolicy::WorkQueue => true,
        RetentionPolicy::Limits => false,
        RetentionPolicy::Interest => {
            return Err(contradicts(&info, "retention", "interest", "work queue or limits"));
        }
    };
    if config.duplicate_window < DUPLICATE_WINDOW {
        return Err(contradicts(&info, "duplicate_window", config.duplicate_window, "at least 2 h"));
    }
    if config.no_ack {
        return Err(contradicts(&info, "no_ack", true, "false, or nothing says that a copy is stored"));
    }
    if config.discard != DiscardPolicy::Old {
        return Err(contradicts(&info, "discard", "new", "old"));
    }
    let per_member = u64::try_from(config.max_messages_per_subject).ok().filter(|limit| *limit > 0);
    Ok(StoreFacts { per_member, work_queue })
}

fn has_subject(config: &Config, wanted: &str) -> Result<(), FaultKind> {
    if config.subjects.iter().any(|subject| subject.as_str() == wanted) {
        return Ok(());
    }
    Err(FaultKind::ConfigurationContradicts {
        name: config.name.clone(),
        field: "subjects",
        found: format!("{:?}", config.subjects),
        wanted: format!("`{wanted}` among them"),
    })
}

fn contradicts(info: &Info, field: &'static str, found: impl std::fmt::Debug, wanted: &str) -> FaultKind {
    FaultKind::ConfigurationContradicts {
        name: info.config.name.clone(),
        field,
        found: format!("{found:?}"),
        wanted: wanted.to_owned(),
    }
}

/// Binds `fanout` on CHAT, creating it where it is missing.
///
/// # Errors
/// It cannot be created, or exists in a form this lane cannot work with.
pub(crate) async fn fanout(link: &Link, space: &Space, ack_wait: Duration) -> Result<Durable, FaultKind> {
    let wanted = wanted(FANOUT_DURABLE, subject::chat_filter(space), DeliverPolicy::New, ack_wait, MAX_IN_HAND);
    durable(link, &StreamKind::Chat.name(space), wanted).await
}

/// Binds `reader` on INBOX, creating it where it is missing.
///
/// # Errors
/// As [`fanout`].
pub(crate) async fn reader(link: &Link, space: &Space, ack_wait: Duration) -> Result<Durable, FaultKind> {
    let wanted =
        wanted(READER_DURABLE, subject::dinbox_filter(space), DeliverPolicy::All, ack_wait, MAX_ENTRIES_IN_HAND);
    durable(link, &StreamKind::Inbox.name(space), wanted).await
}

fn wanted(name: &str, filter: String, deliver: DeliverPolicy, ack_wait: Duration, in_hand: usize) -> pull::Config {
    pull::Config {
        durable_name: Some(name.to_owned()),
        deliver_policy: deliver,
        ack_policy: AckPolicy::Explicit,
        ack_wait,
        filter_subject: filter,
        max_ack_pending: i64::try_from(in_hand).unwrap_or(i64::MAX),
        ..pull::Config::default()
    }
}

async fn durable(link: &Link, stream: &str, wanted: pull::Config) -> Result<Durable, FaultKind> {
    let name = wanted.durable_name.clone().unwrap_or_default();
    let shown = format!("{stream}/{name}");
    let info = match consumer_info(link, stream, &name).await? {
        Some(info) => info,
        None => {
            let api = format!("$JS.API.CONSUMER.CREATE.{stream}.{name}");
            let call = async {
                let created = link.jetstream().create_consumer_on_stream(wanted.clone(), stream).await;
                created.map_err(|error| FaultKind::Refused { what: api.clone(), reason: error.to_string() })
            };
            link.ask(&api, call).await?.cached_info().clone()
        }
    };
    refuse_contradiction(&shown, &info.config, &wanted.filter_subject)?;
    report_drift(&shown, &info.config, &wanted);
    let allowed = usize::try_from(info.config.max_ack_pending).ok().filter(|limit| *limit > 0).unwrap_or(MAX_IN_HAND);
    Ok(Durable {
        ack_wait: info.config.ack_wait,
        max_in_hand: allowed.min(MAX_IN_HAND),
        inherited: info.num_ack_pending,
        floor: info.ack_floor.stream_sequence,
        delivered: info.delivered.stream_sequence,
    })
}

/// What breaks the contract is a fault.
fn refuse_contradiction(shown: &str, found: &consumer::Config, filter: &str) -> Result<(), FaultKind> {
    let breaks = |field, found: String, wanted: String| {
        Err(FaultKind::ConfigurationContradicts { name: shown.to_owned(), field, found, wanted })
    };
    if let Some(subject) = &found.deliver_subject {
        return breaks("deliver_subject", subject.clone(), "none, a pull consumer".into());
    }
    if found.ack_policy != AckPolicy::Explicit {
        return breaks("ack_policy", format!("{:?}", found.ack_policy), "explicit".into());
    }
    if found.headers_only {
        return breaks("headers_only", "true".into(), "false, or there is nothing to deliver".into());
    }
    if found.filter_subject != filter {
        let filters = match found.filter_subject.as_str() {
            "" => format!("{:?}", found.filter_subjects),
            one => format!("`{one}`"),
        };
        return breaks("filter_subject", filters, format!("`{filter}`"));
    }
    Ok(())
}

/// What merely differs is told by field.
fn report_drift(shown: &str, found: &consumer::Config, wanted: &pull::Config) {
    if found.ack_wait != wanted.ack_wait {
        tracing::warn!(consumer = shown, field = "ack_wait", found = ?found.ack_wait, wanted = ?wanted.ack_wait, "drift, left as it is");
    }
    if found.max_deliver > 0 {
        tracing::warn!(
            consumer = shown,
            field = "max_deliver",
            found = found.max_deliver,
            wanted = -1,
            "drift, left as it is"
        );
    }
}

async fn consumer_info(link: &Link, stream: &str, name: &str) -> Result<Option<consumer::Info>, FaultKind> {
    let api = format!("$JS.API.CONSUMER.INFO.{stream}.{name}");
    let call = async {
        let found = link.jetstream().get_consumer_from_stream::<consumer::Config, _, _>(name, stream).await;
        match found {
            Ok(consumer) => Ok(Some(consumer.cached_info().clone())),
            Err(error) => {
                let missing = matches!(error.kind(), ConsumerErrorKind::JetStream(reason) if reason.code() == 404);
                if missing {
                    Ok(None)
                } else {
                    Err(FaultKind::Refused { what: api.clone(), reason: error.to_string() })
                }
            }
        }
    };
    link.ask(&api, call).await
}
