//! Control requests to the daemon. Owns what a well-formed request of which caller is; must not carry one out.
//! The text of a fault is what the caller is answered, so it names what is wrong and repeats no more than it must.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::channel::{Channel, ChannelFault, ChannelPattern};
use crate::json::{self, Members};
use crate::principal::Principal;
use crate::text::{json_reason, shown};
use crate::token::{LifecycleUid, TokenFault};

/// Largest request that is read, in bytes.
pub const MAX_REQUEST_BYTES: usize = 64 * 1024;
/// How many messages `readHistory` returns when the request does not say.
pub const DEFAULT_HISTORY_LIMIT: u32 = 50;
/// Most messages that `readHistory` may be asked for.
pub const MAX_HISTORY_LIMIT: u32 = 200;

/// What a member asks of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryOp {
    /// Join a channel or family durably.
    DurableJoin {
        /// The channel or family.
        channel: ChannelPattern,
    },
    /// Leave a channel or family.
    DurableLeave {
        /// The channel or family.
        channel: ChannelPattern,
        /// The generation that was joined.
        generation: u64,
        /// The incarnation that joined.
        lifecycle_uid: LifecycleUid,
    },
    /// List the open memberships.
    ListMemberships {
        /// The incarnation that asks.
        lifecycle_uid: LifecycleUid,
    },
    /// Read the newest messages of a channel.
    ReadHistory {
        /// The channel.
        channel: Channel,
        /// How many at most, from 1 to [`MAX_HISTORY_LIMIT`].
        limit: u32,
    },
}

impl DeliveryOp {
    /// The operation's name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::DurableJoin { .. } => "durableJoin",
            Self::DurableLeave { .. } => "durableLeave",
            Self::ListMemberships { .. } => "listMemberships",
            Self::ReadHistory { .. } => "readHistory",
        }
    }
}

/// A request on `ctl.delivery`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlRequest {
    /// The caller's id of the request.
    pub id: Option<String>,
    /// What is asked.
    pub op: DeliveryOp,
}

/// A request whose operation and arguments are not judged yet, as on `ctl.delivery-admin`.
#[derive(Debug, Clone, PartialEq)]
pub struct RawRequest {
    /// The caller's id of the request.
    pub id: Option<String>,
    /// The operation's name.
    pub op: String,
    /// The caller's principal, the same as in the subject.
    pub from_id: String,
    /// The arguments, empty when there are none.
    pub args: Map<String, Value>,
}

/// Why a request is refused. The text is the `error` of the reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestFault {
    /// More than [`MAX_REQUEST_BYTES`].
    #[error("request refused: {len_bytes} bytes, at most {MAX_REQUEST_BYTES} are read")]
    TooLarge {
        /// The request's length in bytes.
        len_bytes: usize,
    },
    /// Not a JSON object in UTF-8.
    #[error("request refused: not a json object: {why}")]
    NotObject {
        /// What the parser said.
        why: String,
    },
    /// A field of the request is absent or of the wrong type.
    #[error("request refused: no {field} that is {wanted}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// The request claims another caller than its subject proves.
    #[error("request refused: from.id \"{claimed}\" is not the caller {caller} that the subject proves")]
    SenderMismatch {
        /// The caller in the subject.
        caller: Principal,
        /// The caller in the payload, shortened and escaped.
        claimed: String,
    },
    /// An operation that is not served here.
    #[error("unknown op \"{op}\": use durableJoin, durableLeave, listMemberships or readHistory")]
    UnknownOp {
        /// The operation, shortened and escaped.
        op: String,
    },
    /// An argument is absent.
    #[error("{op}: argument {argument} is missing: pass {wanted}")]
    MissingArgument {
        /// The operation.
        op: &'static str,
        /// The argument.
        argument: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// An argument has the wrong type or is out of range.
    #[error("{op}: argument {argument} is refused: pass {wanted}")]
    BadArgument {
        /// The operation.
        op: &'static str,
        /// The argument.
        argument: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// A channel argument breaks its grammar.
    #[error("{op}: {fault}")]
    BadChannel {
        /// The operation.
        op: &'static str,
        /// What is wrong.
        fault: ChannelFault,
    },
    /// A token argument breaks its grammar.
    #[error("{op}: {fault}")]
    BadToken {
        /// The operation.
        op: &'static str,
        /// What is wrong.
        fault: TokenFault,
    },
}

/// A request's envelope: its fields as text, nothing copied.
struct Envelope<'a> {
    id: Option<Cow<'a, str>>,
    op: Cow<'a, str>,
    args: &'a str,
}

fn open<'a>(caller: &Principal, payload: &'a [u8]) -> Result<Envelope<'a>, RequestFault> {
    if payload.len() > MAX_REQUEST_BYTES {
        return Err(RequestFault::TooLarge { len_bytes: payload.len() });
    }
    let source = std::str::from_utf8(payload).map_err(|e| RequestFault::NotObject { why: e.to_string() })?;
    let request = Members::parse(source).map_err(|e| RequestFault::NotObject { why: json_reason(&e) })?;
    let field = |field, wanted| RequestFault::Field { field, wanted };
    let from = request.get(source, "from").ok_or_else(|| field("from", "an object"))?;
    let from_members = Members::parse(from).map_err(|_| field("from", "an object"))?;
    let claimed = from_members.get(from, "id").and_then(json::text_of);
    let claimed = claimed.ok_or_else(|| field("from.id", "a string"))?;
    if claimed != caller.as_str() {
        return Err(RequestFault::SenderMismatch { caller: caller.clone(), claimed: shown(&claimed) });
    }
    let id = match request.get(source, "id") {
        None | Some("null") => None,
        Some(raw) => Some(json::text_of(raw).ok_or_else(|| field("id", "a string"))?),
    };
    let op = request.get(source, "op").and_then(json::text_of).ok_or_else(|| field("op", "a string"))?;
    let args = match request.get(source, "args") {
        None | Some("null") => "{}",
        Some(raw) if raw.starts_with('{') => raw,
        Some(_) => return Err(field("args", "an object")),
    };
    Ok(Envelope { id, op, args })
}

/// Reads a request on `ctl.delivery` of the caller that its subject proves.
///
/// # Errors
/// See [`RequestFault`]; any bytes are safe to pass.
pub fn parse_request(caller: &Principal, payload: &[u8]) -> Result<ControlRequest, RequestFault> {
    let envelope = open(caller, payload)?;
    let args = |op| Arguments::of(op, envelope.args);
    let op = match envelope.op.as_ref() {
        "durableJoin" => DeliveryOp::DurableJoin { channel: args("durableJoin")?.pattern("channel")? },
        "durableLeave" => {
            let args = args("durableLeave")?;
            DeliveryOp::DurableLeave {
                channel: args.pattern("channel")?,
                generation: args.number("generation", "a whole number of 0 or more")?,
                lifecycle_uid: args.uid("lifecycleUid")?,
            }
        }
        "listMemberships" => {
            DeliveryOp::ListMemberships { lifecycle_uid: args("listMemberships")?.uid("lifecycleUid")? }
        }
        "readHistory" => {
            let args = args("readHistory")?;
            DeliveryOp::ReadHistory { channel: args.channel("channel")?, limit: args.limit("limit")? }
        }
        other => return Err(RequestFault::UnknownOp { op: shown(other) }),
    };
    Ok(ControlRequest { id: envelope.id.map(Cow::into_owned), op })
}

/// Reads a request without judging its operation, for `ctl.delivery-admin`.
///
/// # Errors
/// See [`RequestFault`]; any bytes are safe to pass.
pub fn parse_raw(caller: &Principal, payload: &[u8]) -> Result<RawRequest, RequestFault> {
    let envelope = open(caller, payload)?;
    let args = serde_json::from_str(envelope.args).map_err(|e| RequestFault::NotObject { why: json_reason(&e) })?;
    Ok(RawRequest {
        id: envelope.id.map(Cow::into_owned),
        op: envelope.op.into_owned(),
        from_id: caller.dotted(),
        args,
    })
}

/// The arguments of one operation.
struct Arguments<'a> {
    op: &'static str,
    source: &'a str,
    members: Members,
}

impl<'a> Arguments<'a> {
    fn of(op: &'static str, source: &'a str) -> Result<Self, RequestFault> {
        let members = Members::parse(source).map_err(|e| RequestFault::NotObject { why: json_reason(&e) })?;
        Ok(Self { op, source, members })
    }

    fn raw(&self, argument: &str) -> Option<&'a str> {
        self.members.get(self.source, argument).filter(|raw| *raw != "null")
    }

    fn bad(&self, argument: &'static str, wanted: &'static str) -> RequestFault {
        RequestFault::BadArgument { op: self.op, argument, wanted }
    }

    fn needed(&self, argument: &'static str, wanted: &'static str) -> Result<&'a str, RequestFault> {
        self.raw(argument).ok_or(RequestFault::MissingArgument { op: self.op, argument, wanted })
    }

    fn text(&self, argument: &'static str, wanted: &'static str) -> Result<Cow<'a, str>, RequestFault> {
        json::text_of(self.needed(argument, wanted)?).ok_or_else(|| self.bad(argument, wanted))
    }

    fn pattern(&self, argument: &'static str) -> Result<ChannelPattern, RequestFault> {
        let text = self.text(argument, "a channel or family, such as team.backend or team.>")?;
        text.parse().map_err(|fault| RequestFault::BadChannel { op: self.op, fault })
    }

    fn channel(&self, argument: &'static str) -> Result<Channel, RequestFault> {
        let text = self.text(argument, "one channel, such as team.backend")?;
        text.parse().map_err(|fault| RequestFault::BadChannel { op: self.op, fault })
    }

    fn uid(&self, argument: &'static str) -> Result<LifecycleUid, RequestFault> {
        let text = self.text(argument, "the caller's lifecycle uid")?;
        text.parse().map_err(|fault| RequestFault::BadToken { op: self.op, fault })
    }

    fn number(&self, argument: &'static str, wanted: &'static str) -> Result<u64, RequestFault> {
        self.needed(argument, wanted)?.parse().map_err(|_| self.bad(argument, wanted))
    }

    fn limit(&self, argument: &'static str) -> Result<u32, RequestFault> {
        let Some(raw) = self.raw(argument) else { return Ok(DEFAULT_HISTORY_LIMIT) };
        let limit = raw.parse().ok().filter(|limit| (1..=MAX_HISTORY_LIMIT).contains(limit));
        limit.ok_or_else(|| self.bad(argument, "a whole number from 1 to 200"))
    }
}

#[derive(Serialize)]
struct Request<'a> {
    op: &'a str,
    from: From<'a>,
    args: Value,
}

#[derive(Serialize)]
struct From<'a> {
    id: &'a Principal,
    name: &'a str,
}

/// The payload of a request as a member sends it; `args` is left as it is given.
pub fn compose_request(from: &Principal, name: &str, op: &str, args: Value) -> Vec<u8> {
    json::to_text(&Request { op, from: From { id: from, name }, args }).into_bytes()
}
