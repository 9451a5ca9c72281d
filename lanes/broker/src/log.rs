//! The end of a broker's log, fit for an error message.
//!
//! Owns no file: it reads what the child wrote and takes out what looks like a secret.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Lines of the log that go into an error.
const TAIL_LINES: usize = 12;

/// Bytes of the log that are looked at for them.
const TAIL_BYTES: u64 = 16 * 1024;

/// The last lines that were written after byte `from`, joined into one line.
pub(crate) fn tail(path: &Path, from: u64) -> String {
    match last_bytes(path, from) {
        Ok(text) if text.trim().is_empty() => "(the log is empty)".to_owned(),
        Ok(text) => join_last_lines(&text),
        Err(error) => format!("(the log {path:?} cannot be read: {error})"),
    }
}

fn last_bytes(path: &Path, from: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(from.max(len.saturating_sub(TAIL_BYTES))))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn join_last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    last.iter().map(|line| without_secrets(line)).collect::<Vec<_>>().join(" | ")
}

/// A trace of the protocol holds JWTs, and a mistaken configuration may hold a seed. Neither may reach an error.
fn without_secrets(line: &str) -> String {
    let in_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '=');
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while !rest.is_empty() {
        let end = rest.find(|c| !in_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        clean.push_str(if looks_secret(word) { "(secret)" } else { word });
        let next = after.find(in_word).unwrap_or(after.len());
        let (between, after) = after.split_at(next);
        clean.push_str(between);
        rest = after;
    }
    clean
}

/// Base64 of `{"` starts every JWT; a seed is an S and at least 57 more letters of base32.
fn looks_secret(word: &str) -> bool {
    let base32 = |c: u8| c.is_ascii_uppercase() || (b'2'..=b'7').contains(&c);
    word.contains("eyJ") && word.len() >= 24 || word.starts_with('S') && word.len() >= 58 && word.bytes().all(base32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_lines_after_the_mark() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let old = "from the run before\n";
        let new: String = (0..40).map(|n| format!("line {n}\n\n")).collect();
        std::fs::write(&path, format!("{old}{new}")).unwrap();
        let text = tail(&path, old.len() as u64);
        assert!(text.starts_with("line 28 | line 29"), "{text}");
        assert!(text.ends_with("line 39"), "{text}");
        assert_eq!(tail(&path, (old.len() + new.len()) as u64), "(the log is empty)");
        assert!(tail(&dir.path().join("none"), 0).contains("cannot be read"));
    }

    #[test]
    fn takes_out_what_looks_like_a_secret() {
        let jwt = "eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.eyJqdGkiOiJ4In0.sig-_x";
        let seed = format!("SU{}", "A2".repeat(28));
        let line = format!("[TRC] <<- CONNECT {{\"jwt\":\"{jwt}\",\"name\":\"a\"}} seed:{seed} größe SUBSCRIBE");
        let clean = without_secrets(&line);
        assert_eq!(clean, "[TRC] <<- CONNECT {\"jwt\":\"(secret)\",\"name\":\"a\"} seed:(secret) größe SUBSCRIBE");
    }
}
