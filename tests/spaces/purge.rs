//! What is left of a space that is purged: nothing that lets anybody in.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::ground::{Ground, listed};

#[tokio::test(flavor = "multi_thread")]
async fn a_purged_space_is_gone_at_the_broker_too() {
    let ground = Ground::new("spaces.toml").await;
    ground.add("demo").await;
    ground.add("other").await;
    ground.preflight("demo").await.unwrap();
    // What somebody may have copied.
    let copy = ground.manifest.with_file_name("copy");
    fs::create_dir(&copy).unwrap();
    for name in listed(&ground.credentials.join("demo")) {
        fs::copy(ground.credentials.join("demo").join(&name), copy.join(&name)).unwrap();
    }
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o700)).unwrap();
    ground.preflight_with("demo", copy.clone()).await.unwrap();

    let told = ground.run(ground.purging("demo")).await.good();
    let files = told.lines().find_map(|line| line.rsplit_once(": jetstream/")).map(|(_, account)| account).unwrap();
    assert!(!listed(&ground.mesh.dir().join("broker/jetstream").join(files)).is_empty(), "what is said to be kept is");
    assert_eq!((ground.names(), listed(&ground.credentials)), (vec!["other".to_owned()], vec!["other".to_owned()]));
    let refused = ground.preflight_with("demo", copy).await.unwrap_err();
    assert_eq!(refused.code(), "LANE-106", "{refused}");
    ground.preflight("other").await.unwrap();
    ground.assert_tidy();
    ground.add("demo").await;
    ground.preflight("demo").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_can_be_finished_later() {
    let ground = Ground::new("spaces.toml").await;
    ground.add("demo").await;
    ground.add("other").await;
    // Without the keys nothing is begun.
    let url = ground.mesh.broker.url();
    let mut purging = ground.command(&["space", "remove", "demo", "--purge", "--server", &url, "--home", "/nowhere"]);
    purging.arg("--credentials-root").arg(&ground.credentials);
    ground.run(purging).await.bad(&["/nowhere", "--home"]);
    assert_eq!(ground.names(), ["demo", "other"]);
    // With a broker that is not there, only the entry goes.
    let mut purging = ground.command(&["space", "remove", "demo", "--purge", "--server", "nats://127.0.0.1:1"]);
    purging.arg("--home").arg(ground.home()).arg("--credentials-root").arg(&ground.credentials);
    ground.run(purging).await.bad(&["127.0.0.1:1"]);
    assert_eq!((ground.names(), listed(&ground.credentials).len()), (vec!["other".to_owned()], 2));
    ground.run(ground.purging("demo")).await.good();
    assert_eq!(listed(&ground.credentials), ["other"]);
    ground.run(ground.purging("never")).await.bad(&["no space `never`"]);
    let status = ground.run(ground.command(&["space", "remove", "other", "--purge"])).await.status;
    assert_eq!(status.code(), Some(2), "a purge needs to know where");
    assert_eq!(ground.names(), ["other"]);
}
