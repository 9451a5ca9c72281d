//! A broker that trusts a fresh home, and a space on it: what every test here starts from.
#![allow(dead_code, reason = "each test file uses its part")]

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

    pub fn errors(&self) -> Vec<String> {
        self.errors.lock().unwrap().clone()
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
