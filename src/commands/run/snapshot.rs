//! The state of the host as a file, for scripts, for monitoring without HTTP, and for a look after a crash.
//!
//! Owns its replacement as a whole: a reader never sees half of it. A file that cannot be written never holds up a lane.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tokio::task::spawn_blocking;

use crate::supervisor::{Handle, HostStatus};

/// Keeps `path` up to date until the supervisor ends.
pub(super) async fn keep(handle: Handle, path: PathBuf) {
    let mut shown = handle.watch_status();
    let (mut written, mut complaint) = (None, None);
    loop {
        let status = std::sync::Arc::clone(&shown.borrow_and_update());
        if written.as_ref() != Some(&status) {
            let now = write(&status, &path).await.err().map(|error| error.to_string());
            if now != complaint
                && let Some(error) = &now
            {
                tracing::warn!(file = %path.display(), %error, "the status file cannot be written");
            }
            complaint = now;
            written = complaint.is_none().then_some(status);
        }
        if shown.changed().await.is_err() {
            return;
        }
    }
}

/// Writes the last state there was.
pub(super) async fn last(handle: &Handle, path: Option<&Path>) {
    if let Some(path) = path
        && let Err(error) = write(&handle.status(), path).await
    {
        tracing::warn!(file = %path.display(), %error, "the status file cannot be written");
    }
}

async fn write(status: &HostStatus, path: &Path) -> io::Result<()> {
    let text = serde_json::to_string_pretty(status)? + "\n";
    let path = path.to_owned();
    let written = spawn_blocking(move || {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let fresh = path.with_file_name(name);
        fs::write(&fresh, text)?;
        fs::rename(&fresh, &path)
    });
    written.await.map_err(io::Error::other)?
}
