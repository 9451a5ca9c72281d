//! What a post may hold: ids that repeat or are empty, fields nobody knows, odd numbers, great depth, great size. What
//! arrives is what was posted, to the byte.

use lanekeeper_peer::{Peer, PostDraft};
use lanekeeper_wire::{FRAME_HEADER, Lifecycle, StreamKind, entry::suppression_key, subject};

use crate::{
    ground::{Ground, next, say, text, texts},
    hand::Hand,
    support::channel,
};

/// The broker's limit on a message, bytes.
const MAX_PAYLOAD: usize = 1024 * 1024;

async fn say_with_id(peer: &Peer, id: &str, text: &str) -> u64 {
    peer.post(&channel("team"), PostDraft::text(text).with_id(id)).await.unwrap().seq
}

/// The keys under which a member's copies were stored, oldest first.
async fn keys_of_copies(hand: &Hand, ground: &Ground, lifecycle: &Lifecycle, count: u64) -> Vec<String> {
    let (space, mut keys) = (&ground.world.site.space, Vec::new());
    let stream = hand.js.get_stream(StreamKind::Dlv.name(space)).await.unwrap();
    for seq in 1..=count {
        let copy = stream.get_raw_message(seq).await.unwrap();
        assert_eq!(copy.subject.as_str(), subject::dlv(space, lifecycle));
        keys.push(copy.headers.get("Nats-Msg-Id").unwrap().as_str().to_owned());
    }
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn posts_with_an_empty_id_are_all_delivered_to_everybody() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    for name in ["bob", "cal"] {
        ground.absent(name, &["team"]).await;
    }
    for text in ["one", "two", "two", "three"] {
        say_with_id(&ada, "", text).await;
    }
    for name in ["bob", "cal"] {
        let peer = ground.back(name).await;
        assert_eq!(texts(&mut peer.messages().unwrap(), 4).await, ["one", "two", "two", "three"]);
    }
    ground.wait_stores_empty().await;
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publishers_id_never_suppresses_a_copy() {
    let ground = Ground::open().await;
    let (ada, cal) = (ground.peer("ada", &["team"]).await, ground.peer("cal", &["team"]).await);
    let bob = ground.absent("bob", &["team"]).await;
    let seqs = [
        say_with_id(&ada, "same", "first of ada").await,
        say_with_id(&ada, "same", "second of ada").await,
        say_with_id(&cal, "same", "of cal").await,
    ];
    ground.at_rest().await;
    let hand = Hand::of_the_account(&ground.world).await;
    let chat = hand.js.get_stream(StreamKind::Chat.name(&ground.world.site.space)).await.unwrap();
    let created_ns = chat.cached_info().created.unix_timestamp_nanos();
    let expected = seqs.map(|seq| suppression_key(created_ns, seq, &bob));
    assert_eq!(keys_of_copies(&hand, &ground, &bob, 3).await, expected);
    let peer = ground.back("bob").await;
    let mut messages = peer.messages().unwrap();
    for wanted in ["first of ada", "second of ada", "of cal"] {
        let incoming = next(&mut messages).await;
        assert_eq!((incoming.message.id(), text(&incoming).as_str()), ("same", wanted));
        incoming.ack().await.unwrap();
    }
    ground.wait_stores_empty().await;
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_knows_survives_the_trip_to_the_byte() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    let bob = ground.absent("bob", &["team"]).await;
    let nested = format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000));
    let odd = [
        r#""x-unknown":{"deep":[1,{"b":null,"a":true}]}"#.to_owned(),
        r#""bigger":123456789012345678901234567890,"zero":-0,"tiny":1e-400,"huge":1E+400,"long":0.10000000000000000000001"#.to_owned(),
        r#""uni":"\u00e9\ud83d\ude00 é 😀 \u0000 \/ \ud800","\u0061lias":"x""#.to_owned(),
        r#""spaced"  :  [ 1 ,2 ]"#.to_owned(),
        format!(r#""nested":{nested}"#),
    ];
    let hand = Hand::of_the_account(&ground.world).await;
    let (space, dlv) = (&ground.world.site.space, StreamKind::Dlv.name(&ground.world.site.space));
    let (from, to) = (subject::chat(space, ada.principal(), &channel("team")), subject::dlv(space, &bob));
    for fields in odd {
        let start =
            r#"{"id":"odd","ts":1.5,"space":"demo","from":{"name":"Ada","id":"local.ada","x":1},"channel":"team""#;
        ada.store_raw(&from, format!(r#"{start},"parts":[],{fields}}}"#)).await.unwrap();
        ground.at_rest().await;
        let copy = hand.newest(&dlv, &to).await;
        assert_eq!(copy.headers.get(FRAME_HEADER).map(|value| value.as_str()), Some("1"));
        // Only white space between members is not kept.
        let fields = fields.replace(r#""spaced"  :  "#, r#""spaced":"#);
        let expected = format!(r#"{{"version":1,"channel":"team","msg":{start},"parts":[],{fields}}}}}"#);
        assert!(copy.payload == expected, "{}\nis not\n{expected}", String::from_utf8_lossy(&copy.payload));
    }
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_channel_of_a_copy_is_the_subjects_and_no_other_address_stays() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    let bob = ground.absent("bob", &["team"]).await;
    let space = &ground.world.site.space;
    let from = subject::chat(space, ada.principal(), &channel("team"));
    let lies = [
        r#""channel":"secret","to":"local.eve","toService":"desk""#,
        r#""to":"local.eve","channel":7"#,
        r#""channel":"team","ch\u0061nnel":"secret""#,
        r#""toService":"desk""#,
    ];
    for lie in lies {
        ada.store_raw(&from, format!(r#"{{"id":"","from":{{"id":"local.ada"}},{lie}}}"#)).await.unwrap();
    }
    let peer = ground.back("bob").await;
    let mut messages = peer.messages().unwrap();
    for lie in lies {
        let incoming = next(&mut messages).await;
        assert_eq!(incoming.channel, channel("team"), "{lie}");
        let own = incoming.message.field("channel").map(|raw| raw.get().to_owned());
        assert_eq!(own.as_deref(), Some(r#""team""#), "{lie}");
        assert!(incoming.message.field("to").is_none() && incoming.message.field("toService").is_none(), "{lie}");
        incoming.ack().await.unwrap();
    }
    assert_eq!(ground.copies_for(&bob).await, 0);
    ground.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_near_the_brokers_limit_is_delivered_and_one_that_cannot_be_copied_holds_up_nobody() {
    let ground = Ground::open().await;
    let ada = ground.peer("ada", &["team"]).await;
    ground.absent("bob", &["team"]).await;
    let from = subject::chat(&ground.world.site.space, ada.principal(), &channel("team"));
    let sized = |bytes: usize| {
        let shell = r#"{"id":"","from":{"id":"local.ada"},"channel":"team","parts":[{"kind":"text","text":""}]}"#;
        shell.replace(r#""text":"""#, &format!(r#""text":"{}""#, "x".repeat(bytes - shell.len())))
    };
    let (fits, too_large) = (sized(MAX_PAYLOAD - 2048), sized(MAX_PAYLOAD));
    ada.store_raw(&from, fits.clone()).await.unwrap();
    let refused = ada.store_raw(&from, too_large).await.unwrap();
    say(&ada, "team", "after").await;
    let peer = ground.back("bob").await;
    let mut messages = peer.messages().unwrap();
    let large = next(&mut messages).await;
    assert!(large.message.to_json() == fits, "{} bytes are not the {} posted", large.message.len_bytes(), fits.len());
    large.ack().await.unwrap();
    assert_eq!(texts(&mut messages, 1).await, ["after"]);
    ground.wait_stores_empty().await;
    assert!(ground.log_text().contains(&format!("seq={refused}")), "the loss is not reported:\n{}", ground.log_text());
    ground.close().await;
}
