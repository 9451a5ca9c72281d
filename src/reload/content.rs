//! What a credential directory holds, as one text that changes whenever something in it does that a lane would notice.
//!
//! Owns the comparison key. It must not hold a secret: only a hash and permission bits are in it.

use std::{fmt::Write as _, fs, os::unix::fs::PermissionsExt as _, path::Path};

/// Which files' permission bits count: a lane refuses a loose credential, so tightening it must count as a change.
const CREDENTIAL_EXTENSION: &str = "creds";

/// What stands for a directory whose delivery credential cannot be read.
const UNREADABLE: &str = "unreadable";

/// Whether the delivery credential could be read when this key was made.
pub(crate) fn is_readable(content: &str) -> bool {
    !content.starts_with(UNREADABLE)
}

/// The key of `dir`. Blocks on the file system.
pub(crate) fn content_of(dir: &Path) -> String {
    let mut key = lanekeeper_lane::credentials_hash(dir).unwrap_or_else(|| UNREADABLE.to_owned());
    let mode = |path: &Path| fs::metadata(path).map_or(0, |found| found.permissions().mode() & 0o7777);
    let mut modes = vec![(String::new(), mode(dir))];
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == CREDENTIAL_EXTENSION) {
            modes.push((entry.file_name().to_string_lossy().into_owned(), mode(&path)));
        }
    }
    modes.sort();
    for (name, mode) in modes {
        // Writing to a String cannot fail.
        let _ = write!(key, " {name}:{mode:o}");
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_and_permissions_count_and_reading_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("delivery.creds");
        let missing = content_of(dir.path());
        fs::write(&file, "one").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let one = content_of(dir.path());
        assert!(!is_readable(&missing) && is_readable(&one));
        assert_eq!(content_of(dir.path()), one);
        fs::write(&file, "two").unwrap();
        let two = content_of(dir.path());
        assert_ne!(two, one);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let loose = content_of(dir.path());
        assert_ne!(loose, two);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(content_of(dir.path()), two);
        assert!(!two.contains("two"), "{two}");
    }
}
