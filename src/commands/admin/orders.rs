//! `lanekeeper reload`, `drain`, `undrain`, `reopen` and `unpark`: orders to a running host.
//!
//! Owns what is said about what was done. Doing it is the supervisor's.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use lanekeeper_wire::Space;
use serde::Deserialize;

use super::{AdminArgs, figures::safe};
use crate::supervisor::status::Outcome;

/// Arguments of `lanekeeper reload`.
#[derive(Debug, Clone, Args)]
pub struct ReloadArgs {
    /// Apply the manifest even if it closes more than half of the lanes that serve.
    #[arg(long)]
    pub allow_mass_close: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Arguments of an order to one lane.
#[derive(Debug, Clone, Args)]
pub struct LaneOrderArgs {
    /// The space.
    pub space: Space,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Arguments of an order to one lane or all of them.
#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    /// The space; without it, every lane of the host.
    pub space: Option<Space>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// What a lane can be told by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneOrder {
    /// Close it and open it again.
    Reopen,
    /// Try it again although it is parked.
    Unpark,
    /// Hand it over to the other host.
    Drain,
    /// Take part again.
    Undrain,
}

impl LaneOrder {
    fn path(self) -> &'static str {
        match self {
            Self::Reopen => "reopen",
            Self::Unpark => "unpark",
            Self::Drain => "drain",
            Self::Undrain => "undrain",
        }
    }

    fn told(self) -> &'static str {
        match self {
            Self::Reopen => "closed and opened again",
            Self::Unpark => "tried again",
            Self::Drain => "handed over",
            Self::Undrain => "taking part again",
        }
    }
}

/// Makes the host read its manifest now, and says what that did.
///
/// # Errors
/// The host does not answer, or refused the manifest; then nothing was changed.
pub async fn reload(args: ReloadArgs) -> Result<()> {
    let query = if args.allow_mass_close { "?allow_mass_close=true" } else { "" };
    let answer = args.admin.client()?.post(&format!("/reload{query}")).await?;
    if !answer.status.is_success() {
        let view = answer.error();
        let refused = view.outcome.map(|outcome| outcome.refused).unwrap_or_default();
        let lines = refused.iter().map(|(what, why)| format!("\n  {}", safe(&format!("{what}: {why}"))));
        bail!("{}{}", safe(&view.error), lines.collect::<String>());
    }
    say(&told(&answer.json()?))
}

/// Gives one lane an order.
///
/// # Errors
/// The host does not answer, knows no such lane, or refuses.
pub async fn lane(order: LaneOrder, args: LaneOrderArgs) -> Result<()> {
    drain(order, DrainArgs { space: Some(args.space), admin: args.admin }).await
}

/// Gives one lane or all of them an order.
///
/// # Errors
/// The host does not answer, knows no such lane, or refuses.
pub async fn drain(order: LaneOrder, args: DrainArgs) -> Result<()> {
    let path = match &args.space {
        Some(space) => format!("/lanes/{space}/{}", order.path()),
        None => format!("/{}", order.path()),
    };
    let taken: Taken = args.admin.client()?.post(&path).await?.json()?;
    let names: Vec<String> = taken.lanes.iter().map(|space| format!("`{space}`")).collect();
    if names.is_empty() {
        return say("no lane is concerned\n");
    }
    say(&format!("{}: {}; `lanekeeper lanes` shows how far it is\n", order.told(), names.join(", ")))
}

/// The lanes that took an order.
#[derive(Debug, Deserialize)]
struct Taken {
    lanes: Vec<Space>,
}

/// A reload that was applied, in a few lines.
#[must_use]
pub fn told(outcome: &Outcome) -> String {
    let hash: String = safe(&outcome.hash).chars().take(12).collect();
    let mut out =
        format!("generation {} of manifest {hash} is in force: {}\n", outcome.generation, safe(&outcome.plan));
    for (word, spaces) in [
        ("opened", &outcome.opened),
        ("closed", &outcome.closed),
        ("reopened", &outcome.reopened),
        ("retuned", &outcome.retuned),
        ("forced", &outcome.forced),
    ] {
        if !spaces.is_empty() {
            let names: Vec<&str> = spaces.iter().map(Space::as_str).collect();
            out.push_str(&format!("  {word:9} {}\n", names.join(", ")));
        }
    }
    out.push_str(&format!("  {:9} {}\n", "unchanged", outcome.unchanged));
    for (what, why) in &outcome.refused {
        out.push_str(&format!("  {:9} {}\n", "refused", safe(&format!("{what}: {why}"))));
    }
    out
}

fn say(text: &str) -> Result<()> {
    io::stdout().lock().write_all(text.as_bytes()).context("cannot write to standard output")
}
