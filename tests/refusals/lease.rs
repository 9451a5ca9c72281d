//! A lease row that is another's or that nobody understands: refused by name, and left as it is.

use std::time::Duration;

use lanekeeper_provision::SpaceSettings;

use crate::{door::Door, support::World};

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_not_ours_is_refused_and_left_alone() {
    let settings = SpaceSettings { lease_ttl: Duration::from_secs(30), ..SpaceSettings::default() };
    let door = Door::of(World::with(settings).await).await;
    let lane = door.lane();
    let garbled: [&[u8]; 9] = [
        b"",
        b"garbage",
        b"null",
        b"7",
        b"[]",
        b"\xff\xfe",
        br#"{"holder":"local.other"}"#,
        br#"{"holder":"local.other","incarnation":"x","since":"yesterday","ready":true}"#,
        br#"{"holder":7,"incarnation":"x","since":1,"ready":true}"#,
    ];
    for row in garbled {
        door.power.write_lease(row).await;
        let before = door.power.lease().await.unwrap();
        let parts = ["the lease row `lease.0` cannot be understood", "delete the key if no daemon runs"];
        door.refused(&lane, "LANE-403", &parts).await;
        assert_eq!(door.power.lease().await.unwrap(), before);
    }
    let foreign = r#"{"holder":"local.other","incarnation":"other-run","since":1,"ready":true}"#;
    door.power.write_lease(foreign).await;
    let before = door.power.lease().await.unwrap();
    door.refused(&lane, "LANE-401", &["`local.other` (run other-run", "stop that daemon", "30000 ms"]).await;
    assert_eq!(door.power.lease().await.unwrap(), before);
    door.power.delete_lease().await;
    let mut daemon = door.start(&lane);
    daemon.wait_serving().await;
    daemon.stop().await;
    door.world.assert_no_violations();
}
