//! One connection's credential: a user token and the seed that proves it, in the usual creds file form.
//!
//! Owns the text form and the file. It must not decide rights, and must never show the token or the seed: `Debug` and
//! every error hold the public key at most.

use crate::jwt::{self, Claims, JwtFault};
use crate::private_file::{self, PrivateFileFault};
use nkeys::KeyPair;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

const JWT_BEGIN: &str = "-----BEGIN NATS USER JWT-----";
const JWT_END: &str = "------END NATS USER JWT------";
const SEED_BEGIN: &str = "-----BEGIN USER NKEY SEED-----";
const SEED_END: &str = "------END USER NKEY SEED------";

/// Reconnect attempts of a client made from a credential before it gives up: whoever owns the client decides on more.
const MAX_RECONNECTS: usize = 60;

/// Why a text is not a credential.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsFault {
    /// A section is missing.
    #[error("not a credentials file: the section {0:?} is missing or cut short")]
    Section(&'static str),
    /// The token cannot be read.
    #[error("the token of the credentials cannot be used: {0}")]
    Token(#[from] JwtFault),
    /// The seed is not a user's.
    #[error("the seed of the credentials is not a user seed")]
    Seed,
    /// Token and seed belong to different users: the file was torn or pasted together.
    #[error("the seed of the credentials does not belong to the user {0} of its token")]
    Torn(String),
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] PrivateFileFault),
    /// The client does not take the credential.
    #[error("the client refuses the credentials of {0}")]
    Client(String),
}

/// A user token with its seed. Cheap to clone.
#[derive(Clone)]
pub struct Credentials {
    text: Arc<str>,
    jwt: Arc<str>,
    public_key: Arc<str>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Credentials").field(&self.public_key).finish()
    }
}

impl Credentials {
    /// Joins a token and the key pair it was issued to.
    pub(crate) fn new(jwt: &str, user: &KeyPair) -> Result<Self, CredentialsFault> {
        let seed = user.seed().map_err(|_| CredentialsFault::Seed)?;
        let text = format!("{JWT_BEGIN}\n{jwt}\n{JWT_END}\n\n{SEED_BEGIN}\n{seed}\n{SEED_END}\n");
        Ok(Self { text: text.into(), jwt: jwt.into(), public_key: user.public_key().into() })
    }

    /// Reads the text of a creds file and checks that token and seed belong together.
    ///
    /// # Errors
    /// See [`CredentialsFault`].
    pub fn parse(text: &str) -> Result<Self, CredentialsFault> {
        let jwt = section(text, JWT_BEGIN, "NATS USER JWT")?;
        let user =
            KeyPair::from_seed(section(text, SEED_BEGIN, "USER NKEY SEED")?).map_err(|_| CredentialsFault::Seed)?;
        let claims = jwt::decode(jwt)?;
        if claims.sub != user.public_key() {
            return Err(CredentialsFault::Torn(claims.sub));
        }
        Ok(Self { text: text.into(), jwt: jwt.into(), public_key: claims.sub.into() })
    }

    /// Reads a creds file; refuses one that others may read.
    ///
    /// # Errors
    /// See [`CredentialsFault`].
    pub fn read(path: &Path) -> Result<Self, CredentialsFault> {
        Self::parse(&private_file::read_private(path)?)
    }

    /// Writes the creds file, mode 0600, in one step.
    ///
    /// # Errors
    /// See [`PrivateFileFault`].
    pub fn write_creds(&self, path: &Path) -> Result<(), PrivateFileFault> {
        private_file::write_private(path, &self.text)
    }

    /// The text of the creds file. A secret: hand it to a client, never to a log.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The user token. Not enough to connect, but not for logs either.
    pub fn jwt(&self) -> &str {
        &self.jwt
    }

    /// The public nkey of the user.
    pub fn public_key(&self) -> &str {
        &self.public_key
    }

    /// What the token says.
    ///
    /// # Errors
    /// [`CredentialsFault::Token`] if the token cannot be read; not for one this crate issued.
    pub fn claims(&self) -> Result<Claims, CredentialsFault> {
        Ok(jwt::decode(&self.jwt)?)
    }

    /// The prefix of the reply inboxes this user may subscribe to: `_INBOX_<nkey>`.
    pub fn inbox_prefix(&self) -> String {
        inbox_prefix(&self.public_key)
    }

    /// Client options with this credential, its inbox prefix and bounded reconnects.
    ///
    /// # Errors
    /// [`CredentialsFault::Client`] if the client does not take the text.
    pub fn connect_options(&self) -> Result<async_nats::ConnectOptions, CredentialsFault> {
        let options = async_nats::ConnectOptions::with_credentials(&self.text)
            .map_err(|_| CredentialsFault::Client(self.public_key.to_string()))?;
        Ok(options.custom_inbox_prefix(self.inbox_prefix()).max_reconnects(MAX_RECONNECTS))
    }

    /// The key pair, to issue a fresh token to the same user.
    pub(crate) fn key_pair(&self) -> Result<KeyPair, CredentialsFault> {
        KeyPair::from_seed(section(&self.text, SEED_BEGIN, "USER NKEY SEED")?).map_err(|_| CredentialsFault::Seed)
    }
}

/// The reply inbox prefix of a user.
pub(crate) fn inbox_prefix(public_key: &str) -> String {
    format!("_INBOX_{public_key}")
}

/// The one line below a section's first line. Dashes differ between writers, so only the words are compared.
fn section<'a>(text: &'a str, begin: &'static str, title: &'static str) -> Result<&'a str, CredentialsFault> {
    let words = begin.trim_matches('-');
    let mut lines = text.lines().map(str::trim);
    lines
        .find(|line| line.starts_with("---") && line.trim_matches('-') == words)
        .and_then(|_| lines.find(|line| !line.is_empty()))
        .filter(|line| !line.starts_with('-'))
        .ok_or(CredentialsFault::Section(title))
}
