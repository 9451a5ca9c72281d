//! A test's own connection, beside the daemon: with the daemon's rights, or with all rights of the account.
//!
//! Owns the by-hand reads and writes of streams and rows. A healthy run needs none of this: it is for putting the plane
//! into a state that traffic alone reaches only by luck.

use std::fs;

use async_nats::{
    HeaderMap,
    jetstream::{self, consumer, message::StreamMessage},
};
use bytes::Bytes;
use lanekeeper_broker::wait_until;
use lanekeeper_provision::{
    Credentials, Validity,
    jwt::{self, Permission, UserClaims},
    lane_files,
};
use lanekeeper_wire::{
    Bucket, FANOUT_DURABLE, Lifecycle, MemberKey, MembershipRow, MembershipState, READER_DURABLE, Space, StreamKind,
    subject,
};
use nkeys::KeyPair;

use crate::support::{PATIENCE, World, pattern};

/// A connection and its JetStream.
pub(crate) struct Hand {
    /// The connection.
    pub(crate) client: async_nats::Client,
    /// Its JetStream.
    pub(crate) js: jetstream::Context,
    space: Space,
}

impl Hand {
    /// With the delivery credential, and so within the daemon's own rights.
    pub(crate) async fn of_the_daemon(world: &World) -> Self {
        let credentials = Credentials::read(&world.site.credentials.join(lane_files::DELIVERY)).unwrap();
        Self::with(world, &credentials).await
    }

    /// With every right of the space's account, which no provisioned role has.
    pub(crate) async fn of_the_account(world: &World) -> Self {
        let signing = find_signing_seed(world);
        let user = KeyPair::new_user();
        let all = Permission { allow: vec![">".to_owned()], deny: Vec::new() };
        let claims = UserClaims::new(all.clone(), all, world.site.account.account_id());
        let token = jwt::encode("test", &user.public_key(), &claims, Validity::forever(), &signing).unwrap();
        let seed = user.seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        Self::with(world, &Credentials::parse(&text).unwrap()).await
    }

    /// With any credential.
    pub(crate) async fn with(world: &World, credentials: &Credentials) -> Self {
        let client = credentials.connect_options().unwrap().connect(&world.site.url).await.unwrap();
        Self { js: jetstream::new(client.clone()), client, space: world.site.space.clone() }
    }

    /// Stores bytes on a subject; their sequence.
    pub(crate) async fn store(&self, subject: &str, payload: impl Into<Bytes>) -> u64 {
        self.store_with(subject, HeaderMap::new(), payload).await
    }

    /// Stores bytes with headers.
    pub(crate) async fn store_with(&self, subject: &str, headers: HeaderMap, payload: impl Into<Bytes>) -> u64 {
        let sent = self.js.publish_with_headers(subject.to_owned(), headers, payload.into()).await.unwrap();
        sent.await.unwrap_or_else(|fault| panic!("{subject}: {fault}")).sequence
    }

    /// Puts an entry into a member's INBOX past fan-out.
    pub(crate) async fn entry(&self, to: &Lifecycle, channel: &str, seq: u64, text: &str) -> u64 {
        let entry = format!(
            r#"{{"msg":{},"channel":"{channel}","seq":{seq},"reason":"durable-channel","generation":1}}"#,
            post_json("local.ada", &format!("entry-{seq}"), channel, text)
        );
        self.store(&subject::dinbox(&self.space, to), entry).await
    }

    /// The newest message on a subject.
    pub(crate) async fn newest(&self, stream: &str, subject: &str) -> StreamMessage {
        let stream = self.js.get_stream_no_info(stream).await.unwrap();
        stream.get_last_raw_message_by_subject(subject).await.unwrap_or_else(|fault| panic!("{subject}: {fault}"))
    }

    /// A membership row and its revision.
    pub(crate) async fn row(&self, lifecycle: &Lifecycle, on: &str) -> (u64, MembershipRow) {
        let stored = self.newest(&Bucket::Members.stream(&self.space), &self.row_subject(lifecycle, on)).await;
        (stored.sequence, MembershipRow::parse(&stored.payload).unwrap())
    }

    /// Writes an open membership row.
    pub(crate) async fn open_row(&self, lifecycle: &Lifecycle, on: &str, join_cursor: u64, activated: bool) {
        let row = MembershipRow {
            channel: pattern(on),
            owner: lifecycle.principal().clone(),
            lifecycle_uid: lifecycle.uid().clone(),
            state: MembershipState::DurableActive,
            join_cursor,
            leave_cursor: None,
            generation: 1,
            activated,
            writer_identity: "test".to_owned(),
            updated_at: 1,
            earlier: Vec::new(),
        };
        self.store(&self.row_subject(lifecycle, on), row.to_json()).await;
    }

    fn row_subject(&self, lifecycle: &Lifecycle, on: &str) -> String {
        let key = MemberKey { pattern: pattern(on), lifecycle: lifecycle.clone() };
        Bucket::Members.subject(&self.space, &key.to_string())
    }

    /// The last sequence of a stream.
    pub(crate) async fn frontier(&self, kind: StreamKind) -> u64 {
        self.js.get_stream(kind.name(&self.space)).await.unwrap().cached_info().state.last_sequence
    }

    /// The plane's durable on CHAT or INBOX.
    pub(crate) async fn durable(&self, kind: StreamKind) -> consumer::Info {
        let durable = if kind == StreamKind::Chat { FANOUT_DURABLE } else { READER_DURABLE };
        let found = self.js.get_consumer_from_stream::<consumer::Config, _, _>(durable, kind.name(&self.space)).await;
        found.unwrap().cached_info().clone()
    }

    /// Waits until the plane's durable on CHAT or INBOX has settled everything that is in the stream now.
    pub(crate) async fn wait_idle(&self, kind: StreamKind) {
        let last = self.frontier(kind).await;
        let what = format!("{kind:?} to be settled up to {last}");
        let idle = || async {
            let info = self.durable(kind).await;
            // The broker counts what is pending with a delay, so the position decides.
            (info.num_ack_pending == 0 && info.delivered.stream_sequence >= last).then_some(())
        };
        wait_until(&what, PATIENCE, idle).await.unwrap();
    }

    /// Waits until `count` entries were judged and put off.
    pub(crate) async fn wait_deferred(&self, count: usize) {
        let idle = || async {
            let info = self.durable(StreamKind::Inbox).await;
            let seen = info.delivered.stream_sequence >= self.frontier(StreamKind::Inbox).await;
            (seen && info.num_ack_pending == count).then_some(())
        };
        wait_until(&format!("{count} entries to be put off"), PATIENCE, idle).await.unwrap();
    }
}

/// The JSON of a post.
pub(crate) fn post_json(from: &str, id: &str, channel: &str, text: &str) -> String {
    format!(
        r#"{{"id":"{id}","ts":1,"space":"demo","from":{{"id":"{from}","name":"ada"}},"channel":"{channel}","parts":[{{"kind":"text","text":"{text}"}}]}}"#
    )
}

/// The signing key of the one space of this world.
fn find_signing_seed(world: &World) -> KeyPair {
    let spaces = fs::read_dir(world.mesh.home.dir().join("spaces")).unwrap();
    let seeds: Vec<_> = spaces.map(|entry| entry.unwrap().path().join("account-signing.seed")).collect();
    let [seed] = seeds.as_slice() else { panic!("not one space: {seeds:?}") };
    KeyPair::from_seed(fs::read_to_string(seed).unwrap().trim()).unwrap()
}
