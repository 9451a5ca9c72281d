//! Everything that is known of one lane, one fact a line. Pure.
//!
//! Owns the order and the words. It must not print.

use std::{collections::BTreeMap, time::Duration};

use super::{
    figures::{count, safe, span},
    table::{Look, bare},
};
use crate::supervisor::status::LaneStatus;

/// Room for the longest label.
const LABEL: usize = 13;

/// Draws the lane.
#[must_use]
pub fn draw(lane: &LaneStatus, look: &Look) -> String {
    let ago = |at_ms: u64| span(Duration::from_millis(look.now_ms.saturating_sub(at_ms)));
    let text = |value: &Option<String>| value.clone();
    let lease = match (lane.lease_revision, &lane.lease_holder) {
        (_, Some(holder)) => Some(format!("held by {holder}")),
        (Some(revision), None) => Some(format!("revision {revision}, held here")),
        (None, None) => None,
    };
    let plural = if lane.connections == 1 { "" } else { "s" };
    let last_fault = lane
        .last_fault
        .as_ref()
        .map(|fault| format!("{} {} ago: {}", fault.code, ago(fault.at_ms), bare(&fault.text, lane, &fault.code)));
    let facts = [
        ("space", Some(lane.space.to_string())),
        (
            "state",
            Some(format!("{} for {}{}", lane.state, ago(lane.since_ms), if lane.drained { ", drained" } else { "" })),
        ),
        ("reason", Some(lane.reason.clone()).filter(|reason| !reason.is_empty())),
        ("attempt", Some(format!("{}, generation {}", lane.attempt, lane.generation))),
        ("lease", lease),
        ("preferred", text(&lane.preferred_host)),
        (
            "connected to",
            lane.connected_to.as_ref().map(|server| format!("{server}, {} connection{plural}", lane.connections)),
        ),
        ("credential", credential(lane, look.now_ms)),
        ("rates", Some(rates(lane))),
        ("backlog", Some(backlog(lane))),
        ("last fault", last_fault),
        ("tags", tags(&lane.tags)),
    ];
    let mut out = String::new();
    for (label, fact) in facts {
        if let Some(fact) = fact {
            out.push_str(&format!("{label:LABEL$} {}\n", safe(&fact)));
        }
    }
    out
}

fn credential(lane: &LaneStatus, now_ms: u64) -> Option<String> {
    let which = lane.credential_fingerprint.as_deref().unwrap_or("unknown");
    let Some(at_s) = lane.credential_expires_at_s else {
        return lane.credential_fingerprint.as_ref().map(|_| format!("{which}, does not expire"));
    };
    let at_ms = at_s.saturating_mul(1000);
    Some(if at_ms > now_ms {
        format!("{which}, expires in {}", span(Duration::from_millis(at_ms - now_ms)))
    } else {
        format!("{which}, expired {} ago", span(Duration::from_millis(now_ms - at_ms)))
    })
}

fn rates(lane: &LaneStatus) -> String {
    format!("{} posts/s, {} copies/s", count(lane.rates.posts_per_s), count(lane.rates.copies_per_s))
}

fn backlog(lane: &LaneStatus) -> String {
    let backlog = lane.backlog;
    format!(
        "{} posts in hand, {} entries in hand, {} copies waiting",
        backlog.posts_in_hand, backlog.entries_in_hand, backlog.waiting_copies
    )
}

fn tags(tags: &BTreeMap<String, String>) -> Option<String> {
    let tags: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    (!tags.is_empty()).then(|| tags.join(", "))
}
