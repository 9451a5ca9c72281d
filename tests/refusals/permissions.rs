//! Each row of the bare delivery profile missing in turn: a refusal, a fault or an answer that names the subject, soon; or
//! nothing at all, where nothing needs the row yet.

use std::{path::PathBuf, time::Duration};

use lanekeeper_broker::wait_until;
use lanekeeper_peer::{Left, Messages, Peer, PostDraft};
use lanekeeper_provision::{Validity, lane_files, private_file};
use lanekeeper_wire::{FANOUT_DURABLE, READER_DURABLE, StreamKind};
use nkeys::KeyPair;

use crate::{
    door::{Door, last_words},
    rows::{
        Row,
        Shows::{AtTheStart, InTheAnswer, NotYet, WhenItTakes, WhenUsed},
        rows,
    },
    support::{Daemon, PATIENCE, channel, power},
};

/// How soon after the broker's denial a refusal must show.
const SOON: Duration = Duration::from_secs(10);
/// The same for a lane that serves: it first waits 2 s for the copies that are on their way, and hands the rest back.
const SOON_ENDED: Duration = Duration::from_secs(20);
/// What the daemon logs the moment the broker denies something.
const DENIED: &str = "the broker denied a subject";
/// What a fault says of it.
const FAULT: &str = "space `demo`: the broker denied ";

/// A space with a durable member, whose daemon lacks a row.
struct Ground {
    door: Door,
    ada: Peer,
    messages: Messages,
    sender: Peer,
}

impl Ground {
    async fn open() -> Self {
        let door = Door::open().await;
        let daemon = door.world.daemon().await;
        let ada = door.world.member("ada", &["team", "quiet"]).await;
        let ada = Peer::connect(door.world.options(&ada).raw()).await.unwrap();
        assert!(ada.join(&channel("team")).await.unwrap().state.is_durable());
        let messages = ada.messages().unwrap();
        let sender = door.world.connect(&door.world.member("sender", &["team"]).await).await;
        daemon.stop().await;
        Self { door, ada, messages, sender }
    }

    /// Files without `row`, and durables still to be made.
    async fn without(&self, row: &Row) -> (PathBuf, KeyPair) {
        let world = &self.door.world;
        let space = &world.site.space;
        for (kind, name) in [(StreamKind::Chat, FANOUT_DURABLE), (StreamKind::Inbox, READER_DURABLE)] {
            // There is none after a start that was refused before it.
            let _ = self.door.power.js.delete_consumer_from_stream(name, kind.name(space)).await;
            // What an earlier start left would be taken up, and would show at another time.
            self.door.power.js.get_stream(kind.name(space)).await.unwrap().purge().await.unwrap();
        }
        let user = KeyPair::new_user();
        let grants = row.dropped(space, &user);
        let minted = power::mint_for(&world.mesh, &world.site.account, &user, &grants, Validity::forever());
        let lane = self.door.lane();
        private_file::write_private(&lane.join(lane_files::DELIVERY), minted.text()).unwrap();
        (lane, user)
    }

    /// Asks for a membership until the daemon has answered, or is gone.
    async fn ask(&self) -> Option<String> {
        let reply = self.ada.control("durableJoin", serde_json::json!({ "channel": "quiet" })).await;
        reply.ok().and_then(|reply| reply.error)
    }

    /// Asks once, and leaves it to others how long to wait.
    async fn ask_in_vain(&self) {
        self.ask().await;
        std::future::pending().await
    }

    async fn post(&self, text: &str) {
        self.sender.post(&channel("team"), PostDraft::text(text)).await.unwrap();
    }

    /// Waits for the durable copy of this post.
    async fn receive(&mut self, text: &str) {
        loop {
            let incoming = self.messages.recv_within(PATIENCE).await.unwrap_or_else(|| panic!("no copy of {text}"));
            incoming.ack_now().await.unwrap();
            if incoming.via.is_durable() && incoming.message.text().as_deref() == Some(text) {
                return;
            }
        }
    }

    /// The lease is nobody's, or will not be renewed.
    async fn free(&self, daemon: &Daemon) {
        let free = async || self.door.power.lease_row().await.is_none().then_some(());
        if let Err(late) = wait_until("a free lease", PATIENCE, free).await {
            panic!("{late}:\n{}", daemon.log_text());
        }
    }
}

/// Waits until the daemon logged `text`, and returns the first line that holds it.
async fn logged(daemon: &Daemon, text: &str, within: Duration) -> String {
    let found = async || daemon.log_text().lines().find(|line| line.contains(text)).map(str::to_owned);
    match wait_until(text, within, found).await {
        Ok(line) => line,
        Err(late) => panic!("{late}:\n{}", daemon.log_text()),
    }
}

/// Waits for the denial, and then for the end of the lane; the line that says why.
async fn ended(daemon: &Daemon) -> String {
    logged(daemon, DENIED, PATIENCE).await;
    logged(daemon, FAULT, SOON_ENDED).await
}

/// Fails unless `line` says that a subject of `row` was denied, and what to do.
fn names(line: &str, row: &Row, user: &KeyPair) {
    let (_, rest) = line.split_once(FAULT).unwrap_or_else(|| panic!("{line}"));
    let (verb, rest) = rest.split_once(" `").unwrap();
    let (subject, rest) = rest.split_once('`').unwrap();
    assert_eq!(verb, row.verb(), "{line}");
    assert!(row.covers(subject, user), "{} does not cover {subject}: {line}", row.text);
    assert!(rest.starts_with("; grant it to the credential [LANE-205]"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_without_a_needed_row_is_refused_soon_with_the_subject_named() {
    let ground = Ground::open().await;
    for row in rows(&[AtTheStart]) {
        let (lane, user) = ground.without(&row).await;
        let mut daemon = ground.door.start(&lane);
        logged(&daemon, DENIED, PATIENCE).await;
        let status = daemon.ended(SOON).await;
        assert_eq!(status.code(), Some(1), "{}", daemon.log_text());
        names(&last_words(&daemon.log_text()), &row, &user);
        assert_eq!(daemon.next_line().await, None, "it served without {}", row.text);
        ground.door.none_connected().await;
        ground.free(&daemon).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_needed_later_ends_the_lane_soon_with_the_subject_named() {
    let ground = Ground::open().await;
    for row in rows(&[WhenItTakes, WhenUsed]) {
        let (lane, user) = ground.without(&row).await;
        let mut daemon = ground.door.start(&lane);
        let line = if row.shows == WhenUsed {
            daemon.wait_serving().await;
            assert!(!daemon.log_text().contains(DENIED), "{} is needed to serve", row.text);
            ground.post(row.text).await;
            // Until the fault is there and no longer: the lane is opened again after a while.
            tokio::select! {
                line = ended(&daemon) => line,
                () = ground.ask_in_vain() => unreachable!(),
            }
        } else {
            ended(&daemon).await
        };
        names(&line, &row, &user);
        ground.free(&daemon).await;
        ground.door.none_connected().await;
        drop(daemon);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_a_request_needs_is_named_in_its_answer_and_the_lane_goes_on() {
    let mut ground = Ground::open().await;
    for row in rows(&[InTheAnswer]) {
        let (lane, user) = ground.without(&row).await;
        let mut daemon = ground.door.start(&lane);
        daemon.wait_serving().await;
        let asked = tokio::time::Instant::now();
        let error = ground.ask().await.expect("an answer that says no");
        assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
        let (_, rest) = error.split_once("denied publish to `").unwrap_or_else(|| panic!("{error}"));
        let (subject, _) = rest.split_once('`').unwrap();
        assert!(row.covers(subject, &user), "{error}");
        ground.post(row.text).await;
        ground.receive(row.text).await;
        assert!(!daemon.log_text().contains(FAULT), "{}", daemon.log_text());
        daemon.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_nothing_needs_yet_is_not_missed() {
    let mut ground = Ground::open().await;
    for row in rows(&[NotYet]) {
        let (lane, _) = ground.without(&row).await;
        let mut daemon = ground.door.start(&lane);
        daemon.wait_serving().await;
        assert!(ground.ada.join(&channel("quiet")).await.unwrap().state.is_durable(), "{}", daemon.log_text());
        let left = ground.ada.leave(&channel("quiet")).await;
        assert!(matches!(left, Left::Ended { .. }), "{left:?}");
        ground.post(row.text).await;
        ground.receive(row.text).await;
        assert!(!daemon.log_text().contains(DENIED), "{} is needed:\n{}", row.text, daemon.log_text());
        daemon.stop().await;
    }
    ground.door.world.assert_no_violations();
}
