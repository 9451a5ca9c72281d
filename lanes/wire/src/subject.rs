//! Subjects below `cotal.<space>.`: parsed, built, filtered. Owns which shapes exist and who the sender is;
//! must not look at payloads and must not decide what the sender may do.

use std::fmt;

use crate::channel::{Channel, ChannelFault, ChannelPattern};
use crate::pattern;
use crate::principal::{Lifecycle, Principal};
use crate::text::shown;
use crate::timer::{TimerSubject, TimerVerb};
use crate::token::{Role, Space, TokenFault};

/// Queue group in which daemons serve `ctl.delivery`.
pub const CONTROL_QUEUE: &str = "delivery";
/// Queue group in which daemons serve `ctl.delivery-admin`.
pub const CONTROL_ADMIN_QUEUE: &str = "delivery-admin";

/// The two planes whose liveness can be probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Plane {
    /// The manager.
    Manager,
    /// The delivery daemon.
    Delivery,
}

impl Plane {
    /// The plane's token in subjects and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manager => "manager",
            Self::Delivery => "delivery",
        }
    }
}

impl fmt::Display for Plane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A subject of one space, with everything it says. The principals of a parsed subject all have a trusted owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// `chat.<owner>.<actor>.<channel>`: a post.
    Chat {
        /// Who posted.
        sender: Principal,
        /// Where.
        channel: Channel,
    },
    /// `inst.<owner>.<actor>.<owner>.<actor>`: a direct message.
    Inst {
        /// Whom it is for.
        recipient: Principal,
        /// Who sent it.
        sender: Principal,
    },
    /// `svc.<role>.<owner>.<actor>`: anycast work.
    Svc {
        /// The role that is to do it.
        role: Role,
        /// Who asked.
        sender: Principal,
    },
    /// `dinbox.<owner>.<actor>.<uid>`: a lifecycle's copies before authorisation.
    Dinbox(Lifecycle),
    /// `dlv.<owner>.<actor>.<uid>`: a lifecycle's authorised copies.
    Dlv(Lifecycle),
    /// `ctl.delivery.<owner>.<actor>`: a member's request.
    Control {
        /// Who asks.
        caller: Principal,
    },
    /// `ctl.delivery-admin.<owner>.<actor>`: an administrator's request.
    ControlAdmin {
        /// Who asks.
        caller: Principal,
    },
    /// `live.<plane>.<owner>.<actor>`: a liveness probe.
    Live {
        /// The plane that is probed.
        plane: Plane,
        /// Who asks.
        caller: Principal,
    },
    /// `ept.<endpoint>.<instance>.<epoch>.<timer>.<verb>`: a checkpoint timer.
    Timer(TimerSubject),
}

/// Why a subject has no meaning here. Texts are shortened and escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubjectFault {
    /// Not below `cotal.<space>.` of this space.
    #[error("subject \"{subject}\" is not below cotal.{space}.: it belongs to another space or to nothing of ours")]
    ForeignSpace {
        /// The subject.
        subject: String,
        /// The space that was expected.
        space: Space,
    },
    /// No shape has this first token or this number of tokens.
    #[error("subject \"{subject}\" has none of the known shapes: it has no sender and is never handled")]
    UnknownShape {
        /// The subject.
        subject: String,
    },
    /// A token breaks its grammar.
    #[error("subject \"{subject}\": {fault}")]
    Token {
        /// The subject.
        subject: String,
        /// What is wrong with the token.
        fault: TokenFault,
    },
    /// The channel breaks its grammar.
    #[error("subject \"{subject}\": {fault}")]
    Channel {
        /// The subject.
        subject: String,
        /// What is wrong with the channel.
        fault: ChannelFault,
    },
    /// The owner is neither `local` nor `u_` and 26 of `a-z2-7`.
    #[error("subject \"{subject}\": owner \"{owner}\" is not a trusted one, which is local or u_ and 26 of a-z2-7")]
    UntrustedOwner {
        /// The subject.
        subject: String,
        /// The owner.
        owner: String,
    },
    /// A known shape, but not the one that was wanted.
    #[error("subject \"{subject}\" is not a {wanted} subject")]
    Unexpected {
        /// The subject.
        subject: String,
        /// The wanted shape, such as `chat`.
        wanted: &'static str,
    },
}

impl Subject {
    /// Reads a subject of `space`. Wildcards are never part of one.
    ///
    /// # Errors
    /// See [`SubjectFault`]; any text is safe to pass.
    pub fn parse(space: &Space, subject: &str) -> Result<Self, SubjectFault> {
        let tail = subject.strip_prefix("cotal.").and_then(|s| s.strip_prefix(space.as_str()));
        let tail = tail.and_then(|s| s.strip_prefix('.'));
        let tail = tail.ok_or_else(|| SubjectFault::ForeignSpace { subject: shown(subject), space: space.clone() })?;
        let read = Reading { subject };
        let (head, rest) = tail.split_once('.').ok_or_else(|| read.unknown())?;
        match head {
            "chat" => read.chat(rest),
            "inst" => match read.tokens(rest)? {
                [a, b, c, d] => Ok(Self::Inst { recipient: read.principal(a, b)?, sender: read.principal(c, d)? }),
            },
            "svc" => match read.tokens(rest)? {
                [role, a, b] => Ok(Self::Svc { role: read.token(role)?, sender: read.principal(a, b)? }),
            },
            "dinbox" => Ok(Self::Dinbox(read.lifecycle(rest)?)),
            "dlv" => Ok(Self::Dlv(read.lifecycle(rest)?)),
            "ctl" => match read.tokens(rest)? {
                ["delivery", a, b] => Ok(Self::Control { caller: read.principal(a, b)? }),
                ["delivery-admin", a, b] => Ok(Self::ControlAdmin { caller: read.principal(a, b)? }),
                [_, _, _] => Err(read.unknown()),
            },
            "live" => match read.tokens(rest)? {
                ["manager", a, b] => Ok(Self::Live { plane: Plane::Manager, caller: read.principal(a, b)? }),
                ["delivery", a, b] => Ok(Self::Live { plane: Plane::Delivery, caller: read.principal(a, b)? }),
                [_, _, _] => Err(read.unknown()),
            },
            "ept" => read.timer(rest),
            _ => Err(read.unknown()),
        }
    }

    /// The subject as it stands on the wire in `space`.
    pub fn build(&self, space: &Space) -> String {
        match self {
            Self::Chat { sender, channel } => chat(space, sender, channel),
            Self::Inst { recipient, sender } => format!("cotal.{space}.inst.{recipient}.{sender}"),
            Self::Svc { role, sender } => format!("cotal.{space}.svc.{role}.{sender}"),
            Self::Dinbox(lifecycle) => dinbox(space, lifecycle),
            Self::Dlv(lifecycle) => dlv(space, lifecycle),
            Self::Control { caller } => control(space, caller),
            Self::ControlAdmin { caller } => control_admin(space, caller),
            Self::Live { plane, caller } => live(space, *plane, caller),
            Self::Timer(timer) => timer.build(space),
        }
    }
}

/// Reads the parts of one subject and names that subject in every fault.
struct Reading<'a> {
    subject: &'a str,
}

impl Reading<'_> {
    fn unknown(&self) -> SubjectFault {
        SubjectFault::UnknownShape { subject: shown(self.subject) }
    }

    fn tokens<'t, const N: usize>(&self, rest: &'t str) -> Result<[&'t str; N], SubjectFault> {
        let mut tokens = rest.split('.');
        let mut out = [""; N];
        for slot in &mut out {
            *slot = tokens.next().ok_or_else(|| self.unknown())?;
        }
        if tokens.next().is_some() { Err(self.unknown()) } else { Ok(out) }
    }

    fn token<T: std::str::FromStr<Err = TokenFault>>(&self, text: &str) -> Result<T, SubjectFault> {
        text.parse().map_err(|fault| SubjectFault::Token { subject: shown(self.subject), fault })
    }

    fn principal(&self, owner: &str, actor: &str) -> Result<Principal, SubjectFault> {
        let principal = Principal::new(self.token(owner)?, self.token(actor)?);
        if principal.is_trusted() {
            Ok(principal)
        } else {
            Err(SubjectFault::UntrustedOwner { subject: shown(self.subject), owner: shown(owner) })
        }
    }

    fn lifecycle(&self, rest: &str) -> Result<Lifecycle, SubjectFault> {
        let [owner, actor, uid] = self.tokens(rest)?;
        Ok(Lifecycle::new(self.principal(owner, actor)?, self.token(uid)?))
    }

    fn chat(&self, rest: &str) -> Result<Subject, SubjectFault> {
        let mut parts = rest.splitn(3, '.');
        let (Some(owner), Some(actor), Some(channel)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(self.unknown());
        };
        let sender = self.principal(owner, actor)?;
        let fault = |fault| SubjectFault::Channel { subject: shown(self.subject), fault };
        Ok(Subject::Chat { sender, channel: channel.parse().map_err(fault)? })
    }

    fn timer(&self, rest: &str) -> Result<Subject, SubjectFault> {
        let [endpoint, instance, epoch, timer, verb] = self.tokens(rest)?;
        Ok(Subject::Timer(TimerSubject {
            endpoint: self.token(endpoint)?,
            instance: self.token(instance)?,
            epoch: self.token(epoch)?,
            timer: self.token(timer)?,
            verb: TimerVerb::from_token(verb).ok_or_else(|| self.unknown())?,
        }))
    }
}

/// The subject of a post of `sender` on `channel`.
pub fn chat(space: &Space, sender: &Principal, channel: &Channel) -> String {
    format!("cotal.{space}.chat.{sender}.{channel}")
}

/// The subject of a lifecycle's copies before authorisation.
pub fn dinbox(space: &Space, lifecycle: &Lifecycle) -> String {
    format!("cotal.{space}.dinbox.{lifecycle}")
}

/// The subject of a lifecycle's authorised copies.
pub fn dlv(space: &Space, lifecycle: &Lifecycle) -> String {
    format!("cotal.{space}.dlv.{lifecycle}")
}

/// The subject of a member's request to the daemon.
pub fn control(space: &Space, caller: &Principal) -> String {
    format!("cotal.{space}.ctl.delivery.{caller}")
}

/// The subject of an administrator's request to the daemon.
pub fn control_admin(space: &Space, caller: &Principal) -> String {
    format!("cotal.{space}.ctl.delivery-admin.{caller}")
}

/// The subject of a liveness probe.
pub fn live(space: &Space, plane: Plane, caller: &Principal) -> String {
    format!("cotal.{space}.live.{plane}.{caller}")
}

/// Every post of the space.
pub fn chat_filter(space: &Space) -> String {
    format!("cotal.{space}.chat.>")
}

/// Every post, by anyone, on the channels of `pattern`.
pub fn chat_channel_filter(space: &Space, pattern: &ChannelPattern) -> String {
    format!("cotal.{space}.chat.*.*.{pattern}")
}

/// Every direct message of the space.
pub fn inst_filter(space: &Space) -> String {
    format!("cotal.{space}.inst.>")
}

/// Every piece of anycast work of the space.
pub fn svc_filter(space: &Space) -> String {
    format!("cotal.{space}.svc.>")
}

/// Every lifecycle's copies before authorisation.
pub fn dinbox_filter(space: &Space) -> String {
    format!("cotal.{space}.dinbox.>")
}

/// Every lifecycle's authorised copies.
pub fn dlv_filter(space: &Space) -> String {
    format!("cotal.{space}.dlv.>")
}

/// Every member's request to the daemon.
pub fn control_filter(space: &Space) -> String {
    format!("cotal.{space}.ctl.delivery.*.*")
}

/// Every administrator's request to the daemon.
pub fn control_admin_filter(space: &Space) -> String {
    format!("cotal.{space}.ctl.delivery-admin.*.*")
}

/// Every liveness probe of a plane.
pub fn live_filter(space: &Space, plane: Plane) -> String {
    format!("cotal.{space}.live.{plane}.*.*")
}

/// Queue group in which a plane answers liveness probes.
pub fn live_queue(plane: Plane) -> &'static str {
    match plane {
        Plane::Manager => "live.manager",
        Plane::Delivery => "live.delivery",
    }
}

/// What every reply subject of this request begins with: `<request>.reply.`.
pub fn reply_prefix(request: &str) -> String {
    format!("{request}.reply.")
}

/// Whether `reply` is the requester's own: below the request's reply prefix, with at least one token more, and a
/// literal subject. A daemon that answers elsewhere can be made to speak in another's name.
pub fn is_own_reply(request: &str, reply: &str) -> bool {
    let tail = reply.strip_prefix(request).and_then(|rest| rest.strip_prefix(".reply."));
    let literal = |token: &str| {
        !token.is_empty() && token != "*" && token != ">" && !token.chars().any(|c| c.is_whitespace() || c.is_control())
    };
    tail.is_some_and(|tail| tail.split('.').all(literal))
}

/// NATS matching: `*` is one token, `>` is one or more and stands last. A malformed filter or subject matches nothing.
pub fn matches(filter: &str, subject: &str) -> bool {
    pattern::matches(filter, subject)
}
