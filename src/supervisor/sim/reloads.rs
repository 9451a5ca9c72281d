//! What a changed manifest or credential does to the lanes that run, and to those that close.

use super::*;
use crate::supervisor::status::Outcome;

fn names(outcome: &[Space]) -> Vec<&str> {
    outcome.iter().map(Space::as_str).collect()
}

fn count(outcome: &Outcome) -> (usize, usize, usize, usize, usize) {
    (outcome.opened.len(), outcome.closed.len(), outcome.reopened.len(), outcome.retuned.len(), outcome.unchanged)
}

#[tokio::test(start_paused = true)]
async fn only_what_changed_is_touched() {
    let sim = Sim::start(&[("a", Act::Serve), ("b", Act::Serve), ("c", Act::Serve)]).await;
    sim.until("serving", |status| status.count(LaneState::Serving) == 3).await;
    let outcome = sim.reload(&["a", "b", "d"]).await;
    assert!(outcome.applied && outcome.settled);
    assert_eq!((names(&outcome.opened), names(&outcome.closed)), (vec!["d"], vec!["c"]));
    assert_eq!((count(&outcome), outcome.generation), ((1, 1, 0, 0, 2), 2));
    sim.until_state("d", LaneState::Serving).await;
    assert_eq!((sim.lane("a").generation, sim.lane("b").generation), (1, 1));
    let again = sim.reload(&["a", "b", "d"]).await;
    assert_eq!((count(&again), again.generation), ((0, 0, 0, 0, 3), 2), "what was applied is not applied again");
    let text = "[[space]]\nname = \"e\"\ncredentials = \"e\"\n[space.limits]\nmax_in_hand = 64\n";
    assert_eq!(names(&sim.reload_text(&["a", "b", "d"], "").await.opened), Vec::<&str>::new());
    std::fs::create_dir(sim.dir.path().join("e")).unwrap();
    let path = sim.dir.path().join("spaces.toml");
    let with_e = std::fs::read_to_string(&path).unwrap() + text;
    std::fs::write(&path, &with_e).unwrap();
    assert_eq!(names(&sim.handle.reload(false).await.opened), ["e"]);
    sim.until_state("e", LaneState::Serving).await;
    std::fs::write(&path, with_e.replace("max_in_hand = 64", "max_in_hand = 128")).unwrap();
    let outcome = sim.handle.reload(false).await;
    assert_eq!((names(&outcome.retuned), outcome.unchanged), (vec!["e"], 3), "{outcome:?}");
    assert!(outcome.plan.contains("max_in_hand from 64 to 128"), "{}", outcome.plan);
    assert_eq!(sim.lane("e").generation, 1, "new limits need no new connection");
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_broken_manifest_changes_nothing_and_a_later_valid_one_applies() {
    let sim = Sim::start(&[("a", Act::Serve), ("b", Act::Serve)]).await;
    sim.until("serving", |status| status.count(LaneState::Serving) == 2).await;
    let path = sim.dir.path().join("spaces.toml");
    for text in ["", "{", "space = 3", "[[space]]\nname = \"a\"\n", "unknown = 1\n"] {
        std::fs::write(&path, text).unwrap();
        let outcome = sim.handle.reload(false).await;
        assert!(!outcome.applied && !outcome.refused.is_empty(), "{text:?}: {outcome:?}");
        assert!(outcome.refused[0].0.ends_with(|c: char| c.is_ascii_digit()), "{outcome:?}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(!sim.handle.reload(false).await.applied, "a missing manifest is not an empty one");
    let status = sim.handle.status();
    assert_eq!((status.generation, status.reloads_refused, status.count(LaneState::Serving)), (1, 6, 2));
    let outcome = sim.reload(&["a", "b", "c"]).await;
    assert_eq!((names(&outcome.opened), outcome.unchanged), (vec!["c"], 2));
    assert_eq!((sim.starts("a"), sim.starts("b")), (1, 1));
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_mass_close_needs_to_be_allowed() {
    let sim = Sim::start(&[("a", Act::Serve), ("b", Act::Serve), ("c", Act::Serve)]).await;
    sim.until("serving", |status| status.count(LaneState::Serving) == 3).await;
    let refused = sim.reload(&["a"]).await;
    assert!(!refused.applied && refused.refused[0].1.contains("close 2 of 3"), "{refused:?}");
    assert_eq!(sim.handle.status().count(LaneState::Serving), 3);
    // A credential that is rotated meanwhile is taken up all the same.
    sim.rotate("b", "second");
    sim.until("b reopened", |_| sim.starts("b") == 2).await;
    sim.until_state("b", LaneState::Serving).await;
    let applied = sim.handle.reload(true).await;
    assert_eq!((applied.applied, names(&applied.closed)), (true, vec!["b", "c"]));
    let applied = sim.reload_text(&[], "allow_mass_close = true").await;
    assert_eq!((applied.applied, names(&applied.closed)), (true, vec!["a"]));
    assert!(sim.handle.status().lanes.is_empty());
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_credential_is_proven_before_the_old_lane_is_touched() {
    let sim = Sim::start(&[("a", Act::Serve), ("b", Act::Serve)]).await;
    sim.until("serving", |status| status.count(LaneState::Serving) == 2).await;
    sim.book.lock().unwrap().proofs.insert("a".to_owned(), parking());
    sim.rotate("a", "bad");
    let outcome = sim.handle.reload(false).await;
    assert!(outcome.applied && outcome.settled && outcome.reopened.is_empty(), "{outcome:?}");
    assert_eq!(outcome.refused[0].0, "a");
    assert!(outcome.refused[0].1.contains("LANE-103"), "{outcome:?}");
    let lane = sim.lane("a");
    assert_eq!((lane.state, lane.generation), (LaneState::Serving, 1));
    assert!(lane.reason.contains("goes on as it was"), "{}", lane.reason);
    // It is not proven on every look, but now and then, and at once when it changes.
    let proofs = || sim.book.lock().unwrap().proven.len();
    let before = proofs();
    sleep(Duration::from_secs(2)).await;
    sim.handle.nudge(crate::supervisor::Nudge::Files);
    sleep(Duration::from_millis(900)).await;
    assert_eq!(proofs(), before);
    sim.until("proven once more", |_| proofs() > before).await;
    sim.book.lock().unwrap().proofs.clear();
    sim.rotate("a", "good");
    let outcome = sim.handle.reload(false).await;
    assert_eq!((names(&outcome.reopened), outcome.refused.len()), (vec!["a"], 0));
    sim.until("a reopened", |_| sim.starts("a") == 2).await;
    sim.until_state("a", LaneState::Serving).await;
    assert_eq!(sim.lane("b").generation, 1);
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_goes_back_before_it_is_proven_leaves_the_lane_alone() {
    let sim = Sim::start(&[("a", Act::Serve)]).await;
    sim.until_state("a", LaneState::Serving).await;
    sim.book.lock().unwrap().proofs.insert("a".to_owned(), parking());
    let reason =
        |what: &'static str| sim.until(what, move |status: &Arc<HostStatus>| status.lanes[0].reason.contains(what));
    // Found by the poll, with a valid manifest and without one.
    for broken in [false, true] {
        let path = sim.dir.path().join("spaces.toml");
        let good = std::fs::read_to_string(&path).unwrap();
        if broken {
            std::fs::write(&path, "{").unwrap();
            assert!(!sim.handle.reload(false).await.applied);
        }
        sim.rotate("a", "bad");
        reason("goes on as it was").await;
        sim.rotate("a", "first");
        reason("not wanted any more").await;
        std::fs::write(&path, good).unwrap();
    }
    sleep(Duration::from_secs(600)).await;
    assert_eq!((sim.starts("a"), sim.lane("a").state), (1, LaneState::Serving));
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn one_slow_lane_holds_up_neither_the_reload_nor_the_new_lanes() {
    let sim = Sim::start(&[("deaf", Act::Deaf), ("b", Act::Serve), ("c", Act::Serve)]).await;
    sim.until("serving", |status| status.count(LaneState::Serving) == 3).await;
    let began = Instant::now();
    let reload = sim.reload(&["b", "c", "d", "e"]);
    let serving = sim.until("the new ones serve", |status| status.count(LaneState::Serving) == 4);
    let (outcome, status) = tokio::join!(reload, async {
        let status = serving.await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        status
    });
    assert_eq!(status.lane(&"deaf".parse().unwrap()).unwrap().state, LaneState::Closing);
    assert_eq!(names(&outcome.forced), ["deaf"]);
    assert!(began.elapsed() < sim.settings.close_timeout + Duration::from_secs(2), "{:?}", began.elapsed());
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_space_that_is_removed_and_added_at_once_opens_after_the_old_one_is_gone() {
    let sim = Sim::start(&[("a", Act::Deaf), ("b", Act::Serve), ("c", Act::Serve)]).await;
    sim.until("serving", |status| status.count(LaneState::Serving) == 3).await;
    let (removed, added) = tokio::join!(sim.reload(&["b", "c"]), async {
        sim.until_state("a", LaneState::Closing).await;
        sim.reload(&["a", "b", "c"]).await
    });
    assert_eq!((names(&removed.closed), names(&added.opened)), (vec!["a"], vec!["a"]));
    assert_eq!(sim.starts("a"), 1, "the old one is not gone yet");
    sim.act("a", Act::Serve);
    sim.until("opened anew", |_| sim.starts("a") == 2).await;
    sim.until_state("a", LaneState::Serving).await;
    // Never two owners: checked at the end.
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_drained_lane_stays_closed_until_it_is_undrained() {
    let sim = Sim::start(&[("a", Act::Serve), ("b", Act::Serve)]).await;
    sim.until("serving", |status| status.count(LaneState::Serving) == 2).await;
    let a: Space = "a".parse().unwrap();
    assert_eq!(sim.handle.drain(Some(a.clone())).await, Ok(vec![a.clone()]));
    let lane = sim.until_state("a", LaneState::Waiting).await;
    assert_eq!((lane.drained, lane.reason.as_str()), (true, "drained"));
    sim.rotate("a", "second");
    sim.handle.reload(false).await;
    sleep(Duration::from_secs(3600)).await;
    assert!(sim.handle.reopen(a.clone()).await.unwrap_err().to_string().contains("undrain"));
    assert_eq!((sim.starts("a"), sim.starts("b")), (1, 1));
    assert_eq!(sim.handle.undrain(Some(a.clone())).await, Ok(vec![a]));
    sim.until_state("a", LaneState::Serving).await;
    // The whole host: what is added meanwhile stays closed too.
    assert_eq!(sim.handle.drain(None).await.unwrap().len(), 2);
    sim.until("drained", |status| status.count(LaneState::Waiting) == 2).await;
    sim.reload(&["a", "b", "c"]).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!((sim.starts("c"), sim.handle.status().draining), (0, true));
    sim.handle.undrain(None).await.unwrap();
    sim.until("back", |status| status.count(LaneState::Serving) == 3 && !status.draining).await;
    assert!(sim.handle.drain(Some("nobody".parse().unwrap())).await.is_err());
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_disabled_space_is_closed_and_opens_when_it_is_enabled() {
    let sim = Sim::start(&[("a", Act::Serve), ("b", Act::Serve), ("c", Act::Serve)]).await;
    sim.until("serving", |status| status.count(LaneState::Serving) == 3).await;
    let path = sim.dir.path().join("spaces.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}enabled = false\n")).unwrap();
    let outcome = sim.handle.reload(false).await;
    assert!(outcome.plan.contains("close 1 (c: disabled in the manifest)"), "{}", outcome.plan);
    std::fs::write(&path, text).unwrap();
    assert_eq!(names(&sim.handle.reload(false).await.opened), ["c"]);
    sim.until_state("c", LaneState::Serving).await;
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_before_there_is_a_manifest_and_idle_means_idle() {
    let sim = Sim::start(&[]).await;
    let ready = sim.until("ready", |status| status.ready).await;
    assert!(ready.lanes.is_empty(), "an empty manifest that says so is ready at once");
    let before = sim.handle.status().reloads_applied;
    sleep(Duration::from_secs(600)).await;
    sim.handle.ping().await.unwrap();
    assert_eq!(sim.handle.status().reloads_applied, before, "nothing changed, so nothing is applied");
    sim.end().await;
}
