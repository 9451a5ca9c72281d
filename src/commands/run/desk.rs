//! The admin server's desk over a running supervisor.
//!
//! Owns the translation. It must not decide anything.

use crate::{
    admin::{Answer, Desk, Order},
    supervisor::{Handle, OrderFault},
};

/// The desk over `handle`.
pub(in crate::commands) fn desk(handle: Handle) -> Desk {
    let (shown, pinged) = (handle.clone(), handle.clone());
    Desk::new(
        move || shown.is_alive().then(|| shown.status()),
        move || {
            let handle = pinged.clone();
            Box::pin(async move { handle.ping().await.is_ok() })
        },
        move |order| {
            let handle = handle.clone();
            Box::pin(async move { take(&handle, order).await })
        },
    )
}

async fn take(handle: &Handle, order: Order) -> Answer {
    let taken = match order {
        Order::Reload { allow_mass_close } => {
            let outcome = handle.reload(allow_mass_close).await;
            return if handle.is_alive() { Answer::Reloaded(Box::new(outcome)) } else { Answer::Gone };
        }
        Order::Reopen(space) => handle.reopen(space.clone()).await.map(|()| vec![space]),
        Order::Unpark(space) => handle.unpark(space.clone()).await.map(|()| vec![space]),
        Order::Drain(space) => handle.drain(space).await,
        Order::Undrain(space) => handle.undrain(space).await,
    };
    match taken {
        Ok(lanes) => Answer::Taken(lanes),
        Err(OrderFault::Unknown(space)) => Answer::NoLane(space),
        Err(OrderFault::Stopping) if !handle.is_alive() => Answer::Gone,
        Err(
            fault @ (OrderFault::Drained(_)
            | OrderFault::Leaving(_)
            | OrderFault::Wedged(_)
            | OrderFault::NotParked(_)
            | OrderFault::Stopping),
        ) => Answer::Refused(fault.to_string()),
    }
}
