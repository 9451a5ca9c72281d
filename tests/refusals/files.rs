//! The lane's files: missing, loose, not files, garbled, torn, expired. None of it needs a broker to be seen.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use lanekeeper_provision::{DeliveryExtras, SpaceProfile, SystemProfile, Validity, lane_files, private_file};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::{door::Door, support::World};

/// What a lane cannot do without. The evictor's file is opened for an eviction only.
const NEEDED: [&str; 3] = [lane_files::DELIVERY, lane_files::MEMBERSHIP_RW, lane_files::MEMBERSHIP_OBSERVER];

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_file_or_directory_is_refused_by_name() {
    let door = Door::open().await;
    for name in NEEDED {
        let lane = door.lane();
        let path = lane.join(name);
        fs::remove_file(&path).unwrap();
        let parts = [&path.display().to_string(), "cannot be read", "No such file", "point at the right directory"];
        door.refused_undialled(&lane, "LANE-101", &parts.map(|part| part as &str)).await;
    }
    let nowhere = door.world.mesh.dir().join("nowhere");
    let parts = [&nowhere.display().to_string(), "cannot be read", "point at the right directory"];
    door.refused_undialled(&nowhere, "LANE-101", &parts.map(|part| part as &str)).await;
    door.world.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_evictor_is_no_reason_to_refuse() {
    let door = Door::open().await;
    let lane = door.lane();
    fs::remove_file(lane.join(lane_files::CONNECTION_EVICTOR)).unwrap();
    let mut daemon = door.start(&lane);
    daemon.wait_serving().await;
    daemon.stop().await;
    door.world.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_a_regular_file_is_refused_without_waiting_for_it() {
    let door = Door::open().await;
    for name in NEEDED {
        let lane = door.lane();
        let path = lane.join(name);
        let shown = path.display().to_string();
        for (kind, mode) in [("directory", 0o755), ("directory", 0o700), ("fifo", 0o644), ("fifo", 0o600)] {
            match fs::symlink_metadata(&path).unwrap().is_dir() {
                true => fs::remove_dir(&path).unwrap(),
                false => fs::remove_file(&path).unwrap(),
            }
            match kind {
                "directory" => fs::create_dir(&path).unwrap(),
                _ => mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap(),
            }
            set_mode(&path, mode);
            door.refused_undialled(&lane, "LANE-101", &[&shown, "not a regular file"]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_may_read_is_refused_with_the_command_that_mends_it() {
    let door = Door::open().await;
    for name in NEEDED {
        for mode in [0o644, 0o640, 0o604] {
            let lane = door.lane();
            let path = lane.join(name);
            set_mode(&path, mode);
            let remedy = format!("run `chmod 600 {}`", path.display());
            door.refused_undialled(&lane, "LANE-102", &[&format!("mode {mode:04o}"), &remedy]).await;
        }
    }
    for mode in [0o755, 0o750, 0o710] {
        let lane = door.lane();
        set_mode(&lane, mode);
        let remedy = format!("run `chmod 700 {}`", lane.display());
        door.refused_undialled(&lane, "LANE-102", &[&format!("mode {mode:04o}"), &remedy]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_garbled_torn_or_oversized_file_is_refused_with_what_is_wrong() {
    let door = Door::open().await;
    let site = &door.world.site;
    let [one, two] = [(), ()].map(|()| {
        site.account.mint(&SpaceProfile::Delivery(DeliveryExtras::None), Validity::forever()).unwrap().text().to_owned()
    });
    let (token, _) = one.split_once("\n\n").unwrap();
    let (_, seed) = two.split_once("\n\n").unwrap();
    let damaged = [
        (Vec::new(), "no NATS USER JWT block"),
        (b"garbage".to_vec(), "no NATS USER JWT block"),
        (vec![0xff; 100], "not text"),
        (token.as_bytes().to_vec(), "no USER NKEY SEED block"),
        (one.replacen("eyJ", "eyy", 2).into_bytes(), "JWT cannot be decoded"),
        (one.replace("\nSU", "\nSA").into_bytes(), "seed is not a user nkey seed"),
        (format!("{token}\n\n{seed}").into_bytes(), "of different users (a torn file)"),
        (vec![b'-'; 64 * 1024 + 1], "more than 65536 bytes"),
        (format!("{one}{}", "\n".repeat(64 * 1024)).into_bytes(), "more than 65536 bytes"),
    ];
    for name in NEEDED {
        for (bytes, wrong) in &damaged {
            let lane = door.lane();
            let path = lane.join(name);
            fs::write(&path, bytes).unwrap();
            let shown = path.display().to_string();
            door.refused_undialled(&lane, "LANE-103", &[&shown, wrong, "provision it again"]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_credential_is_refused_before_the_broker_sees_it() {
    let door = Door::open().await;
    let World { mesh, site, .. } = &door.world;
    let account_id = site.account.account_id().to_owned();
    let now = Validity::for_duration(Duration::ZERO).issued_at_s;
    let past = Validity { issued_at_s: now - 100, expires_at_s: Some(now - 10) };
    let minted = [
        (lane_files::DELIVERY, site.account.mint(&SpaceProfile::Delivery(DeliveryExtras::None), past)),
        (lane_files::MEMBERSHIP_RW, site.account.mint(&SpaceProfile::MembershipRw, past)),
        (
            lane_files::MEMBERSHIP_OBSERVER,
            mesh.home.mint_system(&SystemProfile::MembershipObserver { account_id }, past),
        ),
    ];
    for (name, credentials) in minted {
        let lane = door.lane();
        let path = lane.join(name);
        private_file::write_private(&path, credentials.unwrap().text()).unwrap();
        let parts = [&path.display().to_string(), &format!("expired at {}", now - 10), "sign it again"];
        door.refused_undialled(&lane, "LANE-104", &parts.map(|part| part as &str)).await;
    }
}
