//! Members that receive all the time, and what they saw.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use lanekeeper::mesh::{Member, MemberRights, member_credentials};
use lanekeeper_peer::{Messages, Peer, PostDraft, PostError, Via};
use lanekeeper_provision::{MemberSettings, Validity, add_member, new_lifecycle_uid};
use lanekeeper_wire::{Channel, Lifecycle, Principal};
use tokio::{sync::watch, time::timeout};

use super::{PATIENCE, World, channel, pattern};

/// After this long the broker hands a copy out again that a member did not acknowledge.
const MEMBER_ACK_WAIT: Duration = Duration::from_secs(5);

/// One durable copy as a member saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The number in the post's text.
    pub(crate) number: usize,
    /// Its sequence in the hand-over stream: two of them for one post are a duplicate made by the daemon.
    pub(crate) seq: u64,
}

/// Durable members of one channel, each receiving and acknowledging every copy as it comes.
pub(crate) struct Crew {
    pub(crate) channel: Channel,
    members: Vec<(Peer, Arc<Mutex<Vec<Seen>>>)>,
    received: watch::Sender<usize>,
}

/// What the members saw, added up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    /// Posts that a member did not get, over all members.
    pub(crate) lost: usize,
    /// Copies that the daemon made twice.
    pub(crate) duplicated: usize,
    /// Copies that the broker handed out again because an acknowledgement did not reach it.
    pub(crate) redelivered: usize,
    /// First copies that came after one with a higher number.
    pub(crate) out_of_order: usize,
}

impl Crew {
    /// Joins `count` members to `on`. A daemon must serve.
    pub(crate) async fn join(world: &World, count: usize, on: &str) -> Self {
        let (received, _) = watch::channel(0);
        let mut members = Vec::new();
        for number in 0..count {
            let member = recruit(world, &format!("m{number}"), &[on]).await;
            let peer = Peer::connect(world.options(&member).raw()).await.unwrap();
            let joined = peer.join(&channel(on)).await.unwrap();
            assert!(joined.state.is_durable(), "{joined}");
            let seen = Arc::<Mutex<Vec<Seen>>>::default();
            tokio::spawn(receive(peer.messages().unwrap(), Arc::clone(&seen), received.clone()));
            members.push((peer, seen));
        }
        Self { channel: channel(on), members, received }
    }

    /// Joins members that are connected already, in raw mode, to `on`. A daemon must serve.
    pub(crate) async fn of(peers: Vec<Peer>, on: &str) -> Self {
        let (received, _) = watch::channel(0);
        let mut members = Vec::new();
        for peer in peers {
            let joined = peer.join(&channel(on)).await.unwrap();
            assert!(joined.state.is_durable(), "{joined}");
            let seen = Arc::<Mutex<Vec<Seen>>>::default();
            tokio::spawn(receive(peer.messages().unwrap(), Arc::clone(&seen), received.clone()));
            members.push((peer, seen));
        }
        Self { channel: channel(on), members, received }
    }

    /// The `index`th member.
    pub(crate) fn member(&self, index: usize) -> &Peer {
        &self.members[index].0
    }

    /// Copies received so far, by all members.
    pub(crate) fn received(&self) -> usize {
        *self.received.borrow()
    }

    /// Waits until all members together have received `count` copies.
    pub(crate) async fn wait_received(&self, count: usize) -> Result<(), String> {
        let mut received = self.received.subscribe();
        let reached = timeout(PATIENCE, received.wait_for(|now| *now >= count)).await.is_ok();
        let now = self.received();
        if reached { Ok(()) } else { Err(format!("{now} of {count} copies")) }
    }

    /// Waits until every member has every post below `posts`; the tally then, or as it is when patience ends.
    pub(crate) async fn complete(&self, posts: usize) -> Tally {
        let wanted = posts * self.members.len();
        let mut received = self.received.subscribe();
        let whole = async {
            while self.tally(posts).lost > 0 {
                let now = *received.borrow_and_update();
                let _ = received.wait_for(|later| *later > now.max(wanted - 1)).await;
            }
        };
        let _ = timeout(PATIENCE, whole).await;
        self.tally(posts)
    }

    /// What was seen of the posts below `posts`.
    pub(crate) fn tally(&self, posts: usize) -> Tally {
        let mut tally = Tally::default();
        for (_, seen) in &self.members {
            let seen = seen.lock().unwrap();
            let mut copies: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
            let mut highest = None;
            for copy in seen.iter() {
                let earlier = copies.entry(copy.number).or_default();
                if earlier.contains(&copy.seq) {
                    tally.redelivered += 1;
                    continue;
                }
                if earlier.is_empty() {
                    tally.out_of_order += usize::from(highest.is_some_and(|highest| copy.number < highest));
                    highest = highest.max(Some(copy.number));
                } else {
                    tally.duplicated += 1;
                }
                earlier.push(copy.seq);
            }
            tally.lost += (0..posts).filter(|number| !copies.contains_key(number)).count();
        }
        tally
    }

    /// Ends the members.
    pub(crate) async fn close(self) {
        for (peer, _) in self.members {
            peer.close().await.unwrap();
        }
    }
}

async fn receive(mut messages: Messages, seen: Arc<Mutex<Vec<Seen>>>, received: watch::Sender<usize>) {
    while let Some(incoming) = messages.recv().await {
        let Via::Durable { seq, .. } = incoming.via else { continue };
        let text = incoming.message.text().unwrap_or_default();
        let number = text.strip_prefix("post ").and_then(|number| number.parse().ok());
        seen.lock().unwrap().push(Seen { number: number.unwrap_or_else(|| panic!("{text:?}")), seq });
        received.send_modify(|count| *count += 1);
        // Where it does not arrive the copy comes again, and is counted as handed out again.
        let _ = incoming.ack_now().await;
    }
}

/// A member whose copies come again after a few seconds, so that a test need not wait a minute for them.
pub(crate) async fn recruit(world: &World, name: &str, channels: &[&str]) -> Member {
    let patterns: Vec<_> = channels.iter().map(|text| pattern(text)).collect();
    let principal = Principal::new("local".parse().unwrap(), name.parse().unwrap());
    let lifecycle = Lifecycle::new(principal, new_lifecycle_uid());
    let settings = MemberSettings { read: patterns.clone(), ack_wait: MEMBER_ACK_WAIT, ..MemberSettings::default() };
    add_member(world.site.provisioner(), &world.site.space, &lifecycle, &settings).await.unwrap();
    let credentials = world.mesh.dir().join("spaces").join(format!("{name}.creds"));
    let minted = world.site.mint_member(&lifecycle, &MemberRights::on(&patterns), Validity::forever()).unwrap();
    minted.write_creds(&credentials).unwrap();
    let member = Member { name: name.to_owned(), lifecycle, credentials };
    assert!(member_credentials(&member).is_ok());
    member
}

/// Posts `post <number>` for each number, in order and pipelined.
pub(crate) async fn post(sender: &Peer, on: &Channel, numbers: std::ops::Range<usize>) {
    let mut poster = sender.poster(256);
    let mut outcomes: Vec<Result<_, PostError>> = Vec::new();
    for number in numbers {
        outcomes.extend(poster.post(on, PostDraft::text(format!("post {number}"))).await);
    }
    outcomes.extend(poster.finish().await);
    for outcome in outcomes {
        outcome.unwrap();
    }
}
