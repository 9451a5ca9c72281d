//! The rights of users of the system account. Every one of them has rows: without any it would administer the broker.

use super::Grants;

/// Where the observer's replies go: a fixed prefix, so that its rights do not depend on its key.
const OBSERVER_INBOX: &str = "_INBOX.cotal-membership.>";

pub(super) fn membership_observer(account_id: &str) -> Grants {
    let mut grants = Grants::default();
    grants
        // Who is connected to this one account, and with which subscriptions.
        .publish(format!("$SYS.REQ.ACCOUNT.{account_id}.CONNZ"))
        // The answers, one per server.
        .subscribe(OBSERVER_INBOX)
        // Somebody of this account came.
        .subscribe(format!("$SYS.ACCOUNT.{account_id}.CONNECT"))
        // Somebody of this account went.
        .subscribe(format!("$SYS.ACCOUNT.{account_id}.DISCONNECT"));
    grants
}

pub(super) fn connection_evictor(public_key: &str) -> Grants {
    let mut grants = Grants::default();
    grants
        // Closes one connection at the server that holds it. Not account-scoped by nature: open it for an eviction only.
        .publish("$SYS.REQ.SERVER.*.KICK")
        .own_inbox(public_key);
    grants
}

pub(super) fn claims_writer(public_key: &str) -> Grants {
    let mut grants = Grants::default();
    grants
        // A new or changed account. The broker takes it only when the operator signed it.
        .publish("$SYS.REQ.CLAIMS.UPDATE")
        // Accounts to delete, named in claims the operator signed.
        .publish("$SYS.REQ.CLAIMS.DELETE")
        .own_inbox(public_key);
    grants
}
