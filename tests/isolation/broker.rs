//! What can happen to a lane's space at the broker.

use async_nats::jetstream::stream::Config;
use lanekeeper::supervisor::LaneState;
use lanekeeper_wire::{Bucket, StreamKind};

use crate::ground::{Bad, Ground};

pub(crate) async fn account_deleted(ground: &mut Ground) {
    let story = async |bad: &mut Bad<'_>| {
        let system = bad.ground.mesh.home.system_client(&bad.site().url).await.unwrap();
        bad.mark();
        system.delete_account(&bad.site().account).await.unwrap();
        let lane = bad.expect(LaneState::Waiting, "LANE-106", "refused the credential").await;
        assert_eq!(lane.connections, 0);
        system.push_account(&bad.site().account).await.unwrap();
        bad.serves_after(lane.generation).await;
        system.close().await;
    };
    ground.case("account deleted", 20, story).await;
}

pub(crate) async fn stream_deleted(ground: &mut Ground) {
    let story = async |bad: &mut Bad<'_>| {
        let (power, name) = (bad.power().await, StreamKind::Inbox.name(&bad.space));
        bad.mark();
        let config = power.delete_stream(&name).await;
        let lane = bad.expect(LaneState::Waiting, "LANE-301", &name).await;
        power.js.create_stream(config).await.unwrap();
        bad.serves_after(lane.generation).await;
    };
    ground.case("stream deleted", 21, story).await;
}

/// What is sealed stays sealed: the cause is gone with another bucket of the same name.
pub(crate) async fn bucket_sealed(ground: &mut Ground) {
    let story = async |bad: &mut Bad<'_>| {
        let (power, name) = (bad.power().await, Bucket::Delivery.stream(&bad.space));
        let good = power.js.get_stream(&name).await.unwrap().cached_info().config.clone();
        bad.mark();
        power.js.update_stream(Config { sealed: true, ..good.clone() }).await.unwrap();
        let lane = bad.expect(LaneState::Waiting, "LANE-302", &name).await;
        power.replace_stream(good).await;
        bad.serves_after(lane.generation).await;
    };
    ground.case("delivery bucket sealed", 22, story).await;
}
