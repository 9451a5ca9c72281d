//! Rules over several files: which crate may know which, that lints are inherited, that bans have a reason, and that the
//! runbook and the README keep up with the code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use crate::source::root;

/// Which of our crates each may depend on, and in tests besides.
const INWARD: [(&str, &[&str], &[&str]); 6] = [
    ("lanes/wire", &[], &[]),
    ("lanes/lane", &["wire"], &[]),
    ("lanes/peer", &["wire"], &["broker", "provision"]),
    ("lanes/provision", &["wire"], &["broker"]),
    ("lanes/broker", &[], &[]),
    (".", &["wire", "lane", "peer", "provision", "broker"], &[]),
];

/// What a crate may not use of other people's, and why.
const FOREIGN: [(&str, &[&str], &str); 3] = [
    ("lanes/wire", &["async-nats", "tokio", "tracing", "time", "rand"], "it is pure: no broker, no runtime, no clock"),
    (
        "lanes/lane",
        &["opentelemetry", "opentelemetry_sdk", "toml", "clap", "notify"],
        "it knows no manifest and no exporter",
    ),
    ("lanes/peer", &["opentelemetry", "opentelemetry_sdk", "toml", "clap"], "it is a library for members"),
];

/// The sections of a manifest, each with its lines.
fn sections(manifest: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut section = String::new();
    for line in manifest.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) if !name.contains('=') => section = name.to_owned(),
            Some(_) | None => found.entry(section.clone()).or_default().push(line.to_owned()),
        }
    }
    found
}

/// The names a section of dependencies lists.
fn names(sections: &BTreeMap<String, Vec<String>>, section: &str) -> BTreeSet<String> {
    let lines = sections.get(section).into_iter().flatten();
    lines.map(|line| line.split(['.', '=', ' ']).next().unwrap_or_default().to_owned()).collect()
}

fn manifest(dir: &str) -> BTreeMap<String, Vec<String>> {
    sections(&read(&format!("{dir}/Cargo.toml")))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn ours(names: &BTreeSet<String>) -> BTreeSet<&str> {
    names.iter().filter_map(|name| name.strip_prefix("lanekeeper-")).collect()
}

#[test]
fn crates_know_only_what_they_may() {
    for (dir, allowed, allowed_in_tests) in INWARD {
        let manifest = manifest(dir);
        let allowed: BTreeSet<&str> = allowed.iter().copied().collect();
        let used = names(&manifest, "dependencies");
        assert!(ours(&used).is_subset(&allowed), "{dir} depends on {used:?}, of ours it may only {allowed:?}");
        let in_tests: BTreeSet<&str> = allowed.iter().chain(allowed_in_tests).copied().collect();
        let used = names(&manifest, "dev-dependencies");
        assert!(ours(&used).is_subset(&in_tests), "{dir} tests with {used:?}, of ours it may only {in_tests:?}");
        for section in manifest.keys().filter(|section| section.contains("dependencies")) {
            let known = ["dependencies", "dev-dependencies", "workspace.dependencies"];
            assert!(
                known.contains(&section.as_str()),
                "{dir}: [{section}] would escape this test, list it in a plain section"
            );
        }
    }
    for (dir, banned, why) in FOREIGN {
        let used = names(&manifest(dir), "dependencies");
        let found: Vec<&&str> = banned.iter().filter(|name| used.contains(**name)).collect();
        assert!(found.is_empty(), "{dir} depends on {found:?}, but {why}");
    }
}

#[test]
fn every_crate_is_listed_and_inherits_the_lints() {
    let lanes = fs::read_dir(root().join("lanes")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut dirs: Vec<String> = lanes.map(|name| format!("lanes/{}", name.to_string_lossy())).collect();
    dirs.push(".".to_owned());
    for dir in dirs {
        assert!(INWARD.iter().any(|(listed, _, _)| *listed == dir), "{dir} has no row here that says what it may know");
        let lints = manifest(&dir).get("lints").cloned().unwrap_or_default();
        assert_eq!(lints, ["workspace = true"], "{dir}/Cargo.toml must have [lints] workspace = true");
    }
}

#[test]
fn every_ban_has_a_reason() {
    let mut bans = 0;
    for (file, start) in [("clippy.toml", "{ path ="), ("deny.toml", "{ name =")] {
        for line in read(file).lines().map(str::trim).filter(|line| line.starts_with(start)) {
            assert!(line.contains("reason = \"") && !line.contains("reason = \"\""), "{file}: {line} has no reason");
            bans += 1;
        }
    }
    assert!(bans > 2, "only {bans} bans were found");
}

/// Codes such as `LANE-101`, in the order of the text.
fn codes(text: &str) -> BTreeSet<String> {
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    parts.filter(|part| part.strip_prefix("LANE-").is_some_and(|digits| digits.len() == 3)).map(str::to_owned).collect()
}

#[test]
fn every_code_has_its_section_in_the_runbook() {
    let (code, runbook) = (read("lanes/lane/src/fault.rs"), read("deploy/runbook.md"));
    let in_code = codes(&code);
    assert!(in_code.len() > 15, "{in_code:?}");
    let headings: Vec<&str> = runbook.lines().filter(|line| line.starts_with("### ")).collect();
    assert_eq!(codes(&headings.join("\n")), in_code, "the codes of fault.rs and the headings of the runbook");
    assert_eq!(codes(&runbook), in_code, "the runbook names a code that does not exist");
    for fate in in_code.iter().map(|code_name| (code_name, fate(&code, code_name))) {
        let section = section_of(&runbook, fate.0);
        assert!(section.contains(&format!("Fate: **{}**", fate.1)), "{}: its fate is {}", fate.0, fate.1);
    }
}

/// The fate that the table in `fault.rs` gives a code.
fn fate(code: &str, name: &str) -> String {
    let row = code.lines().find(|line| line.contains(&format!("\"{name}\""))).unwrap_or_default();
    row.split("Fate::").nth(1).unwrap_or_default().chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// The text below the heading of a code, up to the next heading.
fn section_of<'a>(runbook: &'a str, code: &str) -> &'a str {
    let start = runbook.find(&format!("### {code}")).unwrap_or_default();
    let body = &runbook[start + 4..];
    &body[..body.find("\n#").unwrap_or(body.len())]
}

#[test]
fn the_readme_and_the_checks_run_the_same_commands() {
    let (readme, checks) = (read("README.md"), read(".ci/run"));
    let first_screen: Vec<&str> = readme.lines().take(30).collect();
    for command in ["cargo run --release -- dev", "cargo test"] {
        assert!(
            first_screen.iter().any(|line| line.contains(command)),
            "the first screen of the README lacks `{command}`"
        );
        assert!(checks.lines().any(|line| line.contains(command)), ".ci/run lacks `{command}`");
    }
}

#[test]
fn a_manifest_is_read() {
    let read = sections(
        "[a]\nx = 1\n# y\n\n[dependencies]\nlanekeeper-wire.workspace = true\nrustix = { workspace = true }\n",
    );
    assert_eq!(names(&read, "dependencies").into_iter().collect::<Vec<_>>(), ["lanekeeper-wire", "rustix"]);
    assert_eq!(ours(&names(&read, "dependencies")).into_iter().collect::<Vec<_>>(), ["wire"]);
}
