//! A broker that trusts a fresh home, and a space on it: what every test here starts from.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a helper of tests fails like a test")]

use async_nats::jetstream;
use lanekeeper_broker::{Broker, BrokerConfig, NatsServer, PINNED_VERSION, fetch, find};
use lanekeeper_provision::{
    AccountSettings, AgentProfile, Credentials, Home, SpaceAccount, SpaceProfile, SpaceSettings, Validity, ensure_space,
};
use lanekeeper_wire::{Lifecycle, Principal, Space};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

pub const WAIT: Duration = Duration::from_secs(20);

pub struct Bench {
    pub broker: Broker,
    pub home: Home,
    pub dir: TempDir,
}

pub async fn server() -> NatsServer {
    match find().await {
        Ok(server) => server,
        Err(_) => fetch(&PINNED_VERSION).await.unwrap(),
    }
}

impl Bench {
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::create(&dir.path().join("home")).unwrap();
        let mut config = BrokerConfig::new(dir.path().join("store"));
        config.extra_config = home.server_config(&dir.path().join("resolver"));
        let broker = Broker::start(&server().await, config).await.unwrap();
        Self { broker, home, dir }
    }

    pub async fn push(&self, account: &SpaceAccount) {
        let system = self.home.system_client(&self.broker.url()).await.unwrap();
        system.push_account(account).await.unwrap();
        system.close().await;
    }

    pub async fn account(&self, space: &str) -> SpaceAccount {
        let account = self.home.create_space(&space.parse().unwrap(), &AccountSettings::default()).unwrap();
        self.push(&account).await;
        account
    }

    /// A space with its streams, and the provisioner's connection.
    pub async fn space(&self, space: &str) -> (SpaceAccount, Client) {
        let account = self.account(space).await;
        let provisioner = self.connect(&account, &SpaceProfile::Provisioner).await;
        ensure_space(&provisioner.js(), account.space(), &SpaceSettings::default()).await.unwrap();
        (account, provisioner)
    }

    pub async fn connect(&self, account: &SpaceAccount, profile: &SpaceProfile) -> Client {
        Client::open(&self.broker.url(), &account.mint(profile, Validity::forever()).unwrap()).await
    }
}

/// A connection, with what the broker refused it.
pub struct Client {
    pub nats: async_nats::Client,
    pub credentials: Credentials,
    errors: Arc<Mutex<Vec<String>>>,
}

impl Client {
    pub async fn open(url: &str, credentials: &Credentials) -> Self {
        Self::open_with_inbox(url, credentials, &credentials.inbox_prefix()).await
    }

    pub async fn open_with_inbox(url: &str, credentials: &Credentials, inbox: &str) -> Self {
        let errors = Arc::new(Mutex::new(Vec::new()));
        let sink = errors.clone();
        let nats = credentials
            .connect_options()
            .unwrap()
            .custom_inbox_prefix(inbox)
            .event_callback(move |event| {
                let sink = sink.clone();
                async move {
                    if let async_nats::Event::ServerError(error) = event {
                        sink.lock().unwrap().push(error.to_string());
                    }
                }
            })
            .connect(url)
            .await
            .unwrap();
        Self { nats, credentials: credentials.clone(), errors }
    }

    pub fn js(&self) -> jetstream::Context {
        jetstream::new(self.nats.clone())
    }

    /// What the broker refused this connection so far, sentinels left out.
    pub fn errors(&self) -> Vec<String> {
        let errors = self.errors.lock().unwrap().clone();
        errors.into_iter().filter(|error| !error.contains("sentinel.")).collect()
    }

    /// Whether the broker lets this connection publish here.
    pub async fn may_publish(&self, subject: &str) -> bool {
        let before = self.errors().len();
        self.nats.publish(subject.to_owned(), "{}".into()).await.unwrap();
        self.settle().await;
        !self.refused_since(before, &format!("Publish to \"{subject}\""))
    }

    /// Whether the broker lets this connection subscribe here.
    pub async fn may_subscribe(&self, subject: &str) -> bool {
        let before = self.errors().len();
        let subscriber = self.nats.subscribe(subject.to_owned()).await.unwrap();
        self.settle().await;
        drop(subscriber);
        !self.refused_since(before, &format!("Subscription to \"{subject}\""))
    }

    /// Everything sent so far has been judged: the broker answers in order, and refuses a sentinel that nobody may
    /// publish after all that came before.
    pub async fn settle(&self) {
        let sentinel = format!("sentinel.{}", rand::random::<u64>());
        self.nats.publish(sentinel.clone(), "".into()).await.unwrap();
        let seen = || {
            let errors = self.errors.lock().unwrap();
            std::future::ready(errors.iter().any(|error| error.contains(&sentinel)).then_some(()))
        };
        wait("the sentinel to be refused", seen).await;
    }

    fn refused_since(&self, before: usize, what: &str) -> bool {
        let refusals = self.errors().split_off(before);
        assert!(refusals.iter().all(|refusal| refusal.contains(what)), "{what}: unexpected {refusals:?}");
        !refusals.is_empty()
    }
}

/// Waits until `probe` gives a value.
pub async fn wait<T, F: Future<Output = Option<T>>>(what: &str, probe: impl FnMut() -> F) -> T {
    let mut probe = probe;
    let ended = tokio::time::timeout(WAIT, async {
        loop {
            if let Some(value) = probe().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    ended.await.unwrap_or_else(|_| panic!("waited {WAIT:?} in vain for {what}"))
}

/// The next item of a stream, within the deadline.
pub async fn next<T>(what: &str, stream: &mut (impl futures::Stream<Item = T> + Unpin)) -> T {
    use futures::StreamExt as _;
    match tokio::time::timeout(WAIT, stream.next()).await {
        Ok(Some(item)) => item,
        Ok(None) => panic!("{what}: the stream ended"),
        Err(_) => panic!("{what}: nothing within {WAIT:?}"),
    }
}

pub fn space(name: &str) -> Space {
    name.parse().unwrap()
}

pub fn principal(text: &str) -> Principal {
    text.parse().unwrap()
}

pub fn lifecycle(text: &str) -> Lifecycle {
    Lifecycle::new(principal(text), lanekeeper_provision::new_lifecycle_uid())
}

pub fn agent(lifecycle: &Lifecycle, read: &[&str], post: &[&str]) -> AgentProfile {
    let patterns = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
    AgentProfile {
        principal: lifecycle.principal().clone(),
        uid: lifecycle.uid().clone(),
        read: patterns(read),
        post: patterns(post),
        role: None,
    }
}
