//! The registry's content in memory: who is a member of what, who may read what, which channel is durable.
//!
//! Owns lookups and their order. Pure: it is told of changes with their revisions and must not read the broker or a clock.

use std::{collections::HashMap, sync::Arc};

use lanekeeper_wire::{
    AclRow, Bucket, CHANNEL_DEFAULTS_KEY, Channel, ChannelConfig, ChannelDefaults, ChannelPattern, DeliveryClass,
    Lifecycle, MemberKey, MembershipRow, Principal, record::effective_class,
};

/// One change of one key.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The KV key.
    pub key: String,
    /// The revision, which is the bucket's stream sequence.
    pub revision: u64,
    /// The value; `None` for a delete, purge or expiry marker.
    pub value: Option<bytes::Bytes>,
}

/// What is known of one lifecycle's read ACL.
#[derive(Debug, Clone)]
pub(crate) enum Acl {
    /// Its row.
    Row(Arc<AclRow>),
    /// A row that cannot be understood: as good as unknown.
    Garbled,
    /// Deleted: the lifecycle is retired and never comes back.
    Retired,
    /// Never written.
    Unknown,
}

/// A membership row.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// The row.
    pub row: Arc<MembershipRow>,
}

/// Who a caller is by the ACL bucket.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    /// Exactly one live row.
    One(Lifecycle, Arc<AclRow>),
    /// None.
    Nobody,
    /// More than one: never guessed.
    Several(usize),
}

/// The three buckets that deliveries are judged by.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    members: Members,
    acls: Acls,
    channels: Channels,
}

#[derive(Debug, Default)]
struct Members {
    revisions: HashMap<String, u64>,
    by_channel: HashMap<Channel, HashMap<Lifecycle, Member>>,
    families: HashMap<ChannelPattern, HashMap<Lifecycle, Member>>,
}

#[derive(Debug, Default)]
struct Acls {
    revisions: HashMap<String, u64>,
    rows: HashMap<Lifecycle, Acl>,
    by_principal: HashMap<Principal, Vec<Lifecycle>>,
}

#[derive(Debug, Default)]
struct Channels {
    revisions: HashMap<String, u64>,
    configs: HashMap<Channel, ChannelConfig>,
    defaults: Option<ChannelDefaults>,
}

impl Tables {
    /// Applies one change; an older revision of a key than the one known is ignored. Returns a complaint about a key or
    /// value that cannot be understood.
    pub(crate) fn apply(&mut self, bucket: Bucket, change: &Change) -> Option<String> {
        let revisions = match bucket {
            Bucket::Members => &mut self.members.revisions,
            Bucket::Acl => &mut self.acls.revisions,
            Bucket::Channels => &mut self.channels.revisions,
            Bucket::Presence | Bucket::Delivery | Bucket::Membership | Bucket::Records => return None,
        };
        let known = revisions.entry(change.key.clone()).or_default();
        if change.revision <= *known {
            return None;
        }
        *known = change.revision;
        let complaint = match bucket {
            Bucket::Members => self.members.apply(change),
            Bucket::Acl => self.acls.apply(change),
            Bucket::Channels => self.channels.apply(change),
            Bucket::Presence | Bucket::Delivery | Bucket::Membership | Bucket::Records => Ok(()),
        };
        complaint.err()
    }

    /// Replaces one bucket by a complete snapshot.
    pub(crate) fn replace(&mut self, bucket: Bucket, snapshot: &[Change]) -> Vec<String> {
        match bucket {
            Bucket::Members => self.members = Members::default(),
            Bucket::Acl => self.acls = Acls::default(),
            Bucket::Channels => self.channels = Channels::default(),
            Bucket::Presence | Bucket::Delivery | Bucket::Membership | Bucket::Records => {}
        }
        snapshot.iter().filter_map(|change| self.apply(bucket, change)).collect()
    }

    /// The effective class of a channel.
    #[must_use]
    pub(crate) fn class(&self, channel: &Channel) -> DeliveryClass {
        effective_class(self.channels.configs.get(channel), self.channels.defaults.as_ref())
    }

    /// Everyone whose membership holds the post at `seq`, each once, never the sender: lifecycle and row generation.
    pub(crate) fn recipients(
        &self,
        channel: &Channel,
        seq: u64,
        sender: &Principal,
        mut each: impl FnMut(&Lifecycle, u64),
    ) {
        let exact = self.members.by_channel.get(channel);
        for (lifecycle, member) in exact.into_iter().flatten() {
            if member.row.holds(seq) && lifecycle.principal() != sender {
                each(lifecycle, member.row.generation);
            }
        }
        let mut seen: Vec<&Lifecycle> = Vec::new();
        for (pattern, rows) in &self.members.families {
            if !pattern.covers(channel) {
                continue;
            }
            for (lifecycle, member) in rows {
                let already = exact.and_then(|rows| rows.get(lifecycle)).is_some_and(|member| member.row.holds(seq));
                if member.row.holds(seq) && lifecycle.principal() != sender && !already && !seen.contains(&lifecycle) {
                    seen.push(lifecycle);
                    each(lifecycle, member.row.generation);
                }
            }
        }
    }

    /// True when some membership row of `lifecycle` covers `channel` and holds `seq`.
    #[must_use]
    pub(crate) fn holds(&self, lifecycle: &Lifecycle, channel: &Channel, seq: u64) -> bool {
        let exact = self.members.by_channel.get(channel).and_then(|rows| rows.get(lifecycle));
        exact.is_some_and(|member| member.row.holds(seq))
            || self.members.families.iter().any(|(pattern, rows)| {
                pattern.covers(channel) && rows.get(lifecycle).is_some_and(|member| member.row.holds(seq))
            })
    }

    /// The membership row under `key`, if any.
    #[must_use]
    pub(crate) fn member(&self, key: &MemberKey) -> Option<Member> {
        self.members.rows(&key.pattern)?.get(&key.lifecycle).cloned()
    }

    /// The last revision seen under a member key, deleted or not; 0 for never written.
    #[must_use]
    pub(crate) fn member_revision(&self, key: &MemberKey) -> u64 {
        self.members.revisions.get(&key.to_string()).copied().unwrap_or(0)
    }

    /// Every open row of one lifecycle.
    #[must_use]
    pub(crate) fn open_memberships(&self, lifecycle: &Lifecycle) -> Vec<Arc<MembershipRow>> {
        let exact = self.members.by_channel.values();
        let all = exact.chain(self.members.families.values());
        let mut open: Vec<_> = all
            .filter_map(|rows| rows.get(lifecycle))
            .filter(|member| member.row.is_open())
            .map(|member| Arc::clone(&member.row))
            .collect();
        open.sort_by(|a, b| a.channel.cmp(&b.channel));
        open
    }

    /// What is known of a lifecycle's read ACL.
    #[must_use]
    pub(crate) fn acl(&self, lifecycle: &Lifecycle) -> Acl {
        self.acls.rows.get(lifecycle).cloned().unwrap_or(Acl::Unknown)
    }

    /// The one live lifecycle of a principal.
    #[must_use]
    pub(crate) fn caller(&self, principal: &Principal) -> Caller {
        let lifecycles = self.acls.by_principal.get(principal);
        let mut live = lifecycles.into_iter().flatten().filter_map(|lifecycle| match self.acls.rows.get(lifecycle) {
            Some(Acl::Row(row)) => Some((lifecycle.clone(), Arc::clone(row))),
            Some(Acl::Garbled | Acl::Retired | Acl::Unknown) | None => None,
        });
        match (live.next(), live.count()) {
            (None, _) => Caller::Nobody,
            (Some((lifecycle, row)), 0) => Caller::One(lifecycle, row),
            (Some(_), more) => Caller::Several(more + 1),
        }
    }
}

/// An owner that is not a trusted one is never keyed on or authorised.
fn refuse_untrusted(lifecycle: &Lifecycle, key: &str) -> Result<(), String> {
    if lifecycle.principal().is_trusted() {
        Ok(())
    } else {
        Err(format!("key `{key}`: its owner is not a trusted one"))
    }
}

impl Members {
    fn rows(&self, pattern: &ChannelPattern) -> Option<&HashMap<Lifecycle, Member>> {
        match pattern.as_channel() {
            Some(channel) => self.by_channel.get(&channel),
            None => self.families.get(pattern),
        }
    }

    fn apply(&mut self, change: &Change) -> Result<(), String> {
        let key: MemberKey = change.key.parse().map_err(|fault| format!("key `{}`: {fault}", change.key))?;
        refuse_untrusted(&key.lifecycle, &change.key)?;
        let row = match &change.value {
            None => None,
            Some(value) => match MembershipRow::parse(value) {
                Ok(row) if row.channel == key.pattern && row.lifecycle() == key.lifecycle => Some(row),
                Ok(_) => {
                    self.remove(&key);
                    return Err(format!("key `{}`: the row names another member or channel", change.key));
                }
                Err(fault) => {
                    self.remove(&key);
                    return Err(format!("key `{}`: {fault}", change.key));
                }
            },
        };
        let Some(row) = row else {
            self.remove(&key);
            return Ok(());
        };
        let member = Member { row: Arc::new(row) };
        let rows = match key.pattern.as_channel() {
            Some(channel) => self.by_channel.entry(channel).or_default(),
            None => self.families.entry(key.pattern).or_default(),
        };
        rows.insert(key.lifecycle, member);
        Ok(())
    }

    fn remove(&mut self, key: &MemberKey) {
        let rows = match key.pattern.as_channel() {
            Some(channel) => self.by_channel.get_mut(&channel),
            None => self.families.get_mut(&key.pattern),
        };
        if let Some(rows) = rows {
            rows.remove(&key.lifecycle);
        }
    }
}

impl Acls {
    fn apply(&mut self, change: &Change) -> Result<(), String> {
        let lifecycle: Lifecycle = change.key.parse().map_err(|fault| format!("key `{}`: {fault}", change.key))?;
        refuse_untrusted(&lifecycle, &change.key)?;
        let (acl, complaint) = match &change.value {
            None => (Acl::Retired, Ok(())),
            Some(value) => match AclRow::parse(value) {
                Ok(row) => (Acl::Row(Arc::new(row)), Ok(())),
                Err(fault) => (Acl::Garbled, Err(format!("key `{}`: {fault}", change.key))),
            },
        };
        let listed = self.by_principal.entry(lifecycle.principal().clone()).or_default();
        if !listed.contains(&lifecycle) {
            listed.push(lifecycle.clone());
        }
        self.rows.insert(lifecycle, acl);
        complaint
    }
}

impl Channels {
    fn apply(&mut self, change: &Change) -> Result<(), String> {
        if change.key == CHANNEL_DEFAULTS_KEY {
            self.defaults = match &change.value {
                None => None,
                Some(value) => {
                    Some(ChannelDefaults::parse(value).map_err(|fault| format!("key `{}`: {fault}", change.key))?)
                }
            };
            return Ok(());
        }
        let channel: Channel = change.key.parse().map_err(|fault| format!("key `{}`: {fault}", change.key))?;
        match &change.value {
            None => {
                self.configs.remove(&channel);
            }
            Some(value) => {
                let config = ChannelConfig::parse(value).map_err(|fault| format!("key `{}`: {fault}", change.key))?;
                self.configs.insert(channel, config);
            }
        }
        Ok(())
    }
}
