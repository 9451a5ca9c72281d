//! Owns one request below a member's own subject: the reply subject under `<request>.reply.`, a subscription of its
//! own for it, and the four ways it can end. It must not read what was answered.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use lanekeeper_wire::subject::reply_prefix;

use crate::link::Link;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The broker says that nobody serves the subject.
    #[error("nobody serves {subject}: is the daemon of this space running?")]
    NoResponders {
        /// The request subject.
        subject: String,
    },
    /// Nobody answered in time.
    #[error("no answer on {subject} within {waited_ms} ms")]
    Timeout {
        /// The request subject.
        subject: String,
        /// How long was waited, milliseconds.
        waited_ms: u64,
    },
    /// The broker refused the request or its reply subscription.
    #[error("broker refused {subject}: the credential lacks this permission")]
    Denied {
        /// The refused subject.
        subject: String,
    },
    /// The connection has ended or the client refused the call.
    #[error("request on {subject} could not be sent: {detail}")]
    Transport {
        /// The request subject.
        subject: String,
        /// What the client said.
        detail: String,
    },
}

/// A fresh token for a reply subject.
pub(crate) fn nonce() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Sends `payload` on `subject` and waits for the one answer.
///
/// The client's shared inbox is not used: a daemon answers only below the requester's own subtree.
pub(crate) async fn ask(link: &Link, subject: &str, payload: Bytes, limit: Duration) -> Result<Bytes, AskError> {
    let reply = format!("{}{}", reply_prefix(subject), nonce());
    let mark = link.violations.mark();
    let transport = |detail: String| AskError::Transport { subject: subject.to_owned(), detail };
    let exchange = async {
        let mut answers = link.client.subscribe(reply.clone()).await.map_err(|fault| transport(fault.to_string()))?;
        link.client
            .publish_with_reply(subject.to_owned(), reply.clone(), payload)
            .await
            .map_err(|fault| transport(fault.to_string()))?;
        let refused = |refused: &str| refused == subject || refused == reply;
        tokio::select! {
            // An answer that is there counts, whatever else is ready.
            biased;
            answer = answers.next() => match answer {
                Some(answer) if answer.status == Some(async_nats::StatusCode::NO_RESPONDERS) => {
                    Err(AskError::NoResponders { subject: subject.to_owned() })
                }
                Some(answer) => Ok(answer.payload),
                None => Err(transport("the connection has ended".to_owned())),
            },
            violation = link.violations.wait_since(mark, |violation| refused(&violation.subject)) => {
                Err(AskError::Denied { subject: violation.subject })
            }
            () = link.ended.cancelled() => Err(transport("the connection has ended".to_owned())),
        }
    };
    let waited_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    tokio::time::timeout(limit, exchange)
        .await
        .unwrap_or_else(|_| Err(AskError::Timeout { subject: subject.to_owned(), waited_ms }))
}
