//! Waiting for a value with a deadline, so that nobody sleeps and hopes.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// The pause between two polls. Short enough that a wait costs little more than what it waits for.
const PAUSE: Duration = Duration::from_millis(5);

/// A wait ended without its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("still waiting after {waited_ms} ms for {what}")]
pub struct TimedOut {
    /// What was waited for.
    pub what: String,
    /// How long was waited, in milliseconds.
    pub waited_ms: u128,
}

/// Polls until `poll` gives a value, and returns it. A poll that hangs is cut off at the deadline too.
///
/// # Errors
///
/// [`TimedOut`] when no value came within `limit`.
pub async fn wait_until<T, F, P>(what: &str, limit: Duration, mut poll: P) -> Result<T, TimedOut>
where
    P: FnMut() -> F,
    F: Future<Output = Option<T>>,
{
    let started = Instant::now();
    let found = timeout(limit, async {
        loop {
            if let Some(value) = poll().await {
                return value;
            }
            sleep(PAUSE).await;
        }
    });
    found.await.map_err(|_| TimedOut { what: what.to_owned(), waited_ms: started.elapsed().as_millis() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn gives_the_value_or_names_what_was_missing() {
        let mut count = 0;
        let value = wait_until("three polls", Duration::from_secs(5), || {
            count += 1;
            let now = count;
            async move { (now == 3).then_some(now) }
        });
        assert_eq!(value.await, Ok(3));

        let missing = wait_until::<(), _, _>("godot", Duration::from_millis(20), std::future::pending).await;
        assert!(missing.unwrap_err().to_string().ends_with("for godot"));
    }
}
