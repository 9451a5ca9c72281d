//! `lanekeeper space`: adds, removes and lists spaces on a broker of one's own.
//!
//! Owns the order of the steps, so that the manifest never names a space that is not there: an entry comes last and goes
//! first. It holds signing keys, so it is no part of what serves.

pub mod entry;
pub mod place;

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use lanekeeper_provision::{Home, LaneCredentialSettings, SpaceSettings, private_file};
use lanekeeper_wire::Space;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use self::{
    entry::{Entry, Found},
    place::{Place, Removed},
};
use super::files::FileArgs;
use crate::{config::HostConfig, provisioning};

/// Arguments of `lanekeeper space`.
#[derive(Debug, Clone, Args)]
pub struct SpaceArgs {
    #[command(subcommand)]
    command: SpaceCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum SpaceCommand {
    /// Make a space: its account, streams and credentials, then its entry in the manifest.
    Add(AddArgs),
    /// Take a space out of the manifest; with --purge also its account and its credentials.
    Remove(RemoveArgs),
    /// List the spaces of the manifest.
    List(ListArgs),
}

/// Arguments of `lanekeeper space add`.
#[derive(Debug, Clone, Args)]
pub struct AddArgs {
    /// The space's name.
    pub space: Space,
    /// The directory with the operator's keys.
    #[arg(long, value_name = "DIR")]
    pub home: PathBuf,
    /// The broker, as nats://host:port.
    #[arg(long, value_name = "URL")]
    pub server: String,
    /// The directory that gets one directory of credentials a space.
    #[arg(long, value_name = "DIR")]
    pub credentials_root: PathBuf,
    /// Write the server into the entry, for a space that does not use the host's.
    #[arg(long)]
    pub own_server: bool,
    /// Copies of every stream in a cluster: 1, 3 or 5.
    #[arg(long, default_value_t = 1)]
    pub replicas: usize,
    /// Write the entry switched off.
    #[arg(long)]
    pub disabled: bool,
    /// A label of the entry, as KEY=VALUE; give it again for more.
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    pub tags: Vec<(String, String)>,
    #[command(flatten)]
    files: FileArgs,
}

/// Arguments of `lanekeeper space remove`.
#[derive(Debug, Clone, Args)]
pub struct RemoveArgs {
    /// The space's name.
    pub space: Space,
    /// Also delete its account at the broker, so that none of its credentials lets anybody in, and its lane's
    /// credentials. The broker's files and the operator's keys of the space are left, so `add` can bring it back.
    #[arg(long, requires_all = ["home", "server", "credentials_root"])]
    pub purge: bool,
    /// The directory with the operator's keys.
    #[arg(long, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// The broker, as nats://host:port.
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// The directory with one directory of credentials a space.
    #[arg(long, value_name = "DIR")]
    pub credentials_root: Option<PathBuf>,
    #[command(flatten)]
    files: FileArgs,
}

/// Arguments of `lanekeeper space list`.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// The directory with the operator's keys, to show the accounts.
    #[arg(long, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// Print the list as JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    files: FileArgs,
}

/// Runs one of them.
///
/// # Errors
/// What could not be done, and whether anything was changed.
pub async fn run(args: SpaceArgs) -> Result<()> {
    match args.command {
        SpaceCommand::Add(args) => Box::pin(add(args)).await,
        SpaceCommand::Remove(args) => Box::pin(remove(args)).await,
        SpaceCommand::List(args) => list(args).await,
    }
}

/// What it takes to make a space, for those who make many.
#[derive(Debug, Clone)]
pub struct Making<'a> {
    /// The operator's keys.
    pub home: &'a Home,
    /// The broker.
    pub server: &'a str,
    /// Where credentials go.
    pub credentials_root: &'a Path,
    /// How its streams are made.
    pub settings: &'a SpaceSettings,
    /// How its credentials are made.
    pub lane: &'a LaneCredentialSettings,
}

impl Making<'_> {
    /// Makes the space or takes it up again, and gives the directory of its credentials. Repeating it changes nothing.
    ///
    /// # Errors
    /// The broker refuses, or a file cannot be written.
    pub async fn make(&self, space: &Space) -> Result<PathBuf> {
        let raised = Box::pin(provisioning::raise(self.home, self.server, space, self.settings)).await;
        let (account, provisioner) = raised?;
        drop(provisioner);
        provisioning::write_credentials(self.credentials_root, self.home, &account, self.lane)
    }
}

/// Adds the entry to the manifest unless its space has one.
///
/// # Errors
/// The manifest has faults, or cannot be written.
pub async fn enter(manifest: &Path, host: &HostConfig, entry: Entry) -> Result<()> {
    let host = host.clone();
    let entered = with_place(manifest, move |place| {
        let is_there = place.entries()?.iter().any(|(_, found)| found.name == entry.space.as_str());
        if is_there { Ok(()) } else { place.add(&entry, &host) }
    });
    entered.await
}

async fn add(args: AddArgs) -> Result<()> {
    let host = args.files.host()?;
    let manifest = host.manifest.clone();
    let home = open_home(&args.home)?;
    private_file::ensure_private_dir(&args.credentials_root)?;
    let root = fs::canonicalize(&args.credentials_root)
        .with_context(|| format!("look at {}", args.credentials_root.display()))?;
    let _turn = turn(root.clone()).await?;
    // Before anything is made, and again under the same lock as the write.
    let space = args.space.clone();
    with_place(&manifest, {
        let host = host.clone();
        move |place| place.check_free(&space, &host)
    })
    .await?;
    let settings = SpaceSettings { replicas: args.replicas, ..SpaceSettings::default() };
    let lane = LaneCredentialSettings::default();
    let making =
        Making { home: &home, server: &args.server, credentials_root: &root, settings: &settings, lane: &lane };
    let credentials =
        making.make(&args.space).await.context("the manifest was not changed; mend this and run it again")?;
    let entry = Entry {
        space: args.space.clone(),
        credentials,
        servers: if args.own_server { vec![args.server.clone()] } else { Vec::new() },
        is_enabled: !args.disabled,
        tags: args.tags.iter().cloned().collect(),
    };
    let told = format!("added `{}`, its lane's credentials are in {}\n", entry.space, entry.credentials.display());
    with_place(&manifest, move |place| place.add(&entry, &host)).await?;
    say(&told)
}

async fn remove(args: RemoveArgs) -> Result<()> {
    let manifest = args.files.host()?.manifest;
    let space = args.space.clone();
    let take_out = move |place: &Place| place.remove(&space);
    let space = args.space;
    let (true, Some(root), Some(home), Some(server)) = (args.purge, args.credentials_root, args.home, args.server)
    else {
        let Some(removed) = with_place(&manifest, take_out).await? else {
            bail!("{} has no entry for `{space}`; nothing was changed", manifest.display())
        };
        let told = format!("removed `{space}` from the manifest; its account and credentials are kept\n");
        return say(&(told + hint(removed)));
    };
    let home = open_home(&home)?;
    let root = fs::canonicalize(&root).with_context(|| format!("look at {}", root.display()))?;
    let _turn = turn(root.clone()).await?;
    // First the entry: a host lets go of the space before it is gone.
    let removed = with_place(&manifest, take_out).await?;
    let account = Box::pin(provisioning::raze(&home, &server, &space)).await?;
    let has_credentials = provisioning::remove_credentials(&root, &space)?;
    if removed.is_none() && account.is_none() && !has_credentials {
        bail!("there is no space `{space}`: no entry, no account, no credentials");
    }
    let files = account.map_or_else(String::new, |account| {
        format!("what it stored is in the broker's files until you remove them: jetstream/{account}\n")
    });
    let told = format!("removed `{space}` from the manifest, and its account and credentials\n{files}");
    say(&(told + removed.map_or("", hint)))
}

/// A host does not take it for granted that its last lane is to be closed.
fn hint(removed: Removed) -> &'static str {
    if removed.left == 0 {
        "it was the last one; a running host closes it only if told: lanekeeper reload --allow-mass-close\n"
    } else {
        ""
    }
}

/// One space as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Listed {
    space: String,
    enabled: bool,
    credentials: Option<String>,
    file: PathBuf,
    account: Option<String>,
}

async fn list(args: ListArgs) -> Result<()> {
    let manifest = args.files.host()?.manifest;
    let home = args.home.as_deref().map(open_home).transpose()?;
    let entries = with_place(&manifest, |place| place.entries()).await?;
    let mut listed = Vec::new();
    for (file, found) in entries {
        listed.push(listed_of(file, found, home.as_ref())?);
    }
    listed.sort_by(|a, b| a.space.cmp(&b.space));
    if args.json {
        return say(&format!("{}\n", serde_json::to_string_pretty(&listed)?));
    }
    let width = listed.iter().map(|one| one.space.len()).chain([5]).max().unwrap_or_default();
    let mut out = format!("{:width$}  {:8}  CREDENTIALS\n", "SPACE", "ENABLED");
    for one in &listed {
        let enabled = if one.enabled { "yes" } else { "no" };
        let account = one.account.as_ref().map_or_else(String::new, |account| format!("  {account}"));
        out.push_str(&format!(
            "{:width$}  {enabled:8}  {}{account}\n",
            one.space,
            one.credentials.as_deref().unwrap_or("-")
        ));
    }
    say(&out)
}

fn listed_of(file: PathBuf, found: Found, home: Option<&Home>) -> Result<Listed> {
    let account = match (home, found.name.parse::<Space>()) {
        (Some(home), Ok(space)) => home.space(&space)?.map(|account| account.account_id().to_owned()),
        (Some(_) | None, _) => None,
    };
    Ok(Listed { space: found.name, enabled: found.is_enabled, credentials: found.credentials, file, account })
}

fn open_home(dir: &Path) -> Result<Home> {
    Home::open(dir).with_context(|| {
        format!("{} holds no usable operator keys; give --home the directory that has them", dir.display())
    })
}

/// Does `work` on the locked manifest, where it holds nobody up.
async fn with_place<T: Send + 'static>(
    manifest: &Path,
    work: impl FnOnce(&Place) -> Result<T> + Send + 'static,
) -> Result<T> {
    let manifest = manifest.to_owned();
    let done = tokio::task::spawn_blocking(move || Place::lock(&manifest).and_then(|place| work(&place)));
    done.await.context("the work on the manifest was lost")?
}

/// Waits for this process's turn with the credentials in `root`: two may not make or remove the same space at once.
async fn turn(root: PathBuf) -> Result<File> {
    let taken = tokio::task::spawn_blocking(move || {
        let dir = File::open(&root).with_context(|| format!("open {}", root.display()))?;
        flock(&dir, FlockOperation::LockExclusive)
            .map_err(io::Error::from)
            .with_context(|| format!("lock {}", root.display()))?;
        Ok(dir)
    });
    taken.await.context("the wait for the turn was lost")?
}

fn tag(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a tag is KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn say(text: &str) -> Result<()> {
    io::stdout().lock().write_all(text.as_bytes()).context("cannot write to standard output")
}
