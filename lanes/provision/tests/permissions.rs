//! What each role may and may not do, subject by subject, as a real broker judges it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of tests fails like a test")]

mod common;

use common::*;
use lanekeeper_provision::*;
use lanekeeper_wire::names;

/// Checks a table; placeholders are filled in by the caller.
async fn check(
    client: &Client,
    role: &str,
    publish: &[(&str, bool)],
    subscribe: &[(&str, bool)],
    fill: impl Fn(&str) -> String,
) {
    for (subject, allowed) in publish {
        let subject = fill(subject);
        assert_eq!(client.may_publish(&subject).await, *allowed, "{role} publishes {subject}");
    }
    for (subject, allowed) in subscribe {
        let subject = fill(subject);
        assert_eq!(client.may_subscribe(&subject).await, *allowed, "{role} subscribes {subject}");
    }
}

const YES: bool = true;
const NO: bool = false;

#[tokio::test]
async fn an_agent() {
    let bench = Bench::start().await;
    let (account, _) = bench.space("dev").await;
    let [ada, bob] = [lifecycle("local.ada"), lifecycle("local.bob")];
    let mut profile = agent(&ada, &["team.>", "news"], &["team.ops"]);
    profile.role = Some("build".parse().unwrap());
    let client = bench.connect(&account, &SpaceProfile::Agent(profile)).await;
    let fill = |subject: &str| {
        subject
            .replace("MY_KEY", client.credentials.public_key())
            .replace("MY_DM", &names::dm_durable(&ada))
            .replace("MY_DLV", &names::dlv_durable(&ada))
            .replace("BOB_DM", &names::dm_durable(&bob))
            .replace("BOB_DLV", &names::dlv_durable(&bob))
            .replace("MY_LIFE", &ada.key())
            .replace("BOB_LIFE", &bob.key())
    };
    check(&client, "agent", AGENT_PUBLISH, AGENT_SUBSCRIBE, fill).await;
}

const AGENT_PUBLISH: &[(&str, bool)] = &[
    // Posts in its own name, on its own channels.
    ("cotal.dev.chat.local.ada.team.ops", YES),
    ("cotal.dev.chat.local.ada.news", NO),
    ("cotal.dev.chat.local.bob.team.ops", NO),
    ("cotal.other.chat.local.ada.team.ops", NO),
    // Direct messages and work, in its own name.
    ("cotal.dev.inst.local.bob.local.ada", YES),
    ("cotal.dev.inst.local.bob.local.bob", NO),
    ("cotal.dev.svc.build.local.ada", YES),
    ("cotal.dev.svc.build.local.bob", NO),
    // Requests in its own name; no answers, no administration.
    ("cotal.dev.ctl.delivery.local.ada", YES),
    ("cotal.dev.ctl.delivery.local.bob", NO),
    ("cotal.dev.ctl.delivery.local.ada.reply.x", NO),
    ("cotal.dev.ctl.delivery.local.bob.reply.x", NO),
    ("cotal.dev.ctl.delivery-admin.local.ada", NO),
    ("cotal.dev.live.delivery.local.ada", YES),
    ("cotal.dev.live.manager.local.ada", YES),
    ("cotal.dev.live.delivery.local.bob", NO),
    ("cotal.dev.live.delivery.local.ada.reply.x", NO),
    // What only the daemon writes.
    ("cotal.dev.dinbox.MY_LIFE", NO),
    ("cotal.dev.dlv.MY_LIFE", NO),
    ("cotal.dev.dlv.BOB_LIFE", NO),
    ("cotal.dev.ept.e.i.1.t.schedule", NO),
    ("cotal.dev.ept.e.i.1.t.armed", NO),
    // Rows: its own presence and nothing else.
    ("$KV.cotal_presence_dev.local.ada", YES),
    ("$KV.cotal_presence_dev.local.bob", NO),
    ("$KV.cotal_members_dev.team/MY_LIFE", NO),
    ("$KV.cotal_acl_dev.MY_LIFE", NO),
    ("$KV.cotal_delivery_dev.lease.0", NO),
    ("$KV.cotal_channels_dev.team.ops", NO),
    ("$KV.cotal_membership_dev.local.ada", NO),
    ("$KV.cotal_records_dev.cp.e.t.status", NO),
    // Reads of presence, channels and the lease.
    ("$JS.API.STREAM.INFO.KV_cotal_presence_dev", YES),
    ("$JS.API.STREAM.MSG.GET.KV_cotal_channels_dev", YES),
    ("$JS.API.STREAM.MSG.GET.KV_cotal_delivery_dev", YES),
    ("$JS.API.CONSUMER.CREATE.KV_cotal_presence_dev.w.$KV.cotal_presence_dev.>", YES),
    ("$JS.API.STREAM.MSG.GET.KV_cotal_members_dev", NO),
    ("$JS.API.STREAM.INFO.KV_cotal_members_dev", NO),
    ("$JS.API.CONSUMER.CREATE.KV_cotal_members_dev", NO),
    ("$JS.API.CONSUMER.CREATE.KV_cotal_members_dev.w.$KV.cotal_members_dev.>", NO),
    ("$JS.API.STREAM.MSG.GET.KV_cotal_acl_dev", NO),
    ("$JS.API.CONSUMER.CREATE.KV_cotal_acl_dev.w.$KV.cotal_acl_dev.>", NO),
    ("$JS.API.DIRECT.GET.KV_cotal_acl_dev", NO),
    ("$JS.API.STREAM.MSG.GET.KV_cotal_membership_dev", NO),
    // No direct gets: the broker would put its own presence row, as it is, on any subject it names for the answer.
    ("$JS.API.DIRECT.GET.KV_cotal_presence_dev", NO),
    ("$JS.API.DIRECT.GET.KV_cotal_presence_dev.$KV.cotal_presence_dev.local.ada", NO),
    ("$JS.API.DIRECT.GET.KV_cotal_channels_dev", NO),
    ("$JS.API.DIRECT.GET.KV_cotal_delivery_dev", NO),
    // Its own durables are used, never made.
    ("$JS.API.CONSUMER.INFO.DLV_dev.MY_DLV", YES),
    ("$JS.API.CONSUMER.MSG.NEXT.DLV_dev.MY_DLV", YES),
    ("$JS.ACK.DLV_dev.MY_DLV.1.1.1.1.0", YES),
    ("$JS.API.CONSUMER.MSG.NEXT.DM_dev.MY_DM", YES),
    ("$JS.API.CONSUMER.MSG.NEXT.TASK_dev.svc_build", YES),
    ("$JS.API.CONSUMER.MSG.NEXT.TASK_dev.svc_test", NO),
    ("$JS.API.CONSUMER.INFO.DLV_dev.BOB_DLV", NO),
    ("$JS.API.CONSUMER.MSG.NEXT.DLV_dev.BOB_DLV", NO),
    ("$JS.ACK.DLV_dev.BOB_DLV.1.1.1.1.0", NO),
    ("$JS.API.CONSUMER.MSG.NEXT.DM_dev.BOB_DM", NO),
    ("$JS.API.CONSUMER.DELETE.DLV_dev.MY_DLV", NO),
    ("$JS.API.CONSUMER.CREATE.DLV_dev.MY_DLV.cotal.dev.dlv.MY_LIFE", NO),
    ("$JS.API.CONSUMER.CREATE.DLV_dev", NO),
    ("$JS.API.CONSUMER.DURABLE.CREATE.DLV_dev.MY_DLV", NO),
    ("$JS.API.CONSUMER.CREATE.DM_dev", NO),
    ("$JS.API.CONSUMER.CREATE.DM_dev.x.cotal.dev.inst.>", NO),
    ("$JS.API.CONSUMER.DURABLE.CREATE.DM_dev.x", NO),
    ("$JS.API.CONSUMER.CREATE.TASK_dev", NO),
    ("$JS.API.CONSUMER.DURABLE.CREATE.TASK_dev.x", NO),
    // Nothing on INBOX at all.
    ("$JS.API.STREAM.INFO.INBOX_dev", NO),
    ("$JS.API.STREAM.MSG.GET.INBOX_dev", NO),
    ("$JS.API.DIRECT.GET.INBOX_dev", NO),
    ("$JS.API.CONSUMER.CREATE.INBOX_dev", NO),
    ("$JS.API.CONSUMER.CREATE.INBOX_dev.x.cotal.dev.dinbox.>", NO),
    ("$JS.API.CONSUMER.DURABLE.CREATE.INBOX_dev.x", NO),
    ("$JS.API.CONSUMER.MSG.NEXT.INBOX_dev.reader", NO),
    // History: one fixed name per readable channel, with that channel's filter.
    ("$JS.API.CONSUMER.CREATE.CHAT_dev.chathist_local-ada=news.cotal.dev.chat.*.*.news", YES),
    ("$JS.API.CONSUMER.CREATE.CHAT_dev.chathist_local-ada=team==gt.cotal.dev.chat.*.*.team.>", YES),
    ("$JS.API.CONSUMER.CREATE.CHAT_dev.chathist_local-ada=team==gt.cotal.dev.chat.*.*.team.ops", YES),
    ("$JS.API.CONSUMER.MSG.NEXT.CHAT_dev.chathist_local-ada=news", YES),
    ("$JS.API.CONSUMER.CREATE.CHAT_dev.chathist_local-ada=news.cotal.dev.chat.*.*.board", NO),
    ("$JS.API.CONSUMER.CREATE.CHAT_dev.chathist_local-ada=news.cotal.dev.chat.>", NO),
    ("$JS.API.CONSUMER.CREATE.CHAT_dev.chathist_local-ada=news.>", NO),
    ("$JS.API.CONSUMER.CREATE.CHAT_dev.chathist_local-ada=news", NO),
    ("$JS.API.CONSUMER.CREATE.CHAT_dev.chathist_local-bob=news.cotal.dev.chat.*.*.news", NO),
    ("$JS.API.CONSUMER.CREATE.CHAT_dev.fanout.cotal.dev.chat.*.*.news", NO),
    ("$JS.API.CONSUMER.CREATE.CHAT_dev", NO),
    ("$JS.API.CONSUMER.DURABLE.CREATE.CHAT_dev.chathist_local-ada=news", NO),
    ("$JS.API.CONSUMER.MSG.NEXT.CHAT_dev.fanout", NO),
    ("$JS.API.CONSUMER.DELETE.CHAT_dev.fanout", NO),
    ("$JS.API.STREAM.MSG.GET.CHAT_dev", NO),
    ("$JS.API.DIRECT.GET.CHAT_dev", NO),
    // No administration of streams, no system requests.
    ("$JS.API.STREAM.CREATE.x", NO),
    ("$JS.API.STREAM.UPDATE.CHAT_dev", NO),
    ("$JS.API.STREAM.PURGE.DLV_dev", NO),
    ("$JS.API.STREAM.DELETE.CHAT_dev", NO),
    ("$JS.API.STREAM.NAMES", NO),
    ("$SYS.REQ.ACCOUNT.PING.CONNZ", NO),
    ("$SYS.REQ.USER.INFO", NO),
    ("_INBOX_MY_KEY.x", NO),
];

const AGENT_SUBSCRIBE: &[(&str, bool)] = &[
    ("_INBOX_MY_KEY.>", YES),
    ("_INBOX.>", NO),
    ("_INBOX_UBOB.>", NO),
    (">", NO),
    ("cotal.dev.chat.*.*.team.ops", YES),
    ("cotal.dev.chat.*.*.team.>", YES),
    ("cotal.dev.chat.*.*.news", YES),
    ("cotal.dev.chat.*.*.board", NO),
    ("cotal.dev.chat.*.*.team", NO),
    ("cotal.dev.chat.*.*.>", NO),
    ("cotal.dev.chat.>", NO),
    ("cotal.dev.>", NO),
    ("cotal.other.chat.*.*.news", NO),
    ("cotal.dev.ctl.delivery.local.ada.reply.>", YES),
    ("cotal.dev.ctl.delivery.local.bob.reply.>", NO),
    ("cotal.dev.ctl.delivery.*.*", NO),
    ("cotal.dev.ctl.delivery.local.ada", NO),
    ("cotal.dev.live.delivery.local.ada.reply.>", YES),
    ("cotal.dev.live.manager.local.ada.reply.>", YES),
    ("cotal.dev.live.delivery.*.*", NO),
    ("cotal.dev.dinbox.>", NO),
    ("cotal.dev.dinbox.MY_LIFE", NO),
    ("cotal.dev.dlv.MY_LIFE", NO),
    ("cotal.dev.inst.local.ada.*.*", NO),
    ("cotal.dev.svc.build.*.*", NO),
    ("$KV.cotal_members_dev.>", NO),
    ("$KV.cotal_presence_dev.>", NO),
    ("$JS.API.>", NO),
    ("$JS.ACK.>", NO),
    ("$SYS.>", NO),
];

#[tokio::test]
async fn the_delivery_daemon() {
    let bench = Bench::start().await;
    let (account, _) = bench.space("dev").await;
    for extras in [DeliveryExtras::None, DeliveryExtras::All] {
        let client = bench.connect(&account, &SpaceProfile::Delivery(extras)).await;
        let fill = |subject: &str| subject.replace("MY_KEY", client.credentials.public_key());
        check(&client, "delivery", DELIVERY_PUBLISH, DELIVERY_SUBSCRIBE, fill).await;
        let with_extras = extras == DeliveryExtras::All;
        let plus: Vec<_> = DELIVERY_PLUS.iter().map(|subject| (*subject, with_extras)).collect();
        check(&client, "delivery with extras", &plus, &[], fill).await;
    }
}

const DELIVERY_PUBLISH: &[(&str, bool)] = &[
    // Both stores, of anyone.
    ("cotal.dev.dinbox.local.ada.abcdefghijklmnopqrstuvwxyz", YES),
    ("cotal.dev.dlv.local.ada.abcdefghijklmnopqrstuvwxyz", YES),
    ("cotal.other.dlv.local.ada.abcdefghijklmnopqrstuvwxyz", NO),
    // Answers, never a request and never a post.
    ("cotal.dev.ctl.delivery.local.ada.reply.x", YES),
    ("cotal.dev.ctl.delivery-admin.local.ada.reply.x", YES),
    ("cotal.dev.live.delivery.local.ada.reply.x", YES),
    ("cotal.dev.live.manager.local.ada.reply.x", NO),
    ("cotal.dev.ctl.delivery.local.ada", NO),
    ("cotal.dev.ctl.delivery-admin.local.ada", NO),
    ("cotal.dev.live.delivery.local.ada", NO),
    ("cotal.dev.chat.local.ada.team", NO),
    ("cotal.dev.chat.local.delivery.team", NO),
    ("cotal.dev.inst.local.ada.local.delivery", NO),
    ("cotal.dev.svc.build.local.delivery", NO),
    // Its lease, the members, and no other row.
    ("$KV.cotal_delivery_dev.lease.0", YES),
    ("$KV.cotal_delivery_dev.other", NO),
    ("$KV.cotal_delivery_dev.lease.0.x", NO),
    ("$KV.cotal_members_dev.team/local.ada.abcdefghijklmnopqrstuvwxyz", YES),
    ("$KV.cotal_acl_dev.local.ada.abcdefghijklmnopqrstuvwxyz", NO),
    ("$KV.cotal_presence_dev.local.ada", NO),
    ("$KV.cotal_channels_dev.team", NO),
    ("$KV.cotal_membership_dev.local.ada", NO),
    ("$KV.cotal_records_dev.cp.e.t.status", NO),
    // CHAT: any consumer. INBOX: the reader only. DMs and work: none.
    ("$JS.API.INFO", YES),
    ("$JS.API.STREAM.INFO.CHAT_dev", YES),
    ("$JS.API.STREAM.INFO.INBOX_dev", YES),
    ("$JS.API.STREAM.INFO.DLV_dev", YES),
    ("$JS.API.STREAM.INFO.DM_dev", NO),
    ("$JS.API.CONSUMER.CREATE.CHAT_dev.fanout.cotal.dev.chat.>", YES),
    ("$JS.API.CONSUMER.DURABLE.CREATE.CHAT_dev.fanout", YES),
    ("$JS.API.CONSUMER.MSG.NEXT.CHAT_dev.fanout", YES),
    ("$JS.API.CONSUMER.DELETE.CHAT_dev.catchup", YES),
    ("$JS.ACK.CHAT_dev.fanout.1.1.1.1.0", YES),
    ("$JS.API.CONSUMER.CREATE.INBOX_dev.reader.cotal.dev.dinbox.>", YES),
    ("$JS.API.CONSUMER.MSG.NEXT.INBOX_dev.reader", YES),
    ("$JS.ACK.INBOX_dev.reader.1.1.1.1.0", YES),
    ("$JS.API.CONSUMER.CREATE.INBOX_dev.other.cotal.dev.dinbox.>", NO),
    ("$JS.API.CONSUMER.CREATE.INBOX_dev", NO),
    ("$JS.API.CONSUMER.MSG.NEXT.INBOX_dev.other", NO),
    ("$JS.API.CONSUMER.CREATE.DM_dev.x.cotal.dev.inst.>", NO),
    ("$JS.API.CONSUMER.CREATE.DM_dev", NO),
    ("$JS.API.CONSUMER.DURABLE.CREATE.DM_dev.x", NO),
    ("$JS.API.CONSUMER.MSG.NEXT.DM_dev.dm_local-ada-abcdefghijklmnopqrstuvwxyz", NO),
    ("$JS.API.STREAM.MSG.GET.DM_dev", NO),
    ("$JS.API.DIRECT.GET.DM_dev", NO),
    ("$JS.API.CONSUMER.CREATE.TASK_dev.x.cotal.dev.svc.>", NO),
    ("$JS.API.CONSUMER.CREATE.DLV_dev.x.cotal.dev.dlv.>", NO),
    ("$JS.API.CONSUMER.MSG.NEXT.DLV_dev.dlv_local-ada-abcdefghijklmnopqrstuvwxyz", NO),
    // Buckets it decides by.
    ("$JS.API.STREAM.MSG.GET.KV_cotal_acl_dev", YES),
    ("$JS.API.CONSUMER.CREATE.KV_cotal_acl_dev.w.$KV.cotal_acl_dev.>", YES),
    ("$JS.API.CONSUMER.CREATE.KV_cotal_members_dev.w.$KV.cotal_members_dev.>", YES),
    ("$JS.API.STREAM.MSG.GET.KV_cotal_delivery_dev", YES),
    ("$JS.API.STREAM.MSG.GET.KV_cotal_membership_dev", NO),
    // Timers.
    ("$JS.API.CONSUMER.CREATE.EPT_REQ_dev.timers.cotal.dev.ept.*.*.*.*.schedule", YES),
    ("$JS.API.CONSUMER.MSG.NEXT.EPT_REQ_dev.timers", YES),
    ("$JS.ACK.EPT_REQ_dev.timers.1.1.1.1.0", YES),
    ("$JS.API.STREAM.MSG.GET.KV_cotal_records_dev", YES),
    ("cotal.dev.ept.e.i.1.t.armed", YES),
    ("cotal.dev.ept.e.i.1.t.fire", NO),
    ("cotal.dev.ept.e.i.1.t.schedule", NO),
    // No administration.
    ("$JS.API.STREAM.CREATE.CHAT_dev", NO),
    ("$JS.API.STREAM.UPDATE.CHAT_dev", NO),
    ("$JS.API.STREAM.DELETE.CHAT_dev", NO),
    ("$JS.API.STREAM.PURGE.CHAT_dev", NO),
    ("$JS.API.STREAM.PURGE.INBOX_dev", NO),
    ("$JS.API.STREAM.NAMES", NO),
    ("$SYS.REQ.ACCOUNT.PING.CONNZ", NO),
];

const DELIVERY_SUBSCRIBE: &[(&str, bool)] = &[
    ("_INBOX_MY_KEY.>", YES),
    ("_INBOX.>", NO),
    ("cotal.dev.ctl.delivery.*.*", YES),
    ("cotal.dev.ctl.delivery-admin.*.*", YES),
    ("cotal.dev.live.delivery.*.*", YES),
    ("cotal.dev.live.manager.*.*", NO),
    ("cotal.dev.ctl.delivery.*.*.reply.>", NO),
    ("cotal.dev.chat.>", NO),
    ("cotal.dev.dinbox.>", NO),
    ("cotal.dev.dlv.>", NO),
    ("cotal.dev.inst.>", NO),
    ("$KV.cotal_acl_dev.>", NO),
];

/// The rows of the contract's plus sign.
const DELIVERY_PLUS: &[&str] = &[
    "$JS.API.STREAM.MSG.DELETE.INBOX_dev",
    "$JS.API.STREAM.PURGE.DLV_dev",
    "$JS.API.CONSUMER.INFO.DLV_dev.dlv_local-ada-abcdefghijklmnopqrstuvwxyz",
    "$JS.API.CONSUMER.CREATE.KV_cotal_delivery_dev.w.$KV.cotal_delivery_dev.>",
    "$JS.API.DIRECT.GET.KV_cotal_acl_dev",
    "$JS.API.DIRECT.GET.KV_cotal_acl_dev.$KV.cotal_acl_dev.x",
    "$JS.API.DIRECT.GET.CHAT_dev",
];

#[tokio::test]
async fn the_membership_feed() {
    let bench = Bench::start().await;
    let (account, _) = bench.space("dev").await;
    let client = bench.connect(&account, &SpaceProfile::MembershipRw).await;
    let publish = [
        ("$JS.API.STREAM.INFO.KV_cotal_members_dev", YES),
        ("$JS.API.STREAM.MSG.GET.KV_cotal_members_dev", YES),
        ("$JS.API.CONSUMER.CREATE.KV_cotal_members_dev.w.$KV.cotal_members_dev.>", YES),
        ("$JS.API.STREAM.MSG.GET.KV_cotal_membership_dev", YES),
        ("$KV.cotal_membership_dev.local.ada", YES),
        ("$KV.cotal_membership_dev.=feed", YES),
        ("$JS.API.DIRECT.GET.KV_cotal_membership_dev", NO),
        ("$KV.cotal_members_dev.team/local.ada.x", NO),
        ("$KV.cotal_presence_dev.local.ada", NO),
        ("$KV.cotal_acl_dev.local.ada.x", NO),
        ("$KV.cotal_delivery_dev.lease.0", NO),
        ("cotal.dev.chat.local.delivery.team", NO),
        ("$JS.API.STREAM.MSG.GET.KV_cotal_presence_dev", NO),
        ("$JS.API.STREAM.MSG.GET.KV_cotal_acl_dev", NO),
        ("$JS.API.CONSUMER.CREATE.CHAT_dev.x.cotal.dev.chat.>", NO),
        ("$SYS.REQ.ACCOUNT.PING.CONNZ", NO),
        ("$SYS.REQ.SERVER.PING.CONNZ", NO),
    ];
    let subscribe =
        [("cotal.dev.chat.>", NO), ("$KV.cotal_presence_dev.>", NO), ("_INBOX.>", NO), ("_INBOX_MY_KEY.>", YES)];
    let fill = |subject: &str| subject.replace("MY_KEY", client.credentials.public_key());
    check(&client, "membership-rw", &publish, &subscribe, fill).await;
}

#[tokio::test]
async fn people() {
    let bench = Bench::start().await;
    let (account, _) = bench.space("dev").await;
    let both = [
        ("$JS.API.STREAM.MSG.GET.KV_cotal_membership_dev", YES),
        ("$JS.API.CONSUMER.CREATE.KV_cotal_membership_dev.w.$KV.cotal_membership_dev.>", YES),
        ("$JS.API.STREAM.MSG.GET.KV_cotal_presence_dev", YES),
        ("$KV.cotal_membership_dev.local.ada", NO),
        ("$KV.cotal_membership_dev.=feed", NO),
        ("$JS.API.STREAM.MSG.GET.KV_cotal_members_dev", NO),
        ("$JS.API.CONSUMER.CREATE.KV_cotal_members_dev.w.$KV.cotal_members_dev.>", NO),
        ("$JS.API.DIRECT.GET.KV_cotal_members_dev", NO),
        ("$JS.API.DIRECT.GET.KV_cotal_presence_dev", NO),
        ("$KV.cotal_members_dev.x", NO),
        ("$KV.cotal_acl_dev.local.ada.x", NO),
        ("$KV.cotal_delivery_dev.lease.0", NO),
        ("cotal.dev.chat.local.root.team", NO),
        ("cotal.dev.dlv.local.ada.x", NO),
        ("$JS.API.CONSUMER.CREATE.INBOX_dev.x.cotal.dev.dinbox.>", NO),
        ("$JS.API.CONSUMER.CREATE.DM_dev.x.cotal.dev.inst.>", NO),
        ("$SYS.REQ.ACCOUNT.PING.CONNZ", NO),
        ("$SYS.REQ.SERVER.PING.CONNZ", NO),
    ];
    let plain = |subject: &str| subject.to_owned();

    let admin = bench.connect(&account, &SpaceProfile::Admin(principal("local.root"))).await;
    check(&admin, "admin", &both, &[("cotal.dev.chat.>", NO)], plain).await;
    let own = [
        ("cotal.dev.ctl.delivery-admin.local.root", YES),
        ("cotal.dev.ctl.delivery-admin.local.ada", NO),
        ("cotal.dev.ctl.delivery-admin.local.root.reply.x", NO),
        ("$KV.cotal_channels_dev.team", YES),
    ];
    let replies = [
        ("cotal.dev.ctl.delivery-admin.local.root.reply.>", YES),
        ("cotal.dev.ctl.delivery-admin.local.ada.reply.>", NO),
        ("cotal.dev.ctl.delivery-admin.*.*", NO),
    ];
    check(&admin, "admin", &own, &replies, plain).await;

    let observer = bench.connect(&account, &SpaceProfile::Observer).await;
    let taps = [("cotal.dev.chat.>", YES), ("cotal.dev.inst.>", NO), ("cotal.dev.dlv.>", NO), ("cotal.dev.>", NO)];
    check(&observer, "observer", &both, &taps, plain).await;
    let none = [("cotal.dev.ctl.delivery-admin.local.root", NO), ("$KV.cotal_channels_dev.team", NO)];
    check(&observer, "observer", &none, &[], plain).await;

    let provisioner = bench.connect(&account, &SpaceProfile::Provisioner).await;
    let rows = [
        ("$KV.cotal_acl_dev.local.ada.x", YES),
        ("$KV.cotal_channels_dev.team", YES),
        ("$KV.cotal_members_dev.x", NO),
        ("$KV.cotal_delivery_dev.lease.0", NO),
        ("cotal.dev.chat.local.ada.team", NO),
        ("cotal.dev.dlv.local.ada.x", NO),
        ("$JS.API.CONSUMER.MSG.NEXT.DM_dev.dm_local-ada-x", NO),
        ("$JS.API.CONSUMER.CREATE.INBOX_dev.x.cotal.dev.dinbox.>", NO),
        ("$JS.API.CONSUMER.CREATE.CHAT_dev.x.cotal.dev.chat.>", NO),
        ("$JS.API.STREAM.UPDATE.CHAT_dev", NO),
        ("$JS.API.STREAM.DELETE.CHAT_dev", NO),
        ("$JS.API.STREAM.CREATE.CHAT_other", NO),
        ("$JS.API.STREAM.MSG.GET.DM_dev", NO),
    ];
    check(&provisioner, "provisioner", &rows, &[("cotal.dev.>", NO), ("cotal.dev.chat.>", NO)], plain).await;
}

#[tokio::test]
async fn users_of_the_system_account() {
    let bench = Bench::start().await;
    let account = bench.account("dev").await;
    let other = bench.account("other").await;
    let url = bench.broker.url();
    let profile = SystemProfile::MembershipObserver { account_id: account.account_id().to_owned() };
    let credentials = bench.home.mint_system(&profile, Validity::forever()).unwrap();
    let observer = Client::open_with_inbox(&url, &credentials, "_INBOX.cotal-membership").await;
    let fill = |subject: &str| subject.replace("MINE", account.account_id()).replace("OTHER", other.account_id());
    let publish = [
        ("$SYS.REQ.ACCOUNT.MINE.CONNZ", YES),
        ("$SYS.REQ.ACCOUNT.OTHER.CONNZ", NO),
        ("$SYS.REQ.ACCOUNT.MINE.JSZ", NO),
        ("$SYS.REQ.ACCOUNT.PING.CONNZ", NO),
        ("$SYS.REQ.SERVER.PING.CONNZ", NO),
        ("$SYS.REQ.SERVER.PING", NO),
        ("$SYS.REQ.CLAIMS.UPDATE", NO),
        ("$SYS.REQ.CLAIMS.LIST", NO),
        ("$SYS.REQ.SERVER.X.KICK", NO),
    ];
    let subscribe = [
        ("$SYS.ACCOUNT.MINE.CONNECT", YES),
        ("$SYS.ACCOUNT.MINE.DISCONNECT", YES),
        ("$SYS.ACCOUNT.OTHER.CONNECT", NO),
        ("$SYS.ACCOUNT.*.CONNECT", NO),
        ("$SYS.ACCOUNT.MINE.>", NO),
        ("$SYS.>", NO),
        ("_INBOX.cotal-membership.>", YES),
        ("_INBOX.>", NO),
    ];
    check(&observer, "membership-observer", &publish, &subscribe, fill).await;

    for (profile, kick, update) in [(SystemProfile::ConnectionEvictor, YES, NO), (SystemProfile::ClaimsWriter, NO, YES)]
    {
        let client = Client::open(&url, &bench.home.mint_system(&profile, Validity::forever()).unwrap()).await;
        let publish = [
            ("$SYS.REQ.SERVER.X.KICK", kick),
            ("$SYS.REQ.CLAIMS.UPDATE", update),
            ("$SYS.REQ.CLAIMS.DELETE", update),
            ("$SYS.REQ.CLAIMS.LIST", NO),
            ("$SYS.REQ.ACCOUNT.MINE.CONNZ", NO),
            ("$SYS.REQ.SERVER.PING.CONNZ", NO),
            ("$SYS.REQ.SERVER.X.RELOAD", NO),
        ];
        check(&client, profile.user_name(), &publish, &[("$SYS.>", NO), ("_INBOX.>", NO)], fill).await;
    }
}
