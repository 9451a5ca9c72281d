//! Three brokers as one cluster, three replicas of everything, and each broker killed in turn.

use std::{path::Path, sync::Mutex, time::Duration};

use async_nats::jetstream;
use lanekeeper::provisioning;
use lanekeeper_broker::{Broker, BrokerConfig, NatsServer, wait_until};
use lanekeeper_provision::{Home, LaneCredentialSettings, SpaceSettings};
use lanekeeper_wire::{Bucket, StreamKind};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::{
    fleet::{QUICK, free_address},
    host::Host,
    posts::{Ground, Talk},
    support::secrets,
};

const BROKERS: usize = 3;
const SPACES: usize = 5;
const LEASE_TTL: Duration = Duration::from_secs(10);
/// After the end of a broker every lane serves, and its member receives, within this. The brokers alone take up to 9 s to
/// elect who leads what the killed one led.
const BACK_WITHIN: Duration = Duration::from_secs(30);
/// What a cluster may take to elect, to copy, and to come up on a busy machine.
const CLUSTER_PATIENCE: Duration = Duration::from_secs(60);

/// The brokers, started together: none is ready for streams without another.
async fn start_brokers(server: &NatsServer, home: &Home, dir: &Path) -> Vec<Broker> {
    let routes: Vec<_> = (0..BROKERS).map(|_| free_address()).collect();
    let all = routes.iter().map(|route| format!("\"nats://{route}\"")).collect::<Vec<_>>().join(", ");
    let configs = routes.iter().enumerate().map(|(index, route)| {
        let mut config = BrokerConfig::new(dir.join(format!("broker{index}")));
        config.extra_config = format!(
            "{}server_name: n{index}\ncluster {{\n  name: c\n  listen: \"{route}\"\n  routes: [{all}]\n}}\n",
            home.server_config(&dir.join(format!("accounts{index}")))
        );
        config
    });
    let started = configs.map(|config| Broker::start(server, config));
    futures::future::try_join_all(started).await.unwrap()
}

/// Makes a space whose streams have three replicas, as soon as the cluster can.
async fn make(home: &Home, url: &str, dir: &Path, index: usize) -> Ground {
    let space = format!("s{index}").parse().unwrap();
    let settings = SpaceSettings { replicas: BROKERS, lease_ttl: LEASE_TTL, ..SpaceSettings::default() };
    let last = Mutex::new(String::new());
    let made = async || {
        let made = provisioning::raise(home, url, &space, &settings).await;
        made.inspect_err(|error| *last.lock().unwrap() = format!("{error:#}")).ok()
    };
    let made = wait_until("a space with three replicas", CLUSTER_PATIENCE, made).await;
    let (account, provisioner) = made.unwrap_or_else(|error| panic!("{error}: {}", last.lock().unwrap()));
    let credentials =
        provisioning::write_credentials(&dir.join("lanes"), home, &account, &LaneCredentialSettings::default())
            .unwrap();
    Ground { space, account, provisioner, credentials }
}

/// Waits until every broker has all of every stream, so that another one may go.
async fn wait_whole(grounds: &[Ground]) {
    for ground in grounds {
        let streams = StreamKind::ALL.iter().map(|kind| kind.name(&ground.space));
        for name in streams.chain(Bucket::ALL.iter().map(|bucket| bucket.stream(&ground.space))) {
            let whole = async || is_whole(&ground.provisioner, &name).await.then_some(());
            wait_until(&format!("three current replicas of {name}"), CLUSTER_PATIENCE, whole).await.unwrap();
        }
    }
}

async fn is_whole(js: &jetstream::Context, name: &str) -> bool {
    let Ok(stream) = js.get_stream(name).await else { return false };
    let Some(cluster) = &stream.cached_info().cluster else { return false };
    let current = cluster.replicas.iter().filter(|replica| replica.current && !replica.offline).count();
    cluster.leader.is_some() && current == BROKERS - 1
}

#[tokio::test(flavor = "multi_thread")]
async fn each_broker_of_a_cluster_killed_in_turn_loses_no_post() {
    let dir = TempDir::new().unwrap();
    let server = lanekeeper_broker::find().await.unwrap();
    let home = Home::open_or_create(&dir.path().join("keys")).unwrap();
    let mut brokers = start_brokers(&server, &home, dir.path()).await;
    let urls: Vec<String> = brokers.iter().map(Broker::url).collect();
    let all = urls.join(",");
    let mut grounds = Vec::new();
    for index in 0..SPACES {
        grounds.push(make(&home, &urls[0], dir.path(), index).await);
    }
    let entries = grounds
        .iter()
        .map(|ground| format!("[[space]]\nname = \"{}\"\ncredentials = {:?}\n", ground.space, ground.credentials));
    std::fs::write(dir.path().join("spaces.toml"), entries.collect::<String>()).unwrap();
    let host = Host::start(dir.path(), "one", &urls, &[], QUICK).await;
    host.wait_serving(SPACES, CLUSTER_PATIENCE).await;
    let talk = Talk::open(grounds.clone(), &all).await;
    talk.wait_more(5).await;
    let mut slowest = Duration::ZERO;
    for (index, broker) in brokers.iter_mut().enumerate() {
        wait_whole(&grounds).await;
        talk.wait_more(5).await;
        let killed_at = Instant::now();
        broker.kill().await.unwrap();
        // What was under way may still arrive; that more comes of every space says that its lane serves.
        talk.wait_more(5).await;
        host.wait_serving(SPACES, CLUSTER_PATIENCE).await;
        talk.wait_more(5).await;
        let took = killed_at.elapsed();
        eprintln!("broker {index} killed: every lane passes posts on within {took:?}");
        slowest = slowest.max(took);
        broker.restart().await.unwrap();
    }
    wait_whole(&grounds).await;
    let account = talk.close().await;
    eprintln!("{account:?}");
    assert_eq!(account.lost, 0, "{account:?}\n{}", host.log_tail());
    assert!(slowest < BACK_WITHIN, "{slowest:?}");
    host.stop().await;
    for broker in &brokers {
        let log = broker.log_text().unwrap();
        let violations: Vec<&str> = log.lines().filter(|line| line.contains("Permissions Violation")).collect();
        assert!(violations.is_empty(), "{violations:#?}");
    }
    secrets::assert_none_in_logs(dir.path(), dir.path());
}
