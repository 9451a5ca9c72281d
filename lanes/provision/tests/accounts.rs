//! Keys on disk, and accounts that come, change and go on a broker that keeps running.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of tests fails like a test")]

mod common;

use common::*;
use lanekeeper_broker::{Broker, BrokerConfig};
use lanekeeper_provision::*;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Everything below a directory, itself included.
fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_path_buf()];
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(walk(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn every_file_is_private_and_nothing_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::create(&dir.path().join("home")).unwrap();
    let account = home.create_space(&space("dev"), &AccountSettings::default()).unwrap();
    account.write_lane_credentials(&dir.path().join("creds"), &home, &LaneCredentialSettings::default()).unwrap();
    let mut count = 0;
    for path in [walk(&dir.path().join("home")), walk(&dir.path().join("creds"))].concat() {
        let want = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), want, "{}", path.display());
        let name = path.file_name().unwrap().to_string_lossy();
        assert!(!name.starts_with('.'), "{name} was left behind");
        count += 1;
    }
    assert_eq!(count, 20);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn a_loose_file_or_directory_is_refused_with_the_command_that_mends_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("home");
    let home = Home::create(&root).unwrap();
    home.create_space(&space("dev"), &AccountSettings::default()).unwrap();
    for path in walk(&root).into_iter().filter(|path| !path.ends_with("settings.json") && !path.ends_with("lock")) {
        let tight = mode(&path);
        for loose in [tight | 0o040, tight | 0o004, tight | 0o020] {
            chmod(&path, loose);
            let opened = Home::open(&root).and_then(|home| home.space(&space("dev")));
            chmod(&path, tight);
            let text = opened.map(|_| ()).expect_err(&path.display().to_string()).to_string();
            let wanted = format!("chmod {tight:o} {}", path.display());
            assert!(text.contains(&wanted) && text.contains(&format!("mode {loose:04o}")), "{text}");
            assert!(!text.contains('\n'));
        }
    }
    assert!(Home::open(&root).unwrap().space(&space("dev")).unwrap().is_some());
}

#[test]
fn a_home_is_made_once_and_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("home");
    assert!(Home::open(&root).is_err());
    let made = Home::open_or_create(&root).unwrap();
    let opened = Home::open_or_create(&root).unwrap();
    assert_eq!(made.system_account_id(), opened.system_account_id());
    assert!(matches!(Home::create(&root), Err(HomeFault::Occupied(_))));
    assert_eq!(
        Home::open(&root).unwrap().system_account_id(),
        made.system_account_id(),
        "the failed create changed nothing"
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    // An empty directory that is there already, whatever its mode, becomes a private home.
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    chmod(&empty, 0o755);
    Home::create(&empty).unwrap();
    assert_eq!(mode(&empty), 0o700);
}

#[test]
fn files_of_another_home_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
    for root in [&one, &two] {
        Home::create(root).unwrap().create_space(&space("dev"), &AccountSettings::default()).unwrap();
    }
    let account_dir = |root: &Path| fs::read_dir(root.join("spaces")).unwrap().next().unwrap().unwrap().path();
    let swap = |name: &Path, in_space: bool| {
        let (a, b) = if in_space { (account_dir(&one), account_dir(&two)) } else { (one.clone(), two.clone()) };
        let (a, b) = (a.join(name), b.join(name));
        let kept = fs::read(&a).unwrap();
        fs::copy(&b, &a).unwrap();
        let opened = Home::open(&one).and_then(|home| home.space(&space("dev")));
        fs::write(&a, kept).unwrap();
        opened.map(|_| ()).expect_err(&name.display().to_string()).to_string()
    };
    assert!(swap(Path::new("system.jwt"), false).contains("did not sign it"));
    assert!(swap(Path::new("operator-signing.seed"), false).contains("did not sign it"));
    assert!(swap(Path::new("account.jwt"), true).contains("did not sign it"));
    assert!(swap(Path::new("account.seed"), true).contains("belongs to another account"));
    assert!(Home::open(&one).unwrap().space(&space("dev")).unwrap().is_some());
    // A seed of the wrong kind, and no seed at all.
    let seed = one.join("operator-signing.seed");
    let kept = fs::read(&seed).unwrap();
    for wrong in [fs::read(one.join("system.seed")).unwrap(), b"not a seed".to_vec()] {
        fs::write(&seed, &wrong).unwrap();
        let text = Home::open(&one).unwrap_err().to_string();
        assert!(
            text.contains("operator-signing.seed") && !text.contains(std::str::from_utf8(&wrong).unwrap()),
            "{text}"
        );
    }
    fs::write(&seed, kept).unwrap();
}

#[test]
fn spaces_have_accounts_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::create(&dir.path().join("home")).unwrap();
    assert!(home.space(&space("alpha")).unwrap().is_none());
    let mut ids = std::collections::BTreeSet::new();
    // Names a file system may not tell apart, and long ones that only differ at the end.
    let names = [
        "alpha".to_owned(),
        "Alpha".to_owned(),
        "a_b".to_owned(),
        "a-b".to_owned(),
        format!("{}x", "n".repeat(199)),
        format!("{}y", "n".repeat(199)),
    ];
    for name in &names {
        let made = home.create_space(&space(name), &AccountSettings::default()).unwrap();
        let again = home.create_space(&space(name), &AccountSettings::default()).unwrap();
        let found = Home::open(home.dir()).unwrap().space(&space(name)).unwrap().unwrap();
        assert_eq!((made.account_id(), made.account_jwt()), (again.account_id(), again.account_jwt()));
        assert_eq!((found.account_id(), found.name()), (made.account_id(), name.as_str()));
        assert!(ids.insert(made.account_id().to_owned()));
    }
    let lower: std::collections::BTreeSet<_> = fs::read_dir(home.dir().join("spaces"))
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().to_lowercase())
        .collect();
    assert_eq!(lower.len(), names.len(), "distinct even where case is folded");
}

#[test]
fn many_makers_of_one_space_get_one_account() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("home");
    let ids: Vec<_> = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let home = Home::open_or_create(&root).unwrap();
                    home.create_space(&space("dev"), &AccountSettings::default()).unwrap().account_id().to_owned()
                })
            })
            .collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]));
}

#[test]
fn nothing_secret_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::create(&dir.path().join("home")).unwrap();
    let account = home.create_space(&space("dev"), &AccountSettings::default()).unwrap();
    let credentials = account.mint(&SpaceProfile::Observer, Validity::forever()).unwrap();
    let printed = format!("{home:?} {account:?} {credentials:?}");
    assert!(printed.contains(credentials.public_key()));
    for token in printed.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-') {
        assert!(!token.starts_with("eyJ"), "a token in {printed}");
        assert!(!(token.starts_with('S') && token.len() == 58), "a seed in {printed}");
    }
}

#[test]
fn renewed_lane_credentials_keep_their_nkeys_and_torn_ones_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::create(&dir.path().join("home")).unwrap();
    let account = home.create_space(&space("dev"), &AccountSettings::default()).unwrap();
    let creds = dir.path().join("creds");
    let files = [
        lane_files::DELIVERY,
        lane_files::MEMBERSHIP_RW,
        lane_files::MEMBERSHIP_OBSERVER,
        lane_files::CONNECTION_EVICTOR,
    ];
    let read = || files.map(|file| Credentials::read(&creds.join(file)).unwrap());
    let settings = LaneCredentialSettings { ttl: Some(Duration::from_secs(60)), extras: DeliveryExtras::None };
    account.write_lane_credentials(&creds, &home, &settings).unwrap();
    let before = read();
    let later = Validity { issued_at_s: 1_000, expires_at_s: Some(2_000) };
    account.write_lane_credentials_with(&creds, &home, DeliveryExtras::None, later).unwrap();
    for (old, new) in before.iter().zip(read()) {
        let (old_claims, new_claims) = (old.claims().unwrap(), new.claims().unwrap());
        assert_eq!(old.public_key(), new.public_key());
        assert_eq!(old_claims.exp, Some(old_claims.iat + 60));
        assert_eq!((new_claims.iat, new_claims.exp), (1_000, Some(2_000)));
    }
    let [delivery, rw, observer, evictor] = read().map(|credentials| credentials.claims().unwrap());
    assert_eq!((delivery.account(), rw.account()), (account.account_id(), account.account_id()));
    assert_eq!((observer.account(), evictor.account()), (home.system_account_id(), home.system_account_id()));
    assert_eq!(delivery.tag("principal"), Some("local.delivery"));

    // The token of one user with the seed of another.
    let [a, b] = [before[0].text(), before[1].text()];
    let torn = format!(
        "{}{}",
        a.split("************").next().unwrap().split("-----BEGIN USER NKEY").next().unwrap(),
        &b[b.find("-----BEGIN USER NKEY").unwrap()..]
    );
    assert!(matches!(Credentials::parse(&torn), Err(CredentialsFault::Torn(_))));
    fs::write(creds.join(files[0]), &torn).unwrap();
    assert!(account.write_lane_credentials(&creds, &home, &settings).is_err());
    assert_eq!(fs::read_to_string(creds.join(files[0])).unwrap(), torn, "left for whoever mends it");
}

#[tokio::test]
async fn a_space_is_added_while_others_work() {
    let bench = Bench::start().await;
    let (first, provisioner) = bench.space("one").await;
    let pid = bench.broker.pid();
    let cid = provisioner.nats.server_info().client_id;
    let (second, _) = bench.space("two").await;
    assert_ne!(first.account_id(), second.account_id());
    provisioner.settle().await;
    assert_eq!((bench.broker.pid(), provisioner.nats.server_info().client_id), (pid, cid), "nothing was restarted");
    assert_eq!(provisioner.js().query_account().await.unwrap().streams, 14, "its own, not the other's");
}

#[tokio::test]
async fn an_account_that_was_not_pushed_is_unknown() {
    let bench = Bench::start().await;
    let account = bench.home.create_space(&space("dev"), &AccountSettings::default()).unwrap();
    let credentials = account.mint(&SpaceProfile::Observer, Validity::forever()).unwrap();
    assert!(credentials.connect_options().unwrap().connect(bench.broker.url()).await.is_err());
    bench.push(&account).await;
    Client::open(&bench.broker.url(), &credentials).await.settle().await;
}

#[tokio::test]
async fn a_deleted_account_is_closed_and_can_come_back() {
    let bench = Bench::start().await;
    let account = bench.account("dev").await;
    let other = bench.account("other").await;
    let credentials = account.mint(&SpaceProfile::Observer, Validity::forever()).unwrap();
    let stays = bench.connect(&other, &SpaceProfile::Observer).await;
    // A connection that is open keeps the account in the broker's memory.
    let _open = bench.connect(&account, &SpaceProfile::Observer).await;
    let system = bench.home.system_client(&bench.broker.url()).await.unwrap();
    system.delete_account(&account).await.unwrap();
    assert!(credentials.connect_options().unwrap().connect(bench.broker.url()).await.is_err());
    stays.settle().await;
    system.push_account(&account).await.unwrap();
    Client::open(&bench.broker.url(), &credentials).await.settle().await;
}

#[tokio::test]
async fn a_revoked_user_is_closed_and_stays_out() {
    let bench = Bench::start().await;
    let account = bench.account("dev").await;
    let url = bench.broker.url();
    let gone = bench.connect(&account, &SpaceProfile::Observer).await;
    let stays = bench.connect(&account, &SpaceProfile::Observer).await;
    let system = bench.home.system_client(&url).await.unwrap();
    system.revoke_user(&account, gone.credentials.public_key()).await.unwrap();
    let revoked =
        || std::future::ready(gone.errors().iter().any(|error| error.to_lowercase().contains("revoked")).then_some(()));
    wait("the revoked user to be closed", revoked).await;
    let again = || async { gone.credentials.connect_options().unwrap().connect(url.clone()).await };
    assert!(again().await.is_err());
    stays.settle().await;
    // Another change of the account, through a value opened before, keeps the revocation.
    let settings = AccountSettings { max_connections: Some(50), ..AccountSettings::default() };
    bench.home.set_account_settings(&account, &settings).unwrap();
    system.push_account(&account).await.unwrap();
    assert!(again().await.is_err());
    stays.settle().await;
}

#[tokio::test]
async fn limits_of_an_account_hold_and_can_be_changed() {
    let bench = Bench::start().await;
    let account = bench.account("dev").await;
    let limits = AccountSettings { max_streams: Some(3), ..AccountSettings::default() };
    bench.home.set_account_settings(&account, &limits).unwrap();
    bench.push(&account).await;
    let provisioner = bench.connect(&account, &SpaceProfile::Provisioner).await;
    let fault = ensure_space(&provisioner.js(), account.space(), &SpaceSettings::default()).await.unwrap_err();
    assert!(matches!(&fault, StreamFault::Broker { action: "create", stream, .. } if stream == "INBOX_dev"), "{fault}");
    bench.home.set_account_settings(&account, &AccountSettings::default()).unwrap();
    bench.push(&account).await;
    ensure_space(&provisioner.js(), account.space(), &SpaceSettings::default()).await.unwrap();
}

#[tokio::test]
async fn an_account_of_another_operator_is_refused() {
    let bench = Bench::start().await;
    let dir = tempfile::tempdir().unwrap();
    let foreign = Home::create(&dir.path().join("home")).unwrap();
    let account = foreign.create_space(&space("dev"), &AccountSettings::default()).unwrap();
    let system = bench.home.system_client(&bench.broker.url()).await.unwrap();
    let fault = system.push_account(&account).await.unwrap_err();
    assert!(matches!(fault, SystemFault::Home(HomeFault::Foreign { .. })), "{fault}");
    assert!(foreign.system_client(&bench.broker.url()).await.is_err());
}

#[tokio::test]
async fn expired_credentials_are_refused_and_valid_ones_end_in_time() {
    let bench = Bench::start().await;
    let account = bench.account("dev").await;
    let past = Validity { issued_at_s: 1_000, expires_at_s: Some(2_000) };
    let expired = account.mint(&SpaceProfile::Observer, past).unwrap();
    assert!(expired.connect_options().unwrap().connect(bench.broker.url()).await.is_err());
    let renewed =
        account.mint_again(&expired, &SpaceProfile::Observer, Validity::for_duration(Duration::from_secs(2))).unwrap();
    assert_eq!(renewed.public_key(), expired.public_key());
    let client = Client::open(&bench.broker.url(), &renewed).await;
    client.settle().await;
    let ended = || {
        std::future::ready(client.errors().iter().any(|error| error.to_lowercase().contains("expired")).then_some(()))
    };
    wait("the credential to end", ended).await;
}

#[tokio::test]
async fn every_server_of_a_cluster_learns_of_an_account() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::create(&dir.path().join("home")).unwrap();
    let ports = {
        // Held together, so that they differ, and let go before the brokers take them.
        let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        listeners.map(|listener| listener.local_addr().unwrap().port())
    };
    let mut brokers = Vec::new();
    for (number, port) in ports.iter().enumerate() {
        let mut config = BrokerConfig::new(dir.path().join(format!("store{number}")));
        config.jetstream = false;
        config.extra_config = format!(
            "{}\ncluster {{ name: c, listen: \"127.0.0.1:{port}\", routes: [\"nats://127.0.0.1:{}\"] }}",
            home.server_config(&dir.path().join(format!("resolver{number}"))),
            ports[0],
        );
        brokers.push(Broker::start(&server().await, config).await.unwrap());
    }
    let account = home.create_space(&space("dev"), &AccountSettings::default()).unwrap();
    let stored = |number: usize| {
        let path = dir.path().join(format!("resolver{number}")).join(format!("{}.jwt", account.account_id()));
        std::fs::read_to_string(path).ok()
    };
    let both = || async {
        let system = home.system_client(&brokers[0].url()).await.unwrap();
        system.push_account(&account).await.unwrap();
        // The route may not have been up yet.
        (stored(0).is_some() && stored(1).is_some()).then_some(())
    };
    wait("both servers to have the account", both).await;
    // From now on a push has returned only when both have stored the change.
    let system = home.system_client(&brokers[1].url()).await.unwrap();
    let user = account.mint(&SpaceProfile::Observer, Validity::forever()).unwrap();
    // Several times, because the slower server may be quick by chance.
    for _ in 0..6 {
        let before = stored(0);
        let someone = account.mint(&SpaceProfile::Observer, Validity::forever()).unwrap();
        system.revoke_user(&account, someone.public_key()).await.unwrap();
        assert_ne!(stored(0), before);
        assert_eq!(stored(0), stored(1));
    }
    system.revoke_user(&account, user.public_key()).await.unwrap();
    assert_ne!(stored(0).as_deref(), Some(account.account_jwt()));
    for broker in &brokers {
        assert!(user.connect_options().unwrap().connect(broker.url()).await.is_err());
    }
}
