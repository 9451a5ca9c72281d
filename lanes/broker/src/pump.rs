//! One direction of one relayed connection: bytes from one side to the other, as the valve allows.
//!
//! Owns a buffer of bounded size and no socket. Whether to reset or to close is the relay's decision.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::relay::Direction;

/// Bytes a pump holds at most.
const BUFFER_BYTES: usize = 16 * 1024;

/// A slow line moves its bytes in this many steps a second.
const STEPS_PER_S: u64 = 50;

/// What the relay lets through at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Valve {
    pub(crate) frozen: bool,
    held_to_broker: bool,
    held_to_client: bool,
    pub(crate) bytes_per_s: Option<u64>,
}

impl Valve {
    pub(crate) fn held_mut(&mut self, direction: Direction) -> &mut bool {
        match direction {
            Direction::ToBroker => &mut self.held_to_broker,
            Direction::ToClient => &mut self.held_to_client,
        }
    }

    fn is_open(&self, direction: Direction) -> bool {
        let held = match direction {
            Direction::ToBroker => self.held_to_broker,
            Direction::ToClient => self.held_to_client,
        };
        !self.frozen && !held && self.bytes_per_s != Some(0)
    }

    /// How many bytes may go in one step.
    fn step(&self) -> usize {
        let step = self.bytes_per_s.map_or(BUFFER_BYTES as u64, |rate| rate / STEPS_PER_S);
        usize::try_from(step).unwrap_or(BUFFER_BYTES).clamp(1, BUFFER_BYTES)
    }
}

/// Passes bytes until the reading side ends; the end is passed on too.
pub(crate) async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    direction: Direction,
    mut valve: watch::Receiver<Valve>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = while_open(&mut valve, direction, |cx| poll_read(&mut from, cx, &mut buffer)).await?;
        if read == 0 {
            return while_open(&mut valve, direction, |cx| Pin::new(&mut to).poll_shutdown(cx)).await;
        }
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let step = valve.borrow().step().min(rest.len());
            // Asked again for every write: what was read just before the valve closed must not pass either.
            let chunk = &rest[..step];
            let written = while_open(&mut valve, direction, |cx| Pin::new(&mut to).poll_write(cx, chunk)).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            rest = &rest[written..];
            pace(&mut valve, written).await?;
        }
    }
}

fn poll_read(from: &mut (impl AsyncRead + Unpin), cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
    let mut buffer = ReadBuf::new(buffer);
    ready!(Pin::new(from).poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}

/// Runs an operation that may be broken off without loss, only while the valve is open; begins it anew each time the
/// valve opens again. The valve is looked at first whenever the task wakes, so nothing that becomes possible after it
/// was closed is done.
async fn while_open<T>(
    valve: &mut watch::Receiver<Valve>,
    direction: Direction,
    mut operation: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
) -> io::Result<T> {
    loop {
        until(valve, |valve| valve.is_open(direction)).await?;
        tokio::select! {
            biased;
            closed = until(valve, |valve| !valve.is_open(direction)) => closed?,
            result = poll_fn(&mut operation) => return result,
        }
    }
}

/// Waits as long as `bytes` take on a slow line, or until its speed is changed.
async fn pace(valve: &mut watch::Receiver<Valve>, bytes: usize) -> io::Result<()> {
    let rate = valve.borrow().bytes_per_s;
    let Some(bytes_per_s) = rate.filter(|rate| *rate > 0) else { return Ok(()) };
    let nanos = (bytes as u64).saturating_mul(1_000_000_000) / bytes_per_s;
    tokio::select! {
        () = sleep(Duration::from_nanos(nanos)) => Ok(()),
        changed = until(valve, |valve| valve.bytes_per_s != rate) => changed,
    }
}

async fn until(valve: &mut watch::Receiver<Valve>, is_so: impl FnMut(&Valve) -> bool) -> io::Result<()> {
    // The sender is gone when the relay was dropped.
    valve.wait_for(is_so).await.map(drop).map_err(|_| io::ErrorKind::ConnectionAborted.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::{Instant, timeout};

    fn open_valve() -> (watch::Sender<Valve>, watch::Receiver<Valve>) {
        watch::channel(Valve::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_line_takes_its_time_and_loses_nothing() {
        let (mut source, from) = tokio::io::duplex(64 * 1024);
        let (to, mut sink) = tokio::io::duplex(64 * 1024);
        let (sender, valve) = open_valve();
        sender.send_modify(|valve| valve.bytes_per_s = Some(10_000));
        tokio::spawn(async move { pump(from, to, Direction::ToBroker, valve).await });
        let sent: Vec<u8> = (0..30_000_u32).map(|n| n as u8).collect();
        source.write_all(&sent).await.unwrap();
        drop(source);
        let started = Instant::now();
        let mut received = Vec::new();
        sink.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, sent);
        let took = started.elapsed();
        assert!((2_900..3_300).contains(&took.as_millis()), "30,000 bytes at 10,000 a second took {took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_speed_ends_a_long_pause() {
        let (mut source, from) = tokio::io::duplex(1024);
        let (to, mut sink) = tokio::io::duplex(1024);
        let (sender, valve) = open_valve();
        // One byte a second.
        sender.send_modify(|valve| valve.bytes_per_s = Some(1));
        tokio::spawn(async move { pump(from, to, Direction::ToClient, valve).await });
        source.write_all(b"ab").await.unwrap();
        assert_eq!(sink.read_u8().await.unwrap(), b'a');
        sender.send_modify(|valve| valve.bytes_per_s = None);
        let next = timeout(Duration::from_millis(100), sink.read_u8()).await;
        assert_eq!(next.expect("the pause went on").unwrap(), b'b');
    }

    #[tokio::test]
    async fn what_is_sent_after_closing_does_not_pass_and_comes_after_opening() {
        for round in 0..200_u8 {
            let (mut source, from) = tokio::io::duplex(1024);
            let (to, mut sink) = tokio::io::duplex(1024);
            let (sender, valve) = open_valve();
            tokio::spawn(async move { pump(from, to, Direction::ToBroker, valve).await });
            source.write_all(b"x").await.unwrap();
            assert_eq!(sink.read_u8().await.unwrap(), b'x');
            sender.send_modify(|valve| *valve.held_mut(Direction::ToBroker) = true);
            source.write_all(&[round]).await.unwrap();
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            assert!(futures::FutureExt::now_or_never(sink.read_u8()).is_none(), "a byte passed a closed valve");
            sender.send_modify(|valve| *valve.held_mut(Direction::ToBroker) = false);
            assert_eq!(sink.read_u8().await.unwrap(), round);
        }
    }

    #[tokio::test]
    async fn a_write_that_was_stuck_does_not_go_on_when_the_valve_is_closed() {
        let (mut source, from) = tokio::io::duplex(1024);
        // Takes four bytes, then the pump is stuck in its write.
        let (to, mut sink) = tokio::io::duplex(4);
        let (sender, valve) = open_valve();
        tokio::spawn(async move { pump(from, to, Direction::ToBroker, valve).await });
        source.write_all(b"12345678").await.unwrap();
        let mut part = [0; 4];
        sink.read_exact(&mut part[..1]).await.unwrap();
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        sender.send_modify(|valve| valve.frozen = true);
        sink.read_exact(&mut part).await.unwrap();
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert!(futures::FutureExt::now_or_never(sink.read_u8()).is_none(), "a byte passed a closed valve");
        sender.send_modify(|valve| valve.frozen = false);
        sink.read_exact(&mut part[..3]).await.unwrap();
        assert_eq!(&part[..3], b"678");
    }

    #[test]
    fn a_valve_is_open_only_without_any_fault() {
        let open = Valve::default();
        assert!(open.is_open(Direction::ToBroker) && open.is_open(Direction::ToClient));
        let mut held = open;
        *held.held_mut(Direction::ToClient) = true;
        assert!(held.is_open(Direction::ToBroker) && !held.is_open(Direction::ToClient));
        assert!(!Valve { frozen: true, ..open }.is_open(Direction::ToBroker));
        assert!(!Valve { bytes_per_s: Some(0), ..open }.is_open(Direction::ToBroker));
        assert!(Valve { bytes_per_s: Some(3), ..open }.is_open(Direction::ToBroker));
        assert_eq!(Valve { bytes_per_s: Some(3), ..open }.step(), 1);
    }
}
