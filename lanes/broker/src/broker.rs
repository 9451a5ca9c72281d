//! One `nats-server` child: start, stop, kill, pause, restart on the same port and store, and its end with its owner.
//!
//! Owns the process, the reserved port and the configuration file. It does not find the binary and knows no client.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::config::{BrokerConfig, ConfigError};
use crate::find::NatsServer;
use crate::log;
use crate::port::PortHold;
use crate::process::{ProcessError, Stat, process_cpu_time, process_rss_bytes, process_start_ticks};
use crate::ready::{NotReady, ServerInfo, probe};
use crate::spawn::spawn_owned;
use crate::wait::{TimedOut, wait_until};

/// Between two connection attempts while a broker starts.
const PROBE_PAUSE: Duration = Duration::from_millis(5);

/// A process that was sent SIGKILL, SIGSTOP or SIGCONT follows at once, unless the machine is overloaded.
const SIGNAL_DEADLINE: Duration = Duration::from_secs(20);

/// How long a drop may block for the end of a killed child, so that its folder can be removed behind it.
const DROP_DEADLINE: Duration = Duration::from_millis(500);

/// How a broker came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It ended by itself after SIGTERM.
    Cleanly,
    /// SIGTERM was not enough within the deadline, so it was killed.
    Killed,
    /// It was not running.
    AlreadyDown,
}

/// A broker could not be started or handled.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// No configuration file could be made.
    #[error("cannot configure the broker: {0}")]
    Config(#[from] ConfigError),
    /// The port is taken.
    #[error("cannot have port {port} on 127.0.0.1: {source}; take another one or none")]
    Port {
        /// The port, 0 for any.
        port: u16,
        /// Why.
        source: io::Error,
    },
    /// The log could not be opened.
    #[error("cannot use the log file: {0}")]
    Log(io::Error),
    /// The binary could not be run.
    #[error("cannot run the broker's binary: {0}")]
    Spawn(io::Error),
    /// It ended before it was ready.
    #[error("the broker ended with {status} before it was ready; its log: {log_tail}")]
    Exited {
        /// How it ended.
        status: ExitStatus,
        /// The last lines of the log, without secrets.
        log_tail: String,
    },
    /// It runs but was not ready in time. It has been killed.
    #[error("the broker was not ready within {limit_ms} ms: {problem}; its log: {log_tail}")]
    NotReady {
        /// The time it was given, in milliseconds.
        limit_ms: u128,
        /// What the last attempt said.
        problem: NotReady,
        /// The last lines of the log, without secrets.
        log_tail: String,
    },
    /// There is no process to act on.
    #[error("the broker is not running")]
    NotRunning,
    /// A signal could not be sent, or the end of the process could not be learnt.
    #[error("cannot control the broker's process: {0}")]
    Control(io::Error),
    /// A signal had no effect.
    #[error("the broker's process did not follow a signal: {0}")]
    Unmoved(#[from] TimedOut),
    /// `/proc` could not be read.
    #[error("cannot read the broker's process: {0}")]
    Process(#[from] ProcessError),
}

/// The child, known by pid and start time. The pid stays ours until the child is reaped, which only happens here.
#[derive(Debug)]
struct Running {
    child: Child,
    pid: u32,
    start_ticks: u64,
}

/// A `nats-server` that this process owns. It listens on 127.0.0.1 only.
///
/// It runs in a process group of its own, so a Ctrl-C in the terminal reaches the owner only, which can close its
/// clients before it stops the broker. Dropping it kills it, and the kernel kills it when the owner dies in any way.
/// What it wrote (store, log, configuration file) stays.
#[derive(Debug)]
pub struct Broker {
    server: NatsServer,
    config: BrokerConfig,
    hold: PortHold,
    info: ServerInfo,
    running: Option<Running>,
}

impl Broker {
    /// Starts a broker and waits until it answers.
    ///
    /// # Errors
    ///
    /// [`BrokerError`]; when the broker itself gave up, it carries the last lines of the log.
    pub async fn start(server: &NatsServer, mut config: BrokerConfig) -> Result<Self, BrokerError> {
        // The child may be restarted after this process has changed its working folder.
        config.store_dir = std::path::absolute(&config.store_dir).map_err(BrokerError::Log)?;
        config.log_path = std::path::absolute(&config.log_path).map_err(BrokerError::Log)?;
        let hold = PortHold::new(config.port)
            .map_err(|source| BrokerError::Port { port: config.port.unwrap_or(0), source })?;
        let (running, info) = launch(server, &config, hold.port()).await?;
        Ok(Self { server: server.clone(), config, hold, info, running: Some(running) })
    }

    /// The address clients connect to, `nats://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("nats://{}", self.addr())
    }

    /// The socket address clients connect to.
    pub fn addr(&self) -> SocketAddr {
        loopback(self.port())
    }

    /// The port, the same over restarts and reserved while the broker is down.
    pub fn port(&self) -> u16 {
        self.hold.port()
    }

    /// The process id, unless the broker was stopped or killed here.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.pid)
    }

    /// The start time of the process in clock ticks since boot; with the pid it names the process for good.
    pub fn start_ticks(&self) -> Option<u64> {
        self.running.as_ref().map(|running| running.start_ticks)
    }

    /// What the broker said of itself at its last start.
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// The binary it runs.
    pub fn server(&self) -> &NatsServer {
        &self.server
    }

    /// The log file. It grows over restarts.
    pub fn log_path(&self) -> &Path {
        &self.config.log_path
    }

    /// The whole log.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn log_text(&self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.config.log_path)?).into_owned())
    }

    /// Replaces the extra configuration text for the next [`Broker::restart`].
    pub fn set_extra_config(&mut self, text: impl Into<String>) {
        self.config.extra_config = text.into();
    }

    /// Whether the process is still there. It may have ended by itself.
    pub fn is_running(&mut self) -> bool {
        self.running.as_mut().is_some_and(|running| matches!(running.child.try_wait(), Ok(None)))
    }

    /// Stops the broker in order: SIGTERM, and SIGKILL when it is not gone after `stop_deadline`. A paused broker is
    /// resumed first.
    ///
    /// # Errors
    ///
    /// [`BrokerError::Control`] when the process cannot be signalled or waited for.
    pub async fn stop(&mut self) -> Result<Stopped, BrokerError> {
        let Some(mut running) = self.running.take() else { return Ok(Stopped::AlreadyDown) };
        if running.child.try_wait().map_err(BrokerError::Control)?.is_some() {
            return Ok(Stopped::AlreadyDown);
        }
        running.signal(Signal::TERM)?;
        running.signal(Signal::CONT)?;
        match timeout(self.config.stop_deadline, running.child.wait()).await {
            Ok(status) => status.map(|_| Stopped::Cleanly).map_err(BrokerError::Control),
            Err(_) => running.kill().await.map(|()| Stopped::Killed),
        }
    }

    /// Kills the broker with SIGKILL, as a crash would.
    ///
    /// # Errors
    ///
    /// [`BrokerError::Control`] when the process cannot be signalled or waited for.
    pub async fn kill(&mut self) -> Result<(), BrokerError> {
        match self.running.take() {
            Some(mut running) => running.kill().await,
            None => Ok(()),
        }
    }

    /// Stops the broker if it runs, and starts it again on the same port and store.
    ///
    /// # Errors
    ///
    /// As [`Broker::stop`] and [`Broker::start`]. After a failed start the broker is down and may be restarted.
    pub async fn restart(&mut self) -> Result<(), BrokerError> {
        self.stop().await?;
        let (running, info) = launch(&self.server, &self.config, self.hold.port()).await?;
        self.running = Some(running);
        self.info = info;
        Ok(())
    }

    /// Stops the process with SIGSTOP: its connections stay open and nothing moves. Returns when it stands still.
    ///
    /// # Errors
    ///
    /// [`BrokerError::NotRunning`], or that the process did not follow.
    pub async fn pause(&mut self) -> Result<(), BrokerError> {
        self.running()?.signal_until(Signal::STOP, "the broker to stand still", |state| state == 'T').await
    }

    /// Lets a paused process go on with SIGCONT.
    ///
    /// # Errors
    ///
    /// [`BrokerError::NotRunning`], or that the process did not follow.
    pub async fn resume(&mut self) -> Result<(), BrokerError> {
        self.running()?.signal_until(Signal::CONT, "the broker to go on", |state| state != 'T').await
    }

    /// Resident memory of the broker, in bytes.
    ///
    /// # Errors
    ///
    /// [`BrokerError::NotRunning`], or that `/proc` cannot be read.
    pub fn rss_bytes(&self) -> Result<u64, BrokerError> {
        let running = self.running.as_ref().ok_or(BrokerError::NotRunning)?;
        Ok(process_rss_bytes(running.pid)?)
    }

    /// Processor time the broker has used since its last start.
    ///
    /// # Errors
    ///
    /// [`BrokerError::NotRunning`], or that `/proc` cannot be read.
    pub fn cpu_time(&self) -> Result<Duration, BrokerError> {
        let running = self.running.as_ref().ok_or(BrokerError::NotRunning)?;
        Ok(process_cpu_time(running.pid)?)
    }

    fn running(&mut self) -> Result<&mut Running, BrokerError> {
        if self.is_running() {
            self.running.as_mut().ok_or(BrokerError::NotRunning)
        } else {
            Err(BrokerError::NotRunning)
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let Some(running) = self.running.as_mut() else { return };
        if running.child.start_kill().is_err() {
            return;
        }
        let pause = Duration::from_millis(1);
        let mut waited = Duration::ZERO;
        while waited < DROP_DEADLINE && matches!(running.child.try_wait(), Ok(None)) {
            std::thread::sleep(pause);
            waited += pause;
        }
    }
}

impl Running {
    fn signal(&self, signal: Signal) -> Result<(), BrokerError> {
        // `id` is none once the child was reaped, and from then on the pid may be somebody else's.
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = id.ok_or(BrokerError::NotRunning)?;
        kill_process(pid, signal).map_err(|errno| BrokerError::Control(errno.into()))
    }

    async fn signal_until(
        &mut self,
        signal: Signal,
        what: &str,
        done: impl Fn(char) -> bool,
    ) -> Result<(), BrokerError> {
        self.signal(signal)?;
        let pid = self.pid;
        let state = || std::future::ready(Stat::read(pid).map(|stat| done(stat.state).then_some(())).transpose());
        Ok(wait_until(what, SIGNAL_DEADLINE, state).await??)
    }

    async fn kill(&mut self) -> Result<(), BrokerError> {
        self.child.start_kill().map_err(BrokerError::Control)?;
        match timeout(SIGNAL_DEADLINE, self.child.wait()).await {
            Ok(status) => status.map(|_| ()).map_err(BrokerError::Control),
            Err(_) => {
                let what = "the end of a killed broker".to_owned();
                Err(TimedOut { what, waited_ms: SIGNAL_DEADLINE.as_millis() }.into())
            }
        }
    }
}

/// Writes the configuration, starts the process and waits for its greeting. On failure no process is left.
async fn launch(server: &NatsServer, config: &BrokerConfig, port: u16) -> Result<(Running, ServerInfo), BrokerError> {
    let config_path = config.write(port)?;
    let log = open_log(&config.log_path).map_err(BrokerError::Log)?;
    let log_start = log.metadata().map_err(BrokerError::Log)?.len();
    let mut command = Command::new(&server.path);
    command.arg("-c").arg(&config_path).stdin(Stdio::null());
    // The broker's first complaints go to its standard error whatever log file is configured.
    command.stdout(log.try_clone().map_err(BrokerError::Log)?).stderr(log);
    let mut child = spawn_owned(command).await.map_err(BrokerError::Spawn)?;
    let log_tail = || log::tail(&config.log_path, log_start);
    let pid = child.id().ok_or(BrokerError::NotRunning)?;
    let start_ticks = process_start_ticks(pid)?;

    let mut problem = NotReady::Connection(io::ErrorKind::NotConnected.into());
    let ready = timeout(config.start_deadline, async {
        loop {
            tokio::select! {
                status = child.wait() => return Err(status),
                answer = probe(loopback(port), config.jetstream) => match answer {
                    Ok(info) => return Ok(info),
                    Err(error) => problem = error,
                },
            }
            sleep(PROBE_PAUSE).await;
        }
    })
    .await;
    match ready {
        Ok(Ok(info)) => Ok((Running { child, pid, start_ticks }, info)),
        Ok(Err(Ok(status))) => Err(BrokerError::Exited { status, log_tail: log_tail() }),
        Ok(Err(Err(error))) => Err(BrokerError::Control(error)),
        Err(_) => {
            Running { child, pid, start_ticks }.kill().await?;
            let limit_ms = config.start_deadline.as_millis();
            Err(BrokerError::NotReady { limit_ms, problem, log_tail: log_tail() })
        }
    }
}

/// The log may hold credentials when the protocol is traced.
fn open_log(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    File::options().create(true).append(true).mode(0o600).open(path)
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
