//! The directory of key material: operator, system account, and one directory per space.
//!
//! Owns the layout and the trust chain. Every file is 0600 in 0700 directories and is refused when looser. It must not
//! talk to a broker (`system_client`) and decides no rights (`profile`). All calls block on small files.
//!
//! ```text
//! <home>/operator.seed           identity of the operator; signs the operator token once
//! <home>/operator-signing.seed   signs accounts
//! <home>/operator.jwt
//! <home>/system.seed             identity of the system account
//! <home>/system-signing.seed     signs users of the system account
//! <home>/system.jwt
//! <home>/lock                    held while an account token is changed
//! <home>/spaces/<space>.<digest>/{space, account.seed, account-signing.seed, account.jwt, settings.json}
//! ```

use crate::credentials::{Credentials, CredentialsFault};
use crate::jwt::{self, AccountClaims, AccountLimits, JwtFault, OperatorClaims, UserClaims, Validity};
use crate::private_file::{self, Placed, PrivateFileFault, StagedDir};
use crate::profile::{Grants, SystemProfile};
use crate::space_account::{AccountSettings, SpaceAccount};
use lanekeeper_wire::Space;
use nkeys::{KeyPair, KeyPairType};
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const OPERATOR_NAME: &str = "lanekeeper";
const SYSTEM_NAME: &str = "SYS";
const SPACES: &str = "spaces";

/// Why key material could not be made, read or used.
#[derive(Debug, thiserror::Error)]
pub enum HomeFault {
    /// There is something in the way.
    #[error("cannot create a home in {dir}: it exists and is not empty; open it or choose another directory", dir = .0.display())]
    Occupied(PathBuf),
    /// A file or directory cannot be used.
    #[error(transparent)]
    File(#[from] PrivateFileFault),
    /// A token cannot be written or read.
    #[error("{path}: {source}", path = path.display())]
    Token {
        /// The file it belongs to.
        path: PathBuf,
        /// Why.
        source: JwtFault,
    },
    /// A seed is not one, or of the wrong kind.
    #[error("{path} does not hold the seed of an {want} key; restore it from a copy", path = path.display())]
    Seed {
        /// The file.
        path: PathBuf,
        /// `operator` or `account`.
        want: &'static str,
    },
    /// Two files do not belong together.
    #[error("{path} does not belong to this home: {why}; restore the directory from one copy", path = path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What does not match.
        why: &'static str,
    },
    /// A stored record is garbled.
    #[error("{path} is garbled: {source}", path = path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// No user may be made of these rights.
    #[error("refusing to mint {0:?} without rows: an empty list allows everything")]
    NoRows(String),
    /// The credential text cannot be made.
    #[error(transparent)]
    Credentials(#[from] CredentialsFault),
}

/// The key material of one broker. Cheap to clone.
#[derive(Clone)]
pub struct Home {
    inner: Arc<Inner>,
}

struct Inner {
    dir: PathBuf,
    operator_jwt: String,
    operator_signing: KeyPair,
    system_id: String,
    system_signing: KeyPair,
    system_jwt: String,
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").field("dir", &self.inner.dir).field("system_account", &self.inner.system_id).finish()
    }
}

impl Home {
    /// Makes a new operator and system account in `dir`, which must be absent or empty; its parent must exist.
    ///
    /// # Errors
    /// [`HomeFault::Occupied`] when there is something already; otherwise see [`HomeFault`].
    pub fn create(dir: &Path) -> Result<Self, HomeFault> {
        let staged = StagedDir::beside(dir)?;
        let [operator, operator_signing] = [KeyPair::new_operator(), KeyPair::new_operator()];
        let [system, system_signing] = [KeyPair::new_account(), KeyPair::new_account()];
        let operator_claims = OperatorClaims {
            signing_keys: vec![operator_signing.public_key()],
            system_account: Some(system.public_key()),
            strict_signing_key_usage: true,
        };
        let system_claims = AccountClaims {
            limits: AccountLimits::without_jetstream(),
            signing_keys: vec![system_signing.public_key()],
            ..AccountClaims::default()
        };
        let token = |source| HomeFault::Token { path: dir.to_path_buf(), source };
        let forever = Validity::forever();
        let operator_jwt =
            jwt::encode(OPERATOR_NAME, &operator.public_key(), &operator_claims, forever, &operator).map_err(token)?;
        let system_jwt = jwt::encode(SYSTEM_NAME, &system.public_key(), &system_claims, forever, &operator_signing)
            .map_err(token)?;
        staged.write("operator.seed", &seed(&operator, dir, "operator")?)?;
        staged.write("operator-signing.seed", &seed(&operator_signing, dir, "operator")?)?;
        staged.write("operator.jwt", &operator_jwt)?;
        staged.write("system.seed", &seed(&system, dir, "account")?)?;
        staged.write("system-signing.seed", &seed(&system_signing, dir, "account")?)?;
        staged.write("system.jwt", &system_jwt)?;
        staged.create_dir(SPACES)?;
        match staged.place()? {
            Placed::Done => Self::open(dir),
            Placed::Occupied => Err(HomeFault::Occupied(dir.to_path_buf())),
        }
    }

    /// Opens a home that is there, and checks that its files are private and belong together.
    ///
    /// # Errors
    /// See [`HomeFault`]; a loose file is named with its mode and the command that mends it.
    pub fn open(dir: &Path) -> Result<Self, HomeFault> {
        private_file::check_private_dir(dir)?;
        private_file::check_private_dir(&dir.join(SPACES))?;
        // The identity seeds are not needed, but a loose one is as bad as a loose signing key.
        for identity in ["operator.seed", "system.seed"] {
            private_file::read_private(&dir.join(identity))?;
        }
        let operator_signing = read_seed(&dir.join("operator-signing.seed"), KeyPairType::Operator)?;
        let system_signing = read_seed(&dir.join("system-signing.seed"), KeyPairType::Account)?;
        let operator_path = dir.join("operator.jwt");
        let operator_jwt = private_file::read_private(&operator_path)?;
        let operator = decode_at(&operator_path, &operator_jwt)?;
        if operator.sub != operator.iss || !operator.sub.starts_with('O') {
            return Err(HomeFault::Foreign { path: operator_path, why: "it is not a self-signed operator token" });
        }
        let system_path = dir.join("system.jwt");
        let system_jwt = private_file::read_private(&system_path)?;
        let system = decode_at(&system_path, &system_jwt)?;
        if system.iss != operator_signing.public_key() {
            return Err(HomeFault::Foreign { path: system_path, why: "this home's operator did not sign it" });
        }
        let inner = Inner {
            dir: dir.to_path_buf(),
            operator_jwt,
            operator_signing,
            system_id: system.sub,
            system_signing,
            system_jwt,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Opens the home, or makes it when `dir` is absent or empty.
    ///
    /// # Errors
    /// See [`HomeFault`].
    pub fn open_or_create(dir: &Path) -> Result<Self, HomeFault> {
        let empty = std::fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none());
        if !empty {
            return Self::open(dir);
        }
        match Self::create(dir) {
            // Somebody else made it meanwhile.
            Err(HomeFault::Occupied(_)) => Self::open(dir),
            other => other,
        }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// Public key of the system account.
    pub fn system_account_id(&self) -> &str {
        &self.inner.system_id
    }

    /// The part of a nats-server configuration that makes a broker trust this home and take accounts at run time. The
    /// accounts are kept by the broker in `resolver_dir`, which must be the broker's own.
    pub fn server_config(&self, resolver_dir: &Path) -> String {
        let resolver = serde_json::Value::from(resolver_dir.to_string_lossy().as_ref());
        let Inner { operator_jwt, system_id, system_jwt, .. } = &*self.inner;
        // `limit` is the number of accounts the broker keeps: far above what one host serves.
        format!(
            "operator: \"{operator_jwt}\"\nsystem_account: {system_id}\nresolver {{\n  type: full\n  dir: {resolver}\n  \
             allow_delete: true\n  interval: \"2m\"\n  limit: 100000\n}}\nresolver_preload {{\n  {system_id}: \
             \"{system_jwt}\"\n}}\n"
        )
    }

    /// Makes the space's account, or gives the one it has. The settings count only when it is made: see
    /// [`Home::set_account_settings`].
    ///
    /// # Errors
    /// See [`HomeFault`].
    pub fn create_space(&self, space: &Space, settings: &AccountSettings) -> Result<SpaceAccount, HomeFault> {
        let _lock = self.lock()?;
        if let Some(account) = self.find_space(space)? {
            return Ok(account);
        }
        let dir = self.space_dir(space);
        let staged = StagedDir::beside(&dir)?;
        let (account, signing) = (KeyPair::new_account(), KeyPair::new_account());
        let claims = settings.claims(signing.public_key(), Default::default());
        let jwt = self.sign_account(&dir, space, &account.public_key(), &claims)?;
        let record = |source| HomeFault::Record { path: dir.clone(), source };
        staged.write("space", space.as_str())?;
        staged.write("account.seed", &seed(&account, &dir, "account")?)?;
        staged.write("account-signing.seed", &seed(&signing, &dir, "account")?)?;
        staged.write("account.jwt", &jwt)?;
        staged.write("settings.json", &serde_json::to_string(settings).map_err(record)?)?;
        match staged.place()? {
            Placed::Done => SpaceAccount::open(space, &dir, &self.inner.operator_signing.public_key()),
            Placed::Occupied => Err(HomeFault::Occupied(dir)),
        }
    }

    /// The space's account, if it has one.
    ///
    /// # Errors
    /// See [`HomeFault`]: an account that is there and cannot be used is an error, not `None`.
    pub fn space(&self, space: &Space) -> Result<Option<SpaceAccount>, HomeFault> {
        self.find_space(space)
    }

    /// Gives the account new limits; push it for the broker to know.
    ///
    /// # Errors
    /// See [`HomeFault`].
    pub fn set_account_settings(&self, account: &SpaceAccount, settings: &AccountSettings) -> Result<(), HomeFault> {
        self.rewrite_account(account, Some(settings), None)
    }

    /// Voids every token of a user issued up to now; push the account for the broker to know.
    ///
    /// # Errors
    /// See [`HomeFault`].
    pub fn record_revocation(&self, account: &SpaceAccount, user_public_key: &str) -> Result<(), HomeFault> {
        self.rewrite_account(account, None, Some(user_public_key))
    }

    /// Issues a user of the system account, bounded by the profile's rows.
    ///
    /// # Errors
    /// See [`HomeFault`].
    pub fn mint_system(&self, profile: &SystemProfile, validity: Validity) -> Result<Credentials, HomeFault> {
        self.mint_system_for(&KeyPair::new_user(), profile, validity)
    }

    pub(crate) fn mint_system_for(
        &self,
        user: &KeyPair,
        profile: &SystemProfile,
        validity: Validity,
    ) -> Result<Credentials, HomeFault> {
        let grants = profile.grants(&user.public_key());
        sign_user(profile.user_name(), user, grants, validity, &self.inner.system_id, &self.inner.system_signing)
    }

    /// The account's token as it is in the file now, if this home's operator signed it.
    pub(crate) fn own_account_jwt(&self, account: &SpaceAccount) -> Result<String, HomeFault> {
        let path = account.dir().join("account.jwt");
        let token = private_file::read_private(&path)?;
        if decode_at(&path, &token)?.iss != self.inner.operator_signing.public_key() {
            return Err(HomeFault::Foreign { path, why: "this home's operator did not sign it" });
        }
        Ok(token)
    }

    pub(crate) fn operator_signing(&self) -> &KeyPair {
        &self.inner.operator_signing
    }

    fn lock(&self) -> Result<File, HomeFault> {
        Ok(private_file::lock_dir(&self.inner.dir)?)
    }

    /// Where a space's files are. The digest tells spaces apart that a file system would not (case), the readable part
    /// is for people.
    fn space_dir(&self, space: &Space) -> PathBuf {
        self.inner.dir.join(SPACES).join(space_dir_name(space))
    }

    fn find_space(&self, space: &Space) -> Result<Option<SpaceAccount>, HomeFault> {
        let dir = self.space_dir(space);
        match std::fs::symlink_metadata(&dir) {
            Ok(_) => SpaceAccount::open(space, &dir, &self.inner.operator_signing.public_key()).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(PrivateFileFault::Io { action: "look at", path: dir, source }.into()),
        }
    }

    fn rewrite_account(
        &self,
        account: &SpaceAccount,
        settings: Option<&AccountSettings>,
        revoke: Option<&str>,
    ) -> Result<(), HomeFault> {
        let _lock = self.lock()?;
        let dir = account.dir();
        let path = dir.join("account.jwt");
        let before = decode_at(&path, &private_file::read_private(&path)?)?;
        let mut revocations = before.nats.revocations;
        if let Some(user) = revoke {
            revocations.insert(user.to_owned(), jwt::now_s());
        }
        let settings_path = dir.join("settings.json");
        let record = |source| HomeFault::Record { path: settings_path.clone(), source };
        let settings = match settings {
            Some(settings) => {
                let text = serde_json::to_string(settings).map_err(record)?;
                private_file::write_private(&settings_path, &text)?;
                settings.clone()
            }
            None => serde_json::from_str(&private_file::read_private(&settings_path)?).map_err(record)?,
        };
        let claims = settings.claims(account.signing_public_key(), revocations);
        // Always newer than the one before: a broker passes over a token it believes to know.
        let validity = Validity { issued_at_s: jwt::now_s().max(before.iat + 1), ..Validity::forever() };
        let jwt = self.sign_account_at(dir, account.space(), account.account_id(), &claims, validity)?;
        Ok(private_file::write_private(&path, &jwt)?)
    }

    /// Signs the account's token anew, so that a broker that was told to forget it takes it as a new one.
    pub(crate) fn renew_account(&self, account: &SpaceAccount) -> Result<(), HomeFault> {
        self.rewrite_account(account, None, None)
    }

    fn sign_account(&self, dir: &Path, space: &Space, id: &str, claims: &AccountClaims) -> Result<String, HomeFault> {
        self.sign_account_at(dir, space, id, claims, Validity::forever())
    }

    fn sign_account_at(
        &self,
        dir: &Path,
        space: &Space,
        id: &str,
        claims: &AccountClaims,
        validity: Validity,
    ) -> Result<String, HomeFault> {
        jwt::encode(space.as_str(), id, claims, validity, &self.inner.operator_signing)
            .map_err(|source| HomeFault::Token { path: dir.to_path_buf(), source })
    }
}

/// Signs a user token and joins it with the seed. The one place where users are made.
pub(crate) fn sign_user(
    name: &str,
    user: &KeyPair,
    grants: Grants,
    validity: Validity,
    account_id: &str,
    signing: &KeyPair,
) -> Result<Credentials, HomeFault> {
    if grants.publish.allow.is_empty() || grants.subscribe.allow.is_empty() {
        return Err(HomeFault::NoRows(name.to_owned()));
    }
    let mut claims = UserClaims::new(grants.publish, grants.subscribe, account_id);
    claims.tags = grants.tags;
    let jwt = jwt::encode(name, &user.public_key(), &claims, validity, signing).map_err(CredentialsFault::from)?;
    Ok(Credentials::new(&jwt, user)?)
}

pub(crate) fn decode_at(path: &Path, token: &str) -> Result<jwt::Claims, HomeFault> {
    jwt::decode(token.trim()).map_err(|source| HomeFault::Token { path: path.to_path_buf(), source })
}

pub(crate) fn read_seed(path: &Path, kind: KeyPairType) -> Result<KeyPair, HomeFault> {
    let want = if kind == KeyPairType::Operator { "operator" } else { "account" };
    let wrong = || HomeFault::Seed { path: path.to_path_buf(), want };
    let pair = KeyPair::from_seed(private_file::read_private(path)?.trim()).map_err(|_| wrong())?;
    if pair.key_pair_type() == kind { Ok(pair) } else { Err(wrong()) }
}

fn seed(pair: &KeyPair, dir: &Path, want: &'static str) -> Result<String, HomeFault> {
    pair.seed().map_err(|_| HomeFault::Seed { path: dir.to_path_buf(), want })
}

/// Directory name of a space: a readable start and a digest of the whole name.
fn space_dir_name(space: &Space) -> String {
    use sha2::{Digest as _, Sha256};
    /// Enough to recognise the space; the digest does the telling apart.
    const READABLE: usize = 40;
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(space.as_str()));
    let readable: String = space.as_str().chars().take(READABLE).collect();
    format!("{readable}.{digest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jwt::Permission;

    #[test]
    fn nobody_is_minted_without_rows() {
        let rows = Permission { allow: vec!["a".to_owned()], deny: Vec::new() };
        let mint = |publish: &Permission, subscribe: &Permission| {
            let grants = Grants { publish: publish.clone(), subscribe: subscribe.clone(), tags: Vec::new() };
            sign_user("x", &KeyPair::new_user(), grants, Validity::forever(), "A", &KeyPair::new_account())
        };
        let none = Permission::default();
        assert!(mint(&rows, &rows).is_ok());
        for (publish, subscribe) in [(&none, &none), (&rows, &none), (&none, &rows)] {
            assert!(matches!(mint(publish, subscribe), Err(HomeFault::NoRows(_))));
        }
    }
}
