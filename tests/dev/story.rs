//! The story, and every way it may be ended.

use rustix::process::Signal;

use crate::running::Dev;

#[tokio::test(flavor = "multi_thread")]
async fn once_tells_every_step_and_leaves_nothing_behind() {
    let mut dev = Dev::start(&["--once"]);
    dev.wait_line("1. ").await;
    let broker = dev.broker();
    let ended = dev.ended().await;
    ended.assert_clean();
    assert!(!broker.is_there());
    let steps: Vec<&String> =
        ended.told.iter().filter(|line| line.starts_with(|first: char| first.is_ascii_digit())).collect();
    assert_eq!(steps.len(), 9, "{steps:#?}");
    for (number, (step, part)) in steps.iter().zip(STEPS).enumerate() {
        assert!(step.starts_with(&format!("{}. ", number + 1)) && step.contains(part), "{part:?} in {step:?}");
    }
    let last = ended.told.last().unwrap();
    let figures = "The story held: 110 posts, 220 copies routed, 210 authorised and handed over, 10 withheld, none lost, none twice";
    assert!(last.starts_with(figures), "{last}");
}

/// What each step must say.
const STEPS: [&str; 9] = [
    "nats-server",
    "7 streams, 7 buckets",
    "holds the lease",
    "cleo goes offline",
    "ada posts 100 messages",
    "bob is online and has all 100, in order, each once",
    "cleo is away: 100 copies",
    "cleo comes back and receives all 100 she missed, in order, each once",
    "dropped all 10 copies",
];

#[tokio::test(flavor = "multi_thread")]
async fn it_serves_until_a_signal_and_then_leaves_nothing_behind() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut dev = Dev::start(&[]);
        dev.wait_serving().await;
        let broker = dev.broker();
        dev.signal(signal);
        let ended = dev.ended().await;
        ended.assert_clean();
        assert!(!broker.is_there(), "after {signal:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_in_the_middle_leaves_nothing_behind() {
    for (args, step, succeeds) in [(vec![], "1. ", true), (vec![], "4. ", true), (vec!["--once"], "2. ", false)] {
        let mut dev = Dev::start(&args);
        dev.wait_line(step).await;
        let broker = dev.broker();
        dev.signal(Signal::INT);
        let ended = dev.ended().await;
        if succeeds {
            ended.assert_clean();
        } else {
            ended.assert_failed(&["stopped by a signal before the story ended"]);
        }
        assert!(!broker.is_there(), "after step {step}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_broker_dies_with_a_killed_dev() {
    for line in ["1. ", "  lanekeeper serve "] {
        let mut dev = Dev::start(&[]);
        dev.wait_line(line).await;
        let broker = dev.broker();
        assert!(broker.is_there());
        dev.signal(Signal::KILL);
        dev.ended().await;
        broker.wait_gone().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_away_ends_it_in_order() {
    let mut dev = Dev::start(&["--once"]);
    dev.wait_line("1. ").await;
    let broker = dev.broker();
    dev.close_stdout();
    dev.ended().await.assert_failed(&["cannot write to standard output"]);
    assert!(!broker.is_there());
}
