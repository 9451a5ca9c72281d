//! A short-lived administrator of accounts: pushes, changes and deletes them on a running broker.
//!
//! Its user may publish on the claims subjects and nowhere else. It must not outlive the task it was opened for: the
//! credential ends by itself after [`CREDENTIAL_TTL`].

use crate::credentials::CredentialsFault;
use crate::home::{Home, HomeFault};
use crate::jwt::{self, GenericClaims, Validity};
use crate::profile::SystemProfile;
use crate::space_account::SpaceAccount;
use bytes::Bytes;
use futures::StreamExt as _;
use serde::Deserialize;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long the administrator's credential is valid.
pub const CREDENTIAL_TTL: Duration = Duration::from_secs(600);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// In a cluster each server answers for itself; after this much silence the last one has.
const CLUSTER_SILENCE: Duration = Duration::from_millis(500);

const UPDATE: &str = "$SYS.REQ.CLAIMS.UPDATE";
const DELETE: &str = "$SYS.REQ.CLAIMS.DELETE";

/// Why an account could not be brought to the broker.
#[derive(Debug, thiserror::Error)]
pub enum SystemFault {
    /// Key material.
    #[error(transparent)]
    Home(#[from] HomeFault),
    /// The credential.
    #[error(transparent)]
    Credentials(#[from] CredentialsFault),
    /// No connection.
    #[error("cannot connect to {url} as the account administrator: {source}")]
    Connect {
        /// Where.
        url: String,
        /// Why.
        source: async_nats::ConnectError,
    },
    /// The request could not be sent.
    #[error("cannot send {subject}: {why}")]
    Send {
        /// The request.
        subject: &'static str,
        /// Why.
        why: String,
    },
    /// Nobody answered.
    #[error(
        "no server answered {subject} within {} s; its resolver must be of type full and trust this home's operator",
        ANSWER_TIMEOUT.as_secs()
    )]
    Silent {
        /// The request.
        subject: &'static str,
    },
    /// A server refused.
    #[error("server {server} refused {subject} with code {code}: {why}")]
    Refused {
        /// The request.
        subject: &'static str,
        /// Name of the server.
        server: String,
        /// The code it gave.
        code: u16,
        /// Its words.
        why: String,
    },
    /// The answer is not one.
    #[error("unreadable answer to {subject}: {source}")]
    Answer {
        /// The request.
        subject: &'static str,
        /// Why.
        source: serde_json::Error,
    },
}

/// A connection that may change accounts.
#[derive(Debug)]
pub struct SystemClient {
    home: Home,
    client: async_nats::Client,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    server: Server,
    data: Option<Verdict>,
    error: Option<Verdict>,
}

#[derive(Default, Deserialize)]
struct Server {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Verdict {
    code: u16,
    #[serde(default)]
    message: String,
    #[serde(default)]
    description: String,
}

impl Home {
    /// Opens a short-lived administrator of accounts on the broker at `url`.
    ///
    /// # Errors
    /// See [`SystemFault`].
    pub async fn system_client(&self, url: &str) -> Result<SystemClient, SystemFault> {
        let credentials = self.mint_system(&SystemProfile::ClaimsWriter, Validity::for_duration(CREDENTIAL_TTL))?;
        let client = credentials
            .connect_options()?
            .name("account administrator")
            .connect(url)
            .await
            .map_err(|source| SystemFault::Connect { url: url.to_owned(), source })?;
        Ok(SystemClient { home: self.clone(), client })
    }
}

impl SystemClient {
    /// Makes the account, as it is in the home now, known to every server. Nothing is restarted.
    ///
    /// # Errors
    /// See [`SystemFault`]; an error of one server is an error. An account of another home is refused here, since the
    /// broker would keep it, answer with success, and never let anybody in.
    pub async fn push_account(&self, account: &SpaceAccount) -> Result<(), SystemFault> {
        self.ask(UPDATE, self.home.own_account_jwt(account)?).await
    }

    /// Makes every server forget the account. The home keeps its keys, so pushing it again brings it back.
    ///
    /// # Errors
    /// See [`SystemFault`].
    pub async fn delete_account(&self, account: &SpaceAccount) -> Result<(), SystemFault> {
        let mut claims = GenericClaims::default();
        claims.fields.insert("accounts".to_owned(), serde_json::json!([account.account_id()]));
        // The broker wants these self-signed, by the key that signs accounts.
        let signer = self.home.operator_signing();
        let request =
            jwt::encode("delete", &signer.public_key(), &claims, Validity::for_duration(CREDENTIAL_TTL), signer)
                .map_err(CredentialsFault::from)?;
        self.ask(DELETE, request).await?;
        // Pushed again as it was, a broker with connections of the account would take it for known and let nobody in.
        Ok(self.home.renew_account(account)?)
    }

    /// Voids all tokens the user has been given so far, and closes its connections.
    ///
    /// # Errors
    /// See [`SystemFault`].
    pub async fn revoke_user(&self, account: &SpaceAccount, user_public_key: &str) -> Result<(), SystemFault> {
        self.home.record_revocation(account, user_public_key)?;
        self.push_account(account).await
    }

    /// Ends the connection.
    pub async fn close(self) {
        // The connection is given up either way; what matters was answered already.
        let _ = self.client.drain().await;
    }

    async fn ask(&self, subject: &'static str, request: String) -> Result<(), SystemFault> {
        let send = |why: String| SystemFault::Send { subject, why };
        let inbox = self.client.new_inbox();
        let mut answers = self.client.subscribe(inbox.clone()).await.map_err(|error| send(error.to_string()))?;
        self.client
            .publish_with_reply(subject, inbox, Bytes::from(request))
            .await
            .map_err(|error| send(error.to_string()))?;
        let clustered = self.client.server_info().cluster.is_some();
        let mut deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut answered = false;
        while let Ok(Some(message)) = timeout_at(deadline, answers.next()).await {
            if message.status == Some(async_nats::StatusCode::NO_RESPONDERS) {
                break;
            }
            check(subject, &message.payload)?;
            answered = true;
            if !clustered {
                break;
            }
            deadline = Instant::now() + CLUSTER_SILENCE;
        }
        if answered { Ok(()) } else { Err(SystemFault::Silent { subject }) }
    }
}

fn check(subject: &'static str, payload: &[u8]) -> Result<(), SystemFault> {
    let answer: Answer = serde_json::from_slice(payload).map_err(|source| SystemFault::Answer { subject, source })?;
    let (code, why) = match (answer.data, answer.error) {
        (Some(Verdict { code: 200, .. }), None) => return Ok(()),
        (_, Some(verdict)) | (Some(verdict), None) => {
            (verdict.code, if verdict.description.is_empty() { verdict.message } else { verdict.description })
        }
        (None, None) => (0, "the answer says neither yes nor no".to_owned()),
    };
    let server = if answer.server.name.is_empty() { "(unnamed)".to_owned() } else { answer.server.name };
    Err(SystemFault::Refused { subject, server, code, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        let ok = br#"{"server":{"name":"n1"},"data":{"account":"A","code":200,"message":"jwt updated"}}"#;
        assert!(check(UPDATE, ok).is_ok());
        let refusals: [(&[u8], &str); 4] = [
            (
                br#"{"server":{"name":"n1"},"error":{"code":500,"description":"no"}}"#,
                "server n1 refused $SYS.REQ.CLAIMS.UPDATE with code 500: no",
            ),
            (
                br#"{"server":{"name":"n1"},"data":{"code":202,"message":"later"}}"#,
                "server n1 refused $SYS.REQ.CLAIMS.UPDATE with code 202: later",
            ),
            (
                br#"{"data":{"code":200},"error":{"code":403,"description":"no"}}"#,
                "server (unnamed) refused $SYS.REQ.CLAIMS.UPDATE with code 403: no",
            ),
            (b"{}", "server (unnamed) refused $SYS.REQ.CLAIMS.UPDATE with code 0: the answer says neither yes nor no"),
        ];
        for (answer, text) in refusals {
            assert_eq!(check(UPDATE, answer).unwrap_err().to_string(), text);
        }
        assert!(matches!(check(UPDATE, b"x"), Err(SystemFault::Answer { .. })));
    }
}
