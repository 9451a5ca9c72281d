//! One connection to the admin server: one request, bounded in time and size.
//!
//! Owns the bounds. It must not know what is asked.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{net::TcpStream, time::timeout};

/// How long a request's head may take to arrive.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// How long the whole exchange may take, longer than the longest order.
const WHOLE_PATIENCE: Duration = Duration::from_secs(60);
/// The largest head of a request, bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The most header fields.
const MAX_HEADERS: usize = 64;

/// Answers one request. There is no second one on a connection: who holds it open without asking takes nobody's room.
pub(super) async fn serve(stream: TcpStream, router: Router) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .keep_alive(false);
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match timeout(WHOLE_PATIENCE, served).await {
        Ok(Ok(())) => {}
        // Whoever asked has gone away, or does not speak HTTP; nothing is wrong here.
        Ok(Err(error)) => tracing::debug!(%error, "an admin connection broke off"),
        Err(_) => tracing::debug!("an admin connection took too long"),
    }
}
