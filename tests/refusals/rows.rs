//! Every row of the bare delivery profile, and what follows where it is missing. The table is held against the profile:
//! a row that is new there is in no class here, and a test says so.

use lanekeeper_provision::{DeliveryExtras, SpaceProfile, profile::Grants};
use lanekeeper_wire::Space;
use nkeys::KeyPair;

/// When a missing row shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    /// The start is refused; nothing serves without it.
    AtTheStart,
    /// The lane ends with the subject named as soon as it takes from its durables, which is while it opens or just after.
    WhenItTakes,
    /// The lane ends with the subject named when it first fans out, hands over, settles or answers.
    WhenUsed,
    /// The request that needs it is answered with the subject named, and the lane goes on.
    InTheAnswer,
    /// Nothing needs it yet: the lane serves unharmed.
    NotYet,
}

use Shows::{AtTheStart, InTheAnswer, NotYet, WhenItTakes, WhenUsed};

/// What the daemon of space `demo` may publish, each row with what follows where it is missing.
#[rustfmt::skip]
const PUBLISH: [(&str, Shows); 59] = [
    ("$JS.API.INFO", AtTheStart),
    ("$JS.API.STREAM.INFO.CHAT_demo", AtTheStart),
    ("$JS.API.STREAM.INFO.INBOX_demo", AtTheStart),
    ("$JS.API.STREAM.INFO.DLV_demo", AtTheStart),
    ("$JS.API.CONSUMER.CREATE.CHAT_demo.>", AtTheStart),
    ("$JS.API.CONSUMER.DURABLE.CREATE.CHAT_demo.*", NotYet),
    ("$JS.API.CONSUMER.INFO.CHAT_demo.*", AtTheStart),
    ("$JS.API.CONSUMER.MSG.NEXT.CHAT_demo.*", WhenItTakes),
    ("$JS.API.CONSUMER.DELETE.CHAT_demo.*", NotYet),
    ("$JS.ACK.CHAT_demo.>", WhenUsed),
    ("$JS.API.CONSUMER.CREATE.INBOX_demo.reader", NotYet),
    ("$JS.API.CONSUMER.CREATE.INBOX_demo.reader.>", AtTheStart),
    ("$JS.API.CONSUMER.DURABLE.CREATE.INBOX_demo.reader", NotYet),
    ("$JS.API.CONSUMER.DELETE.INBOX_demo.reader", NotYet),
    ("$JS.API.CONSUMER.INFO.INBOX_demo.reader", AtTheStart),
    ("$JS.API.CONSUMER.MSG.NEXT.INBOX_demo.reader", WhenItTakes),
    ("$JS.ACK.INBOX_demo.reader.>", WhenUsed),
    ("$JS.FC.>", NotYet),
    ("$JS.API.STREAM.INFO.KV_cotal_presence_demo", AtTheStart),
    ("$JS.API.STREAM.MSG.GET.KV_cotal_presence_demo", NotYet),
    ("$JS.API.CONSUMER.CREATE.KV_cotal_presence_demo", NotYet),
    ("$JS.API.CONSUMER.CREATE.KV_cotal_presence_demo.>", NotYet),
    ("$JS.API.CONSUMER.INFO.KV_cotal_presence_demo.*", NotYet),
    ("$JS.API.CONSUMER.DELETE.KV_cotal_presence_demo.*", NotYet),
    ("$JS.API.STREAM.INFO.KV_cotal_channels_demo", AtTheStart),
    ("$JS.API.STREAM.MSG.GET.KV_cotal_channels_demo", NotYet),
    ("$JS.API.CONSUMER.CREATE.KV_cotal_channels_demo", AtTheStart),
    ("$JS.API.CONSUMER.CREATE.KV_cotal_channels_demo.>", NotYet),
    ("$JS.API.CONSUMER.INFO.KV_cotal_channels_demo.*", NotYet),
    ("$JS.API.CONSUMER.DELETE.KV_cotal_channels_demo.*", NotYet),
    ("$JS.API.STREAM.INFO.KV_cotal_members_demo", AtTheStart),
    ("$JS.API.STREAM.MSG.GET.KV_cotal_members_demo", NotYet),
    ("$JS.API.CONSUMER.CREATE.KV_cotal_members_demo", AtTheStart),
    ("$JS.API.CONSUMER.CREATE.KV_cotal_members_demo.>", NotYet),
    ("$JS.API.CONSUMER.INFO.KV_cotal_members_demo.*", NotYet),
    ("$JS.API.CONSUMER.DELETE.KV_cotal_members_demo.*", NotYet),
    ("$JS.API.STREAM.INFO.KV_cotal_acl_demo", AtTheStart),
    ("$JS.API.STREAM.MSG.GET.KV_cotal_acl_demo", NotYet),
    ("$JS.API.CONSUMER.CREATE.KV_cotal_acl_demo", AtTheStart),
    ("$JS.API.CONSUMER.CREATE.KV_cotal_acl_demo.>", NotYet),
    ("$JS.API.CONSUMER.INFO.KV_cotal_acl_demo.*", NotYet),
    ("$JS.API.CONSUMER.DELETE.KV_cotal_acl_demo.*", NotYet),
    ("$KV.cotal_members_demo.>", InTheAnswer),
    ("$JS.API.STREAM.INFO.KV_cotal_delivery_demo", AtTheStart),
    ("$JS.API.STREAM.MSG.GET.KV_cotal_delivery_demo", AtTheStart),
    ("$KV.cotal_delivery_demo.lease.*", AtTheStart),
    ("cotal.demo.dinbox.*.*.*", WhenUsed),
    ("cotal.demo.dlv.*.*.*", WhenUsed),
    ("cotal.demo.ctl.delivery.*.*.reply.>", WhenUsed),
    ("cotal.demo.ctl.delivery-admin.*.*.reply.>", NotYet),
    ("cotal.demo.live.delivery.*.*.reply.>", NotYet),
    ("$JS.API.CONSUMER.CREATE.EPT_REQ_demo.>", NotYet),
    ("$JS.API.CONSUMER.DURABLE.CREATE.EPT_REQ_demo.*", NotYet),
    ("$JS.API.CONSUMER.INFO.EPT_REQ_demo.*", NotYet),
    ("$JS.API.CONSUMER.MSG.NEXT.EPT_REQ_demo.*", NotYet),
    ("$JS.API.CONSUMER.DELETE.EPT_REQ_demo.*", NotYet),
    ("$JS.ACK.EPT_REQ_demo.>", NotYet),
    ("$JS.API.STREAM.MSG.GET.KV_cotal_records_demo", NotYet),
    ("cotal.demo.ept.*.*.*.*.armed", NotYet),
];

/// What it may subscribe to. `<nkey>` stands for the user's own key.
const SUBSCRIBE: [(&str, Shows); 4] = [
    ("_INBOX_<nkey>.>", AtTheStart),
    ("cotal.demo.ctl.delivery.*.*", AtTheStart),
    ("cotal.demo.ctl.delivery-admin.*.*", NotYet),
    ("cotal.demo.live.delivery.*.*", NotYet),
];

/// One row of the profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) text: &'static str,
    pub(crate) shows: Shows,
    pub(crate) is_publish: bool,
}

/// All rows, or those of some classes.
pub(crate) fn rows(classes: &[Shows]) -> Vec<Row> {
    let publish = PUBLISH.iter().map(|(text, shows)| Row { text, shows: *shows, is_publish: true });
    let subscribe = SUBSCRIBE.iter().map(|(text, shows)| Row { text, shows: *shows, is_publish: false });
    publish.chain(subscribe).filter(|row| classes.contains(&row.shows)).collect()
}

impl Row {
    /// What the broker's denial says of it.
    pub(crate) fn verb(&self) -> &'static str {
        if self.is_publish { "publish to" } else { "subscribe to" }
    }

    /// Whether a denied subject is one that this row would have allowed.
    pub(crate) fn covers(&self, subject: &str, user: &KeyPair) -> bool {
        lanekeeper_wire::subject::matches(&own(self.text, user), subject) || own(self.text, user) == subject
    }

    /// The bare profile of `user` without this row.
    pub(crate) fn dropped(&self, space: &Space, user: &KeyPair) -> Grants {
        let mut grants = profile(space, user);
        let rows = if self.is_publish { &mut grants.publish.allow } else { &mut grants.subscribe.allow };
        let before = rows.len();
        rows.retain(|row| *row != own(self.text, user));
        assert_eq!(rows.len() + 1, before, "{} is not in the profile", self.text);
        grants
    }
}

fn profile(space: &Space, user: &KeyPair) -> Grants {
    SpaceProfile::Delivery(DeliveryExtras::None).grants(space, &user.public_key())
}

fn own(row: &str, user: &KeyPair) -> String {
    row.replace("<nkey>", &user.public_key())
}

#[test]
fn every_row_of_the_profile_is_in_one_class() {
    let user = KeyPair::new_user();
    let grants = profile(&"demo".parse().unwrap(), &user);
    let sorted = |mut rows: Vec<String>| {
        rows.sort();
        rows
    };
    let table = |rows: &[(&str, Shows)]| sorted(rows.iter().map(|(row, _)| own(row, &user)).collect());
    assert_eq!(table(&PUBLISH), sorted(grants.publish.allow));
    assert_eq!(table(&SUBSCRIBE), sorted(grants.subscribe.allow));
    assert_eq!((grants.publish.deny.len(), grants.subscribe.deny.len()), (0, 0));
}
