//! Further spaces: each is made, served and told, and can be worked with as on a host.

use rustix::process::Signal;
use tokio::{process::Command, time::timeout};

use crate::{
    PATIENCE,
    running::{Dev, Ended},
};

fn told<'a>(lines: &'a [String], start: &str) -> Vec<&'a str> {
    lines.iter().map(String::as_str).filter(|line| line.starts_with(start)).collect()
}

/// Runs a command that was printed as a hint, with other words in place of some.
async fn try_hint(dev: &Dev, start: &str, replaced: (&str, &str)) -> String {
    let hint = told(dev.told(), start)[0].replacen(replaced.0, replaced.1, 1);
    let mut words = hint.split_whitespace();
    assert_eq!(words.next(), Some("lanekeeper"));
    let output = Command::new(env!("CARGO_BIN_EXE_lanekeeper")).args(words).output();
    let output = timeout(PATIENCE, output).await.expect("an end in time").unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

fn assert_served(ended: &Ended, numbers: std::ops::RangeInclusive<u32>) {
    let mut served = told(&ended.told, "   `space-");
    served.sort_unstable();
    let expected: Vec<String> = numbers.map(|number| format!("   `space-{number}` is served (")).collect();
    assert_eq!(served.len(), expected.len(), "{served:#?}");
    assert!(served.iter().zip(&expected).all(|(line, start)| line.starts_with(start)), "{served:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_further_space_is_served_and_told() {
    let mut dev = Dev::start(&["--once", "--spaces", "3"]);
    dev.wait_line("1. ").await;
    let broker = dev.broker();
    let ended = dev.ended().await;
    ended.assert_clean();
    assert_eq!(told(&ended.told, "10. Made 3 more spaces").len(), 1, "{:#?}", ended.told);
    assert_served(&ended, 1..=3);
    assert!(!broker.is_there());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_hinted_works_and_the_state_is_taken_up_again() {
    let state = tempfile::TempDir::new().unwrap();
    let state = state.path().join("state");
    let mut dev = Dev::on(&state, &["--spaces", "2"]);
    dev.wait_serving().await;
    let broker = dev.broker();
    let table = try_hint(&dev, "  lanekeeper lanes --watch", ("--watch ", "")).await;
    assert!(table.contains("2 of 2 serving"), "{table}");
    try_hint(&dev, "  lanekeeper space add another", ("another", "third")).await;
    let third = async || {
        let table = try_hint(&dev, "  lanekeeper lanes --watch", ("--watch ", "")).await;
        table.contains("3 of 3 serving").then_some(())
    };
    lanekeeper_broker::wait_until("the third is served", PATIENCE, third).await.unwrap();
    try_hint(&dev, "  lanekeeper space remove another", ("another", "third")).await;
    dev.signal(Signal::INT);
    let ended = dev.ended().await;
    ended.assert_clean();
    assert!(!broker.is_there());

    let ended = Dev::on(&state, &["--once", "--spaces", "3"]).ended().await;
    ended.assert_clean();
    assert_served(&ended, 1..=3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_while_spaces_are_made_leaves_nothing_behind() {
    for step in ["The story held", "10. ", "   `space-1`"] {
        let mut dev = Dev::start(&["--spaces", "20"]);
        dev.wait_line(step).await;
        let broker = dev.broker();
        dev.signal(Signal::INT);
        let ended = dev.ended().await;
        ended.assert_clean();
        assert!(!broker.is_there(), "at {step}");
    }
}
