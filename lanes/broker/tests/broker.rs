//! The life of a broker child, with a real nats-server and a real client.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of a test may end it with a panic")]

use std::process::{Command, Stdio};
use std::time::Duration;

use async_nats::jetstream;
use lanekeeper_broker::{
    Broker, BrokerConfig, BrokerError, NatsServer, Origin, PINNED_VERSION, ProcessError, Stopped, find,
    process_cpu_time, process_rss_bytes, process_start_ticks, wait_until,
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(20);

/// Set for the test process that plays the owner of a broker; names the folder.
const OWNER_DIR: &str = "LANEKEEPER_TEST_OWNER_DIR";

fn config(dir: &TempDir) -> BrokerConfig {
    BrokerConfig::new(dir.path().join("store"))
}

async fn start(dir: &TempDir) -> Broker {
    Broker::start(&find().await.unwrap(), config(dir)).await.unwrap()
}

fn is_alive(pid: u32, start_ticks: u64) -> bool {
    // A zombie still has its start time, but no memory.
    process_start_ticks(pid).is_ok_and(|ticks| ticks == start_ticks) && process_rss_bytes(pid).is_ok()
}

async fn is_gone(pid: u32, start_ticks: u64) -> bool {
    let gone = || std::future::ready((!is_alive(pid, start_ticks)).then_some(()));
    wait_until("the process to be gone", LIMIT, gone).await.is_ok()
}

#[tokio::test]
async fn a_restart_keeps_the_port_and_what_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let mut broker = start(&dir).await;
    assert!(broker.info().jetstream);
    let (port, first_pid) = (broker.port(), broker.pid().unwrap());

    let client = async_nats::connect(broker.url()).await.unwrap();
    let js = jetstream::new(client.clone());
    let stream = jetstream::stream::Config { name: "S".into(), subjects: vec!["s.>".into()], ..Default::default() };
    js.create_stream(stream).await.unwrap();
    js.publish("s.1", "kept".into()).await.unwrap().await.unwrap();

    for crash in [false, true] {
        if crash {
            broker.kill().await.unwrap();
        } else {
            assert_eq!(broker.stop().await.unwrap(), Stopped::Cleanly);
        }
        assert_eq!(broker.pid(), None);
        assert!(!broker.is_running());
        assert_eq!(broker.stop().await.unwrap(), Stopped::AlreadyDown);
        let refused = tokio::net::TcpStream::connect(broker.addr()).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);

        broker.restart().await.unwrap();
        assert_eq!(broker.port(), port);
        assert_ne!(broker.pid().unwrap(), first_pid);
        let js = jetstream::new(async_nats::connect(broker.url()).await.unwrap());
        let message = js.get_stream("S").await.unwrap().get_raw_message(1).await.unwrap();
        assert_eq!(message.payload, "kept");
    }
    assert!(broker.log_text().unwrap().matches("Server is ready").count() >= 3);
}

#[tokio::test]
async fn a_paused_broker_stands_still_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut broker = start(&dir).await;
    let client = async_nats::connect(broker.url()).await.unwrap();
    broker.pause().await.unwrap();
    let answer = wait_for_ping(&client, Duration::from_millis(300)).await;
    assert!(!answer, "a paused broker answered");
    broker.resume().await.unwrap();
    assert!(wait_for_ping(&client, LIMIT).await, "a resumed broker does not answer");
    broker.pause().await.unwrap();
    assert_eq!(broker.stop().await.unwrap(), Stopped::Cleanly, "a paused broker did not see SIGTERM");
    assert!(matches!(broker.pause().await, Err(BrokerError::NotRunning)));
}

/// A request without responders is answered by the broker itself.
async fn wait_for_ping(client: &async_nats::Client, limit: Duration) -> bool {
    tokio::time::timeout(limit, client.request("nobody.listens", "".into())).await.is_ok()
}

#[tokio::test]
async fn memory_and_processor_time_are_those_of_the_broker() {
    let dir = tempfile::tempdir().unwrap();
    let mut broker = start(&dir).await;
    let pid = broker.pid().unwrap();
    assert_eq!(broker.start_ticks(), Some(process_start_ticks(pid).unwrap()));
    assert!((5_000_000..500_000_000).contains(&broker.rss_bytes().unwrap()));
    let client = async_nats::connect(broker.url()).await.unwrap();
    let before = broker.cpu_time().unwrap();
    let busy = wait_until("processor time to grow", LIMIT, || async {
        for _ in 0..1_000 {
            client.publish("a.b", "x".into()).await.unwrap();
        }
        client.flush().await.unwrap();
        (broker.cpu_time().unwrap() > before).then_some(())
    });
    busy.await.unwrap();
    broker.kill().await.unwrap();
    assert!(matches!(broker.rss_bytes(), Err(BrokerError::NotRunning)));
    assert!(matches!(process_cpu_time(pid), Err(ProcessError::Gone { .. })));
}

#[tokio::test]
async fn a_start_that_fails_says_what_the_log_says() {
    let dir = tempfile::tempdir().unwrap();
    let server = find().await.unwrap();
    let wrong = BrokerConfig { extra_config: "no_such_setting: 1".into(), ..config(&dir) };
    let error = Broker::start(&server, wrong).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("no_such_setting") && !text.contains('\n'), "{text}");
    assert!(matches!(error, BrokerError::Exited { .. }));

    // The log of the run before is not blamed for this one.
    let unreadable = BrokerConfig { extra_config: "operator: \"/no/such/file.jwt\"".into(), ..config(&dir) };
    let text = Broker::start(&server, unreadable).await.unwrap_err().to_string();
    assert!(text.contains("/no/such/file.jwt") && !text.contains("no_such_setting"), "{text}");
}

#[tokio::test]
async fn a_port_in_use_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = other.local_addr().unwrap().port();
    let taken = BrokerConfig { port: Some(port), ..config(&dir) };
    let error = Broker::start(&find().await.unwrap(), taken).await.unwrap_err();
    assert!(matches!(error, BrokerError::Port { port: refused, .. } if refused == port), "{error}");

    // The same port is fine once it is free.
    drop(other);
    let free = BrokerConfig { port: Some(port), ..config(&dir) };
    assert_eq!(Broker::start(&find().await.unwrap(), free).await.unwrap().port(), port);
}

#[tokio::test]
async fn a_port_is_kept_while_the_broker_is_down() {
    let dir = tempfile::tempdir().unwrap();
    // No client has been there, so no connection that is still closing keeps the port instead.
    let mut broker = start(&dir).await;
    broker.kill().await.unwrap();
    let addr = broker.addr();
    let taken = tokio::net::TcpSocket::new_v4().unwrap().bind(addr).unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    drop(broker);
    tokio::net::TcpSocket::new_v4().unwrap().bind(addr).unwrap();
}

#[tokio::test]
async fn a_broker_that_is_not_ready_in_time_is_killed_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    // JetStream is expected, and the appended text takes it away again.
    let config = BrokerConfig {
        extra_config: "jetstream: disabled".into(),
        start_deadline: Duration::from_millis(700),
        ..config(&dir)
    };
    let log = config.log_path.clone();
    let error = Broker::start(&find().await.unwrap(), config).await.unwrap_err();
    assert!(error.to_string().contains("JetStream is off"), "{error}");
    let pid = pid_in(&std::fs::read_to_string(log).unwrap());
    assert!(matches!(process_start_ticks(pid), Err(ProcessError::Gone { .. })), "process {pid} was left behind");
}

#[tokio::test]
async fn a_long_control_line_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(&dir).await;
    let subject = "x".repeat(20_000);
    let client = async_nats::connect(broker.url()).await.unwrap();
    let mut subscription = client.subscribe(subject.clone()).await.unwrap();
    client.publish(subject, "long".into()).await.unwrap();
    let message = tokio::time::timeout(LIMIT, futures::StreamExt::next(&mut subscription)).await.unwrap();
    assert_eq!(message.unwrap().payload, "long");
}

#[tokio::test]
async fn a_dropped_broker_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(&dir).await;
    let (pid, ticks) = (broker.pid().unwrap(), broker.start_ticks().unwrap());
    assert!(is_alive(pid, ticks));
    drop(broker);
    // At once and reaped: what comes after the drop is often the removal of its folder.
    assert!(matches!(process_start_ticks(pid), Err(ProcessError::Gone { .. })));
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_no_process() {
    let dir = tempfile::tempdir().unwrap();
    // Never ready, as the appended text takes JetStream away.
    let config = BrokerConfig { extra_config: "jetstream: disabled".into(), ..config(&dir) };
    let log = config.log_path.clone();
    let server = find().await.unwrap();
    let up = || std::future::ready(std::fs::read_to_string(&log).ok().filter(|text| text.contains("is ready")));
    let text = tokio::select! {
        started = Broker::start(&server, config) => panic!("it was ready: {started:?}"),
        text = wait_until("the process to be up", LIMIT, up) => text.unwrap(),
    };
    let pid = pid_in(&text);
    if let Ok(ticks) = process_start_ticks(pid) {
        assert!(is_gone(pid, ticks).await);
    }
}

/// Greets like a broker and does not mind SIGTERM, which no nats-server can be made to do.
const STUBBORN: &str = r#"#!/usr/bin/env python3
import re, signal, socket, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
port = int(re.search(r"127\.0\.0\.1:(\d+)", open(sys.argv[2]).read()).group(1))
server = socket.create_server(("127.0.0.1", port))
while True:
    client, _ = server.accept()
    client.sendall(b'INFO {"server_id":"x","server_name":"x","version":"2.15.1","max_payload":1,"jetstream":true}\r\n')
    client.close()
"#;

#[tokio::test]
async fn a_broker_that_does_not_stop_in_time_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stubborn");
    // Written by a child: a file that this process has open while another thread forks cannot be executed.
    let mut copy = Command::new("/bin/sh");
    copy.args(["-c", "printf '%s' \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", STUBBORN]).arg(&path);
    assert!(copy.status().unwrap().success());
    let server = NatsServer { path, version: PINNED_VERSION, origin: Origin::Path };
    let config = BrokerConfig { stop_deadline: Duration::from_millis(100), ..config(&dir) };
    let mut broker = Broker::start(&server, config).await.unwrap();
    let (pid, ticks) = (broker.pid().unwrap(), broker.start_ticks().unwrap());
    assert_eq!(broker.stop().await.unwrap(), Stopped::Killed);
    assert!(!is_alive(pid, ticks));
}

#[tokio::test]
async fn a_broker_is_in_a_process_group_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let broker = start(&dir).await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(broker.pid().unwrap()).unwrap());
    assert_eq!(rustix::process::getpgid(pid).ok(), pid);
}

#[tokio::test]
async fn a_broker_that_died_by_itself_is_noticed_and_can_be_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let mut broker = start(&dir).await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(broker.pid().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let ended = async {
        while broker.is_running() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, ended).await.unwrap();
    assert!(matches!(broker.resume().await, Err(BrokerError::NotRunning)));
    broker.restart().await.unwrap();
    assert!(broker.is_running());
}

/// The pid that a nats-server puts into each line of its log.
fn pid_in(log: &str) -> u32 {
    log.split_once('[').unwrap().1.split_once(']').unwrap().0.parse().unwrap()
}

#[test]
fn a_broker_outlives_the_thread_and_the_runtime_that_started_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut broker = std::thread::scope(|scope| {
        let started = scope.spawn(|| tokio::runtime::Runtime::new().unwrap().block_on(start(&dir)));
        started.join().unwrap()
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(broker.url()).await.unwrap();
        assert!(wait_for_ping(&client, LIMIT).await, "the broker died with the thread that started it");
        assert!(broker.is_running());
        broker.kill().await.unwrap();
    });
}

/// Not a test of its own: plays the owner in the test below, and does nothing when run by itself.
#[tokio::test]
async fn plays_the_owner_of_a_broker() {
    let Some(dir) = std::env::var_os(OWNER_DIR).map(std::path::PathBuf::from) else { return };
    let broker = Broker::start(&find().await.unwrap(), BrokerConfig::new(dir.join("store"))).await.unwrap();
    let who = format!("{} {}", broker.pid().unwrap(), broker.start_ticks().unwrap());
    std::fs::write(dir.join("who.part"), who).unwrap();
    std::fs::rename(dir.join("who.part"), dir.join("who")).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_broker_dies_with_an_owner_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["plays_the_owner_of_a_broker", "--exact"])
        .env(OWNER_DIR, dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let who = || std::future::ready(std::fs::read_to_string(dir.path().join("who")).ok());
    let who = wait_until("the owner's broker", LIMIT, who).await.unwrap();
    let (pid, ticks) = who.split_once(' ').unwrap();
    let (pid, ticks) = (pid.parse().unwrap(), ticks.parse().unwrap());
    assert!(is_alive(pid, ticks));
    owner.kill().unwrap();
    owner.wait().unwrap();
    if !is_gone(pid, ticks).await {
        // Nobody else would end it.
        let left = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(left, rustix::process::Signal::KILL).unwrap();
        panic!("the broker outlived its owner");
    }
}
