//! Any bytes, and any damage to a good file: never a panic, and either it loads or the fault has a place in the file.

use std::path::Path;

use lanekeeper::{
    config::{Faults, HostConfig},
    manifest,
};
use proptest::{collection::vec, prelude::*, sample::Index};

use crate::{examples, files::Files};

/// One damage to a file.
#[derive(Debug, Clone)]
enum Damage {
    /// Bytes are gone.
    Cut(Index, Index),
    /// Bytes come in.
    Insert(Index, Vec<u8>),
    /// A piece of the file stands there once more.
    Repeat(Index, Index, Index),
    /// Bits of one byte change.
    Flip(Index, u8),
    /// Everything behind is gone.
    Truncate(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    let words = prop::sample::select(vec![
        "[[space]]\n",
        "name = \"alpha\"\n",
        "= ",
        "\"",
        "[",
        "'''",
        "\u{feff}",
        "é",
        "9e9",
        "\r",
        "\0",
        "#",
    ]);
    prop_oneof![
        (at(), at()).prop_map(|(from, to)| Damage::Cut(from, to)),
        (at(), vec(any::<u8>(), 1..8)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (at(), words).prop_map(|(at, word)| Damage::Insert(at, word.as_bytes().to_vec())),
        (at(), at(), at()).prop_map(|(from, to, at)| Damage::Repeat(from, to, at)),
        (at(), 1..=255u8).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        at().prop_map(Damage::Truncate),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    let place = |index: &Index, bytes: &[u8]| index.index(bytes.len() + 1);
    let range = |from: &Index, to: &Index, bytes: &[u8]| {
        let (from, to) = (place(from, bytes), place(to, bytes));
        from.min(to)..from.max(to)
    };
    match damage {
        Damage::Cut(from, to) => drop(bytes.drain(range(from, to, bytes))),
        Damage::Insert(at, new) => {
            let at = place(at, bytes);
            drop(bytes.splice(at..at, new.iter().copied()));
        }
        Damage::Repeat(from, to, at) => {
            let (piece, at) = (bytes[range(from, to, bytes)].to_vec(), place(at, bytes));
            drop(bytes.splice(at..at, piece));
        }
        Damage::Flip(at, bits) => {
            let at = at.index(bytes.len().max(1));
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= bits;
            }
        }
        Damage::Truncate(at) => bytes.truncate(place(at, bytes)),
    }
}

/// The fault's line is one of the file, and its column is in that line or at its end.
fn assert_inside(faults: &Faults, path: &Path, bytes: &[u8]) {
    assert!(!faults.0.is_empty());
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    for fault in &faults.0 {
        assert_eq!(fault.file, path);
        let line = lines.get(fault.line.wrapping_sub(1)).unwrap_or_else(|| panic!("no such line: {fault}"));
        let columns = String::from_utf8_lossy(line).chars().count() + 1;
        assert!((1..=columns).contains(&fault.column), "no such column: {fault}");
        assert!(fault.message.len() > 10 && !fault.message.contains('\n'), "{fault}");
    }
}

fn try_both(bytes: &[u8]) {
    let files = Files::new();
    let path = files.write("x.toml", bytes);
    if let Err(faults) = HostConfig::load(&path) {
        assert_inside(&faults, &path, bytes);
    }
    match manifest::load(&path, &HostConfig::default()) {
        Ok(manifest) => assert_eq!(manifest.spaces.len(), manifest.origins.len()),
        Err(faults) => assert_inside(&faults, &path, bytes),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..200)) {
        try_both(&bytes);
    }

    #[test]
    fn any_text(text in "(?s).{0,200}") {
        try_both(text.as_bytes());
    }

    #[test]
    fn any_damage_to_a_good_file(is_host in any::<bool>(), damages in vec(damage(), 1..6)) {
        let name = if is_host { "lanekeeper.toml" } else { "spaces.toml" };
        let mut bytes = examples::in_force(name).into_bytes();
        for damage in &damages {
            apply(&mut bytes, damage);
        }
        try_both(&bytes);
    }
}

#[test]
fn deep_nesting_and_endless_keys_end() {
    for text in
        ["[".repeat(100_000), "a.".repeat(100_000), format!("x = {}\n", "[".repeat(100_000)), "{a=".repeat(50_000)]
    {
        try_both(text.as_bytes());
        try_both(format!("{text}\n").as_bytes());
    }
}
