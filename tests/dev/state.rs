//! The state directory: private, taken up again, and refused where it is not fit.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::running::Dev;

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_state_is_private_and_taken_up_again() {
    let home = TempDir::new().unwrap();
    let state = home.path().join("state");
    Dev::on(&state, &["--once"]).ended().await.assert_clean();
    let lifecycles = lifecycles(&state);
    assert_eq!(lifecycles.keys().collect::<Vec<_>>(), ["ada", "bob", "cleo"]);
    assert_private(&state);

    let again = Dev::on(&state, &["--once"]).ended().await;
    again.assert_clean();
    assert!(again.told.iter().any(|line| line.starts_with("2. Took up the space")), "{:#?}", again.told);
    assert_eq!(self::lifecycles(&state), lifecycles);
    assert_private(&state);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_run_is_taken_up_again_from_any_step() {
    let home = TempDir::new().unwrap();
    let state = home.path().join("state");
    Dev::on(&state, &["--once"]).ended().await.assert_clean();
    let lifecycles = lifecycles(&state);
    for line in ["7. ", "  lanekeeper serve "] {
        let mut dev = Dev::on(&state, &[]);
        dev.wait_line(line).await;
        let broker = dev.broker();
        dev.signal(Signal::KILL);
        dev.ended().await;
        broker.wait_gone().await;
        // The lease of the killed run is still there, and so may be copies that were taken and not acknowledged.
        Dev::on(&state, &["--once"]).ended().await.assert_clean();
        assert_eq!(self::lifecycles(&state), lifecycles);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_in_use_is_refused_and_stays_undisturbed() {
    let home = TempDir::new().unwrap();
    let state = home.path().join("state");
    let mut first = Dev::on(&state, &[]);
    first.wait_serving().await;
    let second = Dev::on(&state, &["--once"]).ended().await;
    second.assert_failed(&["in use by another `lanekeeper dev`"]);
    assert!(second.told.is_empty(), "{:#?}", second.told);
    assert!(first.broker().is_there());
    first.signal(Signal::TERM);
    first.ended().await.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfit_directory_is_refused() {
    let home = TempDir::new().unwrap();
    let foreign = home.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(foreign.join("diary.txt"), "dear diary").unwrap();
    Dev::on(&foreign, &["--once"]).ended().await.assert_failed(&["is not empty"]);
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1, "nothing was added");

    let loose = home.path().join("loose");
    fs::create_dir(&loose).unwrap();
    fs::set_permissions(&loose, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = Dev::on(&loose, &["--once"]).ended().await;
    refused.assert_failed(&["has mode 0755", "chmod 700"]);
    assert_eq!(fs::read_dir(&loose).unwrap().count(), 0, "nothing was added");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_does_not_hold_is_named() {
    let home = TempDir::new().unwrap();
    let state = home.path().join("state");
    Dev::on(&state, &["--once"]).ended().await.assert_clean();
    let members = state.join("spaces").join("demo").join("members");
    fs::copy(members.join("cleo.creds"), members.join("bob.creds")).unwrap();
    let broken = Dev::on(&state, &["--once"]).ended().await;
    broken.assert_failed(&["this step did not hold: the members join", "bob"]);
    assert!(broken.told.last().unwrap().starts_with("3. "), "{:#?}", broken.told);
}

/// The lifecycle of each member, by name.
fn lifecycles(state: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for path in files(&state.join("spaces").join("demo").join("members")) {
        if path.extension().is_some_and(|extension| extension == "json") {
            let card: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            let text = |field: &str| card[field].as_str().unwrap().to_owned();
            found.insert(text("name"), text("lifecycle"));
        }
    }
    found
}

/// The broker's own files hold every post, so they count too.
fn assert_private(state: &Path) {
    let mut paths = files(state);
    paths.push(state.to_owned());
    assert!(paths.len() > 50, "{paths:#?}");
    for path in paths {
        let meta = fs::symlink_metadata(&path).unwrap();
        let wanted = if meta.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(meta.permissions().mode() & 0o7777, wanted, "{}", path.display());
    }
}

/// Everything below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        }
        found.push(path);
    }
    found
}
