//! The plan's printed line for each kind of change, and what holds for every pair of wanted and actual.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const STAGES: [Stage; 8] = [
    Stage::Idle,
    Stage::Opening,
    Stage::Standby,
    Stage::Serving,
    Stage::Closing,
    Stage::Leaving,
    Stage::Wedged,
    Stage::Drained,
];

fn definition(content: &str) -> Definition {
    Definition {
        credentials: "lane".into(),
        content: Some(content.to_owned()),
        servers: vec!["nats://127.0.0.1:4222".parse().unwrap()],
        limits: Limits::default(),
    }
}

fn actual(stage: Stage) -> Actual {
    Actual { stage, opened_with: Some(definition("a")), refused: None, trying: None, has_served: false }
}

fn wanted(rows: &[(&str, Definition)]) -> Wanted {
    let spaces = rows.iter().map(|(space, definition)| (space.parse().unwrap(), definition.clone())).collect();
    Wanted { spaces, ..Wanted::default() }
}

fn there(rows: &[(&str, Actual)]) -> BTreeMap<Space, Actual> {
    rows.iter().map(|(space, actual)| (space.parse().unwrap(), actual.clone())).collect()
}

#[test]
fn the_line_says_every_step_and_why() {
    let tuned = Definition {
        limits: Limits { ack_wait: Duration::from_secs(5), max_in_hand: 64, ..Limits::default() },
        ..definition("a")
    };
    let elsewhere = Definition { servers: vec!["nats://10.0.0.1:4222".parse().unwrap()], ..definition("a") };
    let moved = Definition { credentials: "other".into(), ..definition("a") };
    let mut wanted = wanted(&[
        ("fresh", definition("a")),
        ("same", definition("a")),
        ("tuned", tuned),
        ("rotated", definition("b")),
        ("moved", moved),
        ("elsewhere", elsewhere),
        ("mended", definition("b")),
    ]);
    wanted.disabled.insert("off".parse().unwrap());
    let there = there(&[
        ("same", actual(Stage::Serving)),
        ("tuned", actual(Stage::Serving)),
        ("rotated", actual(Stage::Serving)),
        ("moved", actual(Stage::Standby)),
        ("elsewhere", actual(Stage::Opening)),
        ("mended", actual(Stage::Idle)),
        ("off", actual(Stage::Serving)),
        ("gone", actual(Stage::Idle)),
    ]);
    let plan = Plan::build(&wanted, &there);
    assert_eq!(
        plan.to_string(),
        "open 1 (fresh: new in the manifest), \
         retune 1 (tuned: ack_wait_ms from 60000 to 5000, max_in_hand from 4096 to 64), \
         preflight and reopen 2 (moved: another credentials directory; rotated: credentials changed), \
         reopen 2 (elsewhere: servers changed; mended: credentials changed), \
         close 2 (gone: removed from the manifest; off: disabled in the manifest), unchanged 1"
    );
    assert_eq!((plan.serving, plan.closing_serving), (4, 1));
    assert!(!plan.is_mass_close());
}

#[test]
fn a_long_line_is_cut() {
    let spaces: Vec<String> = (0..2000).map(|number| format!("s{number:04}")).collect();
    let rows: Vec<(&str, Definition)> = spaces.iter().map(|space| (space.as_str(), definition("a"))).collect();
    let line = Plan::build(&wanted(&rows), &BTreeMap::new()).to_string();
    assert!(line.starts_with("open 2000 (s0000: new in the manifest; ") && line.len() < 400, "{line}");
    assert!(line.ends_with("; and 1992 more), unchanged 0"), "{line}");
}

#[test]
fn nothing_to_do_is_said_too() {
    let there = there(&[("a", actual(Stage::Serving)), ("b", actual(Stage::Leaving))]);
    let plan = Plan::build(&wanted(&[("a", definition("a"))]), &there);
    assert!(plan.is_empty(), "a lane that already leaves is not closed again: {plan}");
    assert_eq!(plan.to_string(), "unchanged 1");
}

#[test]
fn a_lane_that_leaves_and_is_wanted_again_is_opened() {
    let there = there(&[("a", actual(Stage::Leaving))]);
    let plan = Plan::build(&wanted(&[("a", definition("a"))]), &there);
    assert_eq!(plan.to_string(), "open 1 (a: back in the manifest), unchanged 0");
}

#[test]
fn what_was_refused_is_not_tried_again_until_it_changes_or_somebody_asks() {
    let refused = Actual { refused: Some(definition("b")), ..actual(Stage::Serving) };
    let there = there(&[("a", refused)]);
    let mut same = wanted(&[("a", definition("b"))]);
    assert!(Plan::build(&same, &there).is_empty());
    let plan = Plan::build(&wanted(&[("a", definition("c"))]), &there);
    assert_eq!(plan.spaces(Action::Preflight).len(), 1);
    same.try_refused = true;
    assert_eq!(Plan::build(&same, &there).spaces(Action::Preflight).len(), 1);
}

#[test]
fn what_is_being_proven_is_not_proven_twice() {
    let trying = Actual { trying: Some(definition("b")), ..actual(Stage::Serving) };
    let there = there(&[("a", trying)]);
    let mut same = wanted(&[("a", definition("b"))]);
    same.try_refused = true;
    assert!(Plan::build(&same, &there).is_empty());
    let plan = Plan::build(&wanted(&[("a", definition("c"))]), &there);
    assert_eq!(plan.spaces(Action::Preflight).len(), 1);
}

#[test]
fn content_that_is_not_known_changes_nothing() {
    let unknown = || Definition { content: None, ..definition("a") };
    let there = there(&[("a", actual(Stage::Serving))]);
    assert!(Plan::build(&wanted(&[("a", unknown())]), &there).is_empty());
    let opened = Actual { opened_with: Some(unknown()), ..actual(Stage::Serving) };
    let there = BTreeMap::from([("a".parse().unwrap(), opened)]);
    assert!(Plan::build(&wanted(&[("a", definition("b"))]), &there).is_empty());
}

#[test]
fn more_than_half_of_the_serving_lanes_is_a_mass_close() {
    for (serving, closed, is_mass) in [(1, 1, true), (2, 1, false), (3, 1, false), (3, 2, true), (4, 2, false)] {
        let spaces: Vec<String> = (0..serving).map(|number| format!("s{number}")).collect();
        let there: BTreeMap<Space, Actual> =
            spaces.iter().map(|space| (space.parse().unwrap(), actual(Stage::Serving))).collect();
        let kept: Vec<(&str, Definition)> =
            spaces.iter().skip(closed).map(|space| (space.as_str(), definition("a"))).collect();
        let plan = Plan::build(&wanted(&kept), &there);
        assert_eq!(plan.is_mass_close(), is_mass, "{closed} of {serving}");
    }
    // Lanes that do not serve do not count on either side.
    let idle = there(&[("a", actual(Stage::Idle)), ("b", actual(Stage::Standby))]);
    assert!(!Plan::build(&wanted(&[]), &idle).is_mass_close());
    // A lane that served and lost its broker does.
    let lost = there(&[("a", Actual { has_served: true, ..actual(Stage::Opening) })]);
    assert!(Plan::build(&wanted(&[]), &lost).is_mass_close());
}

fn any_definition() -> impl Strategy<Value = Definition> {
    (0..2u8, proptest::option::of(0..3u8), 0..2u8, 0..2u8).prop_map(|(dir, content, server, limit)| Definition {
        credentials: format!("dir{dir}").into(),
        content: content.map(|content| content.to_string()),
        servers: vec![format!("nats://127.0.0.1:{}", 4222 + u16::from(server)).parse().unwrap()],
        limits: Limits { max_in_hand: 64 + usize::from(limit), ..Limits::default() },
    })
}

fn any_actual() -> impl Strategy<Value = Actual> {
    (0..STAGES.len(), proptest::option::of(any_definition()), proptest::option::of(any_definition())).prop_map(
        |(stage, opened_with, refused)| Actual {
            stage: STAGES[stage],
            opened_with,
            refused,
            trying: None,
            has_served: false,
        },
    )
}

proptest! {
    #[test]
    fn every_space_is_in_the_plan_once(
        wanted in proptest::collection::btree_map("[a-f]", any_definition(), 0..6),
        actual in proptest::collection::btree_map("[a-f]", any_actual(), 0..6),
    ) {
        let spaces = wanted.into_iter().map(|(space, row)| (space.parse().unwrap(), row)).collect();
        let wanted = Wanted { spaces, ..Wanted::default() };
        let actual: BTreeMap<Space, Actual> =
            actual.into_iter().map(|(space, row)| (space.parse().unwrap(), row)).collect();
        let plan = Plan::build(&wanted, &actual);
        let named: BTreeSet<&Space> = plan.steps.iter().map(|step| &step.space).collect();
        prop_assert_eq!(named.len(), plan.steps.len(), "a space has two steps");
        for step in &plan.steps {
            prop_assert_eq!(step.action == Action::Close, !wanted.spaces.contains_key(&step.space));
            prop_assert!(!step.reason.is_empty());
            let stage = actual.get(&step.space).map(|actual| actual.stage);
            match step.action {
                Action::Open => prop_assert!(matches!(stage, None | Some(Stage::Leaving))),
                // Only what serves or could take over is protected by a preflight, and it always is.
                Action::Preflight => prop_assert!(matches!(stage, Some(Stage::Serving | Stage::Standby))),
                Action::Reopen => prop_assert!(matches!(stage, Some(Stage::Idle | Stage::Opening))),
                Action::Retune => {
                    prop_assert!(matches!(stage, Some(Stage::Serving | Stage::Standby | Stage::Opening)));
                }
                Action::Close => prop_assert!(stage.is_some_and(|stage| stage != Stage::Leaving)),
            }
        }
        let closes = plan.steps.iter().filter(|step| step.action == Action::Close).count();
        prop_assert_eq!(plan.steps.len() - closes + plan.unchanged, wanted.spaces.len());
    }

    #[test]
    fn what_was_just_opened_is_unchanged(rows in proptest::collection::btree_map("[a-z]{1,4}", any_definition(), 0..8)) {
        let spaces: BTreeMap<Space, Definition> =
            rows.into_iter().map(|(space, row)| (space.parse().unwrap(), row)).collect();
        let actual = spaces
            .iter()
            .map(|(space, row)| {
                let opened_with = Some(row.clone());
                (space.clone(), Actual { stage: Stage::Serving, opened_with, refused: None, trying: None, has_served: false })
            })
            .collect();
        let plan = Plan::build(&Wanted { spaces, ..Wanted::default() }, &actual);
        prop_assert!(plan.is_empty(), "{plan}");
    }
}
