//! Members of a fleet's spaces that receive durably while posts flow in each of them.

use std::{path::PathBuf, time::Duration};

use async_nats::jetstream;
use futures::{StreamExt as _, stream};
use lanekeeper::mesh::Site;
use lanekeeper_peer::{Creds, Peer, PeerOptions, PostDraft};
use lanekeeper_provision::{
    AgentProfile, MemberSettings, SpaceAccount, SpaceProfile, Validity, add_member, new_lifecycle_uid,
};
use lanekeeper_wire::{Channel, Lifecycle, Principal, Space};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::support::{Crew, PATIENCE, Tally, channel, pattern};

/// The channel of all posts.
const CHANNEL: &str = "team";
/// Between two posts of one space.
const PACE: Duration = Duration::from_millis(60);
/// After this long a member's copy comes again that was not acknowledged.
const MEMBER_ACK_WAIT: Duration = Duration::from_secs(5);
/// How many spaces get their members at once.
const JOINED_AT_ONCE: usize = 4;

/// What is needed to bring members into a space.
#[derive(Clone)]
pub(crate) struct Ground {
    pub(crate) space: Space,
    pub(crate) account: SpaceAccount,
    pub(crate) provisioner: jetstream::Context,
    /// The lane's credentials; those of members lie beside them.
    pub(crate) credentials: PathBuf,
}

impl From<&Site> for Ground {
    fn from(site: &Site) -> Self {
        Self {
            space: site.space.clone(),
            account: site.account.clone(),
            provisioner: site.provisioner().clone(),
            credentials: site.credentials.clone(),
        }
    }
}

/// One member and one sender a space, and posts that flow until they are stopped.
pub(crate) struct Talk {
    crews: Vec<Crew>,
    authors: Vec<JoinHandle<Author>>,
    stop: CancellationToken,
}

/// A sender after its last post.
struct Author {
    peer: Peer,
    posted: usize,
    repeated: usize,
}

/// What was posted and what became of it, over all spaces.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Posts that were confirmed.
    pub(crate) posted: usize,
    /// Posts that were sent again because no confirmation came.
    pub(crate) repeated: usize,
    pub(crate) lost: usize,
    pub(crate) duplicated: usize,
    /// Spaces with losses or duplicates.
    pub(crate) harmed: Vec<(usize, Tally)>,
}

impl Talk {
    /// Connects, joins and lets posts flow, at the brokers at `url`. Every space must be served.
    pub(crate) async fn open(grounds: impl IntoIterator<Item = impl Into<Ground>>, url: &str) -> Self {
        let opened = stream::iter(grounds).map(|ground| {
            let ground = ground.into();
            async move {
                let crew = Crew::of(vec![connect(&ground, url, "member").await], CHANNEL).await;
                (crew, connect(&ground, url, "sender").await)
            }
        });
        let opened: Vec<(Crew, Peer)> = opened.buffered(JOINED_AT_ONCE).collect().await;
        let stop = CancellationToken::new();
        let (crews, senders): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
        let authors = senders.into_iter().map(|peer| tokio::spawn(author(peer, channel(CHANNEL), stop.clone())));
        Self { authors: authors.collect(), crews, stop }
    }

    /// Waits until each space has received `more` copies from now on.
    pub(crate) async fn wait_more(&self, more: usize) {
        let wanted: Vec<usize> = self.crews.iter().map(|crew| crew.received() + more).collect();
        for (index, (crew, wanted)) in self.crews.iter().zip(wanted).enumerate() {
            crew.wait_received(wanted).await.unwrap_or_else(|missing| panic!("space {index}: {missing}"));
        }
    }

    /// Ends the posts, waits for every copy and says what became of them.
    pub(crate) async fn close(self) -> Account {
        self.stop.cancel();
        let mut account = Account::default();
        for (index, (crew, author)) in self.crews.into_iter().zip(self.authors).enumerate() {
            let author = timeout(PATIENCE, author).await.expect("its last post").unwrap();
            account.posted += author.posted;
            account.repeated += author.repeated;
            let tally = crew.complete(author.posted).await;
            account.lost += tally.lost;
            account.duplicated += tally.duplicated;
            if (tally.lost, tally.duplicated) != (0, 0) {
                account.harmed.push((index, tally));
            }
            author.peer.close().await.unwrap();
            crew.close().await;
        }
        account
    }
}

/// A member that may read and post on the channel, without presence: what is counted are posts.
async fn connect(ground: &Ground, url: &str, name: &str) -> Peer {
    let on = vec![pattern(CHANNEL)];
    let principal = Principal::new("local".parse().unwrap(), name.parse().unwrap());
    let lifecycle = Lifecycle::new(principal.clone(), new_lifecycle_uid());
    let settings = MemberSettings { read: on.clone(), ack_wait: MEMBER_ACK_WAIT, ..MemberSettings::default() };
    add_member(&ground.provisioner, &ground.space, &lifecycle, &settings).await.unwrap();
    let credentials = ground.credentials.with_file_name(format!("{}.{name}.creds", ground.space));
    let uid = lifecycle.uid().clone();
    let profile = SpaceProfile::Agent(AgentProfile { principal, uid, read: on.clone(), post: on, role: None });
    ground.account.mint(&profile, Validity::forever()).unwrap().write_creds(&credentials).unwrap();
    let creds = Creds::path(credentials);
    let options = PeerOptions {
        presence_interval: None,
        ..PeerOptions::new(url, ground.space.clone(), creds, lifecycle, name).raw()
    };
    Peer::connect(options).await.unwrap()
}

async fn author(peer: Peer, on: Channel, stop: CancellationToken) -> Author {
    let mut author = Author { peer, posted: 0, repeated: 0 };
    while !stop.is_cancelled() {
        let text = format!("post {}", author.posted);
        // One id for all attempts, so that the broker keeps one of them.
        let draft = PostDraft::text(&text).with_id(text).suppressing_repeats();
        while author.peer.post(&on, draft.clone()).await.is_err() {
            author.repeated += 1;
            sleep(PACE).await;
        }
        author.posted += 1;
        sleep(PACE).await;
    }
    author
}
