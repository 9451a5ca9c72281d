//! Credentials of another space, of another purpose, revoked, or of an account that the broker does not know.

use std::fs;

use lanekeeper_provision::{
    DeliveryExtras, LaneCredentialSettings, SpaceProfile, SpaceSettings, Validity, lane_files, private_file,
};

use crate::{
    door::{Door, refused},
    support::{Power, World},
};

const NEEDED: [&str; 3] = [lane_files::DELIVERY, lane_files::MEMBERSHIP_RW, lane_files::MEMBERSHIP_OBSERVER];

#[tokio::test(flavor = "multi_thread")]
async fn another_spaces_file_is_refused_before_anything_connects() {
    let door = Door::open().await;
    let mesh = &door.world.mesh;
    let lane = LaneCredentialSettings { extras: DeliveryExtras::None, ..LaneCredentialSettings::default() };
    let other = mesh.space(&"other".parse().unwrap(), &SpaceSettings::default(), &lane).await.unwrap();
    let others_power = Power::over(mesh, &other).await;
    let (ours, others) = (door.world.site.account.account_id(), other.account.account_id());
    let identities = [
        ["`CHAT_other`", "`CHAT_demo`"].map(str::to_owned),
        [others, ours].map(str::to_owned),
        [others, ours].map(|account| format!("`$SYS.REQ.ACCOUNT.{account}.CONNZ`")),
    ];
    for (name, [found, wanted]) in NEEDED.into_iter().zip(identities) {
        let lane = door.lane();
        fs::copy(other.credentials.join(name), lane.join(name)).unwrap();
        let path = lane.join(name).display().to_string();
        door.refused_undialled(&lane, "LANE-105", &[&path, &found, &wanted, "put the space's own file there"]).await;
    }
    let whole = door.copy_of(&other.credentials);
    door.refused_undialled(&whole, "LANE-105", &["delivery.creds", "`CHAT_other`", "`CHAT_demo`"]).await;
    assert_eq!(others_power.lease_writes().await, 0);
    door.world.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_another_purpose_is_refused_before_anything_connects() {
    let door = Door::open().await;
    for wanted in NEEDED {
        for found in NEEDED.into_iter().chain([lane_files::CONNECTION_EVICTOR]).filter(|found| *found != wanted) {
            let lane = door.lane();
            fs::copy(door.world.site.credentials.join(found), lane.join(wanted)).unwrap();
            let path = lane.join(wanted).display().to_string();
            door.refused_undialled(&lane, "LANE-105", &[&path, "foreign", "put the space's own file there"]).await;
        }
        // Of the right account, and good for nothing here.
        let member = fs::read_to_string(door.world.member("ada", &["team"]).await.credentials).unwrap();
        let provisioner = door.world.site.account.mint(&SpaceProfile::Provisioner, Validity::forever()).unwrap();
        for text in [&member as &str, provisioner.text()] {
            let lane = door.lane();
            private_file::write_private(&lane.join(wanted), text).unwrap();
            let path = lane.join(wanted).display().to_string();
            door.refused_undialled(&lane, "LANE-105", &[&path, "put the space's own file there"]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_user_is_refused_as_such_and_its_successor_served() {
    let door = Door::open().await;
    let World { mesh, site, .. } = &door.world;
    let lane = door.lane();
    let path = lane.join(lane_files::DELIVERY);
    let delivery = site.account.mint(&SpaceProfile::Delivery(DeliveryExtras::None), Validity::forever()).unwrap();
    private_file::write_private(&path, delivery.text()).unwrap();
    let system = mesh.home.system_client(&site.url).await.unwrap();
    system.revoke_user(&site.account, delivery.public_key()).await.unwrap();
    let parts = [&path.display().to_string(), "refused the credential", "revoked", "sign it again"];
    door.refused(&lane, "LANE-106", &parts.map(|part| part as &str)).await;
    let mut daemon = door.start(&door.lane());
    daemon.wait_serving().await;
    daemon.stop().await;
    system.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_the_broker_does_not_know_is_refused_as_such() {
    let door = Door::open().await;
    let World { mesh, site, .. } = &door.world;
    let system = mesh.home.system_client(&site.url).await.unwrap();
    system.delete_account(&site.account).await.unwrap();
    let lane = door.lane();
    let path = lane.join(lane_files::DELIVERY).display().to_string();
    refused(door.start(&lane), "LANE-106", &[&path, "refused the credential", "push the account"]).await;
    door.none_connected().await;
    system.close().await;
}
