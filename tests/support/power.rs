//! Users that no profile makes: one that may do everything in the space's account, and ones with rows of a test's
//! choice. For looking at what the daemon wrote and for breaking what it stands on.

use std::{fs, path::PathBuf};

use async_nats::{
    HeaderMap,
    jetstream::{
        self,
        context::GetStreamErrorKind,
        stream::{Config, LastRawMessageErrorKind},
    },
};
use bytes::Bytes;
use lanekeeper::mesh::{Mesh, Site};
use lanekeeper_provision::{
    Credentials, SpaceAccount, Validity,
    jwt::{self, Permission, UserClaims},
    profile::Grants,
};
use lanekeeper_wire::{Bucket, LEASE_KEY, LeaseRow, Space};
use nkeys::KeyPair;

/// Everything in one space's account.
#[derive(Debug, Clone)]
pub(crate) struct Power {
    pub(crate) js: jetstream::Context,
    space: Space,
}

/// What the lease key's last entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseEntry {
    pub(crate) revision: u64,
    /// Unix nanoseconds at which the broker stored it.
    pub(crate) stored_at_ns: i128,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Bytes,
}

impl LeaseEntry {
    /// The row, or `None` where the entry is a marker.
    pub(crate) fn row(&self) -> Option<LeaseRow> {
        let marker = self.headers.get("KV-Operation").is_some() || self.headers.get("Nats-Marker-Reason").is_some();
        (!marker).then(|| LeaseRow::parse(&self.payload).unwrap())
    }
}

impl Power {
    /// Connects a user without limits to the space's account.
    pub(crate) async fn over(mesh: &Mesh, site: &Site) -> Self {
        let all = || Permission { allow: vec![">".into()], deny: Vec::new() };
        let grants = Grants { publish: all(), subscribe: all(), tags: Vec::new() };
        let user = mint(mesh, &site.account, &grants, Validity::forever());
        let client = user.connect_options().unwrap().name("test power").connect(&site.url).await.unwrap();
        Self { js: jetstream::new(client), space: site.space.clone() }
    }

    /// The lease key's last entry, `None` where there is none.
    pub(crate) async fn lease(&self) -> Option<LeaseEntry> {
        let stream = self.js.get_stream_no_info(Bucket::Delivery.stream(&self.space)).await.unwrap();
        let subject = Bucket::Delivery.subject(&self.space, LEASE_KEY);
        match stream.get_last_raw_message_by_subject(&subject).await {
            Ok(entry) => Some(LeaseEntry {
                revision: entry.sequence,
                stored_at_ns: entry.time.unix_timestamp_nanos(),
                headers: entry.headers,
                payload: entry.payload,
            }),
            Err(error) if matches!(error.kind(), LastRawMessageErrorKind::NoMessageFound) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// The lease as a row, `None` where it is not held.
    pub(crate) async fn lease_row(&self) -> Option<LeaseRow> {
        self.lease().await.and_then(|entry| entry.row())
    }

    /// How many writes the delivery bucket has ever seen.
    pub(crate) async fn lease_writes(&self) -> u64 {
        let mut stream = self.js.get_stream(Bucket::Delivery.stream(&self.space)).await.unwrap();
        stream.info().await.unwrap().state.last_sequence
    }

    /// Writes the lease key, whoever holds it.
    pub(crate) async fn write_lease(&self, body: impl Into<Bytes>) -> u64 {
        let subject = Bucket::Delivery.subject(&self.space, LEASE_KEY);
        self.js.publish(subject, body.into()).await.unwrap().await.unwrap().sequence
    }

    /// Deletes the lease key, as an operator would by hand.
    pub(crate) async fn delete_lease(&self) {
        let bucket = self.js.get_key_value(Bucket::Delivery.name(&self.space)).await.unwrap();
        bucket.delete(LEASE_KEY).await.unwrap();
    }

    /// Deletes a stream, and returns how it was configured.
    pub(crate) async fn delete_stream(&self, name: &str) -> Config {
        let config = self.js.get_stream(name).await.unwrap().cached_info().config.clone();
        self.js.delete_stream(name).await.unwrap();
        config
    }

    /// Puts a stream of this configuration in place of the one of its name.
    pub(crate) async fn replace_stream(&self, config: Config) {
        match self.js.delete_stream(&config.name).await {
            Ok(_) => {}
            Err(error) => assert!(matches!(error.kind(), GetStreamErrorKind::JetStream(_)), "{error}"),
        }
        self.js.create_stream(config).await.unwrap();
    }
}

/// A user of `account` with these rows.
pub(crate) fn mint(mesh: &Mesh, account: &SpaceAccount, grants: &Grants, validity: Validity) -> Credentials {
    let user = KeyPair::new_user();
    mint_for(mesh, account, &user, grants, validity)
}

/// The same for a key pair of the caller's, so that rows can name its inbox.
pub(crate) fn mint_for(
    mesh: &Mesh,
    account: &SpaceAccount,
    user: &KeyPair,
    grants: &Grants,
    validity: Validity,
) -> Credentials {
    let mut claims = UserClaims::new(grants.publish.clone(), grants.subscribe.clone(), account.account_id());
    claims.tags.clone_from(&grants.tags);
    let signing = signing_key(mesh, account);
    let token = jwt::encode("test", &user.public_key(), &claims, validity, &signing).unwrap();
    let seed = user.seed().unwrap();
    let text = format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    );
    Credentials::parse(&text).unwrap()
}

fn signing_key(mesh: &Mesh, account: &SpaceAccount) -> KeyPair {
    let dirs = fs::read_dir(mesh.home.dir().join("spaces")).unwrap();
    let dirs: Vec<PathBuf> = dirs.map(|entry| entry.unwrap().path()).collect();
    let own = |dir: &&PathBuf| fs::read_to_string(dir.join("space")).is_ok_and(|name| name.trim() == account.name());
    let dir = dirs.iter().find(own).expect("the account's directory");
    KeyPair::from_seed(fs::read_to_string(dir.join("account-signing.seed")).unwrap().trim()).unwrap()
}
