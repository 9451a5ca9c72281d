//! A TCP relay between a client and a broker, with faults that a test can switch on and off.
//!
//! Owns its port and its connections. It passes bytes and knows no protocol; it is not meant for production.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::port::PortHold;
use crate::pump::{Valve, pump};

/// One of the two ways through a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the broker.
    ToBroker,
    /// From the broker to the client.
    ToClient,
}

/// After a failed accept (no file descriptors left), so that it is not tried in a tight loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Orders to the task that owns the listener; each is answered once it is carried out.
enum Order {
    Cut(oneshot::Sender<()>),
    Restore(oneshot::Sender<io::Result<()>>),
}

#[derive(Debug, Default)]
struct Counters {
    open: AtomicUsize,
    accepted: AtomicU64,
}

/// A relay on a free port of 127.0.0.1. It ends when it is dropped, and so do its connections.
///
/// [`cut`](Self::cut) is a broken network, [`freeze`](Self::freeze) a silent one, [`hold`](Self::hold) silence in one
/// direction ("stored but the acknowledgement never came"), [`slow`](Self::slow) a thin line. They can be combined; each
/// is ended only by its own counterpart. The kernel's own socket buffers lie on both sides of the relay, so a sender
/// can still write some megabytes before it notices that nothing moves.
#[derive(Debug)]
pub struct Relay {
    addr: SocketAddr,
    valve: watch::Sender<Valve>,
    /// Dropping it ends the task that owns the listener.
    orders: mpsc::Sender<Order>,
    counters: Arc<Counters>,
}

impl Relay {
    /// Starts a relay to `target`.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub async fn start(target: SocketAddr) -> io::Result<Self> {
        let hold = PortHold::new(None)?;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, hold.port()));
        let listener = hold.listen().await?;
        let valve = watch::Sender::new(Valve::default());
        let (orders, received) = mpsc::channel(1);
        let counters = Arc::new(Counters::default());
        let line = Line {
            hold,
            target,
            valve: valve.subscribe(),
            counters: Arc::clone(&counters),
            tasks: TaskTracker::new(),
            alive: CancellationToken::new(),
        };
        tokio::spawn(line.serve(Some(listener), received));
        Ok(Self { addr, valve, orders, counters })
    }

    /// The address clients connect to. It stays the same over [`cut`](Self::cut) and [`restore`](Self::restore).
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The same as a URL, `nats://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("nats://{}", self.addr)
    }

    /// Connections that are open now on both sides.
    pub fn connections(&self) -> usize {
        self.counters.open.load(Ordering::SeqCst)
    }

    /// Connections accepted since the start, also those that failed on the broker's side.
    pub fn accepted(&self) -> u64 {
        self.counters.accepted.load(Ordering::SeqCst)
    }

    /// Resets all connections on both sides and refuses new ones. Returns when that is done.
    pub async fn cut(&self) {
        let (done, answer) = oneshot::channel();
        // Neither fails but when the runtime of the relay is gone, and then nothing listens either.
        if self.orders.send(Order::Cut(done)).await.is_ok() {
            let _ = answer.await;
        }
    }

    /// Takes connections again after [`cut`](Self::cut), on the same port.
    ///
    /// # Errors
    ///
    /// When the port cannot be listened on, or the runtime of the relay is gone.
    pub async fn restore(&self) -> io::Result<()> {
        let (done, answer) = oneshot::channel();
        let gone = || io::Error::new(io::ErrorKind::BrokenPipe, "the relay's runtime is gone");
        self.orders.send(Order::Restore(done)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Keeps all connections and takes new ones, but moves nothing either way. What is sent after this has returned
    /// does not arrive before [`thaw`](Self::thaw).
    pub fn freeze(&self) {
        self.valve.send_modify(|valve| valve.frozen = true);
    }

    /// Ends [`freeze`](Self::freeze). What was kept back arrives; nothing is lost.
    pub fn thaw(&self) {
        self.valve.send_modify(|valve| valve.frozen = false);
    }

    /// Stops one direction only, as [`freeze`](Self::freeze) stops both.
    pub fn hold(&self, direction: Direction) {
        self.valve.send_modify(|valve| *valve.held_mut(direction) = true);
    }

    /// Ends [`hold`](Self::hold) of that direction. What was kept back arrives; nothing is lost.
    pub fn release(&self, direction: Direction) {
        self.valve.send_modify(|valve| *valve.held_mut(direction) = false);
    }

    /// Lets through at most this many bytes per second, for each connection and direction. Zero lets nothing through.
    pub fn slow(&self, bytes_per_s: u64) {
        self.valve.send_modify(|valve| valve.bytes_per_s = Some(bytes_per_s));
    }

    /// Ends [`slow`](Self::slow).
    pub fn full_speed(&self) {
        self.valve.send_modify(|valve| valve.bytes_per_s = None);
    }
}

/// What the listening task owns.
struct Line {
    hold: PortHold,
    target: SocketAddr,
    valve: watch::Receiver<Valve>,
    counters: Arc<Counters>,
    tasks: TaskTracker,
    /// Cancelled to reset the connections of now; a new one serves those to come.
    alive: CancellationToken,
}

impl Line {
    async fn serve(mut self, mut listener: Option<TcpListener>, mut orders: mpsc::Receiver<Order>) {
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Cut(done)) => {
                        // First the listener: what waits to be accepted is reset with it.
                        listener = None;
                        self.reset().await;
                        // Nobody waiting for the answer any more is no reason to stop.
                        let _ = done.send(());
                    }
                    Some(Order::Restore(done)) => {
                        let result = match listener {
                            Some(_) => Ok(()),
                            None => self.hold.listen().await.map(|fresh| listener = Some(fresh)),
                        };
                        let _ = done.send(result);
                    }
                    None => break,
                },
                accepted = accept(listener.as_ref()) => match accepted {
                    Ok(client) => self.take(client),
                    Err(error) => {
                        tracing::warn!(%error, "relay cannot accept");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        self.reset().await;
    }

    async fn reset(&mut self) {
        self.alive.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
        self.alive = CancellationToken::new();
    }

    fn take(&self, client: TcpStream) {
        self.counters.accepted.fetch_add(1, Ordering::SeqCst);
        let (target, valve, counters) = (self.target, self.valve.clone(), Arc::clone(&self.counters));
        let alive = self.alive.clone();
        self.tasks.spawn(async move {
            let connected = tokio::select! {
                () = alive.cancelled() => Err(io::ErrorKind::ConnectionReset.into()),
                broker = TcpStream::connect(target) => broker,
            };
            match connected {
                Ok(broker) => connect(client, broker, valve, &alive, &counters).await,
                // The broker is not there; the client must not take an orderly end for one.
                Err(_) => reset_on_drop(&client),
            }
        });
    }
}

/// Pends for ever when nothing listens.
async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(client, _)| client),
        None => std::future::pending().await,
    }
}

/// Passes bytes until both sides have ended, one has failed, or the relay is cut.
async fn connect(
    mut client: TcpStream,
    mut broker: TcpStream,
    valve: watch::Receiver<Valve>,
    alive: &CancellationToken,
    counters: &Counters,
) {
    let _open = Open::count(&counters.open);
    // A relay that gathers small packets would change the timing it is meant to pass on.
    let ready = client.set_nodelay(true).and_then(|()| broker.set_nodelay(true));
    let orderly = {
        let (client_read, client_write) = client.split();
        let (broker_read, broker_write) = broker.split();
        let to_broker = pump(client_read, broker_write, Direction::ToBroker, valve.clone());
        let to_client = pump(broker_read, client_write, Direction::ToClient, valve);
        tokio::select! {
            biased;
            () = alive.cancelled() => false,
            ended = async { tokio::try_join!(to_broker, to_client) } => ready.is_ok() && ended.is_ok(),
        }
    };
    if !orderly {
        reset_on_drop(&client);
        reset_on_drop(&broker);
    }
}

/// Makes the coming drop send a reset instead of an orderly end. Where that fails the socket is broken anyway.
fn reset_on_drop(stream: &TcpStream) {
    if let Err(error) = stream.set_zero_linger() {
        tracing::debug!(%error, "relay cannot reset a connection");
    }
}

/// Counts a connection as long as it lives.
struct Open<'a>(&'a AtomicUsize);

impl<'a> Open<'a> {
    fn count(open: &'a AtomicUsize) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        Self(open)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
