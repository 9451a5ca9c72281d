//! Owns the liveness probe of a plane and how its outcome is read. A probe that did not find out says `unknown`; it
//! must never turn silence into a verdict.

use bytes::Bytes;
use lanekeeper_wire::{LivenessAnswer, Plane, Responder};
use tracing::debug;

use crate::ask::AskError;

/// What a probe found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The state of the plane's responder.
    pub responder: Responder,
    /// The responder's token, new at each of its binds; absent when nobody answered properly.
    pub instance: Option<String>,
}

impl Probe {
    /// Reads the outcome of one probe of `plane`.
    pub(crate) fn read(plane: Plane, outcome: Result<Bytes, AskError>) -> Self {
        let nameless = |responder| Self { responder, instance: None };
        match outcome {
            Ok(payload) => match LivenessAnswer::parse(&payload) {
                Ok(answer) if answer.plane == plane => {
                    Self { responder: answer.responder, instance: Some(answer.instance) }
                }
                Ok(_) => nameless(Responder::Unknown),
                Err(fault) => {
                    debug!(%fault, "liveness answer does not parse");
                    nameless(Responder::Unknown)
                }
            },
            Err(AskError::NoResponders { .. }) => nameless(Responder::Unbound),
            Err(fault @ (AskError::Timeout { .. } | AskError::Denied { .. } | AskError::Transport { .. })) => {
                debug!(%fault, "liveness probe did not find out");
                nameless(Responder::Unknown)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(payload: &str) -> Probe {
        Probe::read(Plane::Delivery, Ok(Bytes::copy_from_slice(payload.as_bytes())))
    }

    #[test]
    fn table_of_outcomes() {
        let subject = || "s".to_owned();
        let silent = |fault| Probe::read(Plane::Delivery, Err(fault)).responder;
        assert_eq!(silent(AskError::NoResponders { subject: subject() }), Responder::Unbound);
        assert_eq!(silent(AskError::Timeout { subject: subject(), waited_ms: 1 }), Responder::Unknown);
        assert_eq!(silent(AskError::Denied { subject: subject() }), Responder::Unknown);
        assert_eq!(silent(AskError::Transport { subject: subject(), detail: subject() }), Responder::Unknown);
        for (word, expected) in [
            ("bound", Responder::Bound),
            ("unbound", Responder::Unbound),
            ("stale", Responder::Stale),
            ("unknown", Responder::Unknown),
        ] {
            let probe = answered(&format!(r#"{{"plane":"delivery","responder":"{word}","instance":"t"}}"#));
            assert_eq!((probe.responder, probe.instance.as_deref()), (expected, Some("t")));
        }
    }

    #[test]
    fn anything_else_is_unknown_and_nameless() {
        for payload in [
            "",
            "null",
            "{}",
            "7",
            r#"{"plane":"delivery","responder":"healthy","instance":"t"}"#,
            r#"{"plane":"delivery","responder":"bound"}"#,
            r#"{"plane":"manager","responder":"bound","instance":"t"}"#,
            "\u{0}",
        ] {
            let probe = answered(payload);
            assert_eq!((probe.responder, probe.instance), (Responder::Unknown, None), "{payload}");
        }
    }
}
