//! Membership intervals. Owns the one rule which posts belong to one; must not know why it opened or closed.

/// What lies between joining and leaving, in CHAT sequences: open below, closed above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interval {
    /// The CHAT frontier at the join; the post at this sequence does not belong.
    pub join_cursor: u64,
    /// The CHAT frontier at the leave; the post at this sequence still belongs. `None` while joined.
    pub leave_cursor: Option<u64>,
}

impl Interval {
    /// Whether the post at sequence `seq` belongs.
    pub fn holds(&self, seq: u64) -> bool {
        self.join_cursor < seq && self.leave_cursor.is_none_or(|leave| seq <= leave)
    }
}
