//! That no run lets a secret out: every seed and token of a mesh is looked for in everything a daemon wrote.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The same for every log in `dir`.
pub(crate) fn assert_none_in_logs(dir: &Path, keys: &Path) {
    let paths = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
        .for_each(|log| assert_none_in(&log, keys));
}

/// Fails if a seed or a token of any key or credentials file below `keys` stands in the log.
pub(crate) fn assert_none_in(log: &Path, keys: &Path) {
    let Ok(log) = fs::read_to_string(log) else { return };
    let mut files = Vec::new();
    walk(keys, &mut files);
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for secret in secrets(&text) {
            assert!(!log.contains(secret), "a secret of {} is in the daemon's log", file.display());
        }
    }
}

/// Seeds, and tokens as well as their signatures: each is long and of one word.
fn secrets(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || c == '"').filter(|word| word.len() >= 50);
    let words = words.filter(|word| word.starts_with('S') || word.starts_with("ey"));
    words.flat_map(|word| [Some(word), word.rsplit_once('.').map(|(_, signature)| signature)].into_iter().flatten())
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() {
            walk(&path, files);
        } else if kind.is_file() && [".creds", ".seed", ".jwt"].iter().any(|ending| name.ends_with(ending)) {
            files.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a secret of")]
    fn a_seed_in_a_log_is_found() {
        let dir = tempfile::TempDir::new().unwrap();
        let seed = nkeys::KeyPair::new_user().seed().unwrap();
        fs::write(dir.path().join("x.creds"), format!("-----BEGIN USER NKEY SEED-----\n{seed}\n")).unwrap();
        let log = dir.path().join("log");
        fs::write(&log, format!("something {seed} else")).unwrap();
        assert_none_in(&log, dir.path());
    }
}
