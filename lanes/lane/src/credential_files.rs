//! A lane's credential directory seen as files: read in time, listed for people, hashed to notice a change.
//!
//! Owns the reading that must never hold up a runtime, and the offline report of `lanekeeper check`. It must not judge
//! which file belongs to which space: [`crate::admission`] does.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use data_encoding::HEXLOWER;
use lanekeeper_wire::Space;
use sha2::{Digest as _, Sha256};

use crate::{
    admission::{self, DELIVERY, MEMBERSHIP_OBSERVER, MEMBERSHIP_RW},
    config::LaneConfig,
    credentials::{Credential, MAX_CREDENTIAL_BYTES},
    fault::FaultKind,
    hooks,
};

/// How long reading a lane's files may take. A store that hangs is a fault of this lane and holds up no other.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// The evictor (system account); without it eviction is off.
const CONNECTION_EVICTOR: &str = "connection-evictor.creds";
/// Every file a lane may have.
const FILES: [&str; 4] = [DELIVERY, MEMBERSHIP_RW, MEMBERSHIP_OBSERVER, CONNECTION_EVICTOR];

/// Reads and admits a lane's credentials on a thread of its own.
///
/// # Errors
/// As [`admission::admit`], or the files could not be read in time.
pub(crate) async fn read(config: &LaneConfig) -> Result<Credential, FaultKind> {
    let (dir, space) = (config.credentials.clone(), config.space.clone());
    let unreadable = |reason: String| FaultKind::CredentialUnreadable {
        path: config.credentials.join(DELIVERY).display().to_string(),
        reason,
    };
    let reading = tokio::task::spawn_blocking(move || {
        hooks::block_when_asked(&space);
        admission::admit(&dir, &space)
    });
    match tokio::time::timeout(READ_TIMEOUT, reading).await {
        Ok(Ok(admitted)) => admitted,
        Ok(Err(error)) => Err(unreadable(format!("the reader ended: {error}"))),
        Err(_) => Err(FaultKind::CredentialStoreSilent {
            path: config.credentials.display().to_string(),
            waited_ms: u64::try_from(READ_TIMEOUT.as_millis()).unwrap_or(u64::MAX),
        }),
    }
}

/// One credential file as `lanekeeper check` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialReport {
    /// The file.
    pub file: PathBuf,
    /// The public key of its account, where it could be read.
    pub account: Option<String>,
    /// `exp`, seconds since the epoch; `None` never expires.
    pub expires_at_s: Option<u64>,
    /// What is wrong with it.
    pub fault: Option<FaultKind>,
}

/// Looks at each credential file of a space without connecting. A fault that concerns the files together is with the file
/// it names. An absent evictor is no fault.
#[must_use]
pub fn credential_reports(dir: &Path, space: &Space) -> Vec<CredentialReport> {
    let admission = admission::admit(dir, space).err();
    let mut reports = Vec::new();
    for name in FILES {
        let file = dir.join(name);
        if name == CONNECTION_EVICTOR && !file.exists() {
            continue;
        }
        let shown = file.display().to_string();
        let report = match Credential::read(&file) {
            Ok(credential) => CredentialReport {
                account: Some(credential.account().to_owned()),
                expires_at_s: credential.expires_at(),
                fault: admission.clone().filter(|fault| fault.path() == Some(shown.as_str())),
                file,
            },
            Err(fault) => CredentialReport { file, account: None, expires_at_s: None, fault: Some(fault) },
        };
        reports.push(report);
    }
    reports
}

/// SHA-256 over the contents of a lane's credential files, hex; `None` where the delivery credential cannot be read.
#[must_use]
pub fn credentials_hash(dir: &Path) -> Option<String> {
    let mut hash = Sha256::new();
    for name in FILES {
        let path = dir.join(name);
        let small = std::fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() <= MAX_CREDENTIAL_BYTES);
        let content = if small { std::fs::read(&path).ok() } else { None };
        if name == DELIVERY && content.is_none() {
            return None;
        }
        let content = content.unwrap_or_default();
        hash.update(name.as_bytes());
        hash.update((content.len() as u64).to_be_bytes());
        hash.update(&content);
    }
    Some(HEXLOWER.encode(&hash.finalize()))
}
