//! Who may ask: nobody without the token but for the one open route, and without a token this machine's programs alone.

use lanekeeper::{admin::Admin, config::AdminConfig};
use tempfile::TempDir;

use crate::{
    http::{PATIENCE, Server, token_file},
    recorded::{Recorded, host},
};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Every path but `/healthz`, with its method.
const CLOSED: [(&str, &str); 11] = [
    ("GET", "/readyz"),
    ("GET", "/lanes"),
    ("GET", "/lanes/alpha"),
    ("POST", "/reload"),
    ("POST", "/drain"),
    ("POST", "/undrain"),
    ("POST", "/lanes/alpha/reopen"),
    ("POST", "/lanes/alpha/unpark"),
    ("POST", "/lanes/alpha/drain"),
    ("POST", "/lanes/alpha/undrain"),
    ("GET", "/no/such/path"),
];

#[tokio::test(flavor = "multi_thread")]
async fn with_a_token_every_route_but_one_needs_it() {
    let (dir, recorded) = (TempDir::new().unwrap(), Recorded::showing(host()));
    let server = Server::on("127.0.0.1:0", Some(token_file(dir.path(), TOKEN)), &recorded).await;
    let good = format!("Authorization: Bearer {TOKEN}");
    let (nearly, longer) = (format!("Authorization: Bearer {}0", &TOKEN[..31]), format!("{good}0"));
    for (method, path) in CLOSED {
        for wrong in [
            vec![],
            vec![nearly.as_str()],
            vec![&longer],
            vec!["Authorization: Bearer "],
            vec!["Authorization: Basic eDp5"],
        ] {
            let reply = server.ask(method, path, &wrong, "").await;
            assert_eq!(reply.status, 401, "{method} {path} {wrong:?}: {reply:?}");
            assert!(
                reply.error().contains("--token-file") && reply.head.contains("www-authenticate: bearer"),
                "{reply:?}"
            );
        }
        let reply = server.ask(method, path, &[&good], "").await;
        assert_ne!(reply.status, 401, "{method} {path}");
    }
    assert_eq!(server.get("/healthz").await.status, 200);
    assert_eq!(recorded.taken().len(), 7, "only what had the token was taken: {:?}", recorded.taken());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_token_counts_without_a_restart() {
    let (dir, recorded) = (TempDir::new().unwrap(), Recorded::showing(host()));
    let server = Server::on("127.0.0.1:0", Some(token_file(dir.path(), TOKEN)), &recorded).await;
    let with =
        async |token: &str| server.ask("GET", "/lanes", &[&format!("Authorization: Bearer {token}")], "").await.status;
    assert_eq!(with(TOKEN).await, 200);
    let new = TOKEN.replace('0', "f");
    token_file(dir.path(), &new);
    let counts = async || (with(&new).await == 200).then_some(());
    lanekeeper_broker::wait_until("the new token counts", PATIENCE, counts).await.unwrap();
    assert_eq!(with(TOKEN).await, 401, "the old token is void");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_loopback_a_token_is_a_must() {
    let config = AdminConfig { listen: "0.0.0.0:0".parse().unwrap(), token_file: None };
    let fault = Admin::bind(&config).await.unwrap_err().to_string();
    assert!(
        fault.contains("0.0.0.0:0") && fault.contains("admin.token_file") && fault.contains("127.0.0.1"),
        "{fault}"
    );

    let dir = TempDir::new().unwrap();
    let missing = AdminConfig { token_file: Some(dir.path().join("none")), ..config.clone() };
    let fault = Admin::bind(&missing).await.unwrap_err().to_string();
    assert!(fault.contains("none") && fault.contains("cannot be read"), "{fault}");

    // With one it may, and the name it is asked by does not matter. This address is the loopback's and does not look so.
    let recorded = Recorded::showing(host());
    let server = Server::on("[::ffff:127.0.0.1]:0", Some(token_file(dir.path(), TOKEN)), &recorded).await;
    let headers = ["Host: lanes.example", &format!("Authorization: Bearer {TOKEN}")];
    assert_eq!(server.ask("GET", "/lanes", &headers, "").await.status, 200);
    assert_eq!(server.ask("GET", "/lanes", &headers[..1], "").await.status, 401);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_address_is_named() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    let config = AdminConfig { listen: server.address, token_file: None };
    let fault = Admin::bind(&config).await.unwrap_err().to_string();
    assert!(fault.contains(&server.address.to_string()) && fault.contains("another `admin.listen`"), "{fault}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_web_pages_are_kept_out() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    for headers in [["Origin: http://evil.example"], ["Host: evil.example"], ["Host: 127.0.0.1.evil.example:80"]] {
        for (method, path) in CLOSED {
            let reply = server.ask(method, path, &headers, "").await;
            assert_eq!(reply.status, 403, "{method} {path} {headers:?}");
            assert!(reply.error().contains("admin.token_file"), "{reply:?}");
        }
    }
    assert!(recorded.taken().is_empty());
    assert_eq!(server.ask("GET", "/lanes", &["Host: localhost:1"], "").await.status, 200);
    server.stop().await;
}
