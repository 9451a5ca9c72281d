//! Streams, buckets and members of a space, on a real broker.

mod common;

use common::*;
use lanekeeper_provision::*;

#[tokio::test]
async fn a_space_is_made_and_a_member_added() {
    let bench = Bench::start().await;
    let (account, provisioner) = bench.space("dev").await;
    let ada = lifecycle("local.ada");
    let settings = MemberSettings { read: vec!["team.>".parse().unwrap()], ..MemberSettings::default() };
    add_member(&provisioner.js(), account.space(), &ada, &settings).await.unwrap();
    add_member(&provisioner.js(), account.space(), &ada, &settings).await.unwrap();
    set_read_acl(&provisioner.js(), account.space(), &ada, Vec::new()).await.unwrap();
    retire_member(&provisioner.js(), account.space(), &ada).await.unwrap();
    ensure_space(&provisioner.js(), account.space(), &SpaceSettings::default()).await.unwrap();
    assert!(provisioner.errors().is_empty(), "{:?}", provisioner.errors());
}
