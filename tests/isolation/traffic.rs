//! A light and steady traffic over all lanes, and how long each post took to its receiver.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use lanekeeper::mesh::{MemberRights, Site};
use lanekeeper_peer::{Creds, Messages, Peer, PeerOptions, PostDraft, Via};
use tokio::{
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval},
};

use crate::support::{PATIENCE, channel, pattern};

/// The pause between two posts, over all lanes.
const POST_EVERY: Duration = Duration::from_millis(25);
/// The one channel of the traffic.
const CHANNEL: &str = "team";

/// One post that arrived.
#[derive(Debug, Clone, Copy)]
struct Sample {
    lane: usize,
    sent: Duration,
    latency: Duration,
}

/// What all tasks share.
struct Shared {
    start: Instant,
    senders: Mutex<Vec<Option<Arc<Peer>>>>,
    samples: Mutex<Vec<Sample>>,
    confirmed: Mutex<BTreeSet<(usize, u64)>>,
    received: Mutex<BTreeSet<(usize, u64)>>,
    refused: Mutex<Vec<String>>,
}

/// The traffic. It ends with this value.
pub(crate) struct Traffic {
    shared: Arc<Shared>,
    receivers: Vec<Option<Peer>>,
    driver: JoinHandle<()>,
}

impl Traffic {
    /// Joins a receiver and connects a sender on every lane, and starts to post.
    pub(crate) async fn start(sites: &[Site]) -> Self {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            senders: Mutex::new(vec![None; sites.len()]),
            samples: Mutex::default(),
            confirmed: Mutex::default(),
            received: Mutex::default(),
            refused: Mutex::default(),
        });
        let pairs = sites.iter().enumerate().map(|(lane, site)| connect(Arc::clone(&shared), lane, site));
        let receivers = futures::future::join_all(pairs).await.into_iter().map(Some).collect();
        let driver = tokio::spawn(drive(Arc::clone(&shared)));
        Self { shared, receivers, driver }
    }

    /// Takes a lane out of the traffic and ends its members.
    pub(crate) async fn leave(&mut self, lane: usize) {
        let sender = self.shared.senders.lock().unwrap()[lane].take();
        // A post that is on its way holds the sender.
        let is_quiet = async || sender.as_ref().is_none_or(|sender| Arc::strong_count(sender) == 1).then_some(());
        lanekeeper_broker::wait_until("posts to be confirmed", PATIENCE, is_quiet).await.unwrap();
        self.arrived(|other| other == lane).await;
        self.receivers[lane].take().expect("it takes part").close().await.unwrap();
    }

    /// Takes it in again; it must deliver.
    pub(crate) async fn come_back(&mut self, lane: usize, site: &Site) {
        let from = self.now();
        self.receivers[lane] = Some(connect(Arc::clone(&self.shared), lane, site).await);
        let is_there = async || {
            self.shared.samples.lock().unwrap().iter().any(|it| it.lane == lane && it.sent >= from).then_some(())
        };
        lanekeeper_broker::wait_until(&format!("lane {lane} delivers again"), PATIENCE, is_there).await.unwrap();
    }

    /// The time on the clock of the samples.
    pub(crate) fn now(&self) -> Duration {
        self.shared.start.elapsed()
    }

    /// Waits until so many posts that were sent after `from` have arrived.
    pub(crate) async fn wait_samples(&self, from: Duration, count: usize) {
        let are_there = async || {
            let samples = self.shared.samples.lock().unwrap();
            (samples.iter().filter(|sample| sample.sent >= from).count() >= count).then_some(())
        };
        lanekeeper_broker::wait_until("posts to arrive", PATIENCE, are_there).await.unwrap();
    }

    /// Waits until every post of these lanes that the broker has confirmed so far has arrived.
    pub(crate) async fn arrived(&self, of: impl Fn(usize) -> bool) {
        let posts: Vec<_> =
            self.shared.confirmed.lock().unwrap().iter().filter(|(lane, _)| of(*lane)).copied().collect();
        let missing = || {
            let received = self.shared.received.lock().unwrap();
            posts.iter().filter(|post| !received.contains(post)).copied().collect::<Vec<_>>()
        };
        let all = async || missing().is_empty().then_some(());
        let arrived = lanekeeper_broker::wait_until("every post to arrive", PATIENCE, all).await;
        arrived.unwrap_or_else(|error| panic!("{error}; of (lane, post) these are missing: {:?}", missing()));
    }

    /// From post to receipt: 99 of 100 of the posts of these lanes that were sent in this time took at most this long.
    pub(crate) fn p99(&self, from: Duration, to: Duration, of: impl Fn(usize) -> bool) -> Duration {
        let samples = self.shared.samples.lock().unwrap();
        let is_in = |sample: &&Sample| sample.sent >= from && sample.sent < to && of(sample.lane);
        let mut took: Vec<Duration> = samples.iter().filter(is_in).map(|sample| sample.latency).collect();
        took.sort_unstable();
        assert!(!took.is_empty(), "no post arrived");
        took[(took.len() * 99).div_ceil(100) - 1]
    }

    /// What senders were refused so far.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.shared.refused.lock().unwrap().clone()
    }

    /// Ends everything.
    pub(crate) async fn stop(self) {
        self.driver.abort();
        self.shared.senders.lock().unwrap().fill(None);
        let receivers = self.receivers.into_iter().flatten();
        futures::future::join_all(receivers.map(Peer::close)).await.into_iter().for_each(|closed| closed.unwrap());
    }
}

/// Connects the members of one lane; from then on it takes part.
async fn connect(shared: Arc<Shared>, lane: usize, site: &Site) -> Peer {
    let (receiver, sender) = members(site, "bob", "ada", CHANNEL).await;
    tokio::spawn(receive(receiver.messages().unwrap(), Arc::clone(&shared), lane));
    shared.senders.lock().unwrap()[lane] = Some(Arc::new(sender));
    receiver
}

/// A durable member of a channel, and one that posts there.
pub(crate) async fn members(site: &Site, receiver: &str, sender: &str, on: &str) -> (Peer, Peer) {
    let rights = MemberRights::on(&[pattern(on)]);
    let receiver = peer(site, receiver, &rights).await;
    let joined = receiver.join(&channel(on)).await.unwrap();
    assert!(joined.state.is_durable(), "{joined}");
    (receiver, peer(site, sender, &rights).await)
}

async fn peer(site: &Site, name: &str, rights: &MemberRights) -> Peer {
    let member = site.member(name, rights).await.unwrap();
    let creds = Creds::path(member.credentials.clone());
    let mut options = PeerOptions::new(&site.url, site.space.clone(), creds, member.lifecycle.clone(), name).raw();
    // A hundred members that say that they are there would be a traffic of its own.
    options.presence_interval = None;
    Peer::connect(options).await.unwrap()
}

async fn drive(shared: Arc<Shared>) {
    let mut pace = interval(POST_EVERY);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u64.. {
        pace.tick().await;
        let senders = shared.senders.lock().unwrap().clone();
        let lane = usize::try_from(number).unwrap() % senders.len();
        let Some(sender) = senders[lane].clone() else { continue };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let sent = shared.start.elapsed().as_micros();
            match sender.post(&channel(CHANNEL), PostDraft::text(format!("{number} {sent}"))).await {
                Ok(_) => drop(shared.confirmed.lock().unwrap().insert((lane, number))),
                Err(error) => shared.refused.lock().unwrap().push(format!("lane {lane}: {error}")),
            }
        });
    }
}

async fn receive(mut messages: Messages, shared: Arc<Shared>, lane: usize) {
    while let Some(incoming) = messages.recv().await {
        let Via::Durable { .. } = incoming.via else { continue };
        let now = shared.start.elapsed();
        let (number, sent) = stamp(&incoming.message.text().unwrap_or_default()).expect("a stamp");
        if shared.received.lock().unwrap().insert((lane, number)) {
            shared.samples.lock().unwrap().push(Sample { lane, sent, latency: now.saturating_sub(sent) });
        }
        // Where it does not arrive, the copy comes again.
        let _ = incoming.ack().await;
    }
}

fn stamp(text: &str) -> Option<(u64, Duration)> {
    let (number, sent) = text.split_once(' ')?;
    Some((number.parse().ok()?, Duration::from_micros(sent.parse().ok()?)))
}
