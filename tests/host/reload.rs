//! Each way of changing a manifest: noticed, applied once, and only what changed is touched.

use std::{fs, os::unix::fs::symlink, time::Duration};

use lanekeeper::supervisor::HostStatus;
use tokio::time::Instant;

use crate::fleet::{Fleet, Host, identity, lane};

const SPACES: [&str; 3] = ["ada", "bob", "cyd"];
const ROUNDS: u64 = 5;
/// How often the configuration of these tests polls.
const POLL: Duration = Duration::from_secs(2);

/// The manifest with the ack wait of `bob` at its `round`th value.
fn manifest(fleet: &Fleet, round: u64) -> String {
    format!("{}{}{}", fleet.entry("ada"), fleet.tuned("bob", 10_000 + round), fleet.entry("cyd"))
}

/// Waits until generation `wanted` is applied, and gives the time that took.
async fn applied(host: &Host, wanted: u64) -> (HostStatus, Duration) {
    let began = Instant::now();
    let is = |status: &HostStatus| {
        status.generation >= wanted && status.last_reload.as_ref().is_some_and(|last| last.applied && last.settled)
    };
    let status = host.until(&format!("generation {wanted}"), is).await;
    assert_eq!(status.generation, wanted, "a change was applied more than once:\n{}", host.log_tail());
    (status, began.elapsed())
}

/// Changes the manifest `ROUNDS` times with `change`; each is applied once and touches nothing but bob's limits.
async fn each_change_is_applied_once(fleet: &Fleet, host: Host, change: impl Fn(u64)) {
    let before = host.until_serving(&SPACES).await;
    let (_, first) = (applied(&host, before.generation).await, before.generation);
    let identities =
        (identity(fleet, &host, "ada").await, identity(fleet, &host, "bob").await, identity(fleet, &host, "cyd").await);
    let mut slowest = Duration::ZERO;
    for round in 1..=ROUNDS {
        change(round);
        let (status, took) = applied(&host, first + round).await;
        slowest = slowest.max(took);
        let last = status.last_reload.unwrap();
        let retuned: Vec<&str> = last.retuned.iter().map(lanekeeper_wire::Space::as_str).collect();
        assert_eq!((retuned, last.unchanged), (vec!["bob"], 2), "{}", last.plan);
        assert!(last.plan.contains(&format!("to {}", 10_000 + round)), "{}", last.plan);
    }
    eprintln!("slowest of {ROUNDS}: {slowest:?}");
    // A reload that is asked for finds nothing left to do.
    host.hang_up();
    let is_asked = |status: &HostStatus| status.reloads_applied > first + ROUNDS;
    let status = host.until("asked", is_asked).await;
    assert_eq!((status.generation, status.last_reload.unwrap().unchanged), (first + ROUNDS, 3));
    let after =
        (identity(fleet, &host, "ada").await, identity(fleet, &host, "bob").await, identity(fleet, &host, "cyd").await);
    assert_eq!(identities, after, "a lane was touched");
    host.stop().await;
    fleet.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn written_in_place() {
    let fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.toml", &manifest(&fleet, 0));
    let host = fleet.start().await;
    each_change_is_applied_once(&fleet, host, |round| fleet.write("conf/spaces.toml", &manifest(&fleet, round))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_over() {
    let fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.toml", &manifest(&fleet, 0));
    let host = fleet.start().await;
    let change = |round| fleet.replace("conf/spaces.toml", &manifest(&fleet, round));
    each_change_is_applied_once(&fleet, host, change).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_by_data_link() {
    let fleet = Fleet::new(&SPACES).await;
    let swap = |round: u64| {
        fleet.write(&format!("conf/..{round}/spaces.toml"), &manifest(&fleet, round));
        symlink(format!("..{round}"), fleet.path("conf/..next")).unwrap();
        fs::rename(fleet.path("conf/..next"), fleet.path("conf/..data")).unwrap();
        if round > 0 {
            fs::remove_dir_all(fleet.path(&format!("conf/..{}", round - 1))).unwrap();
        }
    };
    swap(0);
    symlink("..data/spaces.toml", fleet.path("conf/spaces.toml")).unwrap();
    let host = fleet.start().await;
    each_change_is_applied_once(&fleet, host, swap).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_directory_that_is_replaced() {
    let fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.d/all.toml", &manifest(&fleet, 0));
    let host = fleet.start_with("one", "", "conf/spaces.d", &[], &[]).await;
    let change = |round| {
        fleet.write("conf/next/all.toml", &manifest(&fleet, round));
        fs::rename(fleet.path("conf/spaces.d"), fleet.path(&format!("conf/old{round}"))).unwrap();
        fs::rename(fleet.path("conf/next"), fleet.path("conf/spaces.d")).unwrap();
    };
    each_change_is_applied_once(&fleet, host, change).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn found_by_polling_alone() {
    let fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.toml", &manifest(&fleet, 0));
    let host = fleet.start_with("one", "", "conf/spaces.toml", &["--no-watch"], &[]).await;
    assert!(!host.until_serving(&SPACES).await.watching);
    each_change_is_applied_once(&fleet, host, |round| fleet.write("conf/spaces.toml", &manifest(&fleet, round))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn found_by_polling_where_the_system_refuses_watches() {
    // A user namespace of its own, in which nobody may have an inotify instance.
    let shell = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$0\" \"$@\"";
    let within = ["unshare", "--user", "--map-root-user", "sh", "-c", shell];
    let probe = std::process::Command::new(within[0]).args(&within[1..]).arg("true").status();
    let within = if probe.is_ok_and(|status| status.success()) { &within[..] } else { &[] };
    let args: &[&str] = if within.is_empty() { &["--no-watch"] } else { &[] };
    let fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.toml", &manifest(&fleet, 0));
    let host = fleet.start_with("one", "", "conf/spaces.toml", args, within).await;
    assert!(!host.until_serving(&SPACES).await.watching);
    if !within.is_empty() {
        assert!(host.daemon.log_text().contains("noticed by polling"), "it does not say so:\n{}", host.log_tail());
    }
    each_change_is_applied_once(&fleet, host, |round| fleet.write("conf/spaces.toml", &manifest(&fleet, round))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_and_created_again() {
    let fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.toml", &manifest(&fleet, 0));
    let host = fleet.start().await;
    host.until_serving(&SPACES).await;
    let before = identity(&fleet, &host, "ada").await;
    for round in 1..=3 {
        fs::remove_file(fleet.path("conf/spaces.toml")).unwrap();
        let status = host.until("refused", |status| status.reloads_refused == round).await;
        assert_eq!((status.lanes.len(), status.generation), (3, round));
        fleet.write("conf/spaces.toml", &manifest(&fleet, round));
        applied(&host, 1 + round).await;
    }
    assert_eq!(before, identity(&fleet, &host, "ada").await);
    host.stop().await;
    fleet.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn created_only_after_the_start() {
    for manifest_path in ["conf/spaces.toml", "later/deeper/spaces.toml"] {
        let fleet = Fleet::new(&["ada"]).await;
        let host = fleet.start_with("one", "", manifest_path, &[], &[]).await;
        let status = host.until("refused", |status| status.reloads_refused == 1).await;
        assert!(!status.ready && status.lanes.is_empty());
        let reason = &status.last_reload.unwrap().refused[0].1;
        assert!(reason.contains("does not exist"), "{reason}");
        fleet.write(manifest_path, &fleet.entry("ada"));
        assert!(host.until_serving(&["ada"]).await.ready);
        host.stop().await;
        fleet.assert_no_violations();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spaces_come_and_go_with_their_files() {
    let mut fleet = Fleet::new(&SPACES).await;
    for space in SPACES {
        fleet.write(&format!("conf/spaces.d/{space}.toml"), &fleet.entry(space));
    }
    let host = fleet.start_with("one", "", "conf/spaces.d", &[], &[]).await;
    host.until_serving(&SPACES).await;
    let before = (identity(&fleet, &host, "ada").await, identity(&fleet, &host, "cyd").await);
    fleet.add("dan").await;
    let began = Instant::now();
    fleet.replace("conf/spaces.d/dan.toml", &fleet.entry("dan"));
    host.until_serving(&["ada", "bob", "cyd", "dan"]).await;
    eprintln!("added and serving after {:?}", began.elapsed());
    fs::remove_file(fleet.path("conf/spaces.d/bob.toml")).unwrap();
    let status = host.until_serving(&["ada", "cyd", "dan"]).await;
    assert!(lane(&status, "bob").is_none());
    assert_eq!(fleet.connections("bob").await, [0u64; 0], "a removed lane has a connection");
    fleet.replace("conf/spaces.d/bob.toml", &fleet.entry("bob"));
    let status = host.until_serving(&["ada", "bob", "cyd", "dan"]).await;
    assert_eq!((status.generation, status.reloads_refused), (4, 0));
    assert_eq!(before, (identity(&fleet, &host, "ada").await, identity(&fleet, &host, "cyd").await));
    host.stop().await;
    fleet.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_reloaded_while_nothing_changes() {
    let fleet = Fleet::new(&["ada"]).await;
    fleet.write("conf/spaces.toml", &fleet.entry("ada"));
    let host = fleet.start().await;
    host.until_serving(&["ada"]).await;
    // Reading is what an event handler must not take for a change; and several polls pass.
    let began = Instant::now();
    while began.elapsed() < POLL * 4 {
        fs::read(fleet.path("conf/spaces.toml")).unwrap();
        let status = host.status().unwrap();
        assert_eq!((status.generation, status.reloads_applied, status.reloads_refused), (1, 1, 0));
        tokio::task::yield_now().await;
    }
    let looks = host.daemon.log_text().matches("manifest applied").count();
    assert_eq!(looks, 1);
    host.stop().await;
}
