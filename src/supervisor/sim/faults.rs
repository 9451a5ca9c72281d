//! What becomes of lanes that fail, hang, panic, do not close or cannot be ended.

use super::*;

#[tokio::test(start_paused = true)]
async fn one_bad_lane_of_each_kind_leaves_the_others_alone() {
    let acts = [
        ("good", Act::Serve),
        ("other", Act::Serve),
        ("fails", Act::Fail(disconnected())),
        ("panics", Act::Panic),
        ("returns", Act::Return),
        ("hangs", Act::Hang),
        ("parks", Act::Fail(parking())),
        ("waits", Act::Standby),
    ];
    let sim = Sim::start(&acts).await;
    sim.until("ready", |status| status.ready).await;
    sleep(Duration::from_secs(300)).await;
    sim.until_state("waits", LaneState::Standby).await;
    let parked = sim.until_state("parks", LaneState::Parked).await;
    assert!(parked.reason.ends_with("[LANE-103]"), "{}", parked.reason);
    for space in ["good", "other"] {
        let lane = sim.until_state(space, LaneState::Serving).await;
        assert_eq!((lane.generation, lane.attempt, lane.last_fault), (1, 1, None));
    }
    let fault = |space: &str| sim.lane(space).last_fault.unwrap();
    assert_eq!((fault("panics").code.as_str(), fault("panics").text.contains("scripted")), ("LANE-501", true));
    assert!(fault("returns").text.contains("without an error"), "{}", fault("returns").text);
    assert_eq!((fault("fails").code.as_str(), fault("hangs").code.as_str()), ("LANE-204", "LANE-206"));
    assert_eq!(sim.starts("parks"), 1, "a parked lane is not tried again");
    assert!(sim.end().await.wedged.is_empty());
}

#[tokio::test(start_paused = true)]
async fn attempts_follow_the_curve_and_the_first_retry_is_fast_again_after_a_settled_run() {
    let sim = Sim::start(&[("a", Act::Fail(disconnected()))]).await;
    while sim.starts("a") < 150 {
        sleep(Duration::from_secs(10)).await;
    }
    let starts: Vec<Instant> = sim.book.lock().unwrap().starts.iter().map(|(_, at)| *at).collect();
    let pauses: Vec<Duration> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let slack = Duration::from_millis(100);
    for (step, pause) in pauses.iter().enumerate() {
        let ceiling = sim.settings.curve.ceiling(u32::try_from(step).unwrap());
        assert!(*pause <= ceiling + slack, "{pause:?} at step {step}, at most {ceiling:?}");
    }
    let total: Duration = pauses.iter().skip(20).sum();
    assert!(total > sim.settings.curve.cap * 40, "150 attempts in {total:?} are a storm");
    // The cause is gone: it serves within the cap, and after a settled run it starts over.
    let mended = Instant::now();
    let served = Duration::from_secs(600);
    sim.act("a", Act::ServeThen(served, disconnected()));
    sim.until_state("a", LaneState::Serving).await;
    assert!(mended.elapsed() <= sim.settings.curve.cap + slack, "{:?}", mended.elapsed());
    let before = sim.starts("a");
    while sim.starts("a") == before {
        sleep(Duration::from_secs(1)).await;
    }
    let starts: Vec<Instant> = sim.book.lock().unwrap().starts.iter().map(|(_, at)| *at).collect();
    let pause = starts[before] - starts[before - 1] - served;
    assert!(pause <= sim.settings.curve.first + slack, "{pause:?}");
    sim.until("counted from one again", |status| status.lanes[0].attempt == 1).await;
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_changed_between_the_look_and_the_open_does_not_make_a_failing_lane_spin() {
    let sim = Sim::start_polling(&[("a", Act::Fail(disconnected()))], Duration::from_secs(3600)).await;
    sleep(Duration::from_secs(60)).await;
    sim.rotate("a", "second");
    let before = sim.starts("a");
    sleep(Duration::from_secs(600)).await;
    let attempts = sim.starts("a") - before;
    assert!(attempts < 100, "{attempts} attempts in ten minutes");
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_parked_lane_opens_when_a_credential_the_manifest_or_an_operator_changes_something() {
    let sim = Sim::start(&[("a", Act::Fail(parking()))]).await;
    sim.until_state("a", LaneState::Parked).await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(sim.starts("a"), 1, "no timer brings it back");
    let again = async |starts: u64| {
        let is = |lane: &LaneStatus| lane.generation == starts && lane.state == LaneState::Parked;
        sim.until("tried again", |status| is(&status.lanes[0])).await;
    };
    // Found by the poll.
    sim.rotate("a", "second");
    again(2).await;
    sim.handle.unpark("a".parse().unwrap()).await.unwrap();
    again(3).await;
    sim.reload_text(&["a"], "# a comment").await;
    assert_eq!(sim.starts("a"), 3, "a comment changes nothing for the lane");
    sim.act("a", Act::Serve);
    sim.rotate("a", "third");
    sim.until_state("a", LaneState::Serving).await;
    assert_eq!(sim.starts("a"), 4);
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lane_whose_credentials_could_not_be_read_is_tried_again_while_they_can_be() {
    let unreadable = || FaultKind::CredentialUnreadable { path: "x".to_owned(), reason: "it hangs".to_owned() };
    let sim = Sim::start(&[("a", Act::Fail(unreadable())), ("b", Act::Fail(unreadable()))]).await;
    std::fs::remove_file(sim.dir.path().join("b/delivery.creds")).unwrap();
    sim.until("ready", |status| status.ready).await;
    sleep(sim.settings.poll * 10).await;
    let (starts, missing) = (sim.starts("a"), sim.starts("b"));
    assert!((8..=12).contains(&starts), "{starts} attempts in ten polls");
    assert!(missing <= 2, "a file that is not there is waited for: {missing}");
    sim.act("a", Act::Serve);
    sim.until_state("a", LaneState::Serving).await;
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_deaf_lane_is_aborted_at_its_deadline_and_only_then_replaced() {
    let sim = Sim::start(&[("deaf", Act::Deaf), ("good", Act::Serve)]).await;
    sim.until_state("deaf", LaneState::Serving).await;
    let asked = Instant::now();
    sim.handle.reopen("deaf".parse().unwrap()).await.unwrap();
    sim.until("opened anew", |_| sim.starts("deaf") == 2).await;
    let took = asked.elapsed();
    assert!(
        took >= sim.settings.close_timeout && took < sim.settings.close_timeout + Duration::from_secs(2),
        "{took:?}"
    );
    sim.until_state("deaf", LaneState::Serving).await;
    assert!(sim.lane("deaf").last_fault.is_some_and(|fault| fault.text.contains("aborted")));
    assert_eq!(sim.lane("good").generation, 1);
    assert!(sim.end().await.wedged.is_empty(), "an abort ends a deaf lane");
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_survives_an_abort_is_parked_as_wedged_and_nothing_is_opened_in_its_place() {
    let sim = Sim::start(&[("wedge", Act::Wedge), ("good", Act::Serve)]).await;
    sim.until_state("wedge", LaneState::Serving).await;
    sim.handle.reopen("wedge".parse().unwrap()).await.unwrap();
    let parked = sim.until_state("wedge", LaneState::Parked).await;
    assert!(parked.reason.starts_with("wedged"), "{}", parked.reason);
    for order in [sim.handle.unpark("wedge".parse().unwrap()).await, sim.handle.reopen("wedge".parse().unwrap()).await]
    {
        assert!(order.unwrap_err().to_string().contains("wedged"));
    }
    // Removed and added again: still nothing is opened beside it.
    let removed = sim.reload(&["good"]).await;
    assert_eq!(removed.closed.len(), 1);
    sleep(sim.settings.poll * 5).await;
    assert_eq!(sim.handle.status().generation, removed.generation, "what leaves is not closed with every look");
    assert!(sim.reload(&["good", "wedge"]).await.settled);
    sim.rotate("wedge", "second");
    sleep(sim.settings.poll * 5).await;
    assert_eq!(sim.handle.status().generation, removed.generation + 1, "nothing can be done about it");
    assert_eq!((sim.starts("wedge"), sim.lane("good").generation), (1, 1));
    sim.book.lock().unwrap().released = true;
    sim.act("wedge", Act::Serve);
    sim.until_state("wedge", LaneState::Serving).await;
    assert_eq!(sim.starts("wedge"), 2);
    assert!(sim.end().await.wedged.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_bounded_and_names_what_it_could_not_close() {
    let sim = Sim::start(&[("wedge", Act::Wedge), ("deaf", Act::Deaf), ("good", Act::Serve)]).await;
    sim.until("serving", |status| status.count(LaneState::Serving) == 3).await;
    let book = Arc::clone(&sim.book);
    let stopped = sim.end().await;
    book.lock().unwrap().released = true;
    assert_eq!(stopped.wedged.iter().map(Space::as_str).collect::<Vec<_>>(), ["wedge"]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_the_start_is_honoured() {
    for after_ms in [0, 5, 19, 21, 200] {
        let names: Vec<String> = (0..40).map(|number| format!("s{number}")).collect();
        let acts: Vec<(&str, Act)> = names.iter().map(|name| (name.as_str(), Act::Serve)).collect();
        let sim = Sim::start(&acts).await;
        sleep(Duration::from_millis(after_ms)).await;
        let book = Arc::clone(&sim.book);
        assert_eq!(sim.end().await, super::super::Stopped::default());
        let running: u32 = book.lock().unwrap().running.values().sum();
        assert_eq!(running, 0, "stopped after {after_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn lanes_that_hang_do_not_keep_new_ones_from_opening_for_longer_than_their_time() {
    let mut acts: Vec<(String, Act)> = (0..120).map(|number| (format!("hang{number}"), Act::Hang)).collect();
    acts.extend((0..10).map(|number| (format!("ok{number}"), Act::Serve)));
    let acts: Vec<(&str, Act)> = acts.iter().map(|(name, act)| (name.as_str(), act.clone())).collect();
    let sim = Sim::start(&acts).await;
    let began = Instant::now();
    sim.until("the good ones serve", |status| status.count(LaneState::Serving) == 10).await;
    let bound = sim.settings.open_timeout * (120 / 16 + 1) + Duration::from_secs(10);
    assert!(began.elapsed() < bound, "{:?}", began.elapsed());
    // A new one goes before all that have failed, however long those are due.
    sleep(Duration::from_secs(300)).await;
    let mut names: Vec<&str> = acts.iter().map(|(name, _)| *name).collect();
    names.push("new");
    sim.reload(&names).await;
    let began = Instant::now();
    sim.until_state("new", LaneState::Serving).await;
    assert!(began.elapsed() < sim.settings.open_timeout + Duration::from_secs(5), "{:?}", began.elapsed());
    sim.end().await;
}
