//! Keeping a loopback port for oneself while nobody listens on it.
//!
//! A socket that is bound but never listens reserves its port: the kernel gives it to nobody who asks for a free one,
//! neither for listening nor for a connection going out, while a server that sets `SO_REUSEADDR` (as nats-server and
//! [`listen`] do) can still bind and listen there. So a port can be known before the server starts, and it is still
//! there after the server was stopped.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use std::time::Duration;

use tokio::{
    net::{TcpListener, TcpSocket},
    time::{Instant, sleep},
};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// How long a listener may live on in a child that is being started.
const INHERITED_FOR: Duration = Duration::from_secs(2);
/// The pause between two attempts to listen.
const AGAIN: Duration = Duration::from_millis(5);

/// A reserved port on 127.0.0.1. It is free for others again when this is dropped.
#[derive(Debug)]
pub(crate) struct PortHold {
    port: u16,
    _socket: TcpSocket,
}

impl PortHold {
    /// Reserves `port`, or any free one for `None`. Fails when somebody else listens there.
    pub(crate) fn new(port: Option<u16>) -> io::Result<Self> {
        let socket = bind(port.unwrap_or(0))?;
        Ok(Self { port: socket.local_addr()?.port(), _socket: socket })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Listens on the reserved port.
    ///
    /// A child that another thread is just starting holds a copy of every socket until it becomes its own program; a
    /// listener closed a moment ago may live on in one, and the port is in use for that long.
    pub(crate) async fn listen(&self) -> io::Result<TcpListener> {
        let until = Instant::now() + INHERITED_FOR;
        loop {
            match bind(self.port).and_then(|socket| socket.listen(BACKLOG)) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => sleep(AGAIN).await,
                settled => return settled,
            }
        }
    }
}

fn bind(port: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn a_held_port_refuses_until_it_listens_and_after_it_stopped() {
        let hold = PortHold::new(None).unwrap();
        let addr = (Ipv4Addr::LOCALHOST, hold.port());
        for _ in 0..2 {
            assert_eq!(TcpStream::connect(addr).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
            let listener = hold.listen().await.unwrap();
            TcpStream::connect(addr).await.unwrap();
            drop(listener);
        }
    }

    #[tokio::test]
    async fn a_port_on_which_somebody_listens_cannot_be_held() {
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let error = PortHold::new(Some(other.local_addr().unwrap().port())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
