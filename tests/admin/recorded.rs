//! A host's state as a supervisor would show it, with a lane for each thing that can be seen.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use lanekeeper::{
    admin::{Answer, Desk, Order},
    supervisor::status::{
        BacklogStatus, CountersStatus, FaultStatus, HostStatus, LaneState, LaneStatus, Outcome, RatesStatus,
    },
};

/// The moment of the record, milliseconds since the epoch.
pub(crate) const NOW_MS: u64 = 1_800_000_000_000;
const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// A lane that serves and of which nothing is to be said.
pub(crate) fn lane(space: &str, state: LaneState) -> LaneStatus {
    LaneStatus {
        space: space.parse().unwrap(),
        state,
        reason: String::new(),
        since_ms: NOW_MS - 200_000,
        attempt: 1,
        generation: 1,
        lease_revision: None,
        lease_holder: None,
        credential_expires_at_s: None,
        credential_fingerprint: None,
        connections: 1,
        connected_to: Some("nats://127.0.0.1:4222".to_owned()),
        incarnation: None,
        backlog: BacklogStatus::default(),
        counters: CountersStatus::default(),
        rates: RatesStatus::default(),
        last_fault: None,
        drained: false,
        preferred_host: None,
        tags: BTreeMap::new(),
    }
}

fn expires(at_ms: u64) -> Option<u64> {
    Some(at_ms / 1000)
}

fn fault(code: &str, text: &str, ago_ms: u64) -> Option<FaultStatus> {
    Some(FaultStatus { code: code.to_owned(), text: text.to_owned(), at_ms: NOW_MS - ago_ms })
}

/// The record.
pub(crate) fn host() -> HostStatus {
    let lanes = vec![
        LaneStatus {
            lease_revision: Some(4711),
            credential_expires_at_s: expires(NOW_MS + 29 * DAY_MS),
            credential_fingerprint: Some("9f86d081".to_owned()),
            rates: RatesStatus { posts_per_s: 12.5, copies_per_s: 1_234.0 },
            backlog: BacklogStatus { posts_in_hand: 3, entries_in_hand: 120, waiting_copies: 7 },
            since_ms: NOW_MS - 3 * DAY_MS - 4 * HOUR_MS,
            tags: BTreeMap::from([("tier".to_owned(), "gold".to_owned())]),
            ..lane("alpha", LaneState::Serving)
        },
        LaneStatus {
            lease_revision: Some(12),
            credential_expires_at_s: expires(NOW_MS + 3 * HOUR_MS),
            last_fault: fault(
                "LANE-204",
                "space `beta`: the connection to the broker ended [LANE-204]",
                12 * MINUTE_MS,
            ),
            ..lane("beta", LaneState::Serving)
        },
        LaneStatus {
            reason: "the lease is held by two".to_owned(),
            lease_holder: Some("two".to_owned()),
            credential_expires_at_s: expires(NOW_MS + 20 * MINUTE_MS),
            preferred_host: Some("two".to_owned()),
            drained: true,
            ..lane("gamma", LaneState::Standby)
        },
        LaneStatus { reason: "connecting".to_owned(), since_ms: NOW_MS - 4_000, ..lane("delta", LaneState::Opening) },
        LaneStatus {
            reason: "opens again in 12 s".to_owned(),
            attempt: 7,
            connections: 0,
            connected_to: None,
            last_fault: fault(
                "LANE-201",
                "space `epsilon`: broker nats://10.0.0.9:4222 cannot be reached: connection refused; check the address and that nats-server runs [LANE-201]",
                18_000,
            ),
            ..lane("epsilon", LaneState::Waiting)
        },
        LaneStatus {
            reason: "waits for a credential".to_owned(),
            credential_expires_at_s: expires(NOW_MS - 2 * HOUR_MS),
            connections: 0,
            last_fault: fault("LANE-104", "space `zeta-with-a-rather-long-name`: \u{1b}[2Jexpired [LANE-104]", HOUR_MS),
            ..lane("zeta-with-a-rather-long-name", LaneState::Parked)
        },
        LaneStatus { generation: 0, attempt: 0, connections: 0, ..lane("eta", LaneState::Waiting) },
    ];
    HostStatus {
        host: "one".to_owned(),
        version: "0.1.0".to_owned(),
        generation: 12,
        manifest_hash: "ab".repeat(32),
        ready: false,
        watching: true,
        draining: false,
        reloads_applied: 3,
        reloads_refused: 0,
        last_reload: Some(Outcome { generation: 12, applied: true, unchanged: 7, ..Outcome::default() }),
        lanes,
    }
}

/// The same once every lane was attempted.
pub(crate) fn ready_host() -> HostStatus {
    let mut host = host();
    host.ready = true;
    host.lanes.retain(|lane| lane.generation > 0);
    host
}

/// A supervisor that shows a state and notes its orders.
#[derive(Clone)]
pub(crate) struct Recorded {
    pub(crate) shown: Arc<Mutex<Option<HostStatus>>>,
    pub(crate) orders: Arc<Mutex<Vec<Order>>>,
    pub(crate) answer: Arc<Mutex<Answer>>,
}

impl Recorded {
    pub(crate) fn showing(host: HostStatus) -> Self {
        let answer = Arc::new(Mutex::new(Answer::Taken(Vec::new())));
        Self { shown: Arc::new(Mutex::new(Some(host))), orders: Arc::default(), answer }
    }

    pub(crate) fn desk(&self) -> Desk {
        let (shown, taking) = (Arc::clone(&self.shown), self.clone());
        Desk::new(
            move || shown.lock().unwrap().clone().map(Arc::new),
            || Box::pin(async { true }),
            move |order| {
                taking.orders.lock().unwrap().push(order);
                let answer = taking.answer.lock().unwrap().clone();
                Box::pin(async move { answer })
            },
        )
    }

    pub(crate) fn taken(&self) -> Vec<Order> {
        self.orders.lock().unwrap().clone()
    }

    pub(crate) fn answering(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }
}
