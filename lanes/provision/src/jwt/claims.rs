//! The bodies of NATS claims, with the field names of the format. Data only: no keys, no signing.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// "No limit" in the claims format. A *missing* account limit means 0, which is "nothing at all".
const UNLIMITED: i64 = -1;

/// What a token is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimsKind {
    /// The root of trust of a broker.
    Operator,
    /// A tenant.
    Account,
    /// One connection's identity and rights.
    User,
    /// Anything else; the broker uses it for the deletion of accounts.
    Generic,
}

impl ClaimsKind {
    /// The `type` written into the claims.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Account => "account",
            Self::User => "user",
            Self::Generic => "generic",
        }
    }
}

/// A body that can be signed.
pub trait Body: Serialize {
    /// The type of the claims.
    const KIND: ClaimsKind;
}

/// Body of an operator token.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OperatorClaims {
    /// Public keys that may sign accounts in the operator's name.
    pub signing_keys: Vec<String>,
    /// Public key of the system account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_account: Option<String>,
    /// The identity key signs nothing but the operator token itself.
    pub strict_signing_key_usage: bool,
}

impl Body for OperatorClaims {
    const KIND: ClaimsKind = ClaimsKind::Operator;
}

/// Body of an account token.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AccountClaims {
    /// All limits, always written out.
    pub limits: AccountLimits,
    /// Public keys that may sign users of this account.
    pub signing_keys: Vec<String>,
    /// Users cut off: their tokens issued up to this second (Unix epoch) are void.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub revocations: BTreeMap<String, u64>,
}

impl Body for AccountClaims {
    const KIND: ClaimsKind = ClaimsKind::Account;
}

/// Limits of an account; -1 is unlimited, 0 is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AccountLimits {
    /// Subscriptions.
    pub subs: i64,
    /// Bytes in flight.
    pub data: i64,
    /// Bytes of one message.
    pub payload: i64,
    /// Imports.
    pub imports: i64,
    /// Exports.
    pub exports: i64,
    /// Exports may hold wildcards.
    pub wildcards: bool,
    /// Client connections.
    pub conn: i64,
    /// Leaf node connections.
    pub leaf: i64,
    /// Tokens that need no proof of the seed are refused.
    pub disallow_bearer: bool,
    /// JetStream memory, bytes.
    pub mem_storage: i64,
    /// JetStream disk, bytes.
    pub disk_storage: i64,
    /// Streams.
    pub streams: i64,
    /// Consumers.
    pub consumer: i64,
    /// Unacknowledged messages of one consumer.
    pub max_ack_pending: i64,
    /// Bytes of one memory stream.
    pub mem_max_stream_bytes: i64,
    /// Bytes of one file stream.
    pub disk_max_stream_bytes: i64,
    /// A stream must say how large it may become.
    pub max_bytes_required: bool,
}

impl Default for AccountLimits {
    /// Unlimited, with JetStream; bearer tokens are refused, because a stolen one needs no seed.
    fn default() -> Self {
        Self {
            subs: UNLIMITED,
            data: UNLIMITED,
            payload: UNLIMITED,
            imports: UNLIMITED,
            exports: UNLIMITED,
            wildcards: true,
            conn: UNLIMITED,
            leaf: UNLIMITED,
            disallow_bearer: true,
            mem_storage: UNLIMITED,
            disk_storage: UNLIMITED,
            streams: UNLIMITED,
            consumer: UNLIMITED,
            max_ack_pending: UNLIMITED,
            mem_max_stream_bytes: UNLIMITED,
            disk_max_stream_bytes: UNLIMITED,
            max_bytes_required: false,
        }
    }
}

impl AccountLimits {
    /// Unlimited, but without JetStream: the system account, where the broker refuses to have any.
    pub fn without_jetstream() -> Self {
        Self {
            mem_storage: 0,
            disk_storage: 0,
            streams: 0,
            consumer: 0,
            max_ack_pending: 0,
            mem_max_stream_bytes: 0,
            disk_max_stream_bytes: 0,
            ..Self::default()
        }
    }
}

/// Subjects allowed and denied. Deny wins. An empty `allow` allows everything: see `profile`, which never leaves it so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permission {
    /// Subjects allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Subjects denied, whatever is allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// The right to answer a request on its reply subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResponsePermission {
    /// Answers to one request; -1 is unlimited.
    pub max: i64,
    /// How long after the request an answer is allowed, nanoseconds.
    pub ttl: i64,
}

/// Body of a user token.
#[derive(Clone, Debug, Serialize)]
pub struct UserClaims {
    /// What it may publish.
    #[serde(rename = "pub")]
    pub publish: Permission,
    /// What it may subscribe to.
    #[serde(rename = "sub")]
    pub subscribe: Permission,
    /// Answers to requests it received; absent in every profile of this project (reply subjects are granted by name).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resp: Option<ResponsePermission>,
    /// Subscriptions; -1 is unlimited.
    pub subs: i64,
    /// Bytes in flight; -1 is unlimited.
    pub data: i64,
    /// Bytes of one message; -1 is unlimited.
    pub payload: i64,
    /// Tags, such as `principal:local.ada`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The account, needed when a signing key issues the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer_account: Option<String>,
}

impl UserClaims {
    /// A user of `issuer_account` with these rights and no limits on volume.
    pub fn new(publish: Permission, subscribe: Permission, issuer_account: &str) -> Self {
        Self {
            publish,
            subscribe,
            resp: None,
            subs: UNLIMITED,
            data: UNLIMITED,
            payload: UNLIMITED,
            tags: Vec::new(),
            issuer_account: Some(issuer_account.to_owned()),
        }
    }
}

impl Body for UserClaims {
    const KIND: ClaimsKind = ClaimsKind::User;
}

/// Body of generic claims: any fields.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GenericClaims {
    /// The fields, written beside `type` and `version`.
    #[serde(flatten)]
    pub fields: serde_json::Map<String, serde_json::Value>,
}

impl Body for GenericClaims {
    const KIND: ClaimsKind = ClaimsKind::Generic;
}
