//! What is wrong with a configuration file or a manifest: where, what, why, and what to do.
//!
//! Owns the one list type for both. It must not decide what is wrong.

use std::{fmt, path::PathBuf};

use serde::Serialize;

/// Longest piece of a file that a message repeats, characters.
const SHOWN_CHARS: usize = 60;

/// One fault of one file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ConfigFault {
    /// The file or directory, as it was named.
    pub file: PathBuf,
    /// The line, from 1. A file that cannot be read has its fault in line 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// What is wrong, why that matters, and what to do; one line.
    pub message: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file.display(), self.line, self.column, self.message)
    }
}

/// Every fault of every file that was read, sorted by place. Shown as one line each, never empty where it is an error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Faults(pub Vec<ConfigFault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{fault}")?;
        }
        Ok(())
    }
}

impl Faults {
    /// The only fault, at the start of `file`: for what has no line of its own.
    #[must_use]
    pub fn of_file(file: impl Into<PathBuf>, message: String) -> Self {
        Self(vec![ConfigFault { file: file.into(), line: 1, column: 1, message }])
    }

    /// `value`, unless there are faults.
    ///
    /// # Errors
    /// Every fault, sorted by file and place.
    pub(crate) fn or<T>(mut self, value: Option<T>) -> Result<T, Self> {
        self.0.sort();
        self.0.dedup();
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            Some(_) | None => Err(self),
        }
    }
}

/// A piece of a file for a message: one line, escaped, cut where it is long.
pub(crate) fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_a_file_stays_one_short_line() {
        assert_eq!(shown("a\n\u{1b}[31mb"), "a\\n\\u{1b}[31mb");
        assert_eq!(shown(&"é".repeat(100)), format!("{}…", "é".repeat(SHOWN_CHARS)));
    }

    #[test]
    fn faults_are_sorted_and_told_once() {
        let fault = |line| ConfigFault { file: "a.toml".into(), line, column: 1, message: "no".into() };
        let faults = Faults(vec![fault(3), fault(1), fault(3)]).or(Some(())).unwrap_err();
        assert_eq!(faults.to_string(), "a.toml:1:1: no\na.toml:3:1: no");
        assert_eq!(Faults::default().or(Some(7)), Ok(7));
    }
}
