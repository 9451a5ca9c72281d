//! Fifty lanes in one process on one broker: whatever happens to one of them, the other forty-nine do not notice.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of a test may end it with a panic")]

#[path = "../support/mod.rs"]
mod support;

mod broker;
mod credentials;
mod ground;
mod host;
mod inside;
mod traffic;

use ground::Ground;

/// One world for all cases, each on a lane of its own: it is the fifty lanes that cost, not the cases.
#[tokio::test(flavor = "multi_thread")]
async fn one_bad_lane_never_touches_the_others() {
    let mut ground = Ground::open().await;
    credentials::garbage(&mut ground).await;
    credentials::of_another_space(&mut ground).await;
    credentials::expired_in_mid_flow(&mut ground).await;
    credentials::read_that_blocks(&mut ground).await;
    broker::account_deleted(&mut ground).await;
    broker::stream_deleted(&mut ground).await;
    broker::bucket_sealed(&mut ground).await;
    inside::panics(&mut ground).await;
    inside::flood(&mut ground).await;
    ground.close().await;
}
