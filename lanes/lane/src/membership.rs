//! The membership registry's writes: join, activation, leave.
//!
//! Owns the rows of the members bucket. Each write is a compare-and-swap and is applied to the replica as it is committed,
//! so that fan-out counts it at once. It must not decide who may join: [`crate::control`] asks first.

use std::sync::Arc;

use async_nats::{HeaderMap, jetstream::context::PublishErrorKind};
use lanekeeper_wire::{
    Bucket, ClosedInterval, Lifecycle, MemberKey, MembershipRow, MembershipState, Space, StreamKind,
};

use crate::{
    catch_up::CatchUp,
    credentials::unix_now_ms,
    fan_out::Missed,
    fault::FaultKind,
    link::Link,
    permit::Permit,
    registry::{Registry, last_sequence, tables::Change},
};

/// How often a compare-and-swap is tried against concurrent writers.
const WRITE_ATTEMPTS: u32 = 5;
/// How many closed intervals a row remembers for copies that are still on their way.
const EARLIER_KEPT: usize = 8;

/// The outcome of a join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Join {
    /// Durable from the join cursor on.
    Durable {
        /// The row's generation.
        generation: u64,
    },
    /// Not durable; nothing half-done is left.
    Refused {
        /// The generation of the tombstoned row.
        generation: u64,
        /// Why.
        reason: String,
    },
}

/// The outcome of a leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Leave {
    /// The interval ended at this CHAT sequence.
    Left {
        /// Inclusive.
        leave_cursor: u64,
    },
    /// There was no open row.
    AlreadyLeft,
    /// The row is of another generation.
    Stale {
        /// The generation asked for.
        asked: u64,
        /// The row's.
        current: u64,
    },
}

/// Writes rows of one space.
pub(crate) struct Membership {
    /// The connection.
    pub link: Link,
    /// The space.
    pub space: Space,
    /// The replica.
    pub registry: Arc<Registry>,
    /// The permit.
    pub permit: Permit,
    /// Copies what a join came too late for.
    pub catch_up: CatchUp,
    /// Who writes, for the rows.
    pub writer: String,
}

enum Put {
    Stored,
    Raced,
}

impl Membership {
    /// Makes `lifecycle` a durable member, from the CHAT frontier on.
    ///
    /// # Errors
    /// The broker's silence or refusal.
    pub(crate) async fn join(&self, key: &MemberKey) -> Result<Join, FaultKind> {
        for _ in 0..WRITE_ATTEMPTS {
            self.registry.fresh(&self.link, &[Bucket::Members]).await?;
            let current = self.registry.tables().member(key);
            if let Some(member) = &current
                && member.row.is_open()
                && member.row.activated
            {
                return Ok(Join::Durable { generation: member.row.generation });
            }
            let expected = self.registry.tables().member_revision(key);
            let join_cursor = last_sequence(&self.link, &StreamKind::Chat.name(&self.space)).await?;
            let row = self.opened(key, current.as_ref().map(|member| &*member.row), join_cursor);
            match self.put(key, &row, expected).await? {
                Put::Stored => return self.complete(key, row).await,
                Put::Raced => {}
            }
        }
        Err(raced("the join"))
    }

    /// The row of a new interval. An open row that never became active was never reported as durable: its interval ends
    /// where the new one begins, so that nothing it routed is lost and nothing is counted twice.
    fn opened(&self, key: &MemberKey, before: Option<&MembershipRow>, join_cursor: u64) -> MembershipRow {
        let mut earlier = before.map(|row| row.earlier.clone()).unwrap_or_default();
        if let Some(row) = before {
            let leave_cursor = row.leave_cursor.unwrap_or(join_cursor);
            if leave_cursor > row.join_cursor {
                earlier.push(ClosedInterval { generation: row.generation, join_cursor: row.join_cursor, leave_cursor });
            }
        }
        let forgotten = earlier.len().saturating_sub(EARLIER_KEPT);
        earlier.drain(..forgotten);
        MembershipRow {
            channel: key.pattern.clone(),
            owner: key.lifecycle.principal().clone(),
            lifecycle_uid: key.lifecycle.uid().clone(),
            state: MembershipState::DurableActive,
            join_cursor,
            leave_cursor: None,
            generation: before.map_or(1, |row| row.generation + 1),
            activated: false,
            writer_identity: self.writer.clone(),
            updated_at: unix_now_ms(),
            earlier,
        }
    }

    /// Copies what the row came too late for, then activates it; or closes it where retention was faster.
    async fn complete(&self, key: &MemberKey, row: MembershipRow) -> Result<Join, FaultKind> {
        let generation = row.generation;
        let shortfall = match self.catch_up.judged.missed(row.join_cursor, &key.pattern) {
            Missed::Exactly(missed) if missed.is_empty() => None,
            Missed::Exactly(missed) => {
                self.catch_up.copy(&self.link, &key.lifecycle, &key.pattern, generation, &missed).await?
            }
            Missed::Unknown => Some("too much was posted while joining; join again".to_owned()),
        };
        if let Some(reason) = shortfall {
            self.close(key, generation, row.join_cursor).await?;
            return Ok(Join::Refused { generation, reason });
        }
        for _ in 0..WRITE_ATTEMPTS {
            let (current, expected) = {
                let tables = self.registry.tables();
                (tables.member(key), tables.member_revision(key))
            };
            let Some(member) = current.filter(|member| member.row.generation == generation && member.row.is_open())
            else {
                return Ok(Join::Refused { generation, reason: "left while joining".into() });
            };
            if member.row.activated {
                return Ok(Join::Durable { generation });
            }
            let mut activated = (*member.row).clone();
            activated.activated = true;
            activated.updated_at = unix_now_ms();
            match self.put(key, &activated, expected).await? {
                Put::Stored => return Ok(Join::Durable { generation }),
                Put::Raced => self.registry.fresh(&self.link, &[Bucket::Members]).await?,
            }
        }
        Err(raced("the activation"))
    }

    /// Ends the open interval of `key` at the CHAT frontier, if it is of `generation`.
    ///
    /// # Errors
    /// The broker's silence or refusal.
    pub(crate) async fn leave(&self, key: &MemberKey, generation: u64) -> Result<Leave, FaultKind> {
        // Between the frontier that is read below and the row that says so, posts go on: they must not be released.
        let _end_is_open = self.registry.leaving(key, self.catch_up.judged.highest());
        for _ in 0..WRITE_ATTEMPTS {
            self.registry.fresh(&self.link, &[Bucket::Members]).await?;
            let (current, expected) = {
                let tables = self.registry.tables();
                (tables.member(key), tables.member_revision(key))
            };
            let Some(member) = current else { return Ok(Leave::AlreadyLeft) };
            if member.row.generation != generation {
                return Ok(Leave::Stale { asked: generation, current: member.row.generation });
            }
            if !member.row.is_open() {
                return Ok(Leave::AlreadyLeft);
            }
            let leave_cursor = last_sequence(&self.link, &StreamKind::Chat.name(&self.space)).await?;
            let row = closed(&member.row, leave_cursor);
            match self.put(key, &row, expected).await? {
                Put::Stored => return Ok(Leave::Left { leave_cursor }),
                Put::Raced => {}
            }
        }
        Err(raced("the leave"))
    }

    /// Closes a row that could not be completed, leaving an empty interval.
    async fn close(&self, key: &MemberKey, generation: u64, at: u64) -> Result<(), FaultKind> {
        for _ in 0..WRITE_ATTEMPTS {
            let (current, expected) = {
                let tables = self.registry.tables();
                (tables.member(key), tables.member_revision(key))
            };
            let Some(member) = current.filter(|member| member.row.generation == generation && member.row.is_open())
            else {
                return Ok(());
            };
            match self.put(key, &closed(&member.row, at), expected).await? {
                Put::Stored => return Ok(()),
                Put::Raced => self.registry.fresh(&self.link, &[Bucket::Members]).await?,
            }
        }
        Err(raced("the tombstone"))
    }

    /// The caller's open rows.
    ///
    /// # Errors
    /// The broker's silence.
    pub(crate) async fn list(&self, lifecycle: &Lifecycle) -> Result<Vec<Arc<MembershipRow>>, FaultKind> {
        self.registry.fresh(&self.link, &[Bucket::Members]).await?;
        Ok(self.registry.tables().open_memberships(lifecycle))
    }

    async fn put(&self, key: &MemberKey, row: &MembershipRow, expected: u64) -> Result<Put, FaultKind> {
        if !self.permit.is_live() {
            return Err(FaultKind::Refused {
                what: "the membership write".into(),
                reason: "the lease is being re-checked".into(),
            });
        }
        let key = key.to_string();
        let subject = Bucket::Members.subject(&self.space, &key);
        let value = row.to_json();
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Last-Subject-Sequence", expected.to_string());
        let call = async {
            let sent = self.link.jetstream().publish_with_headers(subject.clone(), headers, value.clone().into()).await;
            let acknowledged = match sent {
                Ok(ack) => ack.await,
                Err(error) => Err(error),
            };
            match acknowledged {
                Ok(ack) => Ok(Some(ack.sequence)),
                Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(None),
                Err(error) => {
                    Err(FaultKind::Refused { what: format!("the write of `{subject}`"), reason: error.to_string() })
                }
            }
        };
        match self.link.ask(&subject, call).await? {
            Some(revision) => {
                self.registry.apply_own(Bucket::Members, &Change { key, revision, value: Some(value.into()) });
                Ok(Put::Stored)
            }
            None => Ok(Put::Raced),
        }
    }
}

fn closed(row: &MembershipRow, leave_cursor: u64) -> MembershipRow {
    MembershipRow {
        state: MembershipState::LiveConfirmed,
        leave_cursor: Some(leave_cursor),
        updated_at: unix_now_ms(),
        ..row.clone()
    }
}

fn raced(what: &str) -> FaultKind {
    FaultKind::Refused { what: what.to_owned(), reason: format!("the row kept changing, {WRITE_ATTEMPTS} attempts") }
}
