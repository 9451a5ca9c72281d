//! `lanekeeper check`: every fault of the configuration and the manifest, and how each space's credentials stand.
//!
//! Owns what is printed and the exit code. It must not touch a lease: with `--online` it connects, asks and leaves.

use std::{fmt::Write as _, io::Write as _, time::Duration};

use anyhow::{Result, bail};
use clap::Args;
use futures::{StreamExt as _, stream};
use lanekeeper_lane::{CredentialReport, FaultKind, LaneConfig, Standby, credential_reports, preflight};
use time::{OffsetDateTime, macros::format_description};

use super::files::FileArgs;
use crate::{
    config::HostConfig,
    manifest::{Manifest, Origin, SpaceSpec},
};

/// Spaces that are asked about at once.
const CHECKS_AT_ONCE: usize = 8;
/// Characters of an account's key in the table.
const ACCOUNT_CHARS: usize = 12;
/// What a file of the observer's is called.
const OBSERVER: &str = "membership-observer.creds";
/// What stands where there is nothing to say.
const NOTHING: &str = "-";
/// The head of the table; the last column only with `--online`.
const HEAD: [&str; 7] = ["SPACE", "LANE", "CREDENTIALS", "ACCOUNT", "OBSERVER", "EXPIRES", "BROKER"];

/// Arguments of `lanekeeper check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// The files.
    #[command(flatten)]
    pub files: FileArgs,
    /// Also connect to each space's broker with its credentials and look at its streams. No lease is touched.
    #[arg(long)]
    pub online: bool,
}

/// Prints every fault, or the table.
///
/// # Errors
/// There was a fault.
pub async fn run(args: CheckArgs) -> Result<()> {
    let files = args.files.clone();
    let loaded = tokio::task::spawn_blocking(move || files.load()).await?;
    let (host, manifest) = match loaded {
        Ok(loaded) => loaded,
        Err(faults) => {
            print(&format!("{faults}\n"))?;
            bail!("{}, nothing of it would be applied", counted(faults.0.len(), "fault"));
        }
    };
    let checks = checks(&host, &manifest, args.online).await;
    let faults: Vec<String> = checks.iter().flat_map(Check::faults).collect();
    let mut text = format!("{}\n{}", heading(&host, &manifest), table(&checks, args.online, now_s()));
    for fault in &faults {
        let _ = writeln!(text, "{fault}");
    }
    print(&text)?;
    if !faults.is_empty() {
        bail!("{} of single spaces, the other spaces would be served", counted(faults.len(), "fault"));
    }
    Ok(())
}

/// Whoever reads it may have read enough.
fn print(text: &str) -> std::io::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Which files these are.
fn heading(host: &HostConfig, manifest: &Manifest) -> String {
    let config =
        host.file.as_ref().map_or_else(|| "defaults, there is no file".to_owned(), |path| path.display().to_string());
    let hash: String = manifest.hash.chars().take(ACCOUNT_CHARS).collect();
    let spaces = counted(manifest.spaces.len(), "space");
    format!("config    {config}\nmanifest  {} ({spaces}, content {hash})", host.manifest.display())
}

/// What is known of one space.
#[derive(Debug)]
struct Check {
    spec: SpaceSpec,
    origin: Option<Origin>,
    files: Vec<CredentialReport>,
    /// `None` where nobody was asked.
    online: Option<Result<(), FaultKind>>,
}

async fn checks(host: &HostConfig, manifest: &Manifest, online: bool) -> Vec<Check> {
    let patience = Duration::from_millis(host.limits.open_timeout_ms);
    let specs = manifest.spaces.values().cloned();
    let checks = specs.map(|spec| check(spec, &manifest.origins, online, patience));
    stream::iter(checks).buffered(CHECKS_AT_ONCE).collect().await
}

async fn check(
    spec: SpaceSpec,
    origins: &std::collections::BTreeMap<lanekeeper_wire::Space, Origin>,
    online: bool,
    patience: Duration,
) -> Check {
    let (dir, space) = (spec.credentials.clone(), spec.space.clone());
    let reading = tokio::task::spawn_blocking(move || credential_reports(&dir, &space));
    let what = || format!("the credential files of `{}`", spec.space);
    let waited_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    let unanswered = |what: String| FaultKind::Unanswered { what, waited_ms };
    let files = match tokio::time::timeout(patience, reading).await {
        Ok(Ok(files)) => files,
        // A store that hangs must not hang the check of the others.
        Ok(Err(_)) | Err(_) => {
            let fault = Some(unanswered(what()));
            vec![CredentialReport { file: spec.credentials.clone(), account: None, expires_at_s: None, fault }]
        }
    };
    let is_ready = spec.enabled && files.iter().all(|file| file.fault.is_none());
    let asked = if online && is_ready {
        let config = LaneConfig {
            space: spec.space.clone(),
            servers: spec.servers.clone(),
            credentials: spec.credentials.clone(),
            limits: spec.limits,
            standby: Standby::Refuse,
        };
        let answer = tokio::time::timeout(patience, Box::pin(preflight(&config))).await;
        Some(match answer {
            Ok(answer) => answer.map_err(|fault| fault.kind),
            Err(_) => Err(unanswered("the broker".to_owned())),
        })
    } else {
        None
    };
    let origin = origins.get(&spec.space).cloned();
    Check { spec, origin, files, online: asked }
}

impl Check {
    /// Each fault as one line, at the place of the space in the manifest.
    fn faults(&self) -> Vec<String> {
        let place = self.origin.as_ref().map_or_else(String::new, |origin| {
            format!("{}:{}:{}: ", origin.file.display(), origin.line, origin.column)
        });
        let online = self.online.iter().filter_map(|asked| asked.as_ref().err());
        let mut kinds: Vec<&FaultKind> = Vec::new();
        for kind in self.files.iter().filter_map(|file| file.fault.as_ref()).chain(online) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let line = |kind: &&FaultKind| format!("{place}space `{}`: {kind} [{}]", self.spec.space, kind.code());
        kinds.iter().map(line).collect()
    }

    fn row(&self, online: bool, now_s: u64) -> Vec<String> {
        let observer = self.files.iter().find(|file| file.file.ends_with(OBSERVER));
        let others = self.files.iter().filter(|file| !file.file.ends_with(OBSERVER));
        let mut row = vec![
            self.spec.space.to_string(),
            if self.spec.enabled { "on" } else { "off" }.to_owned(),
            others.clone().find_map(code).unwrap_or("readable").to_owned(),
            // The first file is the delivery credential, and its account is the one the lane is pinned to.
            self.files.first().and_then(|file| file.account.as_deref()).map_or_else(|| NOTHING.to_owned(), short),
            observer.map_or(NOTHING, |file| code(file).unwrap_or("same account")).to_owned(),
            expiry(&self.files, now_s),
        ];
        if online {
            row.push(match &self.online {
                Some(Ok(())) => "ready".to_owned(),
                Some(Err(kind)) => kind.code().to_owned(),
                None => "not asked".to_owned(),
            });
        }
        row
    }
}

fn code(file: &CredentialReport) -> Option<&'static str> {
    file.fault.as_ref().map(FaultKind::code)
}

fn short(account: &str) -> String {
    account.chars().take(ACCOUNT_CHARS).chain(std::iter::once('…')).collect()
}

/// The end of the file that ends first, and how far away it is.
fn expiry(files: &[CredentialReport], now_s: u64) -> String {
    let ends = files.iter().filter_map(|file| match &file.fault {
        Some(FaultKind::CredentialExpired { expired_at, .. }) => Some((*expired_at, file)),
        Some(_) | None => file.expires_at_s.map(|at| (at, file)),
    });
    let Some((at_s, file)) = ends.min_by_key(|(at_s, _)| *at_s) else {
        let is_known = files.iter().any(|file| file.account.is_some());
        return if is_known { "never" } else { NOTHING }.to_owned();
    };
    let name = file.file.file_stem().unwrap_or_default().to_string_lossy();
    let away = match at_s.checked_sub(now_s) {
        Some(0) | None => "expired".to_owned(),
        Some(seconds) => format!("in {}", span(seconds)),
    };
    format!("{} {away} ({name})", date(at_s))
}

fn date(at_s: u64) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]Z");
    let date = i64::try_from(at_s).ok().and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
    date.and_then(|date| date.format(format).ok()).unwrap_or_else(|| format!("unix {at_s} s"))
}

fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// The rows below their head, each column as wide as it needs.
fn table(checks: &[Check], online: bool, now_s: u64) -> String {
    let columns = if online { HEAD.len() } else { HEAD.len() - 1 };
    let mut rows: Vec<Vec<String>> = vec![HEAD[..columns].iter().map(|title| (*title).to_owned()).collect()];
    rows.extend(checks.iter().map(|check| check.row(online, now_s)));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn now_s() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_names_the_file_that_ends_first() {
        let file = |name: &str, at: Option<u64>| CredentialReport {
            file: name.into(),
            account: Some("A".into()),
            expires_at_s: at,
            fault: None,
        };
        assert_eq!(expiry(&[file("a/delivery.creds", None)], 0), "never");
        let two = [file("a/delivery.creds", Some(1_800_000_000)), file("a/membership-rw.creds", Some(1_790_000_000))];
        assert_eq!(expiry(&two, 1_789_000_000), "2026-09-21 14:13Z in 11 d (membership-rw)");
        assert_eq!(expiry(&two, 1_790_000_000), "2026-09-21 14:13Z expired (membership-rw)");
        let fault = FaultKind::CredentialExpired { path: "a/delivery.creds".into(), expired_at: 5 };
        let gone = CredentialReport {
            account: None,
            expires_at_s: None,
            fault: Some(fault),
            ..file("a/delivery.creds", None)
        };
        assert_eq!(expiry(&[gone], 6), "1970-01-01 00:00Z expired (delivery)");
    }

    #[test]
    fn spans_are_told_in_the_unit_that_fits() {
        for (seconds, text) in [(0, "0 s"), (59, "59 s"), (60, "1 min"), (7_200, "2 h"), (172_800, "2 d")] {
            assert_eq!(span(seconds), text);
        }
    }
}
