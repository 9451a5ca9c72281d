//! The table and the details of a lane, to the letter.

use lanekeeper::{
    commands::admin::{
        detail,
        orders::told,
        table::{Look, draw},
    },
    supervisor::status::{HostStatus, Outcome},
};

use crate::recorded::{NOW_MS, host, ready_host};

fn look(width: Option<usize>, has_colour: bool) -> Look {
    Look { width, height: None, has_colour, now_ms: NOW_MS }
}

/// The table without its two head lines and the line between.
fn grid(text: &str) -> Vec<&str> {
    text.lines().skip(3).collect()
}

#[test]
fn eighty_columns() {
    let expected = "\
one  generation 12, not every lane was attempted yet
2 of 7 serving, 2 waiting, 1 opening, 1 standby, 1 parked

SPACE         STATE    SINCE  COPIES/S    EXPIRES  FAULT
zeta-with-a…  parked   3m20s         0  2h00m ago  LANE-104  [2Jexpired
epsilon       waiting  3m20s         0          -  LANE-201 broker nats://10.0.…
eta           waiting  3m20s         0          -
delta         opening     4s         0          -  connecting
gamma         standby  3m20s         0  in 20m00s  drained: the lease is held b…
alpha         serving  3d04h      1.2k  in 29d00h
beta          serving  3m20s         0   in 3h00m  LANE-204 12m00s ago: the con…
";
    assert_eq!(draw(&host(), &look(Some(80), false)), expected);
}

#[test]
fn a_hundred_and_sixty_columns() {
    let expected = "\
SPACE                         STATE    SINCE  TRY   REV  COPIES/S  BACKLOG    EXPIRES  FAULT
zeta-with-a-rather-long-name  parked   3m20s    1     -         0        0  2h00m ago  LANE-104  [2Jexpired
epsilon                       waiting  3m20s    7     -         0        0          -  LANE-201 broker nats://10.0.0.9:4222 cannot be reached: connection refus…
eta                           waiting  3m20s    0     -         0        0          -
delta                         opening     4s    1     -         0        0          -  connecting
gamma                         standby  3m20s    1     -         0        0  in 20m00s  drained: the lease is held by two
alpha                         serving  3d04h    1  4711      1.2k      130  in 29d00h
beta                          serving  3m20s    1    12         0        0   in 3h00m  LANE-204 12m00s ago: the connection to the broker ended";
    let drawn = draw(&host(), &look(Some(160), false));
    assert_eq!(grid(&drawn).join("\n"), expected);
}

#[test]
fn colours_say_what_needs_somebody() {
    let drawn = draw(&host(), &look(Some(160), true));
    let has = |part: &str| assert!(drawn.contains(part), "{part:?} in {drawn:?}");
    has("\u{1b}[1mone\u{1b}[0m  generation 12\u{1b}[33m, not every lane was attempted yet\u{1b}[0m\n");
    has("\u{1b}[2mSPACE\u{1b}[0m                         \u{1b}[2mSTATE\u{1b}[0m");
    has("\u{1b}[31mparked\u{1b}[0m   3m20s");
    has("\u{1b}[31m2h00m ago\u{1b}[0m  \u{1b}[31mLANE-104  [2Jexpired\u{1b}[0m\n");
    has("\u{1b}[33mwaiting\u{1b}[0m  3m20s    \u{1b}[33m7\u{1b}[0m");
    has("\u{1b}[36mstandby\u{1b}[0m");
    has("\u{1b}[32mserving\u{1b}[0m  3d04h    1  4711      1.2k      130  in 29d00h\n");
    // A day before the end is the time to look, an hour before it to act.
    has("\u{1b}[33min 3h00m\u{1b}[0m");
    has("\u{1b}[31min 20m00s\u{1b}[0m");
    assert_eq!(without_colours(&drawn), draw(&host(), &look(Some(160), false)), "colours change no column");
}

/// What a terminal shows.
fn without_colours(text: &str) -> String {
    let mut out = String::new();
    let mut parts = text.split('\u{1b}');
    out.push_str(parts.next().unwrap());
    for part in parts {
        out.push_str(part.split_once('m').unwrap().1);
    }
    out
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in 60..200 {
        for line in draw(&host(), &look(Some(width), false)).lines().skip(1) {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
    let whole = draw(&host(), &look(None, false));
    assert!(whole.contains("check the address and that nats-server runs\n"), "a pipe gets everything: {whole}");
    assert!(!whole.contains('\u{1b}'), "and nothing that a terminal would act on");
}

#[test]
fn a_low_terminal_shows_what_needs_somebody() {
    let low = Look { height: Some(8), ..look(Some(80), false) };
    let drawn = draw(&host(), &low);
    assert_eq!(drawn.lines().count(), 8, "{drawn}");
    let lanes: Vec<&str> = grid(&drawn).into_iter().skip(1).collect();
    assert!(lanes[0].starts_with("zeta") && lanes[1].starts_with("epsilon"), "{drawn}");
    assert_eq!(lanes.last(), Some(&"… and 4 more"));
}

#[test]
fn a_refused_manifest_and_no_lanes_are_said() {
    let why = ("spaces.toml:3:1".to_owned(), "unknown key `nmae`".to_owned());
    let last_reload = Some(Outcome { refused: vec![why], ..Outcome::default() });
    let empty = HostStatus { lanes: Vec::new(), last_reload, draining: true, watching: false, ..ready_host() };
    let expected = "\
one  generation 12, draining, files are polled
0 of 0 serving
last reload refused: spaces.toml:3:1: unknown key `nmae`

no lane: the manifest lists no space that is enabled
";
    assert_eq!(draw(&empty, &look(Some(80), false)), expected);
}

#[test]
fn the_details_of_a_lane() {
    let expected = "\
space         alpha
state         serving for 3d04h
attempt       1, generation 1
lease         revision 4711, held here
connected to  nats://127.0.0.1:4222, 1 connection
credential    9f86d081, expires in 29d00h
rates         12 posts/s, 1.2k copies/s
backlog       3 posts in hand, 120 entries in hand, 7 copies waiting
tags          tier=gold
";
    assert_eq!(detail::draw(&host().lanes[0], &look(None, false)), expected);
    let expected = "\
space         gamma
state         standby for 3m20s, drained
reason        the lease is held by two
attempt       1, generation 1
lease         held by two
preferred     two
connected to  nats://127.0.0.1:4222, 1 connection
credential    unknown, expires in 20m00s
rates         0 posts/s, 0 copies/s
backlog       0 posts in hand, 0 entries in hand, 0 copies waiting
";
    assert_eq!(detail::draw(&host().lanes[2], &look(None, false)), expected);
}

#[test]
fn a_reload_is_told_in_a_few_lines() {
    let space = |name: &str| name.parse().unwrap();
    let outcome = Outcome {
        generation: 13,
        hash: "0123456789abcdef".to_owned(),
        applied: true,
        opened: vec![space("a"), space("b")],
        closed: vec![space("c")],
        unchanged: 7,
        refused: vec![("d".to_owned(), "the new credential was refused\n[LANE-106]".to_owned())],
        plan: "open 2, close 1".to_owned(),
        ..Outcome::default()
    };
    let expected = "\
generation 13 of manifest 0123456789ab is in force: open 2, close 1
  opened    a, b
  closed    c
  unchanged 7
  refused   d: the new credential was refused [LANE-106]
";
    assert_eq!(told(&outcome), expected);
}
