//! The admin server: health, the state of every lane, reload and the orders to single lanes, over HTTP on one address.
//!
//! Owns the socket and what bounds it: connections at once, time, size. Who may ask is `gate`'s, what can be asked is
//! `routes`'. It must not know how lanes are run: it has a [`Desk`].

mod connection;
mod desk;
mod gate;
mod routes;
mod token;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

pub use desk::{Answer, Desk, Order, Refusal};
pub use token::{Token, TokenFault, TokenGuard};

use crate::config::AdminConfig;
use gate::Gate;

/// Connections at once; more wait in the system's queue.
const MAX_CONNECTIONS: usize = 64;
/// How long requests in progress may take once the server is asked to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(2);
/// The pause after the system refused a connection, for want of file descriptors for example.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the admin server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AdminFault {
    /// Everybody could close lanes.
    #[error(
        "the admin server will not listen on {0}, which others can reach, without a token; set `admin.token_file`, or listen on 127.0.0.1"
    )]
    Exposed(SocketAddr),
    /// The token file.
    #[error(transparent)]
    Token(#[from] TokenFault),
    /// The address.
    #[error(
        "the admin server cannot listen on {listen}: {source}; stop what uses the address, or set another `admin.listen`"
    )]
    Bind {
        /// The address.
        listen: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// A bound admin server.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    address: SocketAddr,
    gate: Gate,
}

impl Admin {
    /// Reads the token and takes the address. Nothing is answered yet.
    ///
    /// # Errors
    /// See [`AdminFault`].
    pub async fn bind(config: &AdminConfig) -> Result<Self, AdminFault> {
        let listen = config.listen;
        if !listen.ip().is_loopback() && config.token_file.is_none() {
            return Err(AdminFault::Exposed(listen));
        }
        let guard = config.token_file.as_deref().map(TokenGuard::open).transpose()?;
        let bound = |source| AdminFault::Bind { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(bound)?;
        let address = listener.local_addr().map_err(bound)?;
        Ok(Self { listener, address, gate: Gate::new(guard, address) })
    }

    /// The address, with the port that was chosen.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop`, then lets requests in progress end.
    pub async fn serve(self, desk: Desk, stop: CancellationToken) {
        tracing::info!(address = %self.address, "the admin server listens");
        let router = routes::router(desk, self.gate);
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            // The room is waited for before the connection, so that what is too much stays with the system.
            let next = async {
                let room = Arc::clone(&room).acquire_owned().await;
                (room, self.listener.accept().await)
            };
            let (room, accepted) = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                // Neither half holds anything when it is dropped.
                next = next => next,
            };
            match accepted {
                Ok((stream, _)) => {
                    let router = router.clone();
                    connections.spawn(async move {
                        connection::serve(stream, router).await;
                        drop(room);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the admin server cannot take a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.listener);
        let ended = timeout(STOP_PATIENCE, async { while connections.join_next().await.is_some() {} });
        if ended.await.is_err() {
            connections.shutdown().await;
        }
    }
}
