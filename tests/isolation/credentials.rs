//! What can happen to a lane's credentials.

use std::{fs, time::Duration};

use lanekeeper::supervisor::LaneState;
use lanekeeper_provision::{DeliveryExtras, Validity, private_file, space_account::lane_files};

use crate::ground::{Bad, Ground};

const DELIVERY: &str = lane_files::DELIVERY;
/// Long enough to be read, proven and taken up on a busy machine; the rest of it is waited for.
const SHORT: Duration = Duration::from_secs(4);

/// A lane that serves is not given up for a file that is none; without its connection it would be parked.
pub(crate) async fn garbage(ground: &mut Ground) {
    let story = async |bad: &mut Bad<'_>| refused(bad, "not a credential\n", "LANE-103", "malformed").await;
    ground.case("credential replaced by garbage", 3, story).await;
}

pub(crate) async fn of_another_space(ground: &mut Ground) {
    let foreign = private_file::read_private(&ground.sites[5].credentials.join(DELIVERY)).unwrap();
    let story = async |bad: &mut Bad<'_>| refused(bad, &foreign, "LANE-105", "foreign").await;
    ground.case("credential of another space", 4, story).await;
}

async fn refused(bad: &mut Bad<'_>, text: &str, code: &str, why: &str) {
    let path = bad.credential(DELIVERY);
    let good = private_file::read_private(&path).unwrap();
    let before = bad.now();
    bad.mark();
    private_file::write_private(&path, text).unwrap();
    let lane = bad.expect(LaneState::Serving, code, why).await;
    assert_eq!(lane.incarnation, before.incarnation, "what runs is not given up for what is refused");
    bad.mark();
    bad.ground.host.order("reopen", &bad.space).await;
    let lane = bad.expect(LaneState::Parked, code, why).await;
    assert_eq!((lane.connections, lane.lease_revision), (0, None));
    private_file::write_private(&path, &good).unwrap();
    bad.serves_after(lane.generation).await;
}

pub(crate) async fn expired_in_mid_flow(ground: &mut Ground) {
    let story = async |bad: &mut Bad<'_>| {
        let before = bad.now();
        write_credentials(bad, Validity::for_duration(SHORT));
        let lane = bad.serves_after(before.generation).await;
        assert!(lane.credential_expires_at_s.is_some(), "{lane:?}");
        bad.mark();
        let lane = bad.expect(LaneState::Parked, "LANE-104", "expired at").await;
        assert_eq!(lane.connections, 0);
        write_credentials(bad, Validity::forever());
        bad.serves_after(lane.generation).await;
    };
    ground.case("credential expired in mid flow", 10, story).await;
}

fn write_credentials(bad: &Bad<'_>, validity: Validity) {
    let (site, home) = (bad.site(), &bad.ground.mesh.home);
    site.account.write_lane_credentials_with(&site.credentials, home, DeliveryExtras::None, validity).unwrap();
}

/// A file system that does not answer, met where a lane is opened anew.
pub(crate) async fn read_that_blocks(ground: &mut Ground) {
    let story = async |bad: &mut Bad<'_>| {
        let hook = bad.ground.host.hook(&format!("{}.credentials.block", bad.space));
        fs::write(&hook, "").unwrap();
        let before = bad.now();
        bad.mark();
        bad.ground.host.order("reopen", &bad.space).await;
        let lane = bad.expect(LaneState::Waiting, "LANE-107", "no answer from the file system").await;
        assert!(lane.generation > before.generation);
        fs::remove_file(&hook).unwrap();
        bad.serves_after(lane.generation).await;
    };
    ground.case("credential read that blocks", 11, story).await;
}
