//! A process that is killed between two steps leaves a manifest with everything or with nothing of the space.

use std::{path::Path, process::Stdio, time::Duration};

use tokio::time::{Instant, timeout};

use crate::{
    ground::{Ground, listed},
    support::PATIENCE,
};

/// A trace of a step, and whether it is there.
type Trace = fn(&Ground, &str) -> bool;

fn any(dir: &Path, of: impl Fn(&str) -> bool) -> bool {
    listed(dir).iter().any(|name| of(name))
}

/// Every step in turn: the account, half of the credentials, all of them, the staged manifest.
const TRACES: [(&str, Trace); 4] = [
    ("account", |ground, space| any(&ground.home().join("spaces"), |name| name.starts_with(&format!("{space}.")))),
    ("half of the credentials", |ground, space| {
        any(&ground.credentials, |name| name.starts_with(&format!(".{space}.new")))
    }),
    ("credentials", |ground, space| any(&ground.credentials, |name| name == space)),
    ("staged manifest", |ground, _| {
        any(ground.manifest.parent().unwrap(), |name| name.ends_with(".tmp"))
            || any(&ground.manifest, |name| name.ends_with(".tmp"))
    }),
];

/// Kills an `add` as soon as the trace shows; says whether it was in time.
async fn kill_at(ground: &Ground, space: &str, trace: Trace) -> bool {
    let mut child = ground.adding(space).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let was_running = loop {
        if trace(ground, space) {
            break true;
        }
        if child.try_wait().unwrap().is_some() {
            break false;
        }
        assert!(Instant::now() < deadline, "no end of add {space}");
        // Nothing is waited for but the file system, which says nothing by itself.
        let _ = timeout(Duration::from_micros(200), std::future::pending::<()>()).await;
    };
    child.start_kill().unwrap();
    timeout(PATIENCE, child.wait()).await.expect("its end").unwrap();
    was_running
}

async fn killed_at_every_step(ground: &Ground) {
    ground.add("first").await;
    let mut in_time = 0;
    for (number, (step, trace)) in TRACES.iter().enumerate() {
        let space = format!("s{number}");
        in_time += usize::from(kill_at(ground, &space, *trace).await);
        let names = ground.names();
        assert!(names.contains(&"first".to_owned()), "killed at {step}: {names:?}");
        if names.contains(&space) {
            ground.preflight(&space).await.unwrap_or_else(|fault| panic!("killed at {step}: {fault}"));
        } else {
            ground.add(&space).await;
            ground.preflight(&space).await.unwrap_or_else(|fault| panic!("killed at {step}, again: {fault}"));
        }
        // What the killed one left is gone with the next one.
        ground.add(&format!("after{number}")).await;
        ground.assert_tidy();
    }
    assert!(in_time >= 2, "only {in_time} of {} were killed while they ran", TRACES.len());
    assert_eq!(ground.names().len(), 1 + 2 * TRACES.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_file() {
    let ground = Ground::new("spaces.toml").await;
    killed_at_every_step(&ground).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_directory() {
    let ground = Ground::new("spaces.d").await;
    std::fs::create_dir(&ground.manifest).unwrap();
    killed_at_every_step(&ground).await;
}
