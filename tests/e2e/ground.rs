//! What every test of the plane stands on: a served space, the daemon's rights in a test's hands, and short verbs.
//!
//! Owns waiting until the plane is at rest. It must not assert anything about what was delivered: the tests do.

use std::time::Duration;

use lanekeeper_broker::wait_until;
use lanekeeper_peer::{Creds, Incoming, Messages, Peer, PeerOptions, PostDraft, Posted};
use lanekeeper_provision::{MemberSettings, Retention, SpaceSettings, Validity, add_member, new_lifecycle_uid};
use lanekeeper_wire::{ControlReply, JoinData, Lifecycle, StreamKind, subject};
use serde_json::json;

use crate::{
    hand::Hand,
    support::{Daemon, PATIENCE, World, channel, pattern},
};

/// A served space.
pub(crate) struct Ground {
    /// The broker, the space and its members.
    pub(crate) world: World,
    /// The daemon's own rights.
    pub(crate) hand: Hand,
    daemon: Option<Daemon>,
    settled_is_gone: bool,
}

impl Ground {
    /// A space that is served.
    pub(crate) async fn open() -> Self {
        let ground = Self::unserved(World::new().await).await;
        ground.served().await
    }

    /// A served space of these settings.
    pub(crate) async fn open_with(settings: SpaceSettings) -> Self {
        let settled_is_gone = settings.inbox_retention == Retention::WorkQueue;
        let mut ground = Self::unserved(World::with(settings).await).await;
        ground.settled_is_gone = settled_is_gone;
        ground.served().await
    }

    /// A space that nobody serves yet.
    pub(crate) async fn unserved(world: World) -> Self {
        let hand = Hand::of_the_daemon(&world).await;
        Self { world, hand, daemon: None, settled_is_gone: true }
    }

    async fn served(mut self) -> Self {
        self.start_daemon().await;
        self
    }

    /// Starts the daemon and waits until it serves.
    pub(crate) async fn start_daemon(&mut self) {
        self.start_daemon_with(&[]).await;
    }

    /// Starts the daemon with further arguments and waits until it serves.
    pub(crate) async fn start_daemon_with(&mut self, args: &[&str]) {
        assert!(self.daemon.is_none(), "it runs already");
        self.daemon = Some(Daemon::serving(&self.world.site, &self.world.log(), args).await);
    }

    /// Stops the daemon in an orderly way.
    pub(crate) async fn stop_daemon(&mut self) {
        self.daemon.take().expect("it runs").stop().await;
    }

    /// What the daemon itself logged, without its client library's lines and without colours.
    pub(crate) fn log_text(&self) -> String {
        let log = self.daemon.as_ref().expect("it runs").log_text();
        let plain = log.lines().map(without_colours);
        plain.filter(|line| !line.contains(" async_nats")).collect::<Vec<_>>().join("\n")
    }

    /// Stops the daemon and checks that nobody was refused a permission.
    pub(crate) async fn close(mut self) {
        self.stop_daemon().await;
        self.world.assert_no_violations();
    }

    /// Waits until every post is fanned out and every entry is settled.
    pub(crate) async fn at_rest(&self) {
        // In this order: once fan-out has settled a post, its entries are in INBOX.
        self.hand.wait_idle(StreamKind::Chat).await;
        self.hand.wait_idle(StreamKind::Inbox).await;
        // The broker takes a settled entry out a moment after it has counted it as settled.
        if self.settled_is_gone {
            let space = &self.world.site.space;
            self.world.wait_empty(&StreamKind::Inbox.name(space), &subject::dinbox_filter(space)).await;
        }
    }

    /// How many authorised copies wait for a member.
    pub(crate) async fn copies_for(&self, lifecycle: &Lifecycle) -> usize {
        let space = &self.world.site.space;
        self.world.site.held(&StreamKind::Dlv.name(space), &subject::dlv(space, lifecycle)).await.unwrap()
    }

    /// How many entries and how many copies were ever stored, for anybody.
    pub(crate) async fn routed_and_released(&self) -> (u64, u64) {
        (self.hand.frontier(StreamKind::Inbox).await, self.hand.frontier(StreamKind::Dlv).await)
    }

    /// How many entries lie in INBOX, of anybody.
    pub(crate) async fn entries(&self) -> usize {
        let space = &self.world.site.space;
        self.world.site.held(&StreamKind::Inbox.name(space), &subject::dinbox_filter(space)).await.unwrap()
    }

    /// Fails unless both stores of the plane become empty.
    pub(crate) async fn wait_stores_empty(&self) {
        let space = &self.world.site.space;
        self.world.wait_empty(&StreamKind::Inbox.name(space), &subject::dinbox_filter(space)).await;
        self.world.wait_empty(&StreamKind::Dlv.name(space), &subject::dlv_filter(space)).await;
    }

    /// A connected member that reads and posts on `channels` and has joined none.
    pub(crate) async fn peer(&self, name: &str, channels: &[&str]) -> Peer {
        let member = self.world.member(name, channels).await;
        Peer::connect(self.world.options(&member).raw()).await.unwrap()
    }

    /// A connected member whose copies come again after `ack_wait` without an acknowledgement.
    pub(crate) async fn impatient_peer(&self, name: &str, channels: &[&str], ack_wait: Duration) -> Peer {
        let lifecycle = Lifecycle::new(format!("local.{name}").parse().unwrap(), new_lifecycle_uid());
        Peer::connect(self.provisioned(&lifecycle, channels, ack_wait).await).await.unwrap()
    }

    /// Provisions this very lifecycle; how it connects.
    pub(crate) async fn provisioned(
        &self,
        lifecycle: &Lifecycle,
        channels: &[&str],
        ack_wait: Duration,
    ) -> PeerOptions {
        let site = &self.world.site;
        let rights = lanekeeper::mesh::MemberRights::on(&channels.iter().map(|text| pattern(text)).collect::<Vec<_>>());
        let settings = MemberSettings { read: rights.read.clone(), ack_wait, ..MemberSettings::default() };
        add_member(site.provisioner(), &site.space, lifecycle, &settings).await.unwrap();
        let creds = site.mint_member(lifecycle, &rights, Validity::forever()).unwrap();
        let name = lifecycle.principal().actor().as_str().to_owned();
        PeerOptions::new(&site.url, site.space.clone(), Creds::text(creds.text()), lifecycle.clone(), name).raw()
    }

    /// A member that reads and posts on `channels`, has joined them durably without a live subscription, and is away.
    pub(crate) async fn absent(&self, name: &str, channels: &[&str]) -> Lifecycle {
        let peer = self.peer(name, channels).await;
        for text in channels {
            join(&peer, text).await;
        }
        let lifecycle = peer.lifecycle().clone();
        peer.close().await.unwrap();
        lifecycle
    }

    /// The member provisioned under this name, connected again; every copy is surfaced.
    pub(crate) async fn back(&self, name: &str) -> Peer {
        self.peer(name, &[]).await
    }
}

/// Asks the daemon for a durable membership and opens no live subscription; the generation.
pub(crate) async fn join(peer: &Peer, on: &str) -> u64 {
    let reply = ask_join(peer, on).await;
    assert!(reply.ok, "{reply:?}");
    let data: JoinData = serde_json::from_value(reply.data.unwrap()).unwrap();
    assert!(data.durable, "{data:?}");
    assert_eq!(&data.lifecycle_uid, peer.lifecycle().uid());
    data.generation
}

/// Asks the daemon for a durable membership; its reply as it is.
pub(crate) async fn ask_join(peer: &Peer, on: &str) -> ControlReply {
    peer.control("durableJoin", json!({ "channel": on })).await.unwrap()
}

/// Asks the daemon to end a membership; its reply as it is.
pub(crate) async fn ask_leave(peer: &Peer, on: &str, generation: u64) -> ControlReply {
    let uid = peer.lifecycle().uid().as_str();
    peer.control("durableLeave", json!({ "channel": on, "generation": generation, "lifecycleUid": uid })).await.unwrap()
}

/// Ends a membership.
pub(crate) async fn leave(peer: &Peer, on: &str, generation: u64) {
    let reply = ask_leave(peer, on, generation).await;
    assert!(reply.ok, "{reply:?}");
}

/// Posts one text.
pub(crate) async fn say(peer: &Peer, on: &str, text: impl Into<String>) -> Posted {
    peer.post(&channel(on), PostDraft::text(text)).await.unwrap()
}

/// The next copy.
pub(crate) async fn next(messages: &mut Messages) -> Incoming {
    messages.recv_within(PATIENCE).await.expect("a copy in time")
}

/// The text of a copy.
pub(crate) fn text(incoming: &Incoming) -> String {
    incoming.message.text().unwrap_or_default()
}

/// The next `count` texts, each acknowledged.
pub(crate) async fn texts(messages: &mut Messages, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    while texts.len() < count {
        let incoming = messages.recv_within(PATIENCE).await.unwrap_or_else(|| panic!("only {texts:?}"));
        texts.push(text(&incoming));
        incoming.ack().await.unwrap();
    }
    texts
}

/// The text without terminal escapes.
fn without_colours(line: &str) -> String {
    let mut pieces = line.split("\u{1b}[");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| text + piece.split_once('m').map_or("", |(_, rest)| rest))
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    wait_until(what, PATIENCE, || async { holds().await.then_some(()) }).await.unwrap();
}
