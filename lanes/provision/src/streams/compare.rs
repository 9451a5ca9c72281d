//! Whether a stream is what it should be, field by field. Compares only what this project sets: the broker fills in the
//! rest in ways that differ between versions.

use super::StreamFault;
use async_nats::jetstream::stream::Config;
use std::fmt::Debug;

/// Where the configuration comes from that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// It was there before.
    Found,
    /// It was just made; a difference means that the broker dropped something.
    Made,
}

pub(super) fn check(wanted: &Config, found: &Config, when: When) -> Result<(), StreamFault> {
    let fields = [
        field("subjects", &sorted(&wanted.subjects), &sorted(&found.subjects)),
        field("retention", &wanted.retention, &found.retention),
        field("storage", &wanted.storage, &found.storage),
        field("discard", &wanted.discard, &found.discard),
        field("num_replicas", &wanted.num_replicas, &found.num_replicas),
        field("max_consumers", &wanted.max_consumers, &found.max_consumers),
        field("max_msgs_per_subject", &wanted.max_messages_per_subject, &found.max_messages_per_subject),
        field("max_bytes", &unlimited(wanted.max_bytes), &unlimited(found.max_bytes)),
        field("max_msgs", &unlimited(wanted.max_messages), &unlimited(found.max_messages)),
        field("max_age", &wanted.max_age, &found.max_age),
        field("allow_direct", &wanted.allow_direct, &found.allow_direct),
        field("allow_rollup_hdrs", &wanted.allow_rollup, &found.allow_rollup),
        field("deny_delete", &wanted.deny_delete, &found.deny_delete),
        field("deny_purge", &wanted.deny_purge, &found.deny_purge),
        field("allow_msg_schedules", &wanted.allow_message_schedules, &found.allow_message_schedules),
        field("sealed", &wanted.sealed, &found.sealed),
        // Zero leaves it to the broker.
        (!wanted.duplicate_window.is_zero())
            .then(|| field("duplicate_window", &wanted.duplicate_window, &found.duplicate_window))
            .flatten(),
        wanted.placement.is_some().then(|| field("placement", &wanted.placement, &found.placement)).flatten(),
    ];
    let Some(difference) = fields.into_iter().flatten().next() else { return Ok(()) };
    let Difference { field, wanted: want, found } = difference;
    let stream = wanted.name.clone();
    Err(match when {
        When::Found => StreamFault::Differs { stream, field, wanted: want, found },
        When::Made => StreamFault::Dropped { stream, field, wanted: want, found },
    })
}

struct Difference {
    field: &'static str,
    wanted: String,
    found: String,
}

fn field<T: PartialEq + Debug>(field: &'static str, wanted: &T, found: &T) -> Option<Difference> {
    (wanted != found).then(|| Difference { field, wanted: format!("{wanted:?}"), found: format!("{found:?}") })
}

fn sorted(subjects: &[String]) -> Vec<&String> {
    let mut subjects: Vec<_> = subjects.iter().collect();
    subjects.sort();
    subjects
}

/// Both 0 and -1 say "no limit".
fn unlimited(limit: i64) -> i64 {
    if limit <= 0 { -1 } else { limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_old_broker_dropped_is_named() {
        let wanted = Config { name: "EPT_dev".to_owned(), allow_message_schedules: true, ..Config::default() };
        let made = Config { name: "EPT_dev".to_owned(), ..Config::default() };
        let fault = check(&wanted, &made, When::Made).unwrap_err().to_string();
        assert!(fault.contains("EPT_dev with allow_msg_schedules = false though true was asked for"), "{fault}");
        assert!(check(&wanted, &wanted, When::Made).is_ok());
    }

    #[test]
    fn what_the_broker_fills_in_is_no_difference() {
        let wanted = Config { max_bytes: -1, ..Config::default() };
        let found = Config { max_bytes: 0, duplicate_window: std::time::Duration::from_secs(120), ..Config::default() };
        assert!(check(&wanted, &found, When::Found).is_ok());
    }
}
