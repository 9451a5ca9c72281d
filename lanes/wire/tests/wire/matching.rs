//! NATS matching against a matcher written another way, and cover and overlap against enumeration.

use lanekeeper_wire::{Channel, ChannelPattern, subject};
use proptest::prelude::*;

use crate::samples::{a_channel, a_pattern, parsed};

/// Straight from the definition, by recursion over tokens.
fn naive(filter: &[&str], subject: &[&str]) -> bool {
    match (filter, subject) {
        ([], []) => true,
        ([">"], [_, ..]) => true,
        (["*", filter @ ..], [_, subject @ ..]) => naive(filter, subject),
        ([a, filter @ ..], [b, subject @ ..]) => a == b && naive(filter, subject),
        ([], [_, ..]) | ([_, ..], []) => false,
    }
}

fn naive_matches(filter: &str, subject: &str) -> bool {
    let filter: Vec<&str> = filter.split('.').collect();
    let subject: Vec<&str> = subject.split('.').collect();
    let tail_inside = filter.iter().rev().skip(1).any(|token| *token == ">");
    let empty = filter.contains(&"") || subject.contains(&"");
    !tail_inside && !empty && naive(&filter, &subject)
}

/// Every dotted text of 1 to `depth` of these tokens.
fn texts(tokens: &[&str], depth: usize) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut last: Vec<String> = vec![String::new()];
    for level in 0..depth {
        let longer = |stem: &String| -> Vec<String> {
            tokens.iter().map(|t| if level == 0 { (*t).to_owned() } else { format!("{stem}.{t}") }).collect()
        };
        last = last.iter().flat_map(longer).collect();
        all.extend(last.iter().cloned());
    }
    all
}

#[test]
fn matching_is_that_of_the_definition_for_all_small_texts() {
    let filters = texts(&["", "a", "b", "*", ">", "a>"], 4);
    let subjects = texts(&["", "a", "b", "a>", "*"], 4);
    let mut hits = 0_u32;
    for filter in &filters {
        for subject in &subjects {
            let expected = naive_matches(filter, subject);
            hits += u32::from(expected);
            assert_eq!(subject::matches(filter, subject), expected, "{filter:?} on {subject:?}");
        }
    }
    assert!(hits > 1_000, "the table says something: {hits}");
}

#[test]
fn known_traps() {
    for (filter, subject, expected) in [
        ("a.>", "a", false),
        ("a.>", "a.b", true),
        ("a.>", "a.b.c", true),
        (">", "a", true),
        (">", "", false),
        ("*", "", false),
        ("*", "a.b", false),
        ("a.*", "a", false),
        ("a.*.c", "a.b.c", true),
        ("a.>.c", "a.b.c", false),
        ("a..b", "a..b", false),
        ("a.", "a.", false),
        ("", "", false),
        ("a*", "ab", false),
        ("A", "a", false),
    ] {
        assert_eq!(subject::matches(filter, subject), expected, "{filter:?} on {subject:?}");
    }
}

/// With `c` in no pattern and channels one segment deeper than the patterns, enumeration decides.
fn small_world() -> (Vec<ChannelPattern>, Vec<Channel>) {
    let patterns = texts(&["a", "b", "*", ">"], 3).iter().filter_map(|text| text.parse().ok()).collect();
    let channels = texts(&["a", "b", "c"], 4).iter().map(|text| parsed(text)).collect();
    (patterns, channels)
}

#[test]
fn cover_and_overlap_are_what_enumeration_says() {
    let (patterns, channels) = small_world();
    assert_eq!((patterns.len(), channels.len()), (52, 120));
    for outer in &patterns {
        for inner in &patterns {
            let covered = channels.iter().all(|channel| !inner.covers(channel) || outer.covers(channel));
            assert_eq!(outer.covers_pattern(inner), covered, "{outer} covers {inner}");
            let common = channels.iter().any(|channel| inner.covers(channel) && outer.covers(channel));
            assert_eq!(outer.overlaps(inner), common, "{outer} overlaps {inner}");
        }
    }
}

proptest! {
    #[test]
    fn a_pattern_covers_what_the_definition_says(pattern in a_pattern(), channel in a_channel()) {
        prop_assert_eq!(pattern.covers(&channel), naive_matches(pattern.as_str(), channel.as_str()));
    }

    #[test]
    fn matching_agrees_on_any_text(filter in "[ab.*>]{0,9}", subject in "[ab.*>]{0,9}") {
        prop_assert_eq!(subject::matches(&filter, &subject), naive_matches(&filter, &subject));
    }

    #[test]
    fn cover_is_an_order_and_overlap_is_mutual(a in a_pattern(), b in a_pattern(), c in a_pattern(), channel in a_channel()) {
        prop_assert!(a.covers_pattern(&a) && a.overlaps(&a));
        prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
        if a.covers_pattern(&b) {
            prop_assert!(a.overlaps(&b));
            prop_assert!(!b.covers(&channel) || a.covers(&channel));
            prop_assert!(!b.covers_pattern(&c) || a.covers_pattern(&c));
        }
        prop_assert_eq!(a.covers_pattern(&channel.to_pattern()), a.covers(&channel));
        prop_assert_eq!(a.overlaps(&channel.to_pattern()), a.covers(&channel));
    }
}
