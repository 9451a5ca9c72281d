//! Single tokens of subjects, keys and names. Owns their grammar; must not know where in a subject a token stands.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::text::{serde_as_text, shown};

/// Longest JetStream stream, consumer and bucket name that a broker accepts, in characters.
const MAX_NAME_CHARS: usize = 255;
/// The longest name made from a space is `KV_cotal_membership_<space>`.
const MAX_SPACE_CHARS: usize = MAX_NAME_CHARS - "KV_cotal_membership_".len();
/// A trusted owner has at most 28 characters and a uid 32; `dlv_<owner>-<actor>-<uid>` has to remain a legal name.
const MAX_ACTOR_CHARS: usize = MAX_NAME_CHARS - "dlv_".len() - 28 - 1 - 1 - 32;
/// `svc_<role>` has to remain a legal name.
const MAX_ROLE_CHARS: usize = MAX_NAME_CHARS - "svc_".len();
/// Largest integer a JavaScript peer can hold exactly, plus one.
const EPOCH_END: u64 = 1 << 53;

/// A text that is not the token it should be: which kind, the text (shortened and escaped), the rule it breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} \"{text}\" is refused: use {rule}")]
pub struct TokenFault {
    kind: &'static str,
    text: String,
    rule: &'static str,
}

impl TokenFault {
    pub(crate) fn new(kind: &'static str, text: &str, rule: &'static str) -> Self {
        Self { kind, text: shown(text), rule }
    }

    /// The kind of token that was wanted, such as `owner`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }
}

fn is_name(text: &str, max_chars: usize, extra: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.len() <= max_chars && text.bytes().all(|b| b.is_ascii_alphanumeric() || extra(b))
}

fn is_plain(text: &str, max_chars: usize) -> bool {
    is_name(text, max_chars, |b| b == b'_')
}

fn is_dashed(text: &str, max_chars: usize) -> bool {
    is_name(text, max_chars, |b| b == b'_' || b == b'-')
}

fn is_lifecycle_uid(text: &str) -> bool {
    (26..=32).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

fn is_endpoint(text: &str) -> bool {
    let label = |l: &str| {
        !l.is_empty()
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    text.len() <= 64 && text.split('_').all(label)
}

macro_rules! token_type {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $rule:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The token as it stands on the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = TokenFault;

            fn from_str(text: &str) -> Result<Self, TokenFault> {
                let valid: fn(&str) -> bool = $valid;
                if valid(text) { Ok(Self(text.into())) } else { Err(TokenFault::new($kind, text, $rule)) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        serde_as_text!($name, $kind);
    };
}

token_type!(
    /// A space: one mesh, one lane. Never rewritten into shape: what is not a token already is refused.
    Space, "space", "1 to 235 of A-Z, a-z, 0-9, _ and -", |t| is_dashed(t, MAX_SPACE_CHARS)
);
token_type!(
    /// The owner half of a principal. See [`Owner::is_trusted`] before anything is keyed on it.
    Owner, "owner", "1 to 189 of A-Z, a-z, 0-9 and _", |t| is_plain(t, MAX_ACTOR_CHARS)
);
token_type!(
    /// The actor half of a principal.
    Actor, "actor", "1 to 189 of A-Z, a-z, 0-9 and _", |t| is_plain(t, MAX_ACTOR_CHARS)
);
token_type!(
    /// One incarnation of a principal; never reused.
    LifecycleUid, "lifecycle uid", "26 to 32 of a-z and 0-9", is_lifecycle_uid
);
token_type!(
    /// The role of an anycast service.
    Role, "role", "1 to 251 of A-Z, a-z, 0-9, _ and -", |t| is_dashed(t, MAX_ROLE_CHARS)
);
token_type!(
    /// The name of a checkpoint timer.
    TimerId, "timer id", "1 to 64 of A-Z, a-z, 0-9, _ and -", |t| is_dashed(t, 64)
);
token_type!(
    /// A dotted endpoint name as one token: DNS-style labels joined with `_`.
    EndpointToken, "endpoint", "lower-case DNS labels joined with _, at most 64 characters", is_endpoint
);
token_type!(
    /// One running instance of an endpoint, as it stands in a timer subject.
    InstanceId, "instance", "1 to 64 of A-Z, a-z, 0-9, _ and -", |t| is_dashed(t, 64)
);

impl Owner {
    /// Whether the owner is one that may be surfaced, keyed on or authorised: `local`, or `u_` and 26 of `a-z2-7`.
    pub fn is_trusted(&self) -> bool {
        let base32 = |rest: &str| rest.len() == 26 && rest.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'));
        self.as_str() == "local" || self.as_str().strip_prefix("u_").is_some_and(base32)
    }
}

const EPOCH_RULE: &str = "a decimal integer below 2^53 without a leading zero";

/// The epoch of an endpoint instance: an unsigned integer below 2^53.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch with this number.
    ///
    /// # Errors
    /// A number of 2^53 or more, which a JavaScript peer could not hold.
    pub fn new(number: u64) -> Result<Self, TokenFault> {
        if number < EPOCH_END {
            Ok(Self(number))
        } else {
            Err(TokenFault::new("epoch", &number.to_string(), EPOCH_RULE))
        }
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for Epoch {
    type Err = TokenFault;

    fn from_str(text: &str) -> Result<Self, TokenFault> {
        let fault = || TokenFault::new("epoch", text, EPOCH_RULE);
        // `u64::from_str` takes a sign and leading zeros, which would give one epoch two spellings.
        let canonical = text == "0" || (!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()));
        let number: u64 = if canonical { text.parse().map_err(|_| fault())? } else { return Err(fault()) };
        Self::new(number).map_err(|_| fault())
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl serde::Serialize for Epoch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Epoch {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(u64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
