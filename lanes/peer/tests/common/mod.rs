//! A real broker, a provisioned space, and members of it: what every test here starts from.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::pull;
use bytes::Bytes;
use futures::StreamExt;
use lanekeeper_broker::{Broker, BrokerConfig, NatsServer, PINNED_VERSION, fetch, find, wait_until};
use lanekeeper_peer::{Creds, Peer, PeerOptions};
use lanekeeper_provision::{
    AccountSettings, AgentProfile, DeliveryExtras, Home, MemberSettings, SpaceAccount, SpaceProfile, SpaceSettings,
    Validity, add_member, ensure_space, new_lifecycle_uid,
};
use lanekeeper_wire::{ChannelPattern, FRAME_HEADER, FRAME_VERSION, Lifecycle, Space, StreamKind, names, subject};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// No wait of a test is longer.
pub const WAIT: Duration = Duration::from_secs(20);
/// Long enough for what must not come.
pub const QUIET: Duration = Duration::from_millis(400);

pub struct Bench {
    pub broker: Broker,
    pub account: SpaceAccount,
    pub provisioner: async_nats::Client,
    pub dir: TempDir,
}

async fn server() -> NatsServer {
    match find().await {
        Ok(server) => server,
        Err(_) => fetch(&PINNED_VERSION).await.unwrap(),
    }
}

impl Bench {
    /// A broker with one space, and nobody serving it.
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::create(&dir.path().join("home")).unwrap();
        let mut config = BrokerConfig::new(dir.path().join("store"));
        config.extra_config = home.server_config(&dir.path().join("resolver"));
        let broker = Broker::start(&server().await, config).await.unwrap();
        let account = home.create_space(&"demo".parse().unwrap(), &AccountSettings::default()).unwrap();
        let system = home.system_client(&broker.url()).await.unwrap();
        system.push_account(&account).await.unwrap();
        system.close().await;
        let provisioner = connect(&broker, &account, &SpaceProfile::Provisioner).await;
        let js = jetstream::new(provisioner.clone());
        ensure_space(&js, account.space(), &SpaceSettings::default()).await.unwrap();
        Self { broker, account, provisioner, dir }
    }

    pub fn space(&self) -> &Space {
        self.account.space()
    }

    pub async fn connect(&self, profile: &SpaceProfile) -> async_nats::Client {
        connect(&self.broker, &self.account, profile).await
    }

    /// The connection a delivery daemon would have.
    pub async fn delivery(&self) -> async_nats::Client {
        self.connect(&SpaceProfile::Delivery(DeliveryExtras::default())).await
    }

    /// Options of a new member that may read and post in `channels`.
    pub async fn member(&self, name: &str, channels: &[&str]) -> PeerOptions {
        self.member_with_ack_wait(name, channels, Duration::from_secs(60)).await
    }

    pub async fn member_with_ack_wait(&self, name: &str, channels: &[&str], ack_wait: Duration) -> PeerOptions {
        let lifecycle = Lifecycle::new(format!("local.{name}").parse().unwrap(), new_lifecycle_uid());
        let read: Vec<_> = channels.iter().map(|channel| channel.parse().unwrap()).collect();
        let settings = MemberSettings { read: read.clone(), ack_wait, ..MemberSettings::default() };
        let js = jetstream::new(self.provisioner.clone());
        add_member(&js, self.space(), &lifecycle, &settings).await.unwrap();
        let creds = Creds::text(self.mint(&lifecycle, read));
        PeerOptions::new(self.broker.url(), self.space().clone(), creds, lifecycle, name)
    }

    fn mint(&self, lifecycle: &Lifecycle, read: Vec<ChannelPattern>) -> String {
        let profile = AgentProfile {
            principal: lifecycle.principal().clone(),
            uid: lifecycle.uid().clone(),
            post: read.clone(),
            read,
            role: None,
        };
        self.account.mint(&SpaceProfile::Agent(profile), Validity::forever()).unwrap().text().to_owned()
    }

    /// A credential of the same member with a key of its own.
    pub fn creds_text(&self, options: &PeerOptions) -> String {
        self.mint(&options.lifecycle, vec!["team".parse().unwrap()])
    }

    pub async fn join_space(&self, name: &str, channels: &[&str]) -> Peer {
        Peer::connect(self.member(name, channels).await).await.unwrap()
    }

    /// Messages of a member's hand-over that are neither acknowledged nor terminated.
    pub async fn unsettled(&self, lifecycle: &Lifecycle) -> u64 {
        let js = jetstream::new(self.provisioner.clone());
        let (durable, stream) = (names::dlv_durable(lifecycle), StreamKind::Dlv.name(self.space()));
        let consumer = js.get_consumer_from_stream::<pull::Config, _, _>(durable, stream).await.unwrap();
        let info = consumer.cached_info();
        info.num_pending + u64::try_from(info.num_ack_pending).unwrap()
    }

    pub async fn wait_settled(&self, lifecycle: &Lifecycle) {
        wait_until("all entries to be settled", WAIT, || async {
            (self.unsettled(lifecycle).await == 0).then_some(())
        })
        .await
        .unwrap();
    }
}

async fn connect(broker: &Broker, account: &SpaceAccount, profile: &SpaceProfile) -> async_nats::Client {
    let credentials = account.mint(profile, Validity::forever()).unwrap();
    credentials.connect_options().unwrap().connect(broker.url()).await.unwrap()
}

/// The JSON of a post as its author would write it.
pub fn post_json(author: &str, id: &str, text: &str) -> Value {
    json!({"id": id, "ts": 1, "space": "demo", "from": {"id": author, "name": "x"}, "channel": "team",
        "parts": [{"kind": "text", "text": text}]})
}

/// Puts an entry on a member's hand-over the way a daemon does, or without its header.
pub async fn hand_over(daemon: &async_nats::Client, to: &Peer, body: impl Into<Bytes>, header: bool) {
    let js = jetstream::new(daemon.clone());
    let subject = subject::dlv(to.space(), to.lifecycle());
    let mut headers = async_nats::HeaderMap::new();
    if header {
        headers.insert(FRAME_HEADER, FRAME_VERSION);
    }
    js.publish_with_headers(subject, headers, body.into()).await.unwrap().await.unwrap();
}

/// The body of a delivery frame.
pub fn frame(author: &str, id: &str, text: &str) -> Vec<u8> {
    json!({"version": 1, "channel": "team", "msg": post_json(author, id, text)}).to_string().into_bytes()
}

/// When this returns, the broker has handled everything that was sent on the connection before; a flush only says that
/// it left the process.
pub async fn round_trip(client: &async_nats::Client) {
    jetstream::new(client.clone()).query_account().await.unwrap();
}

/// Answers control requests by a script, on the connection a daemon would have. For what no sound daemon answers, and
/// for the moment at which one appears; members against the real daemon are tested outside this crate.
pub struct Script {
    pub seen: Arc<Mutex<Vec<Value>>>,
    daemon: async_nats::Client,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Script {
    pub async fn serve(
        daemon: &async_nats::Client,
        filter: String,
        answer: impl Fn(&Value) -> String + Send + 'static,
    ) -> Self {
        let mut requests = daemon.queue_subscribe(filter, "delivery".to_owned()).await.unwrap();
        round_trip(daemon).await;
        let (seen, client) = (Arc::new(Mutex::new(Vec::new())), daemon.clone());
        let log = Arc::clone(&seen);
        let (stop, daemon) = (CancellationToken::new(), daemon.clone());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            while let Some(Some(request)) = stopped.run_until_cancelled(requests.next()).await {
                let body: Value = serde_json::from_slice(&request.payload).unwrap_or(Value::Null);
                log.lock().unwrap().push(body.clone());
                if let Some(reply) = request.reply {
                    client.publish(reply, answer(&body).into()).await.unwrap();
                }
            }
            requests.unsubscribe().await.unwrap();
        });
        Self { seen, daemon, stop, task }
    }

    /// Returns when the broker knows that nobody serves here any more.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
        round_trip(&self.daemon).await;
    }

    pub fn ops(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|body| body["op"].as_str().unwrap_or_default().to_owned()).collect()
    }
}
