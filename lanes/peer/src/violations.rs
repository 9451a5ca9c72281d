//! Owns the record of what the broker refused this member: a bounded log that pending calls can wait on, because a
//! refused publish or subscribe otherwise shows only as silence. It must not decide what a refusal means.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// How many refusals are kept; older ones are forgotten, the count goes on.
const KEPT: usize = 256;

/// What was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusedAction {
    /// A publish on the subject.
    Publish,
    /// A publish whose reply subject was the subject.
    PublishWithReply,
    /// A subscription to the subject.
    Subscribe,
}

/// One refusal by the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What was refused.
    pub action: RefusedAction,
    /// On which subject.
    pub subject: String,
}

impl Violation {
    /// Reads the broker's error text; `None` if it is about something else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let lower = text.to_ascii_lowercase();
        let start = lower.find("permissions violation for ")? + "permissions violation for ".len();
        let rest = &lower[start..];
        let action = if rest.starts_with("subscription") {
            RefusedAction::Subscribe
        } else if rest.starts_with("publish with reply") {
            RefusedAction::PublishWithReply
        } else if rest.starts_with("publish") {
            RefusedAction::Publish
        } else {
            return None;
        };
        // Lower-casing ASCII keeps byte positions, so the subject is cut from the original text.
        let subject = text[start..].split('"').nth(1)?;
        Some(Self { action, subject: subject.to_owned() })
    }
}

#[derive(Debug, Default)]
struct Log {
    kept: VecDeque<Violation>,
    total: u64,
}

/// The log, shared between the connection's events and pending calls.
#[derive(Debug)]
pub(crate) struct Violations {
    log: Mutex<Log>,
    total: watch::Sender<u64>,
}

impl Violations {
    pub(crate) fn new() -> Self {
        Self { log: Mutex::new(Log::default()), total: watch::Sender::new(0) }
    }

    pub(crate) fn record(&self, violation: Violation) {
        let total = {
            let mut log = self.lock();
            if log.kept.len() == KEPT {
                log.kept.pop_front();
            }
            log.kept.push_back(violation);
            log.total += 1;
            log.total
        };
        self.total.send_replace(total);
    }

    /// Everything still kept, oldest first.
    pub(crate) fn snapshot(&self) -> Vec<Violation> {
        self.lock().kept.iter().cloned().collect()
    }

    /// A place in the log: calls look only at what came after it.
    pub(crate) fn mark(&self) -> u64 {
        self.lock().total
    }

    /// The first kept refusal after `mark` that `wanted` accepts.
    pub(crate) fn find_since(&self, mark: u64, wanted: impl Fn(&Violation) -> bool) -> Option<Violation> {
        let log = self.lock();
        let fresh = usize::try_from(log.total - mark.min(log.total)).unwrap_or(usize::MAX).min(log.kept.len());
        log.kept.iter().skip(log.kept.len() - fresh).find(|violation| wanted(violation)).cloned()
    }

    /// Waits for a refusal after `mark` that `wanted` accepts.
    pub(crate) async fn wait_since(&self, mark: u64, wanted: impl Fn(&Violation) -> bool) -> Violation {
        let mut total = self.total.subscribe();
        loop {
            total.borrow_and_update();
            if let Some(violation) = self.find_since(mark, &wanted) {
                return violation;
            }
            if total.changed().await.is_err() {
                // The sender lives in `self`, which is borrowed here, so this cannot happen; never returning is the
                // safe answer because every caller races this future against a deadline.
                std::future::pending::<()>().await;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        // No code panics while it holds the lock, and a log is valid after any prefix of its updates.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(subject: &str) -> Violation {
        Violation { action: RefusedAction::Publish, subject: subject.to_owned() }
    }

    #[test]
    fn broker_texts() {
        let cases = [
            (r#"Permissions Violation for Publish to "a.B""#, Some((RefusedAction::Publish, "a.B"))),
            (r#"permissions violation for subscription to "x.>""#, Some((RefusedAction::Subscribe, "x.>"))),
            (r#"Permissions Violation for Subscription to "x" using queue "q""#, Some((RefusedAction::Subscribe, "x"))),
            (
                r#"Permissions Violation for Publish with Reply of "r.1""#,
                Some((RefusedAction::PublishWithReply, "r.1")),
            ),
            ("User Authentication Expired", None),
            ("Permissions Violation for Publish to", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let found = Violation::parse(text);
            let found = found.as_ref().map(|violation| (violation.action, violation.subject.as_str()));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn bounded_and_marked() {
        let log = Violations::new();
        for n in 0..KEPT + 10 {
            log.record(refused(&format!("s.{n}")));
        }
        assert_eq!(log.snapshot().len(), KEPT);
        assert_eq!(log.snapshot()[0].subject, "s.10");
        let mark = log.mark();
        assert_eq!(log.find_since(mark, |_| true), None);
        log.record(refused("late"));
        assert_eq!(log.find_since(mark, |_| true), Some(refused("late")));
        assert_eq!(log.find_since(0, |_| true), Some(refused("s.11")));
    }

    #[tokio::test]
    async fn waiting_sees_what_came_before_and_after() {
        let log = Violations::new();
        log.record(refused("old"));
        let mark = log.mark();
        let (found, ()) = tokio::join!(log.wait_since(mark, |violation| violation.subject == "b"), async {
            log.record(refused("a"));
            tokio::task::yield_now().await;
            log.record(refused("b"));
        });
        assert_eq!(found, refused("b"));
        assert_eq!(log.wait_since(0, |_| true).await, refused("old"));
    }
}
