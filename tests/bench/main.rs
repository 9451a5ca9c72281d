//! `lanekeeper bench` through the binary: every figure is there, nothing is lost, nothing is left behind.
//!
//! Small runs on a busy machine: no figure's size is asserted.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of tests fails like a test")]

use std::{path::Path, process::Stdio, time::Duration};

use serde_json::Value;
use tempfile::TempDir;
use tokio::{process::Command, time::timeout};

/// How long a run may take: it starts a broker, and may fetch it first.
const PATIENCE: Duration = Duration::from_secs(120);

struct Run {
    text: String,
    errors: String,
    succeeded: bool,
    json: Option<Value>,
}

/// Runs `bench fan-out` with these arguments and `--json`.
async fn bench(args: &[&str]) -> Run {
    bench_of("fan-out", args).await
}

/// Runs one benchmark with these arguments and `--json`.
async fn bench_of(what: &str, args: &[&str]) -> Run {
    let dir = TempDir::new().unwrap();
    let json = dir.path().join("figures.json");
    let child = Command::new(env!("CARGO_BIN_EXE_lanekeeper"))
        .args(["bench", what, "--json"])
        .arg(&json)
        .args(args)
        // Whatever it leaves in the temporary directory is seen below.
        .env("TMPDIR", dir.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(PATIENCE, child).await.expect("it ends in time").unwrap();
    let json = std::fs::read(&json).ok().map(|text| serde_json::from_slice(&text).unwrap());
    assert_eq!(left_in(dir.path()), ["figures.json"][usize::from(json.is_none())..]);
    Run {
        text: String::from_utf8(output.stdout).unwrap(),
        errors: String::from_utf8(output.stderr).unwrap(),
        succeeded: output.status.success(),
        json,
    }
}

fn left_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn figures(run: &Run) -> &Value {
    assert!(run.succeeded, "{}{}", run.text, run.errors);
    run.json.as_ref().expect("figures were written")
}

fn assert_exactly_once(figures: &Value, copies: u64) {
    for (key, wanted) in [("copies", copies), ("lost", 0), ("duplicated", 0), ("out_of_order", 0), ("foreign", 0)] {
        assert_eq!(figures[key], wanted, "{key} in {figures}");
    }
    for stream in ["chat", "inbox", "dlv"] {
        assert_eq!(figures["unsettled"][stream], 0, "{figures}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_figure_is_there_and_nothing_is_lost() {
    let run = bench(&["--members", "5", "--posts", "40", "--senders", "2", "--size", "600"]).await;
    let figures = figures(&run);
    assert_exactly_once(figures, 200);
    let numbers = [
        "copies_per_s",
        "ceiling_copies_per_s",
        "ratio_to_ceiling",
        "lane_cpu_ms_per_1k",
        "lane_rss_mib",
        "lane_idle_rss_mib",
        "broker_cpu_ms_per_1k",
        "members_cpu_ms_per_1k",
        "wall_ms",
        "posting_ms",
        "cores",
    ];
    for key in numbers {
        assert!(figures[key].is_number(), "{key} in {figures}");
    }
    let latency = &figures["latency_ms"];
    let (p50, p99) = (latency["p50"].as_f64().unwrap(), latency["p99"].as_f64().unwrap());
    assert!(0.0 < p50 && p50 <= p99 && p99 <= latency["max"].as_f64().unwrap(), "{latency}");
    assert!(figures["copies_per_s"].as_f64().unwrap() > 0.0 && figures["ceiling_copies_per_s"].as_f64().unwrap() > 0.0);
    let (idle, peak) = (figures["lane_idle_rss_mib"].as_f64().unwrap(), figures["lane_rss_mib"].as_f64().unwrap());
    assert!(0.0 < idle && idle <= peak, "{figures}");
    let parameters = &figures["parameters"];
    let given = ["members", "posts", "senders", "size_bytes"].map(|key| parameters[key].as_u64().unwrap());
    assert_eq!(given, [5, 40, 2, 600]);
    assert!(figures["broker_version"].as_str().is_some_and(|version| version.starts_with("2.")), "{figures}");
    for shown in ["copies/s", "lost", "latency p50", "ceiling", "lane to ceiling"] {
        assert!(run.text.contains(shown), "{}", run.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn posts_at_a_rate_take_their_time() {
    let run = bench(&["--members", "3", "--posts", "25", "--senders", "2", "--rate", "50", "--no-ceiling"]).await;
    let figures = figures(&run);
    assert_exactly_once(figures, 75);
    assert!(figures["ceiling_copies_per_s"].is_null() && figures["ratio_to_ceiling"].is_null(), "{figures}");
    // The last of 25 posts is due 480 ms after the first; how much later it comes is the machine's business.
    assert!(figures["posting_ms"].as_f64().unwrap() >= 480.0, "{figures}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_is_put_elsewhere_and_taken_away_again() {
    let store = TempDir::new().unwrap();
    let below = store.path().join("made").display().to_string();
    let run = bench(&["--members", "2", "--posts", "10", "--store", &below, "--plain-members", "--no-ceiling"]).await;
    assert_exactly_once(figures(&run), 20);
    assert_eq!(figures(&run)["parameters"]["store"], below.as_str());
    assert_eq!(left_in(store.path()), ["made"]);
    assert!(left_in(&store.path().join("made")).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ceiling_alone_needs_no_lane() {
    let run = bench(&["--members", "2", "--posts", "10", "--ceiling-only", "--sync-interval", "always"]).await;
    let figures = figures(&run);
    assert!(figures["ceiling_copies_per_s"].as_f64().unwrap() > 0.0, "{figures}");
    assert!(figures["copies_per_s"].is_null() && figures["lost"].is_null(), "{figures}");
    assert_eq!(figures["parameters"]["sync_interval"], "always");
}

/// CHAT that keeps two posts of a sender cannot hold a burst of 3,000: whatever the lane had not taken is gone, and a
/// bench that said otherwise would be worth nothing.
#[tokio::test(flavor = "multi_thread")]
async fn lost_copies_are_seen_and_fail_the_run() {
    let args = ["--members", "1", "--posts", "3000", "--messages-per-subject", "2", "--in-flight", "3000"];
    let run = bench(&[&args[..], &["--no-ceiling"]].concat()).await;
    let figures = run.json.as_ref().expect("figures are written all the same");
    let (copies, lost) = (figures["copies"].as_u64().unwrap(), figures["lost"].as_u64().unwrap());
    assert_eq!(copies + lost, 3000, "{figures}");
    assert!(lost > 0, "{figures}");
    assert!(!run.succeeded && run.errors.contains(&format!("{lost} copies were lost")), "{}", run.errors);
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_make_no_sense_are_refused_in_one_line() {
    for (args, wanted) in [
        (["--size", "20"], "lanekeeper: a post of 20 bytes is too small"),
        (["--senders", "600"], "lanekeeper: 600 senders cannot share 500 posts"),
    ] {
        let run = bench(&args).await;
        assert!(!run.succeeded && run.json.is_none());
        assert!(run.errors.starts_with(wanted) && run.errors.trim_end().lines().count() == 1, "{}", run.errors);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_lanes_are_measured_on_a_host_of_their_own() {
    let run = bench_of("lanes", &["--lanes", "3", "--idle-s", "1"]).await;
    let figures = figures(&run);
    assert_eq!(figures["lanes"], 3);
    assert_eq!(figures["connections_per_lane"], 1.0);
    for key in ["serving_s", "rss_mib_per_lane", "broker_rss_mib_per_lane", "idle_cpu_percent"] {
        assert!(figures[key].is_number(), "{key} in {figures}");
    }
    assert!(run.text.contains("all serving after"), "{}", run.text);
}
