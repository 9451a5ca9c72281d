//! `lanekeeper check` as a process: what it prints, its exit code, and that it leaves no lease behind.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use lanekeeper::mesh::Site;
use lanekeeper_provision::{DeliveryExtras, LaneCredentialSettings, SpaceSettings, Validity};
use lanekeeper_wire::{Bucket, LEASE_KEY, StreamKind};

use crate::{
    files::{Files, assert_lines, space},
    support::World,
};

/// Exit code, standard output and standard error.
fn check(dir: &Path, args: &[&str]) -> (i32, Vec<String>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanekeeper"));
    let output = command
        .arg("check")
        .args(args)
        .current_dir(dir)
        // Not what this machine may have in its standard places.
        .env("LANEKEEPER_CONFIG", "lanekeeper.toml")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    (output.status.code().unwrap(), lines, String::from_utf8(output.stderr).unwrap())
}

/// The cells of the table row of a space.
fn row(lines: &[String], space: &str) -> Vec<String> {
    let line = lines.iter().find(|line| line.starts_with(&format!("{space} "))).unwrap_or_else(|| panic!("{lines:#?}"));
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
}

#[test]
fn the_faults_of_both_files_are_told_at_once() {
    let files = Files::new();
    files.write("lanekeeper.toml", "manifest = \"m.toml\"\n[limits]\npoll_ms = 1\n");
    files.write("m.toml", "[[space]]\nname = \"a.b\"\ncredentials = \"c\"\n");
    let (code, lines, error) = check(files.dir(), &[]);
    assert_eq!(code, 1);
    assert_lines(
        &lines,
        &[
            "lanekeeper.toml:3:11: `limits.poll_ms` is 1, it must be from 1000 to 3600000: how often the manifest is looked at, milliseconds, where no file event was seen",
            "m.toml:2:8: space \"a.b\" is refused: use 1 to 235 of A-Z, a-z, 0-9, _ and -; it is never rewritten, because two names could become one",
        ],
    );
    assert!(error.contains("2 faults, nothing of it would be applied"), "{error}");
    // Options name other files.
    files.write("good.toml", "allow_empty = true\n");
    files.write("l.toml", "host = \"a\"\n");
    let (code, lines, _) = check(files.dir(), &["--config", "l.toml", "--manifest", "good.toml"]);
    assert_eq!((code, lines[0].as_str()), (0, "config    l.toml"));
    assert!(lines[1].starts_with("manifest  good.toml (0 spaces, content "), "{lines:#?}");
}

/// The manifest of `site` in `files`.
fn manifest(files: &Files, site: &Site) {
    let (name, dir) = (&site.space, site.credentials.display());
    files.write("lanekeeper.toml", "# All defaults.\n");
    files.write(
        "spaces.toml",
        format!("[[space]]\nname = \"{name}\"\ncredentials = \"{dir}\"\nservers = [\"{}\"]\n", site.url),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_space_is_looked_at_offline_and_online() {
    let world = World::new().await;
    let files = Files::new();
    manifest(&files, &world.site);
    let account = format!("{}…", &world.site.account.account_id()[..12]);
    let (code, lines, error) = check(files.dir(), &[]);
    assert_eq!(code, 0, "{lines:#?} {error}");
    assert_eq!(row(&lines, "SPACE"), ["SPACE", "LANE", "CREDENTIALS", "ACCOUNT", "OBSERVER", "EXPIRES"]);
    assert_eq!(row(&lines, "demo"), ["demo", "on", "readable", account.as_str(), "same account", "never"]);
    let (code, lines, error) = check(files.dir(), &["--online"]);
    assert_eq!(code, 0, "{lines:#?} {error}");
    assert_eq!(row(&lines, "demo"), ["demo", "on", "readable", account.as_str(), "same account", "never", "ready"]);
    let leases = world.site.held(&Bucket::Delivery.stream(&world.site.space), ">").await.unwrap();
    assert_eq!(leases, 0, "the check touched `{LEASE_KEY}`");
    world.assert_no_violations();
    // A stream that is missing, and then nobody who answers.
    world.power().await.delete_stream(&StreamKind::Dlv.name(&world.site.space)).await;
    let (code, lines, error) = check(files.dir(), &["--online"]);
    assert_eq!((code, row(&lines, "demo").last().map(String::as_str)), (1, Some("LANE-301")), "{lines:#?}");
    let fault = lines.last().unwrap();
    assert!(fault.starts_with("spaces.toml:2:8: space `demo`: stream `DLV_demo` does not exist"), "{fault}");
    assert!(error.contains("1 fault of single spaces, the other spaces would be served"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_the_broker_does_not_know_shows_only_online() {
    let world = World::new().await;
    let files = Files::new();
    manifest(&files, &world.site);
    let system = world.mesh.home.system_client(&world.site.url).await.unwrap();
    system.delete_account(&world.site.account).await.unwrap();
    system.close().await;
    let (code, lines, _) = check(files.dir(), &["--online"]);
    assert_eq!((code, row(&lines, "demo").last().map(String::as_str)), (1, Some("LANE-106")), "{lines:#?}");
    let (code, lines, _) = check(files.dir(), &[]);
    assert_eq!(code, 0, "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_a_credential_file_is_in_the_row_and_below_the_table() {
    let world = World::with(SpaceSettings::default()).await;
    let other = world
        .mesh
        .space(&"other".parse().unwrap(), &SpaceSettings::default(), &LaneCredentialSettings::default())
        .await
        .unwrap();
    let files = Files::new();
    let dir = &world.site.credentials;
    manifest(&files, &world.site);
    let told = |cells: &[(usize, &str)], part: &str| {
        let (code, lines, _) = check(files.dir(), &[]);
        assert_eq!(code, 1, "{lines:#?}");
        let row = row(&lines, "demo");
        for (column, cell) in cells {
            assert!(row[*column].starts_with(cell), "{row:?}");
        }
        let fault = lines.last().unwrap();
        assert!(fault.starts_with("spaces.toml:2:8: space `demo`: ") && fault.contains(part), "{fault}");
    };
    // Another space's observer.
    let (observer, foreign) =
        (dir.join("membership-observer.creds"), other.credentials.join("membership-observer.creds"));
    let own = fs::read(&observer).unwrap();
    fs::write(&observer, fs::read(foreign).unwrap()).unwrap();
    told(&[(2, "readable"), (4, "LANE-105")], "is foreign");
    fs::write(&observer, own).unwrap();
    // Readable by others.
    let feed = dir.join("membership-rw.creds");
    fs::set_permissions(&feed, fs::Permissions::from_mode(0o644)).unwrap();
    told(&[(2, "LANE-102"), (4, "same account")], "chmod 600");
    fs::set_permissions(&feed, fs::Permissions::from_mode(0o600)).unwrap();
    // Expired.
    let ended = Validity { issued_at_s: 1_600_000_000, expires_at_s: Some(1_700_000_000) };
    world.site.account.write_lane_credentials_with(dir, &world.mesh.home, DeliveryExtras::None, ended).unwrap();
    told(&[(2, "LANE-104"), (5, "2023-11-14 22:13Z expired")], "expired at 1700000000");
    // Gone.
    fs::remove_dir_all(dir).unwrap();
    told(&[(2, "LANE-101"), (3, "-"), (4, "LANE-101"), (5, "-")], "cannot be read");
    // A space that is off has no lane to fail.
    let text = space("demo") + "enabled = false\n";
    files.write("spaces.toml", text);
    let (_, lines, _) = check(files.dir(), &["--online"]);
    assert_eq!(row(&lines, "demo")[1], "off");
}
