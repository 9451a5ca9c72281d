//! Who: a principal (owner and actor) and a lifecycle (one incarnation of a principal).
//! Owns their forms in subjects, keys and JetStream names; must not decide what they may do.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use crate::text::serde_as_text;
use crate::token::{Actor, LifecycleUid, Owner, TokenFault};

const PRINCIPAL_RULE: &str = "<owner>.<actor>, each of A-Z, a-z, 0-9 and _";
const DASHED_RULE: &str = "<owner>-<actor>, each of A-Z, a-z, 0-9 and _";
const LIFECYCLE_RULE: &str = "<owner>.<actor>.<uid>, the uid 26 to 32 of a-z and 0-9";

/// An owner and an actor. A clone is one reference count; equality and hash follow the dotted form.
#[derive(Clone)]
pub struct Principal(Arc<PrincipalParts>);

struct PrincipalParts {
    owner: Owner,
    actor: Actor,
    dotted: String,
}

/// One incarnation of a principal. A clone is one reference count; equality and hash follow [`Lifecycle::key`].
#[derive(Clone)]
pub struct Lifecycle(Arc<LifecycleParts>);

struct LifecycleParts {
    principal: Principal,
    uid: LifecycleUid,
    key: String,
}

impl Principal {
    /// The principal of an owner and an actor.
    pub fn new(owner: Owner, actor: Actor) -> Self {
        let dotted = format!("{owner}.{actor}");
        Self(Arc::new(PrincipalParts { owner, actor, dotted }))
    }

    /// The owner.
    pub fn owner(&self) -> &Owner {
        &self.0.owner
    }

    /// The actor.
    pub fn actor(&self) -> &Actor {
        &self.0.actor
    }

    /// `<owner>.<actor>`, the form in subjects, keys and JSON.
    pub fn as_str(&self) -> &str {
        &self.0.dotted
    }

    /// As [`Principal::as_str`], owned.
    pub fn dotted(&self) -> String {
        self.0.dotted.clone()
    }

    /// `<owner>-<actor>`, the form in JetStream names and of an authorised user.
    pub fn dashed(&self) -> String {
        format!("{}-{}", self.0.owner, self.0.actor)
    }

    /// Reads the dashed form. Neither half may contain a dash, so there is one way to split it.
    ///
    /// # Errors
    /// Anything but two tokens with one dash between them.
    pub fn parse_dashed(text: &str) -> Result<Self, TokenFault> {
        split_pair(text, '-').ok_or_else(|| TokenFault::new("principal", text, DASHED_RULE))
    }

    /// Whether the owner is a trusted one, see [`Owner::is_trusted`].
    pub fn is_trusted(&self) -> bool {
        self.0.owner.is_trusted()
    }
}

fn split_pair(text: &str, separator: char) -> Option<Principal> {
    let (owner, actor) = text.split_once(separator)?;
    Some(Principal::new(owner.parse().ok()?, actor.parse().ok()?))
}

impl FromStr for Principal {
    type Err = TokenFault;

    fn from_str(text: &str) -> Result<Self, TokenFault> {
        split_pair(text, '.').ok_or_else(|| TokenFault::new("principal", text, PRINCIPAL_RULE))
    }
}

impl Lifecycle {
    /// The lifecycle of a principal with this uid.
    pub fn new(principal: Principal, uid: LifecycleUid) -> Self {
        let key = format!("{principal}.{uid}");
        Self(Arc::new(LifecycleParts { principal, uid, key }))
    }

    /// The principal.
    pub fn principal(&self) -> &Principal {
        &self.0.principal
    }

    /// The uid.
    pub fn uid(&self) -> &LifecycleUid {
        &self.0.uid
    }

    /// `<owner>.<actor>.<uid>`, the form in subjects and keys.
    pub fn as_str(&self) -> &str {
        &self.0.key
    }

    /// As [`Lifecycle::as_str`], owned.
    pub fn key(&self) -> String {
        self.0.key.clone()
    }

    /// `<owner>-<actor>-<uid>`, the form in JetStream names.
    pub fn dashed(&self) -> String {
        format!("{}-{}", self.0.principal.dashed(), self.0.uid)
    }

    /// Whether the owner is a trusted one, see [`Owner::is_trusted`].
    pub fn is_trusted(&self) -> bool {
        self.0.principal.is_trusted()
    }
}

impl FromStr for Lifecycle {
    type Err = TokenFault;

    fn from_str(text: &str) -> Result<Self, TokenFault> {
        let parts = text
            .rsplit_once('.')
            .and_then(|(principal, uid)| Some(Self::new(split_pair(principal, '.')?, uid.parse().ok()?)));
        parts.ok_or_else(|| TokenFault::new("lifecycle", text, LIFECYCLE_RULE))
    }
}

macro_rules! like_its_text {
    ($name:ident) => {
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.0, &other.0) || self.as_str() == other.as_str()
            }
        }

        impl Eq for $name {}

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.as_str().hash(state);
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.as_str().cmp(other.as_str())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.as_str())
            }
        }
    };
}

like_its_text!(Principal);
like_its_text!(Lifecycle);
serde_as_text!(Principal, "a principal <owner>.<actor>");
serde_as_text!(Lifecycle, "a lifecycle <owner>.<actor>.<uid>");
