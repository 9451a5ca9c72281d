//! Who may have an entry is decided when it is released, by the read ACL and the membership as they are then.

use std::time::Duration;

use lanekeeper_peer::Peer;
use lanekeeper_provision::{new_lifecycle_uid, retire_member, set_channel_config};
use lanekeeper_wire::{Bucket, ChannelConfig, DeliveryClass, Lifecycle, StreamKind, subject};

use crate::{
    ground::{Ground, ask_join, join, say, texts},
    support::{channel, pattern},
};

const ACK_WAIT: Duration = Duration::from_secs(60);

/// Makes a member's read ACL unreadable, which is as good as unknown: its entries wait.
async fn garble(ground: &Ground, lifecycle: &Lifecycle) {
    put_acl(ground, lifecycle, "{ garbled").await;
}

/// Gives a member this read ACL, whatever was there.
async fn allow(ground: &Ground, lifecycle: &Lifecycle, channels: &[&str]) {
    let row = serde_json::json!({ "allowSubscribe": channels, "revision": 9, "updatedAt": 9 });
    put_acl(ground, lifecycle, &row.to_string()).await;
}

async fn put_acl(ground: &Ground, lifecycle: &Lifecycle, value: &str) {
    let subject = Bucket::Acl.subject(&ground.world.site.space, &lifecycle.key());
    let sent = ground.world.site.provisioner().publish(subject, value.to_owned().into()).await.unwrap();
    sent.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acl_narrowed_between_fan_out_and_release_drops_the_entry() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    let bob = ground.absent("bob", &["team"]).await;
    garble(&ground, &bob).await;
    say(&ada, "team", "owed, but not released").await;
    ground.hand.wait_deferred(1).await;
    assert_eq!((ground.entries().await, ground.copies_for(&bob).await), (1, 0));
    allow(&ground, &bob, &["other"]).await;
    ground.at_rest().await;
    assert_eq!((ground.entries().await, ground.copies_for(&bob).await), (0, 0));
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acl_narrowed_while_the_daemon_is_down_drops_what_waits() {
    let mut ground = Ground::open().await;
    let bob = ground.absent("bob", &["team", "kept"]).await;
    ground.stop_daemon().await;
    ground.world.site.set_read(&ground.world.member("bob", &[]).await, &[pattern("kept")]).await.unwrap();
    ground.hand.open_row(&bob, "team", 0, true).await;
    ground.hand.open_row(&bob, "kept", 0, true).await;
    for seq in 1..=10 {
        ground.hand.entry(&bob, if seq % 2 == 0 { "kept" } else { "team" }, seq, &format!("entry {seq}")).await;
    }
    ground.start_daemon().await;
    ground.at_rest().await;
    assert_eq!((ground.entries().await, ground.copies_for(&bob).await), (0, 5));
    let peer = ground.back("bob").await;
    let kept = ["entry 2", "entry 4", "entry 6", "entry 8", "entry 10"];
    assert_eq!(texts(&mut peer.messages().unwrap(), 5).await, kept);
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_acl_counts_for_the_very_next_post() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    let bob = ground.absent("bob", &["team"]).await;
    let member = ground.world.member("bob", &[]).await;
    let mut expected = Vec::new();
    for round in 0..25 {
        ground.world.site.set_read(&member, &[]).await.unwrap();
        say(&ada, "team", format!("withheld {round}")).await;
        ground.at_rest().await;
        ground.world.site.set_read(&member, &[pattern("team")]).await.unwrap();
        say(&ada, "team", format!("released {round}")).await;
        ground.at_rest().await;
        expected.push(format!("released {round}"));
    }
    assert_eq!(ground.copies_for(&bob).await, expected.len());
    assert_eq!(texts(&mut ground.back("bob").await.messages().unwrap(), expected.len()).await, expected);
    ground.wait_stores_empty().await;
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_acl_counts_even_behind_thousands_of_others() {
    const OTHERS: usize = 3000;
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    let bob = ground.absent("bob", &["team"]).await;
    let (space, provisioner) = (&ground.world.site.space, ground.world.site.provisioner());
    // The change is committed behind all of these, and the post comes long before the daemon has heard of them.
    let mut stored = Vec::new();
    for number in 0..OTHERS {
        let key = format!("local.other{number}.{}", new_lifecycle_uid());
        let row = r#"{"allowSubscribe":["team"],"revision":1,"updatedAt":1}"#;
        stored.push(provisioner.publish(Bucket::Acl.subject(space, &key), row.into()).await.unwrap());
    }
    let narrowed = r#"{"allowSubscribe":[],"revision":2,"updatedAt":2}"#;
    stored.push(provisioner.publish(Bucket::Acl.subject(space, &bob.key()), narrowed.into()).await.unwrap());
    let last = stored.pop().unwrap();
    last.await.unwrap();
    say(&ada, "team", "withheld").await;
    ground.at_rest().await;
    assert_eq!(ground.routed_and_released().await, (1, 0));
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_an_unknown_owner_waits_and_is_released_once_its_acl_appears() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    let bob = Lifecycle::new("local.bob".parse().unwrap(), new_lifecycle_uid());
    ground.hand.open_row(&bob, "team", 0, true).await;
    say(&ada, "team", "early").await;
    ground.hand.wait_deferred(1).await;
    assert_eq!((ground.entries().await, ground.copies_for(&bob).await), (1, 0));
    let options = ground.provisioned(&bob, &["team"], ACK_WAIT).await;
    let peer = Peer::connect(options).await.unwrap();
    assert_eq!(texts(&mut peer.messages().unwrap(), 1).await, ["early"]);
    ground.wait_stores_empty().await;
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_garbled_acl_waits_and_holds_up_nobody_else() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    let (bob, cal) = (ground.absent("bob", &["team"]).await, ground.absent("cal", &["team"]).await);
    garble(&ground, &bob).await;
    say(&ada, "team", "for both").await;
    ground.hand.wait_deferred(1).await;
    assert_eq!((ground.copies_for(&bob).await, ground.copies_for(&cal).await), (0, 1));
    allow(&ground, &bob, &["team"]).await;
    assert_eq!(texts(&mut ground.back("bob").await.messages().unwrap(), 1).await, ["for both"]);
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retired_lifecycle_is_dropped_at_first_sight() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    let bob = ground.absent("bob", &["team"]).await;
    // One entry already waits when the lifecycle is retired, one comes after it.
    garble(&ground, &bob).await;
    say(&ada, "team", "waiting").await;
    ground.hand.wait_deferred(1).await;
    let site = &ground.world.site;
    retire_member(site.provisioner(), &site.space, &bob).await.unwrap();
    say(&ada, "team", "later").await;
    ground.at_rest().await;
    assert_eq!((ground.entries().await, ground.copies_for(&bob).await), (0, 0));
    let log = ground.log_text();
    let dropped = log.lines().filter(|line| line.contains("dropped") && line.contains("retired")).count();
    assert_eq!(dropped, 2, "{log}");
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_without_a_membership_that_holds_it_is_dropped() {
    let ground = Ground::open().await;
    // May read everything here, and has joined `team` above sequence 5 only.
    let bob = ground.peer("bob", &["team", "other"]).await;
    ground.hand.open_row(bob.lifecycle(), "team", 5, true).await;
    ground.hand.entry(bob.lifecycle(), "other", 6, "never joined").await;
    ground.hand.entry(bob.lifecycle(), "team", 4, "before the interval").await;
    ground.hand.entry(bob.lifecycle(), "team", 5, "at the cursor").await;
    ground.hand.entry(bob.lifecycle(), "team", 6, "inside").await;
    ground.hand.entry(bob.lifecycle(), "secret", 6, "outside the acl").await;
    ground.at_rest().await;
    assert_eq!((ground.entries().await, ground.copies_for(bob.lifecycle()).await), (0, 1));
    assert_eq!(texts(&mut bob.messages().unwrap(), 1).await, ["inside"]);
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_on_a_live_channel_makes_no_copies() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team", "chatter"]).await;
    let bob = ground.absent("bob", &["team", "chatter"]).await;
    let site = &ground.world.site;
    let class = |class| ChannelConfig { delivery_class: Some(class), ..ChannelConfig::default() };
    let chatter = channel("chatter");
    for (delivery_class, copies) in [(DeliveryClass::Live, 0), (DeliveryClass::Durable, 1)] {
        set_channel_config(site.provisioner(), &site.space, &chatter, &class(delivery_class)).await.unwrap();
        say(&ada, "chatter", format!("{delivery_class:?}")).await;
        ground.at_rest().await;
        assert_eq!(ground.copies_for(&bob).await, copies, "{delivery_class:?}");
    }
    // The space's default holds where the channel says nothing.
    let defaults = Bucket::Channels.subject(&site.space, lanekeeper_wire::CHANNEL_DEFAULTS_KEY);
    let sent = site.provisioner().publish(defaults, r#"{"deliveryClass":"live"}"#.into()).await.unwrap();
    sent.await.unwrap();
    say(&ada, "team", "live by default").await;
    say(&ada, "chatter", "durable by its own word").await;
    assert_eq!(
        texts(&mut ground.back("bob").await.messages().unwrap(), 2).await,
        ["Durable", "durable by its own word"]
    );
    ground.wait_stores_empty().await;
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_with_two_live_lifecycles_is_refused_and_never_guessed() {
    let ground = Ground::open().await;
    let bob = ground.peer("bob", &["team"]).await;
    let second = Lifecycle::new(bob.principal().clone(), new_lifecycle_uid());
    ground.provisioned(&second, &["team"], ACK_WAIT).await;
    let reply = ask_join(&bob, "team").await;
    assert!(!reply.ok && reply.error.as_deref().is_some_and(|error| error.contains("2 live lifecycles")), "{reply:?}");
    let site = &ground.world.site;
    retire_member(site.provisioner(), &site.space, &second).await.unwrap();
    assert_eq!(join(&bob, "team").await, 1);
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_needs_a_read_acl_that_holds_the_channel() {
    let ground = Ground::open().await;
    let bob = ground.peer("bob", &["team", "a.>"]).await;
    for (on, allowed) in [("team", true), ("secret", false), ("a", false), ("a.b.c", true), ("team.x", false)] {
        let reply = ask_join(&bob, on).await;
        assert_eq!(reply.ok, allowed, "{on}: {reply:?}");
        let named = reply.error.as_deref().is_none_or(|error| error.contains(on) && error.contains("read ACL"));
        assert!(named, "{reply:?}");
    }
    let space = &ground.world.site.space;
    let members = ground.world.site.held(&Bucket::Members.stream(space), &Bucket::Members.subject(space, ">")).await;
    assert_eq!(members.unwrap(), 2, "a refused join leaves no row");
    assert_eq!(
        ground.world.site.held(&StreamKind::Inbox.name(space), &subject::dinbox_filter(space)).await.unwrap(),
        0
    );
    ground.close().await;
}
