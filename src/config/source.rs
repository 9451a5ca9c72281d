//! The text of one file, read once and whole, and places in it.
//!
//! Owns reading without waiting, the size limit, UTF-8, the check for a cut end, and the way from a byte to line and
//! column. It must not know what the text means.

use std::{
    fs,
    io::Read as _,
    ops::Range,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use super::fault::ConfigFault;

/// Largest file that is read, bytes: ten thousand spaces fit.
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// Most faults of one file that are listed; past that the file is something else altogether.
const MAX_FAULTS: usize = 200;

/// The text of one file.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It is missing, unreadable, no regular file, too large, not UTF-8, empty, or was cut short.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigFault> {
        let refused = |what: String| ConfigFault { file: path.to_owned(), line: 1, column: 1, message: what };
        let bytes = bytes_of(path).map_err(refused)?;
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let start = String::from_utf8_lossy(&error.as_bytes()[..at]).into_owned();
                let (line, column) = place(&start, start.len());
                let message = "the file is not UTF-8 text: it is damaged or of another kind; write it again".to_owned();
                return Err(ConfigFault { file: path.to_owned(), line, column, message });
            }
        };
        Self::of(path, text)
    }

    /// The same for a text that is already there.
    ///
    /// # Errors
    /// It is empty or was cut short.
    pub(crate) fn of(path: &Path, text: String) -> Result<Self, ConfigFault> {
        let source = Self { path: path.to_owned(), text };
        if source.text.trim().is_empty() {
            return Err(source.fault(0..0, EMPTY.to_owned()));
        }
        if !source.text.ends_with('\n') {
            return Err(source.fault(source.text.len()..source.text.len(), CUT.to_owned()));
        }
        Ok(source)
    }

    /// Its path as it was named.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The line and column of a byte, from 1; a byte past the end is the last one.
    pub(crate) fn place(&self, at: usize) -> (usize, usize) {
        place(&self.text, at.min(self.text.len().saturating_sub(1)))
    }

    /// A fault at a place of the file.
    pub(crate) fn fault(&self, at: Range<usize>, message: String) -> ConfigFault {
        let (line, column) = self.place(at.start);
        ConfigFault { file: self.path.clone(), line, column, message }
    }

    /// The faults of this file, as many as help.
    pub(crate) fn faults(&self, found: Vec<(Range<usize>, String)>) -> Vec<ConfigFault> {
        let left_out = found.len().saturating_sub(MAX_FAULTS);
        let mut faults: Vec<_> =
            found.into_iter().take(MAX_FAULTS).map(|(at, message)| self.fault(at, message)).collect();
        if left_out > 0 {
            let message = format!("{left_out} more faults in this file are not listed: is it the right file?");
            faults.push(self.fault(self.text.len()..self.text.len(), message));
        }
        faults
    }

    /// `named` as seen from the directory of this file.
    pub(crate) fn beside(&self, named: &str) -> PathBuf {
        self.path.parent().unwrap_or_else(|| Path::new("")).join(named)
    }

    /// The same, from the root.
    ///
    /// # Errors
    /// There is no current directory to start a relative path from.
    pub(crate) fn resolve(&self, named: &str) -> Result<PathBuf, std::io::Error> {
        std::path::absolute(self.beside(named))
    }
}

const EMPTY: &str = "the file is empty: an empty file is taken for a broken write, never for `nothing`; write it again, \
                     or say `allow_empty = true` in the manifest where no space is wanted";
const CUT: &str = "the last line has no line end: the file was cut short, or is still being written; write it whole, \
                   beside its place, and rename it over";

fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    // Without waiting: the opening of a FIFO in its place would otherwise block for good.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let unreadable = |error: std::io::Error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            "the file does not exist; create it or name the right one".to_owned()
        } else {
            format!("the file cannot be read: {error}; let the user that runs this read it")
        }
    };
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    let is_file = file.metadata().map_err(unreadable)?.is_file();
    if !is_file {
        return Err("this is not a regular file; name a file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("the file has more than {MAX_FILE_BYTES} bytes; split the manifest into a directory"));
    }
    Ok(bytes)
}

/// Line and column of the byte `at`, or of the character it lies in.
fn place(text: &str, at: usize) -> (usize, usize) {
    let start = text.floor_char_boundary(at);
    let before = &text[..start];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_from_one() {
        let source = Source::of(Path::new("a"), "é = 1\nb\n".into()).unwrap();
        assert_eq!(source.place(0), (1, 1));
        assert_eq!(source.place(1), (1, 1), "inside a character");
        assert_eq!(source.place(2), (1, 2));
        assert_eq!(source.place(7), (2, 1));
        assert_eq!(source.place(usize::MAX), (2, 2), "past the end");
    }

    #[test]
    fn many_faults_are_counted_and_not_listed() {
        let source = Source::of(Path::new("a"), "b\n".into()).unwrap();
        let found = vec![(0..1, "no".to_owned()); MAX_FAULTS + 3];
        let faults = source.faults(found);
        assert_eq!(faults.len(), MAX_FAULTS + 1);
        assert!(faults[MAX_FAULTS].message.starts_with("3 more faults"));
    }
}
