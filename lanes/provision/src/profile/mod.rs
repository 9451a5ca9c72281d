//! Permission profiles: what each role may publish and subscribe to, and nothing else.
//!
//! One function per role, one comment per row. It must not sign anything. Wire contract, section 11. A profile is an
//! allow list; a deny list is added where an allow row of a later version must never open what it names.

mod agent;
mod delivery;
mod people;
mod reads;
mod system;

pub use agent::{AgentProfile, history_durable};
pub use delivery::DeliveryExtras;

use crate::credentials::inbox_prefix;
use crate::jwt::Permission;
use lanekeeper_wire::{Principal, Space};

/// A role inside a space's data account.
#[derive(Clone, Debug)]
pub enum SpaceProfile {
    /// A member of the space.
    Agent(AgentProfile),
    /// The daemon's delivery connection.
    Delivery(DeliveryExtras),
    /// The daemon's membership feed: reads the members registry, writes the feed bucket.
    MembershipRw,
    /// Creates streams, buckets, durables and rows of the space; reads no messages.
    Provisioner,
    /// Asks for administration in the name of a principal.
    Admin(Principal),
    /// Watches the space: public chat, presence, channels, the feed and the lease. Writes nothing.
    Observer,
}

/// A role inside the system account.
#[derive(Clone, Debug)]
pub enum SystemProfile {
    /// Sees the connections of one data account, and that somebody came or went.
    MembershipObserver {
        /// Public key of the account it may watch.
        account_id: String,
    },
    /// May close any connection of the broker.
    ConnectionEvictor,
    /// Pushes and deletes accounts.
    ClaimsWriter,
}

/// What one user may do, ready to be written into its token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Subjects it may and may not publish.
    pub publish: Permission,
    /// Subjects it may and may not subscribe to.
    pub subscribe: Permission,
    /// Tags of the token.
    pub tags: Vec<String>,
}

impl Grants {
    pub(crate) fn publish(&mut self, subject: impl Into<String>) -> &mut Self {
        self.publish.allow.push(subject.into());
        self
    }

    pub(crate) fn never_publish(&mut self, subject: impl Into<String>) -> &mut Self {
        self.publish.deny.push(subject.into());
        self
    }

    pub(crate) fn subscribe(&mut self, subject: impl Into<String>) -> &mut Self {
        self.subscribe.allow.push(subject.into());
        self
    }

    /// Replies to this user's own requests, and nobody else's.
    pub(crate) fn own_inbox(&mut self, public_key: &str) -> &mut Self {
        self.subscribe(format!("{}.>", inbox_prefix(public_key)))
    }

    /// The three tags by which a connection's principal is known.
    pub(crate) fn tag_principal(&mut self, principal: &Principal) -> &mut Self {
        self.tags.extend([
            format!("owner:{}", principal.owner()),
            format!("actor:{}", principal.actor()),
            format!("principal:{principal}"),
        ]);
        self
    }
}

impl SpaceProfile {
    /// What the user with this public key may do in this space.
    pub fn grants(&self, space: &Space, public_key: &str) -> Grants {
        match self {
            Self::Agent(profile) => agent::grants(profile, space, public_key),
            Self::Delivery(extras) => delivery::grants(*extras, space, public_key),
            Self::MembershipRw => delivery::membership_rw(space, public_key),
            Self::Provisioner => people::provisioner(space, public_key),
            Self::Admin(principal) => people::admin(principal, space, public_key),
            Self::Observer => people::observer(space, public_key),
        }
    }

    /// The name written into the token, for people and logs.
    pub fn user_name(&self) -> String {
        match self {
            Self::Agent(profile) => profile.principal.dashed(),
            Self::Delivery(_) => "delivery".to_owned(),
            Self::MembershipRw => "membership-rw".to_owned(),
            Self::Provisioner => "provisioner".to_owned(),
            Self::Admin(principal) => format!("admin {}", principal.dashed()),
            Self::Observer => "observer".to_owned(),
        }
    }
}

impl SystemProfile {
    /// What the user with this public key may do in the system account. Never without rows: there, a user without a
    /// permissions block administers the whole broker.
    pub fn grants(&self, public_key: &str) -> Grants {
        match self {
            Self::MembershipObserver { account_id } => system::membership_observer(account_id),
            Self::ConnectionEvictor => system::connection_evictor(public_key),
            Self::ClaimsWriter => system::claims_writer(public_key),
        }
    }

    /// The name written into the token, for people and logs.
    pub const fn user_name(&self) -> &'static str {
        match self {
            Self::MembershipObserver { .. } => "membership-observer",
            Self::ConnectionEvictor => "connection-evictor",
            Self::ClaimsWriter => "claims-writer",
        }
    }
}
