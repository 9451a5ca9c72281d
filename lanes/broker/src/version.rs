//! The version of a `nats-server`: reading it and comparing it.
//!
//! Owns no process: who asks a binary for its version is `find`'s business.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// The oldest broker this project accepts: atomic batches and message schedules came with it.
pub const MIN_VERSION: Version = Version::new(2, 12, 0);

/// A `nats-server` version. A pre-release sorts before its release, as in semantic versioning.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Version {
    /// First number.
    pub major: u64,
    /// Second number.
    pub minor: u64,
    /// Third number.
    pub patch: u64,
    /// Pre-release part without its dash (`RC.1`); empty for a release.
    pub pre: String,
}

/// The text is not a `nats-server` version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a nats-server version: {0:?} (expected something like `nats-server: v2.15.1`)")]
pub struct ParseVersionError(String);

impl Version {
    /// A release version.
    pub const fn new(major: u64, minor: u64, patch: u64) -> Self {
        Self { major, minor, patch, pre: String::new() }
    }

    /// Whether this is [`MIN_VERSION`] or newer. A pre-release of the minimum is older than it.
    pub fn is_supported(&self) -> bool {
        *self >= MIN_VERSION
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if self.pre.is_empty() { Ok(()) } else { write!(f, "-{}", self.pre) }
    }
}

impl FromStr for Version {
    type Err = ParseVersionError;

    /// Reads `2.15.1`, `v2.12.0-RC.1`, or the whole line `nats-server: v2.15.1` that the binary prints for `-v`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Only the start of a stranger's output goes into the error.
        let bad = || ParseVersionError(text.trim().chars().take(80).collect());
        let rest = text.trim();
        let rest = rest.strip_prefix("nats-server:").map_or(rest, str::trim_start);
        let rest = rest.strip_prefix('v').unwrap_or(rest);
        let rest = rest.split_once('+').map_or(rest, |(version, _build)| version);
        let (numbers, pre) = match rest.split_once('-') {
            Some((_, "")) => return Err(bad()),
            Some((numbers, pre)) => (numbers, pre),
            None => (rest, ""),
        };
        if !pre.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '-') {
            return Err(bad());
        }
        let mut parts = numbers.split('.').map(number);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Some(major)), Some(Some(minor)), Some(Some(patch)), None) => {
                Ok(Self { major, minor, patch, pre: pre.to_owned() })
            }
            (Some(_) | None, ..) => Err(bad()),
        }
    }
}

/// Digits only: `u64::from_str` would also take a plus sign.
fn number(part: &str) -> Option<u64> {
    part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok()).flatten()
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.major, self.minor, self.patch)
            .cmp(&(other.major, other.minor, other.patch))
            .then_with(|| compare_pre(&self.pre, &other.pre))
            // `RC.01` and `RC.1` are equal as numbers; the order must agree with `Eq`.
            .then_with(|| self.pre.cmp(&other.pre))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A release is newer than its pre-releases; their dotted parts compare as numbers where both are numbers, and a
/// number is older than a word.
fn compare_pre(left: &str, right: &str) -> Ordering {
    if left.is_empty() || right.is_empty() {
        return left.is_empty().cmp(&right.is_empty());
    }
    let (mut left, mut right) = (left.split('.'), right.split('.'));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(l), Some(r)) => match (number(l), number(r)) {
                (Some(l), Some(r)) => l.cmp(&r),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => l.cmp(r),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn reads_what_the_binary_prints_and_plain_numbers() {
        assert_eq!(v("nats-server: v2.15.1\n"), Version::new(2, 15, 1));
        assert_eq!(v("2.12.8"), Version::new(2, 12, 8));
        assert_eq!(v("v2.12.0-RC.1"), Version { pre: "RC.1".into(), ..Version::new(2, 12, 0) });
        assert_eq!(v("2.14.0+build.7"), Version::new(2, 14, 0));
        assert_eq!(v("2.12.0-RC.1").to_string(), "2.12.0-RC.1");
        assert_eq!(v("nats-server: v2.15.1").to_string(), "2.15.1");
    }

    #[test]
    fn refuses_what_is_no_version() {
        for text in ["", "2", "2.15", "2.15.1.4", "2.15.x", "+2.15.1", "2.+1.0", "2..1", "2.15.1-", "nats: v2.15.1"] {
            assert!(text.parse::<Version>().is_err(), "{text:?} was read as a version");
        }
        assert!("2.12.0-a b".parse::<Version>().is_err());
        assert!("99999999999999999999.0.0".parse::<Version>().is_err());
    }

    #[test]
    fn an_error_holds_only_the_start_of_the_text() {
        let error = "x".repeat(10_000).parse::<Version>().unwrap_err();
        assert!(error.to_string().len() < 200);
    }

    #[test]
    fn compares_by_number_and_puts_a_pre_release_before_its_release() {
        let ascending = [
            "2.9.10",
            "2.10.26",
            "2.11.11",
            "2.12.0-1",
            "2.12.0-RC.1",
            "2.12.0-RC.2",
            "2.12.0-RC.10",
            "2.12.0-beta",
            "2.12.0-beta.1",
            "2.12.0",
            "2.12.8",
            "2.15.1",
            "3.0.0-dev",
        ];
        for pair in ascending.windows(2) {
            assert!(v(pair[0]) < v(pair[1]), "{} is not older than {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn knows_what_is_supported() {
        assert!(v("2.12.0").is_supported());
        assert!(v("2.13.0-RC.1").is_supported());
        assert!(!v("2.12.0-RC.1").is_supported());
        assert!(!v("2.11.11").is_supported());
    }
}
