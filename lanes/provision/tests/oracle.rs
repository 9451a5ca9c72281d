//! Tokens against the official JavaScript encoder: same claims, same header, each reads the other's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of tests fails like a test")]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lanekeeper_provision::jwt::{
    self, AccountClaims, AccountLimits, GenericClaims, OperatorClaims, Permission, ResponsePermission, UserClaims,
    Validity,
};
use lanekeeper_provision::{AccountSettings, Home, SpaceProfile};
use nkeys::KeyPair;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// One token in both hands: ours, and what the other encoder is asked for, written out by hand.
struct Pair {
    ours: String,
    request: Value,
}

fn run(command: &mut Command, what: &str) -> std::process::Output {
    let output =
        command.output().unwrap_or_else(|error| panic!("{what} is needed for this test and cannot run: {error}"));
    assert!(output.status.success(), "{what} failed: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Installs the pinned library into a folder of its own and asks it.
fn ask(request: &Value) -> Value {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for file in ["package.json", "package-lock.json", "oracle.cjs"] {
        std::fs::copy(source.join(file), dir.path().join(file)).unwrap();
    }
    let mut npm = Command::new("npm");
    run(
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&dir),
        "npm ci (npm, with node 18 or newer)",
    );
    let mut child = Command::new("node")
        .arg("oracle.cjs")
        .current_dir(&dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("node (18 or newer) is needed for this test and cannot run: {error}"));
    child.stdin.take().unwrap().write_all(request.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "the oracle failed: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn pair(
    kind: &str,
    subject: &KeyPair,
    issuer: &KeyPair,
    signer: &KeyPair,
    validity: Validity,
    ours: String,
    body: Value,
) -> Pair {
    let request = json!({
        "kind": kind, "name": format!("the {kind}"), "subject": subject.public_key(), "issuer": issuer.public_key(),
        "signerSeed": signer.seed().unwrap(), "iat": validity.issued_at_s, "exp": validity.expires_at_s, "body": body,
        "ours": ours,
    });
    Pair { ours, request }
}

fn encode<B: jwt::Body>(kind: &str, subject: &KeyPair, body: &B, validity: Validity, signer: &KeyPair) -> String {
    jwt::encode(&format!("the {kind}"), &subject.public_key(), body, validity, signer).unwrap()
}

fn operator_and_account() -> Vec<Pair> {
    let [operator, signing] = [KeyPair::new_operator(), KeyPair::new_operator()];
    let [account, account_signing] = [KeyPair::new_account(), KeyPair::new_account()];
    let forever = Validity { issued_at_s: 1_790_000_000, expires_at_s: None };
    let claims = OperatorClaims {
        signing_keys: vec![signing.public_key()],
        system_account: Some(account.public_key()),
        strict_signing_key_usage: true,
    };
    let operator_pair = pair(
        "operator",
        &operator,
        &operator,
        &operator,
        forever,
        encode("operator", &operator, &claims, forever, &operator),
        json!({
            "signing_keys": [signing.public_key()], "system_account": account.public_key(),
            "strict_signing_key_usage": true,
        }),
    );
    let revoked = KeyPair::new_user().public_key();
    let claims = AccountClaims {
        limits: AccountLimits { conn: 7, disk_storage: 1 << 40, ..AccountLimits::default() },
        signing_keys: vec![account_signing.public_key()],
        revocations: [(revoked.clone(), 1_790_000_001)].into(),
    };
    let ends = Validity { issued_at_s: 1_790_000_000, expires_at_s: Some(1_790_003_600) };
    let account_pair = pair(
        "account",
        &account,
        &operator,
        &signing,
        ends,
        encode("account", &account, &claims, ends, &signing),
        json!({
            "limits": {
                "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": 7,
                "leaf": -1, "disallow_bearer": true, "mem_storage": -1, "disk_storage": 1_099_511_627_776_u64,
                "streams": -1, "consumer": -1, "max_ack_pending": -1, "mem_max_stream_bytes": -1,
                "disk_max_stream_bytes": -1, "max_bytes_required": false,
            },
            "signing_keys": [account_signing.public_key()],
            "revocations": { revoked: 1_790_000_001 },
        }),
    );
    vec![operator_pair, account_pair]
}

fn user_and_generic() -> Vec<Pair> {
    let [account, signing] = [KeyPair::new_account(), KeyPair::new_account()];
    let user = KeyPair::new_user();
    let permission = |allow: &[&str], deny: &[&str]| Permission {
        allow: allow.iter().map(ToString::to_string).collect(),
        deny: deny.iter().map(ToString::to_string).collect(),
    };
    let mut claims =
        UserClaims::new(permission(&["a.>", "b"], &["a.no"]), permission(&["c"], &[]), &account.public_key());
    claims.tags = vec!["principal:local.Ada".to_owned(), "owner:local".to_owned()];
    claims.resp = Some(ResponsePermission { max: 3, ttl: 5_000_000_000 });
    let ends = Validity { issued_at_s: 1_790_000_000, expires_at_s: Some(1_790_000_060) };
    let user_pair = pair(
        "user",
        &user,
        &account,
        &signing,
        ends,
        encode("user", &user, &claims, ends, &signing),
        json!({
            "pub": { "allow": ["a.>", "b"], "deny": ["a.no"] }, "sub": { "allow": ["c"] },
            "resp": { "max": 3, "ttl": 5_000_000_000_u64 }, "tags": ["principal:local.Ada", "owner:local"],
        }),
    );
    let operator = KeyPair::new_operator();
    let mut claims = GenericClaims::default();
    claims.fields.insert("accounts".to_owned(), json!([account.public_key()]));
    let generic_pair = pair(
        "generic",
        &operator,
        &operator,
        &operator,
        ends,
        encode("generic", &operator, &claims, ends, &operator),
        json!({ "accounts": [account.public_key()] }),
    );
    vec![user_pair, generic_pair]
}

/// The claims of a token, without the two members in which encoders differ: the id (the official JavaScript one takes
/// another digest) and the audience, which only that one writes.
fn comparable(token: &str) -> (String, Value) {
    let parts: Vec<_> = token.split('.').collect();
    let header = String::from_utf8(URL_SAFE_NO_PAD.decode(parts[0]).unwrap()).unwrap();
    let mut claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
    let claims_map = claims.as_object_mut().unwrap();
    claims_map.remove("jti").unwrap();
    claims_map.remove("aud");
    (header, claims)
}

#[test]
fn tokens_are_those_of_the_official_encoder() {
    let pairs: Vec<_> = operator_and_account().into_iter().chain(user_and_generic()).collect();
    let dir = tempfile::tempdir().unwrap();
    let home = Home::create(&dir.path().join("home")).unwrap();
    let account = home.create_space(&"dev".parse().unwrap(), &AccountSettings::default()).unwrap();
    let creds = account.mint(&SpaceProfile::Observer, Validity::forever()).unwrap();

    let requests: Vec<_> = pairs.iter().map(|pair| &pair.request).collect();
    let answer = ask(&json!({ "tokens": requests, "creds": creds.text() }));

    for (pair, answered) in pairs.iter().zip(answer["tokens"].as_array().unwrap()) {
        let theirs = answered["theirs"].as_str().unwrap();
        assert_eq!(comparable(&pair.ours), comparable(theirs));
        // They read ours, signature included, and ours reads theirs.
        let ours = jwt::decode(&pair.ours).unwrap();
        assert_eq!(answered["ours"]["jti"], json!(ours.jti));
        assert_eq!(answered["id"], json!(ours.jti), "the id is the digest of the claims without it");
        let read = jwt::decode(theirs).unwrap();
        assert_eq!((read.iss, read.sub, read.exp, read.nats), (ours.iss, ours.sub, ours.exp, ours.nats));
    }
    assert_eq!(answer["tokens"].as_array().unwrap().len(), 4);
    assert_eq!(answer["creds"]["jwt"], json!(creds.jwt()));
    assert_eq!(answer["creds"]["account"], json!(account.account_id()));
    assert!(creds.text().contains(answer["creds"]["key"].as_str().unwrap()));
}

#[test]
fn the_lock_file_names_no_host() {
    let lock = include_str!("oracle/package-lock.json");
    assert!(!lock.contains("resolved") && !lock.contains("://"));
}
