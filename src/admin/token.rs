//! The bearer token of the admin server: where it is kept, how it is compared, how it is renewed.
//!
//! Owns the file's rules and the comparison. The token itself is never kept, shown or logged: only its digest is held.

use std::{
    fmt,
    fs::File,
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::time::{Instant, timeout};

/// Shorter ones can be guessed.
const MIN_CHARS: usize = 16;
/// Longer ones are another file.
const MAX_BYTES: u64 = 4096;
/// How old what was read may be before the file is looked at again.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// How long a look at the file may keep a request waiting.
const READ_PATIENCE: Duration = Duration::from_secs(1);

/// Why a token file cannot be used. Never holds content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// The operating system refused.
    #[error("token file `{path}` cannot be read: {reason}; create it with mode 0600 and one line of at least 16 characters", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The refusal.
        reason: String,
    },
    /// Others may read it.
    #[error("token file `{path}` has mode {mode:04o} and others may read it; run `chmod 600 {path}`", path = .path.display())]
    Loose {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It holds no token.
    #[error("token file `{path}` {why}; write one line of at least 16 visible characters, such as the output of `openssl rand -hex 32`", path = .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, without the content.
        why: &'static str,
    },
}

/// A bearer token, for whoever presents it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Reads a token file, which only its owner may read. The mode is taken from the open file, and nothing that could
    /// block, such as a pipe, is waited for.
    ///
    /// # Errors
    /// See [`TokenFault`].
    pub fn read(path: &Path) -> Result<Self, TokenFault> {
        let unreadable = |error: io::Error| TokenFault::Unreadable { path: path.to_owned(), reason: error.to_string() };
        let malformed = |why| TokenFault::Malformed { path: path.to_owned(), why };
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file = File::options().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
        let meta = file.metadata().map_err(unreadable)?;
        if !meta.is_file() {
            return Err(malformed("is no regular file"));
        }
        let mode = meta.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(TokenFault::Loose { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        let read = file.take(MAX_BYTES + 1).read_to_string(&mut text);
        match read {
            Ok(bytes) if bytes as u64 > MAX_BYTES => return Err(malformed("is longer than 4096 bytes")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(malformed("is not text")),
            Err(error) => return Err(unreadable(error)),
        }
        let token = text.trim_end_matches(['\n', '\r']);
        if token.len() < MIN_CHARS {
            return Err(malformed("holds fewer than 16 characters"));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(malformed("holds more than one line, or a character that is not visible ASCII"));
        }
        Ok(Self(token.to_owned()))
    }

    /// The value of the `Authorization` header. For the request alone.
    #[must_use]
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

/// Judges presented tokens. A token file that is replaced counts within a second; one that becomes unusable leaves the
/// token that was read last in force, so that nobody is locked out by half a write.
#[derive(Clone)]
pub struct TokenGuard {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    held: Mutex<Held>,
}

#[derive(Clone, Copy)]
struct Held {
    digest: [u8; 32],
    looked_at: Instant,
    is_stale: bool,
}

impl fmt::Debug for TokenGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenGuard").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

impl TokenGuard {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// See [`TokenFault`].
    pub fn open(path: &Path) -> Result<Self, TokenFault> {
        let digest = Token::read(path)?.digest();
        let held = Mutex::new(Held { digest, looked_at: Instant::now(), is_stale: false });
        Ok(Self { inner: Arc::new(Inner { path: path.to_owned(), held }) })
    }

    /// Whether an `Authorization` header lets its sender in. Takes as long for a token that is nearly right as for one
    /// that is not.
    pub async fn admits(&self, header: Option<&str>) -> bool {
        self.refresh().await;
        let presented = header.and_then(bearer).unwrap_or_default();
        let digest: [u8; 32] = Sha256::digest(presented.as_bytes()).into();
        let held = self.held();
        bool::from(digest.ct_eq(&held.digest)) && !presented.is_empty()
    }

    /// Looks at the file again where the last look is old.
    async fn refresh(&self) {
        {
            let mut held = self.inner.held.lock().unwrap_or_else(PoisonError::into_inner);
            if held.looked_at.elapsed() < FRESH_FOR {
                return;
            }
            // Set before the look, so that a flood of requests costs one look.
            held.looked_at = Instant::now();
        }
        let path = self.inner.path.clone();
        let read = tokio::task::spawn_blocking(move || Token::read(&path));
        let Ok(Ok(read)) = timeout(READ_PATIENCE, read).await else { return };
        let mut held = self.inner.held.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(token) => {
                let digest = token.digest();
                if digest != held.digest {
                    tracing::info!(path = %self.inner.path.display(), "the admin token was replaced");
                }
                (held.digest, held.is_stale) = (digest, false);
            }
            Err(fault) if !held.is_stale => {
                held.is_stale = true;
                tracing::warn!(%fault, "the admin token that was read last stays in force");
            }
            Err(_) => {}
        }
    }

    fn held(&self) -> Held {
        *self.inner.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The credentials of the scheme `Bearer`, whose name has no case.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_matches(' '))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    const GOOD: &str = "0123456789abcdefghij";

    fn file(dir: &tempfile::TempDir, content: &[u8], mode: u32) -> PathBuf {
        let path = dir.path().join("token");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_token_file_is_private_short_and_one_line() {
        let dir = tempfile::TempDir::new().unwrap();
        assert!(Token::read(&file(&dir, format!("{GOOD}\n").as_bytes(), 0o600)).is_ok());
        assert!(Token::read(&file(&dir, format!("{GOOD}\r\n").as_bytes(), 0o400)).is_ok());
        let refused: [(&[u8], u32, &str); 7] = [
            (GOOD.as_bytes(), 0o640, "mode 0640"),
            (GOOD.as_bytes(), 0o604, "chmod 600"),
            (b"short\n", 0o600, "fewer than 16"),
            (b"", 0o600, "fewer than 16"),
            (b"0123456789abcdefghij\nsecond", 0o600, "more than one line"),
            (b"\xff\xfe0123456789abcdefghij", 0o600, "is not text"),
            (&[b'a'; 5000], 0o600, "longer than 4096"),
        ];
        for (content, mode, part) in refused {
            let fault = Token::read(&file(&dir, content, mode)).unwrap_err().to_string();
            assert!(fault.contains(part), "{fault}");
            assert!(!fault.contains(GOOD), "{fault}");
        }
        assert!(Token::read(dir.path()).unwrap_err().to_string().contains("no regular file"));
        assert!(Token::read(&dir.path().join("none")).unwrap_err().to_string().contains("create it"));
    }

    #[test]
    fn nothing_shows_the_token() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = file(&dir, GOOD.as_bytes(), 0o600);
        let shown = format!("{:?} {:?}", Token::read(&path).unwrap(), TokenGuard::open(&path).unwrap());
        assert!(!shown.contains(GOOD), "{shown}");
    }

    #[test]
    fn the_scheme_has_no_case_and_nothing_else_is_a_bearer() {
        assert_eq!(bearer("bEARER  abc "), Some("abc"));
        for other in ["abc", "Basic abc", "Bearerabc", ""] {
            assert_eq!(bearer(other), None, "{other}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_file_counts_and_a_broken_one_changes_nothing() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = file(&dir, GOOD.as_bytes(), 0o600);
        let guard = TokenGuard::open(&path).unwrap();
        let (old, new) = (format!("Bearer {GOOD}"), format!("Bearer {}", GOOD.to_uppercase()));
        assert!(guard.admits(Some(&old)).await);
        for wrong in [None, Some("Bearer "), Some("Bearer 0123456789abcdefghi"), Some(GOOD), Some(new.as_str())] {
            assert!(!guard.admits(wrong).await, "{wrong:?}");
        }
        file(&dir, GOOD.to_uppercase().as_bytes(), 0o600);
        tokio::time::advance(FRESH_FOR).await;
        assert!(guard.admits(Some(&new)).await && !guard.admits(Some(&old)).await);
        file(&dir, b"", 0o600);
        tokio::time::advance(FRESH_FOR).await;
        assert!(guard.admits(Some(&new)).await, "half a write locks nobody out");
        assert!(!guard.admits(Some("Bearer ")).await);
    }
}
