//! One space's data account: its identity, its signing key, and the users it issues.
//!
//! Owns the account's settings and the daemon's credential files. It must not talk to a broker and decides no rights
//! (`profile`).

use crate::credentials::Credentials;
use crate::home::{self, Home, HomeFault};
use crate::jwt::{AccountClaims, AccountLimits, Validity};
use crate::private_file;
use crate::profile::{DeliveryExtras, SpaceProfile, SystemProfile};
use lanekeeper_wire::Space;
use nkeys::{KeyPair, KeyPairType};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Limits of a space's account; `None` is unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccountSettings {
    /// Client connections at once.
    pub max_connections: Option<u32>,
    /// Subscriptions at once.
    pub max_subscriptions: Option<u32>,
    /// Size of one message, bytes.
    pub max_payload_bytes: Option<u32>,
    /// JetStream disk, bytes.
    pub max_disk_bytes: Option<u64>,
    /// JetStream memory, bytes.
    pub max_memory_bytes: Option<u64>,
    /// Streams, buckets among them.
    pub max_streams: Option<u32>,
    /// Consumers over all streams.
    pub max_consumers: Option<u32>,
}

impl AccountSettings {
    pub(crate) fn claims(&self, signing_key: String, revocations: BTreeMap<String, u64>) -> AccountClaims {
        let count = |limit: Option<u32>| limit.map_or(-1, i64::from);
        // A limit beyond what the format holds is as good as none.
        let bytes = |limit: Option<u64>| limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let limits = AccountLimits {
            conn: count(self.max_connections),
            subs: count(self.max_subscriptions),
            payload: count(self.max_payload_bytes),
            disk_storage: bytes(self.max_disk_bytes),
            mem_storage: bytes(self.max_memory_bytes),
            streams: count(self.max_streams),
            consumer: count(self.max_consumers),
            ..AccountLimits::default()
        };
        AccountClaims { limits, signing_keys: vec![signing_key], revocations }
    }
}

/// How the daemon's credential files are made.
#[derive(Clone, Copy, Debug, Default)]
pub struct LaneCredentialSettings {
    /// How long each is valid; `None` for ever.
    pub ttl: Option<Duration>,
    /// Rows of the delivery credential beyond the bare contract.
    pub extras: DeliveryExtras,
}

/// The names of a lane's credential files in the space's credentials directory.
pub mod lane_files {
    /// The delivery connection (data account).
    pub const DELIVERY: &str = "delivery.creds";
    /// The membership feed's connection (data account).
    pub const MEMBERSHIP_RW: &str = "membership-rw.creds";
    /// The observer (system account, scoped to the data account).
    pub const MEMBERSHIP_OBSERVER: &str = "membership-observer.creds";
    /// The evictor (system account); without it eviction is off.
    pub const CONNECTION_EVICTOR: &str = "connection-evictor.creds";
}

/// A space's account. Holds its signing key: never part of the running daemon. Cheap to clone.
#[derive(Clone)]
pub struct SpaceAccount {
    inner: Arc<Inner>,
}

struct Inner {
    space: Space,
    dir: PathBuf,
    account_id: String,
    account_jwt: String,
    signing: KeyPair,
}

impl fmt::Debug for SpaceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpaceAccount")
            .field("space", &self.inner.space.as_str())
            .field("account_id", &self.inner.account_id)
            .finish()
    }
}

impl SpaceAccount {
    /// Reads the account from its directory and checks that its files belong together and to this operator and space.
    pub(crate) fn open(space: &Space, dir: &Path, operator_signing_key: &str) -> Result<Self, HomeFault> {
        let foreign = |name: &str, why| HomeFault::Foreign { path: dir.join(name), why };
        if private_file::read_private(&dir.join("space"))?.trim() != space.as_str() {
            return Err(foreign("space", "it names another space"));
        }
        let identity = home::read_seed(&dir.join("account.seed"), KeyPairType::Account)?;
        let signing = home::read_seed(&dir.join("account-signing.seed"), KeyPairType::Account)?;
        let jwt_path = dir.join("account.jwt");
        let account_jwt = private_file::read_private(&jwt_path)?;
        let claims = home::decode_at(&jwt_path, &account_jwt)?;
        if claims.iss != operator_signing_key {
            return Err(foreign("account.jwt", "this home's operator did not sign it"));
        }
        if claims.sub != identity.public_key() {
            return Err(foreign("account.jwt", "it belongs to another account"));
        }
        let inner =
            Inner { space: space.clone(), dir: dir.to_path_buf(), account_id: claims.sub, account_jwt, signing };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The name of the account: the space's.
    pub fn name(&self) -> &str {
        self.inner.space.as_str()
    }

    /// The space.
    pub fn space(&self) -> &Space {
        &self.inner.space
    }

    /// Public key of the account.
    pub fn account_id(&self) -> &str {
        &self.inner.account_id
    }

    /// The account token as it was when this value was opened; a later change of settings or a revocation is in the
    /// file only, and that is what is pushed.
    pub fn account_jwt(&self) -> &str {
        &self.inner.account_jwt
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.inner.dir
    }

    pub(crate) fn signing_public_key(&self) -> String {
        self.inner.signing.public_key()
    }

    /// Issues a new user with a key of its own.
    ///
    /// # Errors
    /// See [`HomeFault`].
    pub fn mint(&self, profile: &SpaceProfile, validity: Validity) -> Result<Credentials, HomeFault> {
        self.mint_for(&KeyPair::new_user(), profile, validity)
    }

    /// Issues a fresh token to the user of `existing`: same nkey, new rights and times.
    ///
    /// # Errors
    /// See [`HomeFault`].
    pub fn mint_again(
        &self,
        existing: &Credentials,
        profile: &SpaceProfile,
        validity: Validity,
    ) -> Result<Credentials, HomeFault> {
        self.mint_for(&existing.key_pair()?, profile, validity)
    }

    fn mint_for(&self, user: &KeyPair, profile: &SpaceProfile, validity: Validity) -> Result<Credentials, HomeFault> {
        let grants = profile.grants(&self.inner.space, &user.public_key());
        let Inner { account_id, signing, .. } = &*self.inner;
        home::sign_user(&profile.user_name(), user, grants, validity, account_id, signing)
    }

    /// Writes the four credential files a lane needs into `dir`, which is made when absent. A file that is there keeps
    /// its nkey and gets a fresh token, so that calling this again is how credentials are renewed.
    ///
    /// # Errors
    /// See [`HomeFault`]. A file that is there but unreadable is an error: a new nkey would lock the running lane out.
    pub fn write_lane_credentials(
        &self,
        dir: &Path,
        home: &Home,
        settings: &LaneCredentialSettings,
    ) -> Result<(), HomeFault> {
        self.write_lane_credentials_with(dir, home, settings.extras, Validity::from_ttl(settings.ttl))
    }

    /// The same, with the times spelled out: tests need credentials that are about to end, or have ended.
    ///
    /// # Errors
    /// See [`SpaceAccount::write_lane_credentials`].
    pub fn write_lane_credentials_with(
        &self,
        dir: &Path,
        home: &Home,
        extras: DeliveryExtras,
        validity: Validity,
    ) -> Result<(), HomeFault> {
        private_file::ensure_private_dir(dir)?;
        let space_users = [
            (lane_files::DELIVERY, SpaceProfile::Delivery(extras)),
            (lane_files::MEMBERSHIP_RW, SpaceProfile::MembershipRw),
        ];
        for (name, profile) in space_users {
            let path = dir.join(name);
            self.mint_for(&key_for(&path)?, &profile, validity)?.write_creds(&path)?;
        }
        let account_id = self.inner.account_id.clone();
        let system_users = [
            (lane_files::MEMBERSHIP_OBSERVER, SystemProfile::MembershipObserver { account_id }),
            (lane_files::CONNECTION_EVICTOR, SystemProfile::ConnectionEvictor),
        ];
        for (name, profile) in system_users {
            let path = dir.join(name);
            home.mint_system_for(&key_for(&path)?, &profile, validity)?.write_creds(&path)?;
        }
        Ok(())
    }
}

/// The key of the user whose credential is in this file, or a new one when there is no file.
fn key_for(path: &Path) -> Result<KeyPair, HomeFault> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(KeyPair::new_user()),
        Ok(_) | Err(_) => Ok(Credentials::read(path)?.key_pair()?),
    }
}
