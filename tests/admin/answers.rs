//! What each route answers: the state as it is, readiness once every lane was attempted, orders as they were given.

use lanekeeper::{
    admin::{Answer, Order},
    supervisor::status::{HostStatus, LaneState, LaneStatus, Outcome},
};
use serde_json::json;

use crate::{
    http::Server,
    recorded::{Recorded, host, ready_host},
};

#[tokio::test(flavor = "multi_thread")]
async fn lanes_are_told_as_they_are() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    let reply = server.get("/lanes").await;
    assert_eq!((reply.status, reply.head.contains("cache-control: no-store")), (200, true), "{reply:?}");
    assert_eq!(serde_json::from_value::<HostStatus>(reply.json()).unwrap(), host());
    let reply = server.get("/lanes/epsilon").await;
    assert_eq!(serde_json::from_value::<LaneStatus>(reply.json()).unwrap(), host().lanes[4]);
    assert_eq!(reply.json()["last_fault"]["code"], "LANE-201");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_lane_is_none() {
    let recorded = Recorded::showing(host());
    recorded.answering(Answer::NoLane("nobody".parse().unwrap()));
    let server = Server::open(&recorded).await;
    assert_eq!(server.get("/lanes/nobody").await.status, 404);
    assert!(server.get("/lanes/nobody").await.error().contains("`nobody`"));
    for order in ["reopen", "unpark", "drain", "undrain"] {
        let reply = server.post(&format!("/lanes/nobody/{order}")).await;
        assert_eq!(reply.status, 404, "{order}: {reply:?}");
        assert!(reply.error().contains("/lanes lists them"), "{reply:?}");
    }
    // What no space can be called never gets as far as an order.
    let before = recorded.taken().len();
    for name in ["a.b", "..", "a%20b", "a%2Fb", "%00", &"x".repeat(300)] {
        assert_eq!(server.get(&format!("/lanes/{name}")).await.status, 404, "{name}");
        assert_eq!(server.post(&format!("/lanes/{name}/drain")).await.status, 404, "{name}");
    }
    assert_eq!(recorded.taken().len(), before);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_means_that_every_lane_was_attempted() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    let reply = server.get("/readyz").await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.json()["waiting"], json!([{ "space": "eta", "state": "waiting", "reason": "", "code": null }]));
    assert!(reply.error().contains("1 of 7 lanes"), "{reply:?}");

    *recorded.shown.lock().unwrap() = Some(ready_host());
    let reply = server.get("/readyz").await;
    assert_eq!(reply.status, 200);
    let (body, down) = (reply.json(), reply.json()["down"].as_array().unwrap().clone());
    assert_eq!((&body["lanes"], &body["serving"], &body["standby"]), (&json!(6), &json!(2), &json!(1)));
    // What does not serve is named, with its axis, although the host is ready.
    let named: Vec<_> = down.iter().map(|lane| (lane["space"].as_str().unwrap(), lane["code"].as_str())).collect();
    let expected = [("delta", None), ("epsilon", Some("LANE-201")), ("zeta-with-a-rather-long-name", Some("LANE-104"))];
    assert_eq!(named, expected);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_first_manifest_nothing_is_ready() {
    let refused = ("spaces.toml:3:1".to_owned(), "unknown key `nmae`".to_owned());
    let last_reload = Some(Outcome { refused: vec![refused], ..Outcome::default() });
    let recorded = Recorded::showing(HostStatus { lanes: Vec::new(), last_reload, ..host() });
    let server = Server::open(&recorded).await;
    let reply = server.get("/readyz").await;
    assert_eq!(reply.status, 503);
    assert!(reply.error().contains("spaces.toml:3:1: unknown key `nmae`"), "{reply:?}");
    assert_eq!(server.get("/healthz").await.status, 200, "the process lives");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_a_supervisor_is_not_healthy() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    assert_eq!(server.get("/healthz").await.json()["status"], "alive");
    *recorded.shown.lock().unwrap() = None;
    recorded.answering(Answer::Gone);
    for path in ["/healthz", "/readyz", "/lanes", "/lanes/alpha"] {
        let reply = server.get(path).await;
        assert_eq!(reply.status, 503, "{path}");
        assert!(reply.error().contains("restart the process"), "{reply:?}");
    }
    assert_eq!(server.post("/reload").await.status, 503);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_arrive_as_they_were_given() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    let alpha = || "alpha".parse().unwrap();
    let cases = [
        ("/lanes/alpha/reopen", Order::Reopen(alpha())),
        ("/lanes/alpha/unpark", Order::Unpark(alpha())),
        ("/lanes/alpha/drain", Order::Drain(Some(alpha()))),
        ("/lanes/alpha/undrain", Order::Undrain(Some(alpha()))),
        ("/drain", Order::Drain(None)),
        ("/undrain", Order::Undrain(None)),
    ];
    for (path, _) in &cases {
        assert_eq!(server.post(path).await.status, 202, "{path}");
        let reply = server.get(path).await;
        assert_eq!((reply.status, reply.error().contains("use POST")), (405, true), "{path}");
    }
    assert_eq!(recorded.taken(), cases.map(|(_, order)| order));
    recorded.answering(Answer::Refused("it is closing; wait for it".to_owned()));
    let reply = server.post("/lanes/alpha/unpark").await;
    assert_eq!((reply.status, reply.error()), (409, "it is closing; wait for it".to_owned()));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_tells_its_outcome() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    let done = Outcome {
        generation: 13,
        applied: true,
        opened: vec!["new".parse().unwrap()],
        unchanged: 6,
        ..Outcome::default()
    };
    recorded.answering(Answer::Reloaded(Box::new(done.clone())));
    let reply = server.post("/reload").await;
    assert_eq!((reply.status, serde_json::from_value::<Outcome>(reply.json()).unwrap()), (200, done));
    let why = ("spaces.toml:3:1".to_owned(), "unknown key `nmae`".to_owned());
    let refused = Outcome { refused: vec![why], ..Outcome::default() };
    recorded.answering(Answer::Reloaded(Box::new(refused)));
    let reply = server.post("/reload?allow_mass_close=true").await;
    assert_eq!(reply.status, 422);
    assert!(reply.error().contains("nothing was changed"), "{reply:?}");
    assert_eq!(reply.json()["outcome"]["refused"][0][0], "spaces.toml:3:1");
    let orders = [Order::Reload { allow_mass_close: false }, Order::Reload { allow_mass_close: true }];
    assert_eq!(recorded.taken(), orders);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_is_none_says_what_there_is() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    for path in ["/", "/metrics", "/lanes/alpha/close", "/LANES"] {
        let reply = server.get(path).await;
        assert_eq!(reply.status, 404, "{path}");
        assert!(reply.error().contains("/readyz"), "{reply:?}");
    }
    let reply = server.post("/lanes").await;
    assert_eq!((reply.status, reply.error().contains("use GET")), (405, true), "{reply:?}");
    assert!(host().count(LaneState::Serving) == 2);
    server.stop().await;
}
