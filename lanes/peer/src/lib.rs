//! The member side of the wire: presence, join, post, receive, acknowledge, probe.
//!
//! Owns everything a member of a space does over the broker, and only what the credential of a member allows. It must
//! not know the daemon: it talks to whoever serves the subjects of `lanekeeper-wire`.
//!
//! ```no_run
//! # async fn example(url: &str) -> Result<(), Box<dyn std::error::Error>> {
//! use lanekeeper_peer::{Creds, Peer, PeerOptions, PostDraft};
//!
//! let lifecycle = "local.ada.abcdefghijklmnopqrstuvwxyz".parse()?;
//! let peer = Peer::connect(PeerOptions::new(url, "demo".parse()?, Creds::path("ada.creds"), lifecycle, "ada")).await?;
//! let channel = "team".parse()?;
//! println!("{}", peer.join(&channel).await?); // joined durable
//! peer.post(&channel, PostDraft::text("hello")).await?;
//! let mut messages = peer.messages().ok_or("messages are taken once")?;
//! while let Some(incoming) = messages.recv().await {
//!     println!("{}: {}", incoming.sender, incoming.message.text().unwrap_or_default());
//!     incoming.ack().await?;
//! }
//! peer.close().await?;
//! # Ok(())
//! # }
//! ```

mod ask;
mod backoff;
mod coalesce;
mod control;
mod counters;
mod creds;
mod durable;
mod incoming;
mod join;
mod link;
mod live;
mod membership;
mod messages;
mod options;
mod peer;
mod post;
mod presence;
mod probe;
mod pull;
mod violations;

pub use ask::AskError;
pub use coalesce::{Coalescer, DEFAULT_WINDOW};
pub use control::{ControlError, ReplyTap};
pub use counters::CounterSnapshot;
pub use creds::{Creds, CredsFault};
pub use durable::Binding;
pub use incoming::{AckError, AckHandle, Incoming, Via};
pub use join::{JoinState, Joined, Left, Shortfall};
pub use link::ConnectError;
pub use membership::JoinError;
pub use messages::Messages;
pub use options::{Mode, PeerOptions};
pub use peer::{CloseError, Peer};
pub use post::{PostDraft, PostError, Posted, Poster};
pub use presence::{PresenceError, Status};
pub use probe::Probe;
pub use violations::{RefusedAction, Violation};
