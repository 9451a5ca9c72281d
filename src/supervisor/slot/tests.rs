//! Every legal move of a slot, and that no sequence of moves ever has two tasks or loses one.

use std::{cell::Cell, rc::Rc, time::Duration};

use proptest::prelude::*;

use super::*;

#[derive(Debug, Default, Clone)]
struct Fake(Rc<(Cell<u32>, Cell<u32>)>);

impl Task for Fake {
    fn stop(&self) {
        self.0.0.set(self.0.0.get() + 1);
    }

    fn abort(&self) {
        self.0.1.set(self.0.1.get() + 1);
    }
}

fn second(number: u64) -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *START.get_or_init(Instant::now) + Duration::from_secs(number)
}

fn opened() -> (Slot<Fake>, Fake) {
    let (mut slot, task) = (Slot::waiting(None), Fake::default());
    slot.open(task.clone(), second(10)).unwrap();
    (slot, task)
}

#[test]
fn a_life_from_opening_to_closed() {
    let (mut slot, task) = opened();
    assert_eq!(slot.state(), LaneState::Opening);
    for (said, shown) in [
        (State::Standby, LaneState::Standby),
        (State::Opening, LaneState::Opening),
        (State::Serving, LaneState::Serving),
        (State::Redialling, LaneState::Opening),
        (State::Serving, LaneState::Serving),
    ] {
        slot.follow(said, second(1), second(20));
        assert_eq!(slot.state(), shown);
    }
    assert!(slot.close(second(5)));
    assert_eq!((slot.state(), task.0.0.get()), (LaneState::Closing, 1));
    slot.follow(State::Serving, second(2), second(20));
    assert_eq!(slot.state(), LaneState::Closing, "what it reports after it was asked to end changes nothing");
    assert!(slot.ended().is_some());
    assert_eq!(slot.state(), LaneState::Waiting);
    assert!(slot.ended().is_none());
    assert_eq!(task.0.1.get(), 0);
}

#[test]
fn a_second_task_is_refused_in_every_state_that_holds_one() {
    let moves: [fn(&mut Slot<Fake>); 5] = [
        |_| (),
        |slot| slot.follow(State::Standby, second(1), second(9)),
        |slot| slot.follow(State::Serving, second(1), second(9)),
        |slot| assert!(slot.close(second(9))),
        |slot| {
            slot.close(second(1));
            slot.check(second(2), second(3), second(3));
            slot.check(second(4), second(5), second(5));
            assert!(slot.is_wedged());
        },
    ];
    for then in moves {
        let (mut slot, _) = opened();
        then(&mut slot);
        let before = slot.state();
        assert!(slot.open(Fake::default(), second(9)).is_err(), "{slot:?}");
        slot.wait_until(Some(second(1)));
        slot.park();
        assert_eq!(slot.state(), before, "a slot with a task is neither due nor parked");
    }
}

#[test]
fn a_late_open_is_stopped_then_aborted_then_wedged_and_freed_when_it_ends_after_all() {
    let (mut slot, task) = opened();
    assert_eq!(slot.check(second(9), second(15), second(20)), None);
    assert_eq!(slot.check(second(10), second(15), second(20)), Some(Overdue::Open));
    assert_eq!((task.0.0.get(), task.0.1.get()), (1, 0));
    assert_eq!(slot.check(second(14), second(0), second(20)), None);
    assert_eq!(slot.check(second(15), second(0), second(20)), Some(Overdue::Close));
    assert_eq!((task.0.0.get(), task.0.1.get()), (1, 1));
    assert_eq!(slot.check(second(20), second(0), second(0)), Some(Overdue::Abort));
    assert!(slot.is_wedged() && !slot.is_running());
    assert_eq!(slot.state(), LaneState::Parked);
    assert!(!slot.close(second(30)), "nobody waits for it");
    assert!(slot.ended().is_some());
    assert_eq!(slot.state(), LaneState::Waiting);
}

#[test]
fn parking_ends_with_a_close_or_a_time() {
    let mut slot: Slot<Fake> = Slot::waiting(Some(second(1)));
    slot.park();
    assert_eq!((slot.state(), slot.deadline()), (LaneState::Parked, None));
    slot.wait_until(Some(second(2)));
    assert_eq!(slot.state(), LaneState::Waiting);
    slot.park();
    assert!(!slot.close(second(3)));
    assert_eq!(slot.state(), LaneState::Waiting);
}

const STATES: [State; 6] =
    [State::Opening, State::Standby, State::Serving, State::Redialling, State::Closing, State::Closed];

proptest! {
    #[test]
    fn a_task_is_held_until_it_is_joined(moves in proptest::collection::vec(0..14usize, 0..60)) {
        let (mut slot, mut now) = (Slot::<Fake>::waiting(None), 0);
        let (mut held, mut taken, mut joined): (Option<Fake>, usize, usize) = (None, 0, 0);
        for step in moves {
            now += 1;
            match step {
                0 => {
                    let task = Fake::default();
                    let took = slot.open(task.clone(), second(now + 3)).is_ok();
                    prop_assert_eq!(took, held.is_none());
                    if took {
                        taken += 1;
                        held = Some(task);
                    }
                }
                1 => {
                    slot.close(second(now + 3));
                }
                2 => {
                    let ended = slot.ended();
                    prop_assert_eq!(ended.is_some(), held.take().is_some());
                    joined += usize::from(ended.is_some());
                }
                3 => slot.park(),
                4 => slot.wait_until(Some(second(now))),
                5..=7 => {
                    slot.check(second(now), second(now + 3), second(now + 3));
                }
                _ => slot.follow(STATES[step - 8], second(now), second(now + 3)),
            }
            prop_assert_eq!(slot.task().is_some(), held.is_some(), "a task was lost or made up");
            prop_assert_eq!(taken - joined, usize::from(held.is_some()));
            if let Some(task) = &held && slot.state() == LaneState::Closing {
                prop_assert!(task.0.1.get() <= 1);
            }
        }
    }
}
