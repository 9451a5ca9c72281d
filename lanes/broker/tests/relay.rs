//! The faults of a relay, seen by a real client through a real broker.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of a test may end it with a panic")]

use std::io;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, jetstream};
use futures::StreamExt;
use lanekeeper_broker::{Broker, BrokerConfig, Direction, Relay, find, wait_until};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

const LIMIT: Duration = Duration::from_secs(20);

/// Long enough for a message to come through a line that is open.
const SILENCE: Duration = Duration::from_millis(300);

struct Setup {
    relay: Relay,
    broker: Broker,
    /// Past the relay, to see what the broker really has.
    direct: Client,
    _dir: TempDir,
}

async fn setup() -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let config = BrokerConfig::new(dir.path().join("store"));
    let broker = Broker::start(&find().await.unwrap(), config).await.unwrap();
    let relay = Relay::start(broker.addr()).await.unwrap();
    let direct = async_nats::connect(broker.url()).await.unwrap();
    Setup { relay, broker, direct, _dir: dir }
}

impl Setup {
    /// A client through the relay that never gives up and tries again at once.
    async fn client(&self) -> Client {
        let options = ConnectOptions::new().reconnect_delay_callback(|_| Duration::from_millis(10));
        options.request_timeout(None).connect(self.relay.url()).await.unwrap()
    }

    async fn until_connections(&self, count: usize) {
        let poll = || std::future::ready((self.relay.connections() == count).then_some(()));
        wait_until(&format!("{count} connections"), LIMIT, poll).await.unwrap();
    }
}

/// A request nobody listens to; the broker itself answers it.
async fn round_trip(client: &Client) {
    drop(client.request("nobody.listens", "".into()).await);
}

async fn answers_within(client: &Client, limit: Duration) -> bool {
    timeout(limit, round_trip(client)).await.is_ok()
}

#[tokio::test]
async fn passes_what_it_is_given_and_counts_its_connections() {
    let setup = setup().await;
    let mut received = setup.direct.subscribe("big").await.unwrap();
    round_trip(&setup.direct).await;
    let client = setup.client().await;
    setup.until_connections(1).await;
    let payload: Vec<u8> = (0..900_000_u32).map(|n| (n % 251) as u8).collect();
    client.publish("big", payload.clone().into()).await.unwrap();
    let message = timeout(LIMIT, received.next()).await.unwrap().unwrap();
    assert!(message.payload == payload, "the payload was changed on the way");
    assert_eq!(setup.relay.accepted(), 1);

    client.drain().await.unwrap();
    setup.until_connections(0).await;
}

#[tokio::test]
async fn a_cut_resets_and_refuses_until_it_is_restored() {
    let setup = setup().await;
    let client = setup.client().await;
    let mut raw = TcpStream::connect(setup.relay.addr()).await.unwrap();
    raw.read_exact(&mut [0; 4]).await.unwrap();
    setup.until_connections(2).await;

    setup.relay.cut().await;
    assert_eq!(setup.relay.connections(), 0);
    let mut rest = Vec::new();
    let error = timeout(LIMIT, raw.read_to_end(&mut rest)).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let error = TcpStream::connect(setup.relay.addr()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    let state = || std::future::ready(client.connection_state());
    let disconnected = || async { (state().await == async_nats::connection::State::Disconnected).then_some(()) };
    wait_until("the client to notice", LIMIT, disconnected).await.unwrap();

    setup.relay.restore().await.unwrap();
    setup.relay.restore().await.unwrap();
    assert!(answers_within(&client, LIMIT).await);
    setup.until_connections(1).await;
}

#[tokio::test]
async fn a_frozen_line_moves_nothing_and_loses_nothing() {
    let setup = setup().await;
    let client = setup.client().await;
    let mut received = setup.direct.subscribe("a").await.unwrap();
    round_trip(&setup.direct).await;
    round_trip(&client).await;

    setup.relay.freeze();
    client.publish("a", "late".into()).await.unwrap();
    assert!(timeout(SILENCE, received.next()).await.is_err(), "a message passed a frozen line");
    // A new connection is taken, but the broker's greeting does not come through.
    let mut raw = TcpStream::connect(setup.relay.addr()).await.unwrap();
    setup.until_connections(2).await;
    assert!(timeout(SILENCE, raw.read_u8()).await.is_err(), "a greeting passed a frozen line");

    setup.relay.thaw();
    assert_eq!(timeout(LIMIT, received.next()).await.unwrap().unwrap().payload, "late");
    assert_eq!(timeout(LIMIT, raw.read_u8()).await.unwrap().unwrap(), b'I');
    assert!(answers_within(&client, LIMIT).await);
    // The connections were the same all along.
    assert_eq!(setup.relay.accepted(), 2);
}

#[tokio::test]
async fn an_answer_can_be_held_while_the_question_lands() {
    let setup = setup().await;
    let mut stream = jetstream::new(setup.direct.clone())
        .create_stream(jetstream::stream::Config { name: "S".into(), subjects: vec!["s".into()], ..Default::default() })
        .await
        .unwrap();
    let js = jetstream::new(setup.client().await);

    setup.relay.hold(Direction::ToClient);
    let ack = js.publish("s", "landed".into()).await.unwrap().into_future();
    tokio::pin!(ack);
    let stored = async {
        while stream.info().await.unwrap().state.messages == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, stored).await.unwrap();
    assert!(timeout(SILENCE, &mut ack).await.is_err(), "an acknowledgement passed a held line");
    setup.relay.release(Direction::ToClient);
    assert_eq!(timeout(LIMIT, ack).await.unwrap().unwrap().sequence, 1);
}

#[tokio::test]
async fn a_question_can_be_held_while_messages_come() {
    let setup = setup().await;
    let client = setup.client().await;
    let mut coming = client.subscribe("down").await.unwrap();
    let mut going = setup.direct.subscribe("up").await.unwrap();
    round_trip(&client).await;
    round_trip(&setup.direct).await;

    setup.relay.hold(Direction::ToBroker);
    client.publish("up", "1".into()).await.unwrap();
    setup.direct.publish("down", "2".into()).await.unwrap();
    assert_eq!(timeout(LIMIT, coming.next()).await.unwrap().unwrap().payload, "2");
    assert!(timeout(SILENCE, going.next()).await.is_err(), "a message passed a held line");
    setup.relay.release(Direction::ToBroker);
    assert_eq!(timeout(LIMIT, going.next()).await.unwrap().unwrap().payload, "1");
}

#[tokio::test]
async fn a_slow_line_is_slow_and_becomes_fast_again() {
    let setup = setup().await;
    let client = setup.client().await;
    let mut received = setup.direct.subscribe("a").await.unwrap();
    round_trip(&setup.direct).await;
    round_trip(&client).await;

    setup.relay.slow(20_000);
    let started = Instant::now();
    client.publish("a", vec![0; 16_000].into()).await.unwrap();
    timeout(LIMIT, received.next()).await.unwrap().unwrap();
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(700), "16,000 bytes at 20,000 a second took {took:?}");

    // Would take 50 s at that speed.
    client.publish("a", vec![0; 1_000_000].into()).await.unwrap();
    setup.relay.full_speed();
    timeout(LIMIT, received.next()).await.unwrap().unwrap();
}

#[tokio::test]
async fn faults_end_only_by_their_own_counterpart() {
    let setup = setup().await;
    let client = setup.client().await;
    round_trip(&client).await;
    setup.relay.hold(Direction::ToBroker);
    setup.relay.freeze();
    setup.relay.thaw();
    assert!(!answers_within(&client, SILENCE).await, "thaw ended a hold");
    setup.relay.release(Direction::ToBroker);
    assert!(answers_within(&client, LIMIT).await);
}

#[tokio::test]
async fn an_end_or_a_missing_broker_on_one_side_is_passed_to_the_other() {
    let mut setup = setup().await;
    // The broker answers nonsense with an error and closes; both must come through.
    let mut raw = TcpStream::connect(setup.relay.addr()).await.unwrap();
    raw.write_all(b"nonsense\r\n").await.unwrap();
    let mut said = Vec::new();
    // The last read may be a reset, as the broker closes with bytes unread; the error text was there before.
    drop(timeout(LIMIT, raw.read_to_end(&mut said)).await.expect("the end was not passed on"));
    assert!(String::from_utf8_lossy(&said).contains("-ERR"), "{said:?}");
    drop(raw);
    setup.until_connections(0).await;

    setup.broker.kill().await.unwrap();
    let mut raw = TcpStream::connect(setup.relay.addr()).await.unwrap();
    let error = timeout(LIMIT, raw.read_u8()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    // The same relay serves the restarted broker.
    setup.broker.restart().await.unwrap();
    round_trip(&setup.client().await).await;
}

#[tokio::test]
async fn a_dropped_relay_is_gone() {
    let setup = setup().await;
    let mut raw = TcpStream::connect(setup.relay.addr()).await.unwrap();
    raw.read_exact(&mut [0; 4]).await.unwrap();
    let addr = setup.relay.addr();
    setup.relay.freeze();
    drop(setup.relay);
    let mut rest = Vec::new();
    assert!(timeout(LIMIT, raw.read_to_end(&mut rest)).await.unwrap().is_err(), "an orderly end instead of a reset");
    let refused = || async move { TcpStream::connect(addr).await.is_err().then_some(()) };
    wait_until("the port to be free", LIMIT, refused).await.unwrap();
}
