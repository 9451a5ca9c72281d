//! A member that is online: connected, and noting everything it receives.
//!
//! Owns the connection and the task that receives and acknowledges. It must not judge what was received.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use lanekeeper_peer::{Creds, Messages, Peer, PeerOptions};
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use super::stage::Stage;
use crate::mesh::Member;

/// How long a step may wait for what it says. A healthy machine needs a fraction.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// What a member has received so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard {
    /// The texts of this run, in order, each acknowledged.
    pub(super) texts: Vec<String>,
    /// How many posts of somebody else or of an earlier run.
    pub(super) others: usize,
}

/// A connected member.
#[derive(Debug)]
pub(super) struct Online {
    name: String,
    /// The connection.
    pub(super) peer: Peer,
    heard: watch::Receiver<Heard>,
    task: JoinHandle<()>,
}

impl Online {
    /// Connects; texts that start with `run` are those of this run. A member that sees everything `raw` is shown each
    /// copy that reaches it, also one that it has seen already.
    ///
    /// # Errors
    /// The broker refuses, or the member's store of copies is not there.
    pub(super) async fn connect(stage: &Stage, member: &Member, run: &str, raw: bool) -> Result<Self> {
        let creds = Creds::path(member.credentials.clone());
        let (space, lifecycle) = (stage.site.space.clone(), member.lifecycle.clone());
        let options = PeerOptions::new(&stage.site.url, space, creds, lifecycle, &member.name);
        let options = if raw { options.raw() } else { options };
        let connected = Peer::connect(options).await;
        let peer = connected.with_context(|| format!("connect {}", member.name))?;
        let messages = peer.messages().context("the messages of a member are taken once")?;
        let (noted, heard) = watch::channel(Heard::default());
        let task = tokio::spawn(listen(messages, run.to_owned(), noted));
        Ok(Self { name: member.name.clone(), peer, heard, task })
    }

    /// Joins the stage's channel.
    ///
    /// # Errors
    /// It is not joined, or not durably.
    pub(super) async fn join(&self, stage: &Stage) -> Result<()> {
        let joined = self.peer.join(&stage.channel).await.with_context(|| format!("join {}", self.name))?;
        if !joined.state.is_durable() {
            bail!("{} is {joined}", self.name);
        }
        Ok(())
    }

    /// Waits until `count` posts of this run were received, and has their texts.
    ///
    /// # Errors
    /// They were not received in time.
    pub(super) async fn texts(&mut self, count: usize) -> Result<Vec<String>> {
        let enough = self.heard.wait_for(|heard| heard.texts.len() >= count);
        let waited = timeout(PATIENCE, enough).await.ok().and_then(|heard| heard.ok().map(|heard| heard.texts.clone()));
        waited.ok_or_else(|| {
            let got = self.heard.borrow().texts.len();
            anyhow!("{} received {got} of {count} posts within {} ms", self.name, PATIENCE.as_millis())
        })
    }

    /// What was received up to now.
    pub(super) fn heard(&self) -> Heard {
        self.heard.borrow().clone()
    }

    /// Goes offline in order.
    ///
    /// # Errors
    /// The connection or its task did not end in time.
    pub(super) async fn leave(self) -> Result<()> {
        self.peer.close().await.with_context(|| format!("disconnect {}", self.name))?;
        // The queue ends with the connection, and the task with the queue.
        let ended = timeout(PATIENCE, self.task).await;
        ended.with_context(|| format!("{} still receives", self.name))?.context("a member's task was lost")
    }
}

async fn listen(mut messages: Messages, run: String, heard: watch::Sender<Heard>) {
    while let Some(incoming) = messages.recv().await {
        let text = incoming.message.text().unwrap_or_default();
        // Confirmed by the broker: only then is the copy gone from the member's store.
        if let Err(error) = incoming.ack().await {
            tracing::warn!(%error, "a copy was not acknowledged");
        }
        heard.send_modify(|heard| {
            if text.starts_with(&run) {
                heard.texts.push(text);
            } else {
                heard.others += 1;
            }
        });
    }
}
