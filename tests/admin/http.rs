//! A running server and requests that are spelled out, so that a wrong one can be sent too.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use lanekeeper::{
    admin::{Admin, Desk},
    config::AdminConfig,
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::recorded::Recorded;

/// How long a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server on a port of its own.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Server {
    /// Starts it on loopback without a token.
    pub(crate) async fn open(recorded: &Recorded) -> Self {
        Self::on("127.0.0.1:0", None, recorded).await
    }

    pub(crate) async fn on(listen: &str, token_file: Option<PathBuf>, recorded: &Recorded) -> Self {
        let config = AdminConfig { listen: listen.parse().unwrap(), token_file };
        Self::of(Admin::bind(&config).await.unwrap(), recorded.desk())
    }

    pub(crate) fn of(admin: Admin, desk: Desk) -> Self {
        let (address, stop) = (admin.address(), CancellationToken::new());
        let task = tokio::spawn(admin.serve(desk, stop.clone()));
        Self { address, stop, task }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str) -> Reply {
        self.ask("POST", path, &[], "").await
    }

    /// Sends a request with further header lines and a body.
    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Reply {
        Self::ask_at(self.address, method, path, headers, body).await
    }

    /// The same to another server.
    pub(crate) async fn ask_at(address: SocketAddr, method: &str, path: &str, headers: &[&str], body: &str) -> Reply {
        let host = if headers.iter().any(|line| line.starts_with("Host:")) {
            String::new()
        } else {
            format!("Host: {address}\r\n")
        };
        let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        send(address, &format!("{method} {path} HTTP/1.1\r\n{host}{lines}{length}\r\n{body}")).await
    }

    /// Sends these bytes and reads to the end.
    pub(crate) async fn raw(&self, text: &str) -> Reply {
        send(self.address, text).await
    }

    /// Asks it to stop and waits until it has.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        timeout(PATIENCE, self.task).await.expect("an end in time").unwrap();
    }
}

async fn send(address: SocketAddr, text: &str) -> Reply {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may have answered and closed before everything is sent.
    let _ = stream.write_all(text.as_bytes()).await;
    let mut bytes = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("an answer in time");
    Reply::parse(&String::from_utf8(bytes).unwrap())
}

impl Reply {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    pub(crate) fn json(&self) -> Value {
        assert!(self.head.contains("content-type: application/json"), "{self:?}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The one line of a refusal.
    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_else(|| panic!("no error in {self:?}")).to_owned()
    }
}

/// A private token file.
pub(crate) fn token_file(dir: &Path, token: &str) -> PathBuf {
    let path = dir.join("token");
    let staged = dir.join("token.new");
    fs::write(&staged, format!("{token}\n")).unwrap();
    fs::set_permissions(&staged, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(staged, &path).unwrap();
    path
}
