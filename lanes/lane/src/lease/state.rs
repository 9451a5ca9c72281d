//! The lease's life as a pure machine: what was seen of the row, what follows. It must not do I/O or look at a clock.

use lanekeeper_wire::LeaseRow;

/// Who this run is. A row is ours only when both parts match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The daemon's principal.
    pub holder: String,
    /// A random id of this run.
    pub incarnation: String,
}

/// What a read of the row showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// No row, or a marker that says it was deleted or expired; the revision a claim must expect.
    Gone {
        /// The subject's last sequence, 0 for never written.
        revision: u64,
        /// True where its holder deleted it; false where it expired or never was.
        released: bool,
    },
    /// A row.
    Row {
        /// Its content.
        row: LeaseRow,
        /// Its revision.
        revision: u64,
    },
    /// Something that is not a lease row.
    Garbled {
        /// What is wrong with it.
        reason: String,
    },
    /// The read got no answer.
    Unreadable,
}

/// How a write of the row ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// Stored at this revision.
    Stored {
        /// The new revision.
        revision: u64,
    },
    /// Somebody wrote before.
    Raced,
    /// No answer: it may or may not be stored.
    Unknown,
}

/// Where the lease stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// Ours at this revision.
    Held {
        /// The revision last owned.
        revision: u64,
    },
    /// In doubt: the lane is quiet until a read settles it.
    Doubt,
    /// Another's, or not to be understood: the lane ends.
    Lost(Loss),
}

/// Why a lease is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Loss {
    /// Another daemon's row.
    Taken(LeaseRow),
    /// A row that cannot be understood.
    Garbled(String),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Act on under the permit; renew when it is time.
    Serve,
    /// Go quiet and read the row.
    Read,
    /// Write a fresh row, expecting this revision.
    Claim {
        /// The revision the write must expect.
        expected: u64,
    },
    /// End the lane.
    End(Loss),
}

/// After a claim or a renewal: a failed one is a question, never an answer.
#[must_use]
pub(super) fn after_write(written: Written) -> (Standing, Step) {
    match written {
        Written::Stored { revision } => (Standing::Held { revision }, Step::Serve),
        Written::Raced | Written::Unknown => (Standing::Doubt, Step::Read),
    }
}

/// After a read, while claiming or in doubt.
#[must_use]
pub(super) fn after_read(seen: Seen, me: &Identity) -> (Standing, Step) {
    match seen {
        Seen::Gone { revision, .. } => (Standing::Doubt, Step::Claim { expected: revision }),
        Seen::Row { row, revision } if is_mine(&row, me) => (Standing::Held { revision }, Step::Serve),
        Seen::Row { row, .. } => (Standing::Lost(Loss::Taken(row.clone())), Step::End(Loss::Taken(row))),
        Seen::Garbled { reason } => (Standing::Lost(Loss::Garbled(reason.clone())), Step::End(Loss::Garbled(reason))),
        Seen::Unreadable => (Standing::Doubt, Step::Read),
    }
}

/// A row is ours when holder and incarnation match.
#[must_use]
fn is_mine(row: &LeaseRow, me: &Identity) -> bool {
    row.holder == me.holder && row.incarnation == me.incarnation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Identity {
        Identity { holder: "local.delivery".into(), incarnation: "run1".into() }
    }

    fn row(holder: &str, incarnation: &str) -> LeaseRow {
        LeaseRow { holder: holder.into(), incarnation: incarnation.into(), since: 1, ready: true }
    }

    #[test]
    fn a_failed_write_is_a_question() {
        assert_eq!(after_write(Written::Stored { revision: 7 }), (Standing::Held { revision: 7 }, Step::Serve));
        assert_eq!(after_write(Written::Raced), (Standing::Doubt, Step::Read));
        assert_eq!(after_write(Written::Unknown), (Standing::Doubt, Step::Read));
    }

    #[test]
    fn a_read_settles_every_case() {
        let mine = Seen::Row { row: row("local.delivery", "run1"), revision: 9 };
        assert_eq!(after_read(mine, &me()), (Standing::Held { revision: 9 }, Step::Serve));
        assert_eq!(
            after_read(Seen::Gone { revision: 4, released: false }, &me()),
            (Standing::Doubt, Step::Claim { expected: 4 })
        );
        assert_eq!(after_read(Seen::Unreadable, &me()), (Standing::Doubt, Step::Read));
        for other in [row("local.delivery", "run2"), row("local.other", "run1")] {
            let seen = Seen::Row { row: other.clone(), revision: 9 };
            let loss = Loss::Taken(other);
            assert_eq!(after_read(seen, &me()), (Standing::Lost(loss.clone()), Step::End(loss)));
        }
        let garbled = after_read(Seen::Garbled { reason: "x".into() }, &me());
        assert_eq!(garbled.1, Step::End(Loss::Garbled("x".into())));
    }
}
