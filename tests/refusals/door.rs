//! One refused start, looked at from outside: the exit code, the last words, the lease bucket, the connections.
//!
//! Daemons come through a relay, so that it can be told whether one has dialled at all.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use lanekeeper_broker::{Relay, wait_until};
use lanekeeper_provision::{lane_files, private_file};

use crate::support::{Daemon, PATIENCE, Power, SPACE, World};

/// A world that nobody serves, and the only way to its broker.
pub(crate) struct Door {
    pub(crate) world: World,
    pub(crate) relay: Relay,
    pub(crate) power: Power,
    starts: AtomicUsize,
    copies: AtomicUsize,
}

impl Door {
    pub(crate) async fn open() -> Self {
        Self::of(World::new().await).await
    }

    pub(crate) async fn of(world: World) -> Self {
        let relay = Relay::start(world.mesh.broker.addr()).await.unwrap();
        let power = world.power().await;
        Self { world, relay, power, starts: AtomicUsize::new(0), copies: AtomicUsize::new(0) }
    }

    /// A copy of the lane's directory to be damaged. It lies where the search for secrets finds it.
    pub(crate) fn lane(&self) -> PathBuf {
        self.copy_of(&self.world.site.credentials)
    }

    /// The same of any lane's directory.
    pub(crate) fn copy_of(&self, lane: &Path) -> PathBuf {
        let copies = self.world.mesh.dir().join("copies");
        let copy = copies.join(self.copies.fetch_add(1, Ordering::SeqCst).to_string());
        private_file::ensure_private_dir(&copies).unwrap();
        private_file::ensure_private_dir(&copy).unwrap();
        for name in [
            lane_files::DELIVERY,
            lane_files::MEMBERSHIP_RW,
            lane_files::MEMBERSHIP_OBSERVER,
            lane_files::CONNECTION_EVICTOR,
        ] {
            fs::copy(lane.join(name), copy.join(name)).unwrap();
        }
        copy
    }

    /// Starts a daemon on these files, with a log of its own.
    pub(crate) fn start(&self, lane: &Path) -> Daemon {
        self.start_at(lane, &self.relay.url())
    }

    /// The same against any server.
    pub(crate) fn start_at(&self, lane: &Path, server: &str) -> Daemon {
        let log = self.world.log_named(&format!("start-{}", self.starts.fetch_add(1, Ordering::SeqCst)));
        let lane = lane.display().to_string();
        Daemon::command(&["serve", "--space", SPACE, "--server", server, "--credentials", &lane], &log)
    }

    /// Expects a start on these files to be refused with `code`, in words that hold all `parts`, and to leave nothing.
    pub(crate) async fn refused(&self, lane: &Path, code: &str, parts: &[&str]) -> String {
        let before = self.power.lease_writes().await;
        let words = refused(self.start(lane), code, parts).await;
        assert_eq!(self.power.lease_writes().await, before, "the lease bucket was written to: {words}");
        self.none_connected().await;
        words
    }

    /// The same for a fault that shows without the broker.
    pub(crate) async fn refused_undialled(&self, lane: &Path, code: &str, parts: &[&str]) -> String {
        let accepted = self.relay.accepted();
        let words = self.refused(lane, code, parts).await;
        assert_eq!(self.relay.accepted(), accepted, "it dialled: {words}");
        words
    }

    /// Waits until no daemon is connected any more.
    pub(crate) async fn none_connected(&self) {
        let none = async || (self.relay.connections() == 0).then_some(());
        wait_until("the end of its connection", PATIENCE, none).await.unwrap();
    }
}

/// Waits for the daemon's end and returns its last words, which must hold the space, `code` and all `parts`.
pub(crate) async fn refused(mut daemon: Daemon, code: &str, parts: &[&str]) -> String {
    let status = daemon.ended(PATIENCE).await;
    let log = daemon.log_text();
    assert_eq!(status.code(), Some(1), "{log}");
    let words = last_words(&log);
    assert!(words.starts_with(&format!("lanekeeper: space `{SPACE}`: ")), "{words}");
    assert!(words.ends_with(&format!(" [{code}]")), "{words} is not {code}");
    for part in parts {
        assert!(words.contains(part), "{words} does not say {part}");
    }
    eprintln!("{words}");
    words
}

/// The one line a refused daemon ends with.
pub(crate) fn last_words(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| line.starts_with("lanekeeper: ")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    // Tasks of the client may still log, each line with its time; the rest of a fault in two lines would have none.
    let after = log.lines().skip_while(|line| *line != lines[0]).skip(1);
    after.for_each(|line| {
        assert!(line.trim_start_matches("\u{1b}[2m").starts_with("20"), "the last words go on in {line:?}")
    });
    lines[0].to_owned()
}
