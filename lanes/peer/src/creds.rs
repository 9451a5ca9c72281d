//! Owns a member's credential: where it is read from, its shape, and the refusal to present one that has expired. It
//! must not let a seed or a JWT reach a log line, an error or a `Debug` output.

use std::fmt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::BASE64URL_NOPAD;
use nkeys::KeyPair;
use serde::Deserialize;

/// Where the credential of a member comes from. A path is read again at every dial, so a renewed file is picked up.
#[derive(Clone)]
pub struct Creds(Source);

#[derive(Clone)]
enum Source {
    Text(String),
    Path(PathBuf),
}

impl Creds {
    /// The text of a credentials file, held in memory.
    pub fn text(text: impl Into<String>) -> Self {
        Self(Source::Text(text.into()))
    }

    /// A credentials file, read at every dial.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        Self(Source::Path(path.into()))
    }

    /// Reads and checks the credential now.
    pub(crate) async fn load(&self) -> Result<Material, CredsFault> {
        match &self.0 {
            Source::Text(text) => Material::parse(text),
            Source::Path(path) => {
                let text = tokio::fs::read_to_string(path)
                    .await
                    .map_err(|source| CredsFault::Unreadable { path: path.clone(), kind: source.kind() })?;
                Material::parse(&text)
            }
        }
    }
}

impl fmt::Debug for Creds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Text(_) => f.write_str("Creds(text, hidden)"),
            Source::Path(path) => f.debug_tuple("Creds").field(path).finish(),
        }
    }
}

/// Why a credential cannot be used. No variant carries any of its content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredsFault {
    /// The file could not be read.
    #[error("credential file {} cannot be read ({kind}): check the path and its permissions", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        kind: std::io::ErrorKind,
    },
    /// A block is missing or does not parse.
    #[error("credential has no usable {what}: expected a NATS credentials file with a user JWT and a user seed")]
    Malformed {
        /// Which part.
        what: &'static str,
    },
    /// The JWT was issued to another key than the seed beside it.
    #[error("credential is torn: its JWT belongs to another key than its seed; write both parts in one step")]
    Torn,
    /// The JWT has expired.
    #[error("credential expired at {expires_at_s} (epoch seconds): have it issued again")]
    Expired {
        /// The `exp` claim, epoch seconds.
        expires_at_s: u64,
    },
    /// The credential now belongs to another key than the one this connection was opened with.
    #[error("credential was replaced by one of another key: a member keeps its key, connect a new one instead")]
    KeyChanged,
    /// The member has been closed.
    #[error("member is closed: it no longer authenticates")]
    Closed,
}

/// A parsed credential.
pub(crate) struct Material {
    jwt: String,
    key: KeyPair,
    expires_at_s: Option<u64>,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    #[serde(default)]
    exp: Option<u64>,
}

impl Material {
    fn parse(text: &str) -> Result<Self, CredsFault> {
        let jwt = block(text, "BEGIN NATS USER JWT").ok_or(CredsFault::Malformed { what: "user JWT" })?;
        let seed = block(text, "BEGIN USER NKEY SEED").ok_or(CredsFault::Malformed { what: "user seed" })?;
        let key = KeyPair::from_seed(seed).map_err(|_| CredsFault::Malformed { what: "user seed" })?;
        let claims = claims(jwt).ok_or(CredsFault::Malformed { what: "user JWT" })?;
        if claims.sub != key.public_key() {
            return Err(CredsFault::Torn);
        }
        Ok(Self { jwt: jwt.to_owned(), key, expires_at_s: claims.exp.filter(|exp| *exp > 0) })
    }

    /// The public key, which also names the reply inbox.
    pub(crate) fn public_key(&self) -> String {
        self.key.public_key()
    }

    /// What the broker wants to see for its nonce, unless the credential has expired.
    pub(crate) fn sign(&self, nonce: &[u8]) -> Result<async_nats::Auth, CredsFault> {
        self.check_expiry(now_s())?;
        let signature = self.key.sign(nonce).map_err(|_| CredsFault::Malformed { what: "user seed" })?;
        let mut auth = async_nats::Auth::new();
        auth.jwt = Some(self.jwt.clone());
        auth.signature = Some(signature);
        Ok(auth)
    }

    fn check_expiry(&self, now_s: u64) -> Result<(), CredsFault> {
        match self.expires_at_s {
            Some(expires_at_s) if now_s >= expires_at_s => Err(CredsFault::Expired { expires_at_s }),
            Some(_) | None => Ok(()),
        }
    }
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material")
            .field("key", &self.key.public_key())
            .field("expires_at_s", &self.expires_at_s)
            .finish_non_exhaustive()
    }
}

/// The first line after the dashed line that holds `title`.
fn block<'a>(text: &'a str, title: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.starts_with("---") && line.contains(title))?;
    lines.find(|line| !line.is_empty()).filter(|line| !line.starts_with('-'))
}

fn claims(jwt: &str) -> Option<Claims> {
    let body = jwt.split('.').nth(1)?;
    serde_json::from_slice(&BASE64URL_NOPAD.decode(body.as_bytes()).ok()?).ok()
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn creds(claims: &serde_json::Value, key: &KeyPair) -> String {
        let body = BASE64URL_NOPAD.encode(claims.to_string().as_bytes());
        let seed = key.seed().unwrap();
        format!(
            "-----BEGIN NATS USER JWT-----\nhead.{body}.tail\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\r\n{seed}\r\n------END USER NKEY SEED------\n"
        )
    }

    #[test]
    fn parses_and_signs() {
        let key = KeyPair::new_user();
        let material = Material::parse(&creds(&serde_json::json!({"sub": key.public_key()}), &key)).unwrap();
        assert_eq!(material.public_key(), key.public_key());
        let auth = material.sign(b"nonce").unwrap();
        key.verify(b"nonce", &auth.signature.unwrap()).unwrap();
    }

    #[test]
    fn expired_is_refused_before_the_broker_sees_it() {
        let key = KeyPair::new_user();
        let text = creds(&serde_json::json!({"sub": key.public_key(), "exp": 1_000}), &key);
        let material = Material::parse(&text).unwrap();
        assert_eq!(material.sign(b"nonce").err(), Some(CredsFault::Expired { expires_at_s: 1_000 }));
        assert_eq!(material.check_expiry(999), Ok(()));
        assert_eq!(material.check_expiry(1_000), Err(CredsFault::Expired { expires_at_s: 1_000 }));
    }

    #[test]
    fn torn_pair_is_refused() {
        let (key, other) = (KeyPair::new_user(), KeyPair::new_user());
        let text = creds(&serde_json::json!({"sub": other.public_key()}), &key);
        assert_eq!(Material::parse(&text).err(), Some(CredsFault::Torn));
    }

    #[test]
    fn garbage_names_the_missing_part() {
        assert_eq!(Material::parse("").err(), Some(CredsFault::Malformed { what: "user JWT" }));
        let no_seed = "-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n";
        assert_eq!(Material::parse(no_seed).err(), Some(CredsFault::Malformed { what: "user seed" }));
        let empty = "-----BEGIN NATS USER JWT-----\n------END NATS USER JWT------\n";
        assert_eq!(Material::parse(empty).err(), Some(CredsFault::Malformed { what: "user JWT" }));
    }

    #[test]
    fn nothing_secret_is_printed() {
        let key = KeyPair::new_user();
        let seed = key.seed().unwrap();
        let text = creds(&serde_json::json!({"sub": key.public_key()}), &key);
        let printed = format!("{:?} {:?}", Creds::text(text.clone()), Material::parse(&text).unwrap());
        assert!(!printed.contains(&seed));
        assert!(!printed.contains("head."));
    }
}
