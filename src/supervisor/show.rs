//! The host and its seats as the values that are shown.
//!
//! Owns the translation. It must not change anything.

use super::{
    seat::Seat,
    status::{BacklogStatus, LaneStatus},
};

/// One lane as it is shown.
pub(crate) fn lane(seat: &Seat) -> LaneStatus {
    let watch = seat.slot.task().map(|run| &run.watch);
    let details = watch.map(|watch| watch.details.borrow().clone()).unwrap_or_default();
    let backlog = watch.map(lanekeeper_lane::Watch::backlog).unwrap_or_default();
    LaneStatus {
        space: seat.spec.space.clone(),
        state: seat.slot.state(),
        reason: seat.reason.clone(),
        since_ms: seat.since_ms,
        attempt: seat.attempt,
        generation: seat.generation,
        lease_revision: details.lease_revision,
        lease_holder: details.lease_holder,
        credential_expires_at_s: details.credential_expires_at_s,
        credential_fingerprint: details.credential_fingerprint,
        connections: details.connections,
        connected_to: details.connected_to,
        incarnation: details.incarnation,
        backlog: BacklogStatus {
            posts_in_hand: backlog.posts_in_hand,
            entries_in_hand: backlog.entries_in_hand,
            waiting_copies: backlog.waiting_copies,
        },
        counters: seat.meter.total(watch),
        rates: seat.meter.rates(),
        last_fault: seat.last_fault.clone(),
        drained: seat.is_drained,
        preferred_host: seat.place.preferred.clone(),
        tags: seat.spec.tags.clone(),
    }
}
