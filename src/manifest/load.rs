//! Which files a manifest is, and reading them all.
//!
//! Owns the walk over a directory and the hash. It must not judge what the files say.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::{Manifest, file::ManifestFile, validate};
use crate::config::{ConfigFault, Faults, HostConfig, document, source::Source};

/// Most files of one directory.
const MAX_FILES: usize = 10_000;

/// One file of the manifest.
pub(super) struct Part {
    pub(super) source: Source,
    /// `None` where the syntax is broken.
    pub(super) file: Option<ManifestFile>,
    /// False where something was left out.
    pub(super) is_understood: bool,
}

/// Reads everything, then judges it.
pub(super) fn manifest(path: &Path, host: &HostConfig) -> Result<Manifest, Faults> {
    let files = files(path, MAX_FILES)?;
    let mut faults = Faults::default();
    let mut parts = Vec::new();
    let mut hash = Sha256::new();
    for file in files {
        match Source::read(&file) {
            Ok(source) => {
                add(&mut hash, &source);
                let read = document::read::<ManifestFile>(&source);
                let is_understood = read.faults.is_empty();
                faults.0.extend(source.faults(read.faults));
                parts.push(Part { source, file: read.value, is_understood });
            }
            Err(fault) => faults.0.push(fault),
        }
    }
    let hash = data_encoding::HEXLOWER.encode(&hash.finalize());
    let manifest = validate::manifest(&parts, host, hash, &mut faults.0);
    faults.or(Some(manifest))
}

/// The length keeps two files apart from one that holds both.
fn add(hash: &mut Sha256, source: &Source) {
    let text = source.text().as_bytes();
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}

/// The files of the manifest, sorted.
fn files(path: &Path, at_most: usize) -> Result<Vec<PathBuf>, Faults> {
    let refused = |message: String| Faults::of_file(path, message);
    let found = fs::metadata(path).map_err(|error| {
        refused(if error.kind() == std::io::ErrorKind::NotFound {
            "the manifest does not exist: a missing manifest is never taken for `no spaces`; create it or name the right one with --manifest".to_owned()
        } else {
            format!("the manifest cannot be read: {error}; let the user that runs this read it")
        })
    })?;
    if !found.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let unreadable = |error: std::io::Error| {
        refused(format!("the manifest directory cannot be read: {error}; let the user that runs this read it"))
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        // Hidden files are what editors and `..data` swaps leave.
        let is_ours = !name.as_encoded_bytes().starts_with(b".") && name.as_encoded_bytes().ends_with(b".toml");
        if is_ours {
            files.push(path.join(name));
        }
    }
    if files.is_empty() {
        return Err(refused(
            "the manifest directory holds no *.toml file: an empty directory is never taken for `no spaces`; add a file, or one that says `allow_empty = true`".to_owned(),
        ));
    }
    if files.len() > at_most {
        return Err(refused(format!(
            "the manifest directory holds more than {at_most} *.toml files; put several spaces in one file"
        )));
    }
    files.sort();
    Ok(files)
}

/// A fault that is about a file as a whole.
pub(super) fn at_start(source: &Source, message: &str) -> ConfigFault {
    source.fault(0..0, message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_a_limit() {
        let dir = tempfile::TempDir::new().unwrap();
        for name in ["b.toml", "a.toml"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(files(dir.path(), 2).unwrap(), ["a.toml", "b.toml"].map(|name| dir.path().join(name)));
        let fault = files(dir.path(), 1).unwrap_err();
        assert!(
            fault.to_string().ends_with("holds more than 1 *.toml files; put several spaces in one file"),
            "{fault}"
        );
    }
}
