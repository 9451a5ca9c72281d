//! Owns the arithmetic of pull requests: how many messages the broker still owes, and when to ask for more. Pure: it
//! must not send, receive or wait.

/// What one consumer has been asked for and still owes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PullBudget {
    batch: usize,
    owed: usize,
}

impl PullBudget {
    /// A budget of at most `batch` messages (at least one), nothing asked yet.
    pub(crate) fn new(batch: usize) -> Self {
        Self { batch: batch.max(1), owed: 0 }
    }

    /// How many to ask for now, if it is time: the next request goes out while half of the last one is still to come,
    /// so the broker never waits for us.
    pub(crate) fn wanted(&self) -> Option<usize> {
        (self.owed <= self.batch / 2).then(|| self.batch - self.owed)
    }

    /// A request for `amount` was sent.
    pub(crate) fn asked(&mut self, amount: usize) {
        self.owed = (self.owed + amount).min(self.batch);
    }

    /// A message arrived.
    pub(crate) fn received(&mut self) {
        self.owed = self.owed.saturating_sub(1);
    }

    /// A request ended with `unserved` messages never to come; without the number, nothing more is owed.
    pub(crate) fn ended(&mut self, unserved: Option<usize>) {
        self.owed = unserved.map_or(0, |unserved| self.owed.saturating_sub(unserved));
    }

    /// The broker has forgotten every request: reconnect, or silence for too long.
    pub(crate) fn forget(&mut self) {
        self.owed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn asks_again_at_half() {
        let mut budget = PullBudget::new(4);
        assert_eq!(budget.wanted(), Some(4));
        budget.asked(4);
        budget.received();
        assert_eq!(budget.wanted(), None);
        budget.received();
        assert_eq!(budget.wanted(), Some(2));
    }

    #[test]
    fn an_ended_request_is_replaced() {
        let mut budget = PullBudget::new(4);
        budget.asked(4);
        budget.ended(Some(4));
        assert_eq!(budget.wanted(), Some(4));
        budget.asked(4);
        budget.ended(None);
        assert_eq!(budget.wanted(), Some(4));
        budget.asked(4);
        budget.forget();
        assert_eq!(budget.wanted(), Some(4));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Message,
        Ended(Option<usize>),
        Forget,
    }

    proptest! {
        /// Whatever arrives, the budget stays in bounds and a request is pending or wanted: it can never stall.
        #[test]
        fn never_stalls(batch in 0usize..300, steps in prop::collection::vec(
            prop_oneof![
                4 => Just(Step::Message),
                1 => prop::option::of(0usize..400).prop_map(Step::Ended),
                1 => Just(Step::Forget),
            ], 0..300)) {
            let mut budget = PullBudget::new(batch);
            for step in steps {
                if let Some(amount) = budget.wanted() {
                    prop_assert!(amount >= 1);
                    budget.asked(amount);
                }
                prop_assert!(budget.owed >= 1 && budget.owed <= budget.batch);
                match step {
                    Step::Message => budget.received(),
                    Step::Ended(unserved) => budget.ended(unserved),
                    Step::Forget => budget.forget(),
                }
            }
        }
    }
}
