//! Membership intervals: a leave is a hard boundary, a rejoin starts anew, and what was owed before is still owed.

use std::time::Duration;

use lanekeeper_peer::{Left, Peer, PeerOptions};
use lanekeeper_wire::{MembershipState, StreamKind};

use crate::{
    ground::{Ground, ask_join, ask_leave, join, leave, next, say, text, texts},
    support::{channel, pattern},
};

/// The same member without its hand-over: what it is owed stays where it is.
async fn without_durable(ground: &Ground, name: &str) -> Peer {
    let member = ground.world.member(name, &[]).await;
    let options = PeerOptions { receive_durable: false, ..ground.world.options(&member) };
    Peer::connect(options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_posted_before_a_leave_is_still_owed_and_what_came_after_never_arrives() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team", "fence"]).await;
    ground.absent("bob", &["team", "fence"]).await;
    say(&ada, "team", "before 1").await;
    say(&ada, "team", "before 2").await;
    // Not handed over yet, and perhaps not even fanned out, when the member leaves.
    let bob = without_durable(&ground, "bob").await;
    leave(&bob, "team", 1).await;
    say(&ada, "team", "after").await;
    say(&ada, "fence", "fence").await;
    bob.close().await.unwrap();
    let bob = ground.back("bob").await;
    assert_eq!(texts(&mut bob.messages().unwrap(), 3).await, ["before 1", "before 2", "fence"]);
    ground.wait_stores_empty().await;
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejoin_never_gets_the_gap() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    let bob = ground.peer("bob", &["team"]).await;
    let mut expected = Vec::new();
    for round in 1..=4 {
        assert_eq!(join(&bob, "team").await, round);
        for number in 0..5 {
            say(&ada, "team", format!("owed {round}.{number}")).await;
            expected.push(format!("owed {round}.{number}"));
        }
        leave(&bob, "team", round).await;
        for number in 0..5 {
            say(&ada, "team", format!("gap {round}.{number}")).await;
        }
    }
    ground.at_rest().await;
    // Not even routed: fan-out and the reader both hold the interval.
    let owed = expected.len() as u64;
    assert_eq!(ground.routed_and_released().await, (owed, owed));
    assert_eq!(texts(&mut bob.messages().unwrap(), expected.len()).await, expected);
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_the_gap_and_a_second_entry_of_one_post_are_never_released() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    let bob = ground.peer("bob", &["team"]).await;
    assert_eq!(join(&bob, "team").await, 1);
    let owed = say(&ada, "team", "first interval").await.seq;
    ground.at_rest().await;
    leave(&bob, "team", 1).await;
    let gap = say(&ada, "team", "gap").await.seq;
    assert_eq!(join(&bob, "team").await, 2);
    let (_, row) = ground.hand.row(bob.lifecycle(), "team").await;
    assert_eq!((row.generation, row.join_cursor), (2, gap));
    ground.hand.entry(bob.lifecycle(), "team", gap, "gap by hand").await;
    // The key of a copy is the post's own, so that this one is the same copy again: one arrives, not two.
    ground.hand.entry(bob.lifecycle(), "team", owed, "first interval").await;
    say(&ada, "team", "second interval").await;
    ground.at_rest().await;
    assert_eq!(ground.copies_for(bob.lifecycle()).await, 2);
    assert_eq!(texts(&mut bob.messages().unwrap(), 2).await, ["first interval", "second interval"]);
    ground.wait_stores_empty().await;
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_entry_of_an_earlier_interval_is_released_after_the_rejoin() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    let bob = ground.peer("bob", &["team"]).await;
    let member = ground.world.member("bob", &[]).await;
    join(&bob, "team").await;
    let acl = lanekeeper_wire::Bucket::Acl.subject(&ground.world.site.space, &member.lifecycle.key());
    let provisioner = ground.world.site.provisioner();
    provisioner.publish(acl.clone(), "garbled".into()).await.unwrap().await.unwrap();
    say(&ada, "team", "first interval").await;
    ground.hand.wait_deferred(1).await;
    leave(&bob, "team", 1).await;
    say(&ada, "team", "gap").await;
    let readable = r#"{"allowSubscribe":["team"],"revision":3,"updatedAt":3}"#;
    provisioner.publish(acl, readable.into()).await.unwrap().await.unwrap();
    assert_eq!(join(&bob, "team").await, 2);
    say(&ada, "team", "second interval").await;
    ground.at_rest().await;
    let mut got = texts(&mut bob.messages().unwrap(), 2).await;
    got.sort();
    assert_eq!(got, ["first interval", "second interval"]);
    assert_eq!(ground.copies_for(bob.lifecycle()).await, 0);
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeating_a_join_changes_nothing() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    let bob = ground.peer("bob", &["team"]).await;
    assert_eq!(join(&bob, "team").await, 1);
    let row = ground.hand.row(bob.lifecycle(), "team").await;
    assert!(row.1.activated && row.1.is_open(), "{row:?}");
    say(&ada, "team", "between").await;
    for _ in 0..3 {
        assert_eq!(join(&bob, "team").await, 1);
    }
    assert_eq!(ground.hand.row(bob.lifecycle(), "team").await, row);
    assert_eq!(texts(&mut bob.messages().unwrap(), 1).await, ["between"]);
    ground.wait_stores_empty().await;
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_leave_is_refused_and_a_second_one_says_so() {
    let ground = Ground::open().await;
    let bob = ground.peer("bob", &["team"]).await;
    let never = ask_leave(&bob, "team", 1).await;
    assert!(never.ok && never.data == Some(serde_json::json!({"alreadyLeft": true})), "{never:?}");
    join(&bob, "team").await;
    leave(&bob, "team", 1).await;
    let tombstone = ground.hand.row(bob.lifecycle(), "team").await;
    assert_eq!((tombstone.1.state, tombstone.1.leave_cursor.is_some()), (MembershipState::LiveConfirmed, true));
    let again = ask_leave(&bob, "team", 1).await;
    assert!(again.ok && again.data == Some(serde_json::json!({"alreadyLeft": true})), "{again:?}");
    assert_eq!(ground.hand.row(bob.lifecycle(), "team").await, tombstone);
    assert_eq!(join(&bob, "team").await, 2);
    let row = ground.hand.row(bob.lifecycle(), "team").await;
    for generation in [0, 1, 3] {
        let stale = ask_leave(&bob, "team", generation).await;
        assert!(!stale.ok && stale.error.as_deref().is_some_and(|error| error.contains("stale")), "{stale:?}");
    }
    assert_eq!(ground.hand.row(bob.lifecycle(), "team").await, row);
    leave(&bob, "team", 2).await;
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_ends_another_lifecycles_membership() {
    let ground = Ground::open().await;
    let (bob, eve) = (ground.peer("bob", &["team"]).await, ground.peer("eve", &["team"]).await);
    join(&bob, "team").await;
    let row = ground.hand.row(bob.lifecycle(), "team").await;
    let args = serde_json::json!({"channel": "team", "generation": 1, "lifecycleUid": bob.lifecycle().uid().as_str()});
    let reply = eve.control("durableLeave", args).await.unwrap();
    assert!(reply.ok && reply.data == Some(serde_json::json!({"alreadyLeft": true})), "{reply:?}");
    assert_eq!(ground.hand.row(bob.lifecycle(), "team").await, row);
    assert!(eve.memberships().await.unwrap().is_empty());
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_read_acl_a_join_is_refused_but_a_leave_still_works() {
    let ground = Ground::open().await;
    let bob = ground.peer("bob", &["team"]).await;
    join(&bob, "team").await;
    ground.world.site.set_read(&ground.world.member("bob", &[]).await, &[]).await.unwrap();
    assert!(!ask_join(&bob, "team").await.ok);
    assert!(!ask_leave(&bob, "team", 7).await.ok);
    leave(&bob, "team", 1).await;
    assert!(bob.memberships().await.unwrap().is_empty());
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_one_channel_leaves_the_others_alone() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["a", "b", "a.x"]).await;
    let bob = ground.peer("bob", &["a", "b", "a.x"]).await;
    for on in ["a", "b", "a.x"] {
        join(&bob, on).await;
    }
    leave(&bob, "a", 1).await;
    for on in ["a", "b", "a.x"] {
        say(&ada, on, on).await;
    }
    let open: Vec<_> = bob.memberships().await.unwrap().into_iter().map(|item| item.channel).collect();
    assert_eq!(open, [pattern("a.x"), pattern("b")]);
    let mut messages = bob.messages().unwrap();
    for on in ["b", "a.x"] {
        let incoming = next(&mut messages).await;
        assert_eq!((incoming.channel.as_str(), text(&incoming).as_str()), (on, on));
        incoming.ack().await.unwrap();
    }
    ground.wait_stores_empty().await;
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_not_activated_is_listed_for_its_owner_routes_posts_and_can_be_left_and_completed() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team", "other"]).await;
    let bob = ground.peer("bob", &["team", "other"]).await;
    for on in ["team", "other"] {
        ground.hand.open_row(bob.lifecycle(), on, ground.hand.frontier(StreamKind::Chat).await, false).await;
    }
    say(&ada, "team", "before activation").await;
    let listed = bob.memberships().await.unwrap();
    let listed: Vec<_> = listed.iter().map(|item| (item.channel.as_str(), item.generation, item.activated)).collect();
    assert_eq!(listed, [("other", 1, false), ("team", 1, false)]);
    // A member that does not know its generation asks the daemon, and finds this row.
    assert_eq!(bob.leave(&channel("other")).await, Left::Ended { generation: 1 });
    join(&bob, "team").await;
    let (_, row) = ground.hand.row(bob.lifecycle(), "team").await;
    assert!(row.activated, "{row:?}");
    say(&ada, "team", "after activation").await;
    let mut got = texts(&mut bob.messages().unwrap(), 2).await;
    got.sort();
    assert_eq!(got, ["after activation", "before activation"]);
    ground.wait_stores_empty().await;
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_closes_the_live_and_the_durable_side() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team", "fence"]).await;
    let bob = ground.peer("bob", &["team", "fence"]).await;
    for on in ["team", "fence"] {
        assert!(bob.join(&channel(on)).await.unwrap().state.is_durable());
    }
    let mut messages = bob.messages().unwrap();
    say(&ada, "team", "both").await;
    // Without coalescing both copies are seen: one live, one durable.
    let mut ways = Vec::new();
    for _ in 0..2 {
        let incoming = next(&mut messages).await;
        assert_eq!(text(&incoming), "both");
        incoming.ack().await.unwrap();
        ways.push(incoming.via.is_durable());
    }
    ways.sort_unstable();
    assert_eq!(ways, [false, true]);
    assert_eq!(bob.leave(&channel("team")).await, Left::Ended { generation: 1 });
    say(&ada, "team", "after").await;
    say(&ada, "fence", "fence").await;
    assert_eq!(texts(&mut messages, 2).await, ["fence", "fence"]);
    ground.wait_stores_empty().await;
    assert!(messages.recv_within(Duration::ZERO).await.is_none());
    ground.close().await;
}
