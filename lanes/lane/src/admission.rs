//! Whether the files in a lane's directory belong to this space and to each other, before anything connects.
//!
//! Owns the file names and the comparison. It pins the account a lane may touch from its delivery credential. It must not
//! connect: what only a broker can know shows at the dial.

use std::path::Path;

use lanekeeper_wire::{Bucket, LEASE_KEY, READER_DURABLE, Space, StreamKind, subject};

use crate::{credentials::Credential, fault::FaultKind};

/// The delivery connection (data account).
pub(crate) const DELIVERY: &str = "delivery.creds";
/// The membership feed's connection (data account).
pub(crate) const MEMBERSHIP_RW: &str = "membership-rw.creds";
/// The observer (system account, scoped to the data account).
pub(crate) const MEMBERSHIP_OBSERVER: &str = "membership-observer.creds";

/// Reads a lane's credentials and returns the delivery one.
///
/// # Errors
/// A file is missing, loose, malformed, expired, or of another account or space.
pub(crate) fn admit(dir: &Path, space: &Space) -> Result<Credential, FaultKind> {
    let delivery = Credential::read(&dir.join(DELIVERY))?;
    let wanted = StreamKind::Chat.name(space);
    if let Some(found) = foreign_space(&delivery, &wanted) {
        return Err(foreign(&delivery, format!("it is made for stream `{found}`, this space has `{wanted}`")));
    }
    let lease = Bucket::Delivery.subject(space, LEASE_KEY);
    let next = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{READER_DURABLE}", StreamKind::Inbox.name(space));
    if !may_publish(&delivery, &lease) && !may_publish(&delivery, &next) {
        return Err(foreign(&delivery, of_no_use("delivery")));
    }
    let rw = Credential::read(&dir.join(MEMBERSHIP_RW))?;
    if rw.account() != delivery.account() {
        return Err(foreign(
            &rw,
            format!("its account is {}, the delivery credential's is {}", rw.account(), delivery.account()),
        ));
    }
    if !may_publish(&rw, &Bucket::Membership.subject(space, "o.a")) {
        return Err(foreign(&rw, of_no_use("the membership feed")));
    }
    let observer = Credential::read(&dir.join(MEMBERSHIP_OBSERVER))?;
    let request = format!("$SYS.REQ.ACCOUNT.{}.CONNZ", delivery.account());
    if observer.account() == delivery.account() || !observer.may_publish().contains(&request) {
        let found = observer.may_publish().first().map_or("nothing", String::as_str);
        return Err(foreign(&observer, format!("it may ask `{found}`, this space's observer asks `{request}`")));
    }
    Ok(delivery)
}

/// The CHAT stream of another space that the credential is made for, if it is not made for `wanted` at all.
fn foreign_space<'a>(credential: &'a Credential, wanted: &str) -> Option<&'a str> {
    let mut streams =
        credential.may_publish().iter().filter_map(|subject| subject.strip_prefix("$JS.API.STREAM.INFO."));
    let mut found = None;
    if streams.any(|stream| {
        if stream.starts_with("CHAT_") {
            found = Some(stream);
        }
        stream == wanted || stream.contains(['*', '>'])
    }) {
        return None;
    }
    found
}

/// Whether one of its rows allows `concrete`, or none restricts it.
fn may_publish(credential: &Credential, concrete: &str) -> bool {
    let rows = credential.may_publish();
    rows.is_empty() || rows.iter().any(|row| subject::matches(row, concrete))
}

fn of_no_use(part: &str) -> String {
    format!("it is made for another purpose, it may publish nothing that {part} needs")
}

fn foreign(credential: &Credential, reason: String) -> FaultKind {
    FaultKind::CredentialForeign { path: credential.path().display().to_string(), reason }
}
