//! What is too big, too slow, too many or not meant.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lanekeeper::admin::{Admin, Answer, Desk};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Notify,
    time::{Instant, timeout},
};

use crate::{
    http::{PATIENCE, Server},
    recorded::{Recorded, host},
};

#[tokio::test(flavor = "multi_thread")]
async fn an_order_with_a_body_or_a_query_that_nobody_reads_is_refused() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    for path in ["/reload", "/drain", "/lanes/alpha/drain"] {
        for body in ["{}", "{\"space\":\"alpha\"}", "null", "\u{0}"] {
            let reply = server.ask("POST", path, &[], body).await;
            assert_eq!(reply.status, 400, "{path} {body:?}: {reply:?}");
            assert!(reply.error().contains("send none"), "{reply:?}");
        }
        assert_eq!(server.ask("POST", path, &[], &"x".repeat(2_000)).await.status, 413, "{path}");
    }
    // The one that would drain everything although one space was meant.
    for path in ["/drain?space=alpha", "/undrain?x", "/lanes/alpha/drain?force=true"] {
        let reply = server.post(path).await;
        assert_eq!((reply.status, reply.error().contains("no query")), (400, true), "{path}: {reply:?}");
    }
    for path in ["/reload?allow_mass_close=yes", "/reload?allow_mass_close", "/reload?alow_mass_close=true"] {
        let reply = server.post(path).await;
        assert_eq!((reply.status, reply.error().contains("allow_mass_close=true")), (400, true), "{path}: {reply:?}");
    }
    assert!(recorded.taken().is_empty(), "{:?}", recorded.taken());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_is_refused() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    for text in ["\r\n\r\n\r\n", "GET\r\n\r\n", "hello\r\n\r\n", "GET /lanes HTTP/9.9\r\n\r\n"] {
        assert!(matches!(server.raw(text).await.status, 0 | 400), "{text:?}");
    }
    let long = format!("GET /lanes HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(64 * 1024));
    assert!(matches!(server.raw(&long).await.status, 0 | 431), "a head of 64 KiB");
    let many: String = (0..100).map(|number| format!("X-{number}: 1\r\n")).collect();
    assert!(matches!(
        server.raw(&format!("GET /lanes HTTP/1.1\r\nHost: localhost\r\n{many}\r\n")).await.status,
        0 | 431
    ));
    assert_eq!(server.get("/healthz").await.status, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_holds_connections_without_asking_keeps_nobody_out_for_long() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    let mut idle = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /lanes HTTP/1.1\r\nX: ").await.unwrap();
        idle.push(stream);
    }
    let started = Instant::now();
    assert_eq!(server.get("/healthz").await.status, 200);
    assert!(started.elapsed() > Duration::from_secs(2), "only so many are let in: {:?}", started.elapsed());
    // Four rounds of 64 at 5 s each would do; what matters is that it is no question of the others' goodwill.
    assert!(started.elapsed() < Duration::from_secs(25), "{:?}", started.elapsed());
    let mut bytes = Vec::new();
    let ended = timeout(PATIENCE, idle[0].read_to_end(&mut bytes)).await;
    assert!(ended.is_ok(), "an idle connection is ended");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_goes_on_although_whoever_gave_it_has_left() {
    let (begun, done) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let go_on = Arc::new(Notify::new());
    let desk = {
        let (begun, done, go_on) = (Arc::clone(&begun), Arc::clone(&done), Arc::clone(&go_on));
        let state = Arc::new(host());
        Desk::new(
            move || Some(Arc::clone(&state)),
            || Box::pin(async { true }),
            move |_| {
                let (begun, done, go_on) = (Arc::clone(&begun), Arc::clone(&done), Arc::clone(&go_on));
                Box::pin(async move {
                    begun.notify_one();
                    go_on.notified().await;
                    done.fetch_add(1, Ordering::Relaxed);
                    Answer::Taken(Vec::new())
                })
            },
        )
    };
    let config = lanekeeper::config::AdminConfig { listen: "127.0.0.1:0".parse().unwrap(), token_file: None };
    let server = Server::of(Admin::bind(&config).await.unwrap(), desk);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"POST /drain HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    timeout(PATIENCE, begun.notified()).await.expect("the order arrives");
    drop(stream);
    // A stop does not wait for it for ever either.
    server.stop().await;
    go_on.notify_one();
    let is_done = async || (done.load(Ordering::Relaxed) == 1).then_some(());
    lanekeeper_broker::wait_until("the order is carried out", PATIENCE, is_done).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_frees_the_address() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    let address = server.address;
    let idle = TcpStream::connect(address).await.unwrap();
    let started = Instant::now();
    server.stop().await;
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(TcpStream::connect(address).await.is_err());
    drop(idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_hangs_is_not_well_although_its_last_state_was() {
    let state = Arc::new(crate::recorded::ready_host());
    let desk = Desk::new(
        move || Some(Arc::clone(&state)),
        || Box::pin(std::future::pending()),
        |_| Box::pin(std::future::pending()),
    );
    let config = lanekeeper::config::AdminConfig { listen: "127.0.0.1:0".parse().unwrap(), token_file: None };
    let admin = Admin::bind(&config).await.unwrap();
    let server = Server::of(admin, desk);
    let (alive, ready, drain) = tokio::join!(server.get("/healthz"), server.get("/readyz"), server.post("/drain"));
    for reply in [alive, ready] {
        assert_eq!((reply.status, reply.error().contains("hangs")), (503, true), "{reply:?}");
    }
    assert_eq!((drain.status, drain.error().contains("look at /lanes")), (504, true), "{drain:?}");
    server.stop().await;
}
