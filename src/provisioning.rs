//! Makes a space on a broker whose operator keys are at hand: its account, its streams and buckets, its lane's credentials.
//!
//! Owns the order of the steps; each can be repeated. It holds signing keys, so nothing that serves a space may use it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use async_nats::jetstream;
use lanekeeper_provision::{
    AccountSettings, Home, LaneCredentialSettings, SpaceAccount, SpaceProfile, SpaceSettings, Validity, ensure_space,
    private_file,
};
use lanekeeper_wire::Space;

/// Marks a directory of credentials that is not complete yet.
const STAGED: &str = "new";
/// Marks a directory of credentials that is being removed.
const REMOVED: &str = "removed";

/// Creates `space` on the broker at `url`, or takes it up again: its account, streams and buckets. Gives the account and
/// a connection of the provisioner.
///
/// # Errors
/// The account cannot be pushed, or a stream contradicts `settings`.
pub async fn raise(
    home: &Home,
    url: &str,
    space: &Space,
    settings: &SpaceSettings,
) -> Result<(SpaceAccount, jetstream::Context)> {
    let account = home.create_space(space, &AccountSettings::default())?;
    let system = home.system_client(url).await?;
    let pushed = system.push_account(&account).await;
    system.close().await;
    pushed?;
    let provisioner = account.mint(&SpaceProfile::Provisioner, Validity::forever())?;
    let client = provisioner.connect_options()?.name("lanekeeper provisioner").connect(url).await;
    let provisioner = jetstream::new(client.with_context(|| format!("connect to {url} to provision `{space}`"))?);
    ensure_space(&provisioner, space, settings).await?;
    Ok((account, provisioner))
}

/// Makes the broker at `url` forget the account of `space`, so that nobody gets in any more, and gives the account's id; `None`
/// where the home has no such account. What the account stored stays in the broker's files, and the home keeps its keys:
/// [`raise`] brings both back.
///
/// # Errors
/// The broker refuses.
pub async fn raze(home: &Home, url: &str, space: &Space) -> Result<Option<String>> {
    let Some(account) = home.space(space)? else { return Ok(None) };
    let system = home.system_client(url).await?;
    let deleted = system.delete_account(&account).await;
    system.close().await;
    deleted?;
    Ok(Some(account.account_id().to_owned()))
}

/// Writes the lane's credentials into `<root>/<space>`. A directory that is not there appears complete, in one step; in one
/// that is there each file keeps its key and gets a fresh token.
///
/// # Errors
/// A directory is open to others, or a file cannot be written.
pub fn write_credentials(
    root: &Path,
    home: &Home,
    account: &SpaceAccount,
    settings: &LaneCredentialSettings,
) -> Result<PathBuf> {
    private_file::ensure_private_dir(root)?;
    let space = account.space();
    let dir = root.join(space.as_str());
    if dir.exists() {
        account.write_lane_credentials(&dir, home, settings)?;
        return Ok(dir);
    }
    sweep(root, space)?;
    let staged = aside(root, space, STAGED);
    let written = account
        .write_lane_credentials(&staged, home, settings)
        .map_err(anyhow::Error::from)
        .and_then(|()| place(&staged, &dir, root));
    if written.is_err() {
        // Keys that nobody will ever use; the first error is the one to report.
        let _ = fs::remove_dir_all(&staged);
    }
    written.map(|()| dir)
}

/// Removes `<root>/<space>`: it is gone in one step, then its files are. Says whether there was one.
///
/// # Errors
/// It cannot be removed; what is left is named.
pub fn remove_credentials(root: &Path, space: &Space) -> Result<bool> {
    let dir = root.join(space.as_str());
    if fs::symlink_metadata(&dir).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return sweep(root, space).map(|()| false);
    }
    let removed = aside(root, space, REMOVED);
    place(&dir, &removed, root)?;
    sweep(root, space)?;
    Ok(true)
}

/// Removes what an earlier run that was killed left of this space.
fn sweep(root: &Path, space: &Space) -> Result<()> {
    let start = format!(".{space}.");
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("list {}", root.display())),
    };
    for entry in entries {
        let entry = entry.with_context(|| format!("list {}", root.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let mark = name.strip_prefix(&start).and_then(|rest| rest.split('.').next());
        if mark.is_some_and(|mark| mark == STAGED || mark == REMOVED) {
            let path = entry.path();
            fs::remove_dir_all(&path).with_context(|| format!("remove {} by hand, it holds keys", path.display()))?;
        }
    }
    Ok(())
}

/// A name beside the space's own that no space can have: tokens have no dots.
fn aside(root: &Path, space: &Space, mark: &str) -> PathBuf {
    root.join(format!(".{space}.{mark}.{:016x}", rand::random::<u64>()))
}

fn place(from: &Path, to: &Path, root: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("rename {} to {}", from.display(), to.display()))?;
    let synced = fs::File::open(root).and_then(|dir| dir.sync_all());
    synced.with_context(|| format!("write through {}", root.display()))
}
