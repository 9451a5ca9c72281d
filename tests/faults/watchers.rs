//! What the tests of this binary look at: the lease row, and a daemon that goes on under one process id.

use std::time::Duration;

use lanekeeper_broker::wait_until;
use lanekeeper_wire::LeaseRow;

use crate::support::{Daemon, PATIENCE, Power};

/// Waits until the lease is held by a run that serves.
pub(crate) async fn held(power: &Power) -> LeaseRow {
    let row = async || power.lease_row().await.filter(|row| row.ready);
    wait_until("a ready lease", PATIENCE, row).await.unwrap()
}

/// Waits until the lease is held by nobody.
pub(crate) async fn free(power: &Power, within: Duration) {
    let gone = async || power.lease_row().await.is_none().then_some(());
    wait_until("a free lease", within, gone).await.unwrap();
}

/// Waits until the daemon has logged `text`.
pub(crate) async fn logged(daemon: &Daemon, text: &str, within: Duration) {
    let found = async || daemon.log_text().contains(text).then_some(());
    if let Err(late) = wait_until(text, within, found).await {
        panic!("{late}:\n{}", daemon.log_text());
    }
}

/// The line a refused daemon ends with. There is exactly one.
pub(crate) fn last_words(daemon: &Daemon) -> String {
    let log = daemon.log_text();
    let lines: Vec<&str> = log.lines().filter(|line| line.starts_with("lanekeeper: ")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    lines[0].to_owned()
}
