//! What a service manager hears: ready when every lane was attempted, a status line, that the process is alive, reloads,
//! and the stop.

use lanekeeper_broker::wait_until;
use rustix::process::Signal;
use tokio::{net::UnixDatagram, time::timeout};

use crate::{
    fleet::{Fleet, Host},
    support::PATIENCE,
};

/// Everything heard so far, a line each.
struct Ear {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Ear {
    /// Listens until a line starts like this, and gives it.
    async fn hears(&mut self, start: &str, host: &Host) -> String {
        let before = self.heard.len();
        let mut message = [0u8; 4096];
        let listen = async {
            loop {
                let length = self.socket.recv(&mut message).await.unwrap();
                self.heard.extend(String::from_utf8_lossy(&message[..length]).lines().map(str::to_owned));
                if let Some(line) = self.heard[before..].iter().find(|line| line.starts_with(start)) {
                    return line.clone();
                }
            }
        };
        let found = timeout(PATIENCE, listen).await;
        found.unwrap_or_else(|_| panic!("{start} was not heard: {:?}\n{}", self.heard, host.log_tail()))
    }

    fn has_heard(&self, start: &str) -> bool {
        self.heard.iter().any(|line| line.starts_with(start))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_manager_is_told() {
    let fleet = Fleet::new(&["ada", "bob"]).await;
    fleet.rotate("bob", "garbage");
    let path = fleet.path("notify.sock");
    let mut ear = Ear { socket: UnixDatagram::bind(&path).unwrap(), heard: Vec::new() };
    let socket = path.display().to_string();
    let variables = [("NOTIFY_SOCKET", socket.as_str()), ("WATCHDOG_USEC", "500000")];
    let mut host = fleet.start_in("one", "", "conf/spaces.toml", &[], &[], &variables).await;
    ear.hears("EXTEND_TIMEOUT_USEC=", &host).await;
    assert!(!ear.has_heard("READY=1"), "there is no manifest yet: {:?}", ear.heard);
    fleet.write("conf/spaces.toml", &fleet.manifest(&["ada", "bob"]));
    ear.hears("READY=1", &host).await;
    let line = ear.hears("STATUS=1 serving, 1 parked", &host).await;
    assert!(line.ends_with("manifest generation 1"), "{line}");
    for _ in 0..3 {
        ear.hears("WATCHDOG=1", &host).await;
    }
    host.hang_up();
    let reloading = ear.hears("RELOADING=1", &host).await;
    assert!(!reloading.is_empty() && ear.has_heard("MONOTONIC_USEC="), "{:?}", ear.heard);
    ear.hears("READY=1", &host).await;
    // A process whose loop does not run is not alive: the beats stop with it.
    host.daemon.signal(Signal::STOP);
    let quiet = async || {
        let beat = timeout(std::time::Duration::from_secs(2), ear.socket.recv(&mut [0u8; 4096])).await;
        beat.is_err().then_some(())
    };
    wait_until("silence", PATIENCE, quiet).await.unwrap();
    host.daemon.signal(Signal::CONT);
    ear.hears("WATCHDOG=1", &host).await;
    host.daemon.signal(Signal::TERM);
    ear.hears("STOPPING=1", &host).await;
    assert!(host.daemon.ended(PATIENCE).await.success());
}
