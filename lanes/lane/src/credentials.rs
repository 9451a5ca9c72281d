//! Credential files of one lane: read, checked, never shown.
//!
//! Owns the reading of a NATS credentials file, the checks that need no broker (file mode, shape, key pair, account,
//! expiry), and the answer to a broker's nonce. It must not sign JWTs and must not let a secret out through `Debug` or an error.

use std::{
    fmt, fs,
    io::Read as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use data_encoding::BASE64URL_NOPAD;
use nkeys::KeyPair;
use serde::Deserialize;
use sha2::Digest as _;

use crate::fault::FaultKind;

/// Largest credentials file that is read, bytes. The broker's control line holds 64 KiB, and the JWT must fit it.
pub const MAX_CREDENTIAL_BYTES: u64 = 64 * 1024;

/// One user credential: JWT and key. Cheap to clone; shows only public parts.
#[derive(Clone)]
pub struct Credential(Arc<Inner>);

struct Inner {
    path: PathBuf,
    jwt: String,
    key: KeyPair,
    user: String,
    account: String,
    expires_at: Option<u64>,
    principal: Option<String>,
    may_publish: Vec<String>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("path", &self.0.path)
            .field("user", &self.0.user)
            .field("account", &self.0.account)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    iss: String,
    #[serde(default)]
    exp: Option<u64>,
    nats: NatsClaims,
}

#[derive(Deserialize)]
struct NatsClaims {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    issuer_account: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default, rename = "pub")]
    publish: PermissionClaims,
}

#[derive(Default, Deserialize)]
struct PermissionClaims {
    #[serde(default)]
    allow: Vec<String>,
}

impl Credential {
    /// Reads and checks the file at `path`, whose directory must be private too.
    ///
    /// # Errors
    /// One of the `Credential…` faults: unreadable, loose, malformed or expired.
    pub fn read(path: &Path) -> Result<Self, FaultKind> {
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            refuse_loose(dir, &fs::metadata(dir).map_err(|error| unreadable(dir, &error))?, 0o700)?;
        }
        let text = text_of(path)?;
        let credential = Self::parse(path, &text)?;
        credential.refuse_expired()?;
        Ok(credential)
    }

    /// Checks the text of a credentials file; `path` only names it in faults.
    ///
    /// # Errors
    /// [`FaultKind::CredentialMalformed`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, FaultKind> {
        let jwt = block(text, "NATS USER JWT").ok_or_else(|| malformed(path, "it has no NATS USER JWT block"))?;
        let seed = block(text, "USER NKEY SEED").ok_or_else(|| malformed(path, "it has no USER NKEY SEED block"))?;
        let key = KeyPair::from_seed(seed).map_err(|_| malformed(path, "its seed is not a user nkey seed"))?;
        let claims = claims(jwt).ok_or_else(|| malformed(path, "its JWT cannot be decoded"))?;
        if claims.nats.kind != "user" {
            return Err(malformed(path, "its JWT is not a user JWT"));
        }
        if claims.sub != key.public_key() {
            return Err(malformed(path, "its JWT and its seed are of different users (a torn file)"));
        }
        let principal = claims.nats.tags.iter().find_map(|tag| tag.strip_prefix("principal:")).map(str::to_owned);
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            jwt: jwt.to_owned(),
            user: claims.sub,
            account: claims.nats.issuer_account.unwrap_or(claims.iss),
            expires_at: claims.exp.filter(|exp| *exp > 0),
            principal,
            may_publish: claims.nats.publish.allow,
            key,
        })))
    }

    /// Where it was read from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The public nkey of the user.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.0.user
    }

    /// The public nkey of the account it belongs to.
    #[must_use]
    pub fn account(&self) -> &str {
        &self.0.account
    }

    /// `exp`, seconds since the epoch; `None` never expires.
    #[must_use]
    pub fn expires_at(&self) -> Option<u64> {
        self.0.expires_at
    }

    /// The name this daemon signs the lease with: the principal tag, or the user's nkey where there is none.
    #[must_use]
    pub fn holder(&self) -> &str {
        self.0.principal.as_deref().unwrap_or(&self.0.user)
    }

    /// SHA-256 of the JWT, hex: tells credentials apart without showing them.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(self.0.jwt.as_bytes()))
    }

    /// The subjects it may publish on; empty where nothing restricts it.
    #[must_use]
    pub fn may_publish(&self) -> &[String] {
        &self.0.may_publish
    }

    /// Refuses an expired credential.
    ///
    /// # Errors
    /// [`FaultKind::CredentialExpired`].
    pub fn refuse_expired(&self) -> Result<(), FaultKind> {
        match self.0.expires_at {
            Some(expired_at) if unix_now_s() >= expired_at => {
                Err(FaultKind::CredentialExpired { path: self.0.path.display().to_string(), expired_at })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The answer to a broker's nonce.
    ///
    /// # Errors
    /// A short reason, without secrets.
    pub(crate) fn answer(&self, nonce: &[u8]) -> Result<async_nats::Auth, String> {
        let mut auth = async_nats::Auth::new();
        auth.signature = Some(self.0.key.sign(nonce).map_err(|_| "the key cannot sign".to_owned())?);
        auth.jwt = Some(self.0.jwt.clone());
        Ok(auth)
    }
}

/// Seconds since the epoch.
pub(crate) fn unix_now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Milliseconds since the epoch.
pub(crate) fn unix_now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The text of a private, regular file, opened once: what was checked is what is read.
fn text_of(path: &Path) -> Result<String, FaultKind> {
    // Without waiting: the opening of a FIFO in its place would otherwise block for good.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| unreadable(path, &error))?;
    let found = file.metadata().map_err(|error| unreadable(path, &error))?;
    if !found.is_file() {
        return Err(unreadable(path, &std::io::Error::other("it is not a regular file")));
    }
    refuse_loose(path, &found, 0o600)?;
    let mut bytes = Vec::new();
    file.take(MAX_CREDENTIAL_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > MAX_CREDENTIAL_BYTES {
        return Err(malformed(path, &format!("it has more than {MAX_CREDENTIAL_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| malformed(path, "it is not text"))
}

fn refuse_loose(path: &Path, found: &fs::Metadata, wanted: u32) -> Result<(), FaultKind> {
    let mode = found.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(FaultKind::CredentialLoose { path: path.display().to_string(), mode, wanted });
    }
    Ok(())
}

fn unreadable(path: &Path, error: &std::io::Error) -> FaultKind {
    FaultKind::CredentialUnreadable { path: path.display().to_string(), reason: error.to_string() }
}

fn malformed(path: &Path, reason: &str) -> FaultKind {
    FaultKind::CredentialMalformed { path: path.display().to_string(), reason: reason.to_owned() }
}

/// The line between `BEGIN <name>` and the next dashes.
fn block<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.starts_with("---") && line.contains("BEGIN") && line.contains(name))?;
    lines.find(|line| !line.is_empty()).filter(|line| !line.starts_with('-'))
}

fn claims(jwt: &str) -> Option<Claims> {
    let mut parts = jwt.split('.');
    let (_, body, _) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    serde_json::from_slice(&BASE64URL_NOPAD.decode(body.as_bytes()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(sub: &KeyPair, seed: &KeyPair, kind: &str, exp: u64) -> String {
        let body = format!(
            r#"{{"sub":"{}","iss":"AISSUER","exp":{exp},"nats":{{"type":"{kind}","issuer_account":"AACCOUNT","tags":["principal:local.delivery"]}}}}"#,
            sub.public_key()
        );
        let jwt = format!("e30.{}.c2ln", BASE64URL_NOPAD.encode(body.as_bytes()));
        format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            seed.seed().unwrap()
        )
    }

    #[test]
    fn a_good_file_gives_identity_and_hides_its_secrets() {
        let key = KeyPair::new_user();
        let text = text(&key, &key, "user", 0);
        let credential = Credential::parse(Path::new("delivery.creds"), &text).unwrap();
        assert_eq!(credential.user(), key.public_key());
        assert_eq!(credential.account(), "AACCOUNT");
        assert_eq!(credential.holder(), "local.delivery");
        assert_eq!(credential.expires_at(), None);
        let shown = format!("{credential:?}");
        assert!(!shown.contains(&key.seed().unwrap()) && !shown.contains("eyJ"), "{shown}");
    }

    #[test]
    fn torn_foreign_and_garbled_files_are_refused_without_their_content() {
        let (one, two) = (KeyPair::new_user(), KeyPair::new_user());
        for (text, reason) in [
            (text(&one, &two, "user", 0), "torn"),
            (text(&one, &one, "account", 0), "not a user JWT"),
            (String::new(), "no NATS USER JWT"),
            ("-----BEGIN NATS USER JWT-----\nxx\n".to_owned(), "no USER NKEY SEED"),
            (text(&one, &one, "user", 0).replace("e30.", "e30"), "cannot be decoded"),
            (text(&one, &one, "user", 0).replace("\nSU", "\nSX"), "not a user nkey seed"),
        ] {
            let fault = Credential::parse(Path::new("x.creds"), &text).unwrap_err();
            let shown = fault.to_string();
            assert!(shown.contains(reason), "{shown} should say {reason}");
            assert!(!shown.contains(&one.seed().unwrap()) && !shown.contains(&two.seed().unwrap()), "{shown}");
        }
    }

    #[test]
    fn expiry_counts_from_the_second_of_exp() {
        let key = KeyPair::new_user();
        let path = Path::new("x.creds");
        let expired = Credential::parse(path, &text(&key, &key, "user", unix_now_s())).unwrap();
        assert!(matches!(expired.refuse_expired(), Err(FaultKind::CredentialExpired { .. })));
        let fresh = Credential::parse(path, &text(&key, &key, "user", unix_now_s() + 60)).unwrap();
        assert!(fresh.refuse_expired().is_ok());
    }
}
