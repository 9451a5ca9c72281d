//! The trusted reader's judgement: may this member have this entry now?
//!
//! Owns the authorisation of each entry against the member's current read ACL and membership interval. It must not trust
//! that an entry is in the store: fan-out routes, only this decides.

use std::{sync::Arc, time::Duration};

use lanekeeper_wire::{Bucket, EntryReason, InboxEntry, Space};

use crate::{
    copies::Copy,
    intake::Delivery,
    registry::{Registry, tables::Acl},
    rooms::Rooms,
    stage::{Judge, Verdict, owner_of},
};

/// How often an entry of an unknown owner is delivered before it is given up.
pub(crate) const MAX_DELIVERIES: u64 = 10;
/// The first pause of a deferred entry; each further one doubles.
const DEFER_FIRST: Duration = Duration::from_secs(1);
/// The longest pause of a deferred entry.
const DEFER_CAP: Duration = Duration::from_secs(60);

/// Judges entries of INBOX.
#[derive(Debug)]
pub(crate) struct Reader {
    /// The space.
    pub space: Space,
    /// Who may read what.
    pub registry: Arc<Registry>,
    /// The room in INBOX, which an entry frees when it leaves.
    pub inbox_rooms: Arc<Rooms>,
}

impl Judge for Reader {
    const PART: &'static str = "trusted_reader";
    const NEEDS: &'static [Bucket] = &[Bucket::Acl, Bucket::Members];

    fn judge(&self, delivery: &Delivery) -> Verdict {
        let Some(owner) = owner_of(&self.space, delivery.subject.as_str()) else {
            return Verdict::Term("malformed-subject", "not a member's store".into());
        };
        if !owner.principal().is_trusted() {
            return Verdict::Term("malformed-owner", "the owner is not one that may be authorised".into());
        }
        let entry = match InboxEntry::parse(&delivery.payload) {
            Ok(entry) => entry,
            Err(fault) => return Verdict::Term("malformed-entry", fault.to_string()),
        };
        let tables = self.registry.tables();
        let row = match tables.acl(&owner) {
            Acl::Row(row) => row,
            Acl::Retired => return Verdict::Drop("retired"),
            Acl::Garbled | Acl::Unknown => return defer(delivery.delivered),
        };
        if !row.allows(&entry.channel) {
            return Verdict::Drop("not in the read ACL");
        }
        let eligible = match entry.reason {
            EntryReason::LiveMention => true,
            EntryReason::DurableChannel if self.registry.is_leaving(&owner, &entry.channel, entry.seq) => {
                return Verdict::Hold;
            }
            EntryReason::DurableChannel => tables.holds(&owner, &entry.channel, entry.seq),
        };
        if !eligible {
            return Verdict::Drop("outside the membership interval");
        }
        Verdict::Copies(vec![Copy { to: owner, seq: entry.seq, payload: entry.frame() }])
    }

    fn settled(&self, delivery: &Delivery) {
        if let Some(owner) = owner_of(&self.space, delivery.subject.as_str()) {
            self.inbox_rooms.free(&owner);
        }
    }
}

/// An owner that is not known yet may become known: put off, a limited number of times.
fn defer(delivered: u64) -> Verdict {
    if delivered >= MAX_DELIVERIES {
        return Verdict::Term("unknown-owner", format!("no read ACL after {delivered} deliveries"));
    }
    let doubled = u32::try_from(delivered.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    Verdict::Defer((DEFER_FIRST * 2u32.pow(doubled)).min(DEFER_CAP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::tables::Change;

    #[test]
    fn deferral_doubles_is_capped_and_ends() {
        let pause = |delivered| match defer(delivered) {
            Verdict::Defer(pause) => Some(pause.as_secs()),
            Verdict::Term(..) => None,
            Verdict::Copies(_) | Verdict::Drop(_) | Verdict::Hold => panic!("never released"),
        };
        let pauses: Vec<_> = (1..=11).map(pause).collect();
        let expected = [1, 2, 4, 8, 16, 32, 60, 60, 60].map(Some);
        assert_eq!(pauses[..9], expected);
        assert_eq!(pauses[9..], [None, None]);
    }

    #[test]
    fn what_may_lie_behind_a_leave_waits_until_the_leave_is_written() {
        let space: Space = "s".parse().unwrap();
        let registry = Registry::new(&space);
        let owner = "local.bob.aaaaaaaaaaaaaaaaaaaaaaaaaa";
        let acl = r#"{"allowSubscribe":["team"],"revision":1,"updatedAt":1}"#;
        let row = r#"{"channel":"team","owner":"local.bob","lifecycleUid":"aaaaaaaaaaaaaaaaaaaaaaaaaa",
            "state":"durable-active","joinCursor":1,"generation":1,"activated":true,"writerIdentity":"d","updatedAt":1}"#;
        for (bucket, key, value) in
            [(Bucket::Acl, owner.to_owned(), acl), (Bucket::Members, format!("team/{owner}"), row)]
        {
            registry.apply_own(bucket, &Change { key, revision: 1, value: Some(value.into()) });
        }
        let reader =
            Reader { space, registry: Arc::clone(&registry), inbox_rooms: Arc::new(crate::rooms::Rooms::new(None)) };
        let judge = |seq: u64| {
            let msg = r#"{"id":"x","from":{"id":"local.ada"},"channel":"team"}"#;
            let entry =
                format!(r#"{{"msg":{msg},"channel":"team","seq":{seq},"reason":"durable-channel","generation":1}}"#);
            reader.judge(&Delivery {
                subject: format!("cotal.s.dinbox.{owner}").into(),
                payload: entry.into(),
                ack: None,
                seq: 1,
                delivered: 1,
                taken_at: tokio::time::Instant::now(),
                units: 0,
                stored: Vec::new(),
            })
        };
        assert!(matches!(judge(9), Verdict::Copies(copies) if copies.len() == 1));
        let key = format!("team/{owner}").parse().unwrap();
        let leaving = registry.leaving(&key, 8);
        assert!(matches!(judge(8), Verdict::Copies(copies) if copies.len() == 1), "surely before the end");
        assert!(matches!(judge(9), Verdict::Hold), "perhaps behind it");
        drop(leaving);
        assert!(matches!(judge(9), Verdict::Copies(copies) if copies.len() == 1));
    }
}
