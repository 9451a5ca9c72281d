//! Signals that ask the process to stop.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that SIGTERM or SIGINT cancels. The handlers are in place when this returns.
///
/// # Errors
/// The operating system refuses a handler.
pub fn stop_on_signal() -> Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate()).context("handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("handle SIGINT")?;
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM, stopping"),
            _ = interrupt.recv() => tracing::info!("SIGINT, stopping"),
        }
        asked.cancel();
    });
    Ok(stop)
}
