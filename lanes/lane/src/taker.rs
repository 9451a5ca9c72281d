//! Taking batches from a durable for a stage, and having the replica catch up with each.
//!
//! Owns the intake while a stage runs and the counting of what is in hand. It must not judge: a batch is passed on once
//! the tables are as fresh as the batch.

use std::{sync::Arc, time::Duration};

use lanekeeper_wire::Bucket;
use tokio::{
    sync::{Semaphore, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    fault::FaultKind,
    intake::{Delivery, Intake, Settle, settle},
    link::Link,
    permit::Permit,
    registry::Registry,
};

/// How long an orphaned taker may flush what it hands back.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);
/// Payload bytes that count as one more unit in hand, so that large posts are bounded by memory and small ones by number.
const UNIT_BYTES: usize = 16 * 1024;

/// How a taker ended: what it could not pass on, and why.
pub(crate) struct Taken {
    pub(crate) left: Vec<Delivery>,
    pub(crate) result: Result<(), FaultKind>,
}

/// Takes batches, has the replica catch up with each, and passes them on; returns what it could not pass on.
#[allow(clippy::too_many_arguments, reason = "the pieces of one task, used once")]
pub(crate) async fn take(
    mut intake: Intake,
    registry: Arc<Registry>,
    link: Link,
    needs: &'static [Bucket],
    mut permit: Permit,
    hand: Arc<Semaphore>,
    batches: mpsc::Sender<Vec<Delivery>>,
    over: CancellationToken,
) -> Taken {
    let mut left = Vec::new();
    let (permit_after, link_after) = (permit.clone(), link.clone());
    let work = async {
        loop {
            permit.live().await;
            let first = hand.acquire().await.map_err(|_| FaultKind::Disconnected)?;
            drop(first);
            left = intake.next(hand.available_permits()).await?;
            hold(&hand, &mut left);
            let taken = Instant::now();
            registry.fresh(&link, needs).await?;
            let fresh = taken.elapsed();
            let slot = batches.reserve().await.map_err(|_| FaultKind::Disconnected)?;
            tracing::trace!(
                batch = left.len(),
                barrier_us = fresh.as_micros(),
                waited_us = (taken.elapsed() - fresh).as_micros(),
                "batch taken"
            );
            slot.send(std::mem::take(&mut left));
        }
    };
    let result = tokio::select! {
        biased;
        () = over.cancelled() => Ok(()),
        result = work => result,
    };
    left.extend(intake.close().await);
    if batches.is_closed() && permit_after.is_live() {
        // The stage is gone without asking: it panicked or was aborted. Nobody else hands back what was taken for it.
        for delivery in left.drain(..) {
            if settle(&link_after, &delivery, &Settle::Nak).await.is_err() {
                break;
            }
        }
        link_after.flush(FLUSH_PATIENCE).await;
    }
    Taken { left, result }
}

/// Counts deliveries against the bound; where less is left than they weigh, they take what is left.
pub(crate) fn hold(hand: &Semaphore, batch: &mut [Delivery]) {
    for delivery in batch {
        let wanted = 1 + delivery.payload.len() / UNIT_BYTES;
        let units = u32::try_from(wanted.min(hand.available_permits())).unwrap_or(u32::MAX);
        delivery.units = match hand.try_acquire_many(units) {
            Ok(held) => {
                held.forget();
                units
            }
            Err(_) => 0,
        };
    }
}
