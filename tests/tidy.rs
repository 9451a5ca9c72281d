//! The rules of this repository that a program can hold: which crate may know which, and what a file may look like.
//!
//! Owns the rules and a sample of what each must find. A rule has no list of exceptions: where it does not fit, the rule
//! is wrong.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of a test may end it with a panic")]

#[path = "tidy/crates.rs"]
mod crates;
#[path = "tidy/source.rs"]
mod source;

use source::{Keep, Source, blanked, files, functions, without_unit_tests};

/// Lines of a Rust file.
const FILE_LINES: usize = 500;
/// Lines of a function's body.
const FUNCTION_LINES: usize = 70;
/// Lines of a script in another language: they are witnesses from outside, and a big one would be a second project.
const SCRIPT_LINES: usize = 200;

/// What is wrong with a file, one line each.
type Rule = fn(&Source) -> Vec<String>;

/// Every rule for single files.
const RULES: [(&str, Rule); 12] = [
    ("a Rust file has at most 500 lines", short_file),
    ("a function has at most 70 lines", short_functions),
    ("a Rust file starts with a `//!` line that says what it owns", module_doc),
    ("nothing is left for later", nothing_left_open),
    ("a test waits for a value with a deadline, it does not sleep and hope", no_sleep_in_tests),
    ("subjects are built in lanes/wire", subjects_in_wire),
    ("what serves a space knows no signing key", no_signing_keys),
    ("a lint that is silenced in what ships says why", allowed_for_a_reason),
    ("no line ends with a space, a file ends with a line end", clean_lines),
    ("no file names the host of a package registry", no_registry_hosts),
    ("no file names a path of the machine it was written on", no_machine_paths),
    ("a script is short", short_script),
];

#[test]
fn every_file_keeps_every_rule() {
    let files = files();
    let mut broken = Vec::new();
    for (rule, check) in RULES {
        broken.extend(files.iter().flat_map(check).map(|line| format!("{rule}: {line}")));
    }
    assert!(broken.is_empty(), "{} broken:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn every_rule_finds_what_it_is_for() {
    let long = format!("//! x\n{}", "const A: u8 = 1;\n".repeat(FILE_LINES));
    let function = format!("//! x\nfn f() {{\n{}}}\n", "    g();\n".repeat(FUNCTION_LINES + 1));
    let open = concat!("//! x\nfn f() { to", "do!() }\n");
    let machine = concat!("//! see /ro", "ot/notes\n");
    let host = concat!("//! get it from https://cra", "tes.io\n");
    let samples: [(Rule, &str, &str); 13] = [
        (short_file, "src/a.rs", &long),
        (short_functions, "src/a.rs", &function),
        (module_doc, "src/a.rs", "use std::fs;\n"),
        (nothing_left_open, "src/a.rs", open),
        (nothing_left_open, "tests/a.rs", concat!("//! x\n#[test]\n#[ig", "nore]\nfn f() {}\n")),
        (no_sleep_in_tests, "tests/e2e/a.rs", "//! x\nfn f() { sleep(SECOND).await; }\n"),
        (subjects_in_wire, "lanes/lane/src/a.rs", "//! x\nfn f() { format!(\"cotal.{space}.chat\"); }\n"),
        (no_signing_keys, "lanes/lane/src/a.rs", "//! x\nuse lanekeeper_provision::Home;\n"),
        (allowed_for_a_reason, "src/a.rs", "//! x\n#[allow(dead_code)]\nfn f() {}\n"),
        (clean_lines, "README.md", "a \n"),
        (no_registry_hosts, "src/a.rs", host),
        (no_machine_paths, "src/a.rs", machine),
        (short_script, "tests/a.py", &"x = 1\n".repeat(SCRIPT_LINES + 1)),
    ];
    for (check, path, text) in samples {
        assert!(!check(&Source::sample(path, text)).is_empty(), "missed in {path}: {}", &text[..text.len().min(80)]);
    }
    for (rule, _) in RULES {
        assert!(RULES.iter().filter(|(other, _)| *other == rule).count() == 1, "{rule} stands twice");
    }
}

fn short_file(file: &Source) -> Vec<String> {
    let lines = file.text.lines().count();
    found(file, file.is_rust() && lines > FILE_LINES, &format!("{lines} lines"))
}

fn short_functions(file: &Source) -> Vec<String> {
    let functions = if file.is_rust() { functions(&file.text) } else { Vec::new() };
    let long = functions.into_iter().filter(|(_, _, lines)| *lines > FUNCTION_LINES);
    long.map(|(name, line, lines)| format!("{}:{line}: `{name}` has {lines} lines", file.path)).collect()
}

fn module_doc(file: &Source) -> Vec<String> {
    found(file, file.is_rust() && !file.text.starts_with("//! "), "no `//!` in the first line")
}

fn nothing_left_open(file: &Source) -> Vec<String> {
    in_all_code(file, Keep::Code, &["todo!", "unimplemented!", "dbg!", concat!("#[ig", "nore")])
}

/// Where a fault has a moment and a length, time itself is the matter; everywhere else a sleep hides what is waited for.
fn no_sleep_in_tests(file: &Source) -> Vec<String> {
    // Where load is paced and faults last a while, time itself is part of the test.
    let paced = ["tests/support/", "tests/faults/", "tests/fleet/", "tests/isolation/", "/tests/common/"];
    let is_allowed = paced.iter().any(|part| file.path.contains(part));
    if file.is_test() && !is_allowed { in_all_code(file, Keep::Code, &["sleep("]) } else { Vec::new() }
}

/// Tests spell subjects out, as a second opinion; provisioning writes rows with wildcards where no subject has them.
fn subjects_in_wire(file: &Source) -> Vec<String> {
    let is_allowed = file.path.starts_with("lanes/wire/") || file.path.starts_with("lanes/provision/");
    if file.is_test() || is_allowed {
        return Vec::new();
    }
    in_code(file, Keep::CodeAndStrings, &["format!(\"cotal.", "format!(\"$KV.", "format!(\"KV_"])
}

fn no_signing_keys(file: &Source) -> Vec<String> {
    const SERVING: [&str; 8] = [
        "lanes/lane/src/",
        "src/admin/",
        "src/config/",
        "src/manifest/",
        "src/reload/",
        "src/supervisor/",
        "src/commands/run",
        "src/commands/serve.rs",
    ];
    if !SERVING.iter().any(|part| file.path.starts_with(part)) {
        return Vec::new();
    }
    let names = [
        "lanekeeper_provision",
        "mesh::",
        "SpaceAccount",
        "new_account",
        "new_operator",
        "new_user",
        ".seed()",
        "signing.seed",
    ];
    in_code(file, Keep::CodeAndStrings, &names)
}

fn allowed_for_a_reason(file: &Source) -> Vec<String> {
    if !file.is_rust() || file.is_test() {
        return Vec::new();
    }
    let code = blanked(&file.text, Keep::Code);
    let attributes = ["[allow(", "[expect("].iter().flat_map(|start| code.match_indices(start));
    let silent =
        attributes.filter(|(at, _)| !code[*at..].split(']').next().is_some_and(|text| text.contains("reason")));
    silent.map(|(at, _)| format!("{}:{}: no reason", file.path, code[..at].matches('\n').count() + 1)).collect()
}

fn clean_lines(file: &Source) -> Vec<String> {
    let dirty = file.text.lines().enumerate().filter(|(_, line)| line.ends_with([' ', '\t']));
    let mut broken: Vec<String> = dirty.map(|(number, _)| format!("{}:{}", file.path, number + 1)).collect();
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        broken.push(format!("{}: no line end at the end", file.path));
    }
    broken
}

/// The lock files name where a package was found; nothing else may depend on it.
fn no_registry_hosts(file: &Source) -> Vec<String> {
    let hosts = ["crates|.io", "pypi|.org", "pythonhosted|.org", "npmjs|.org", "npmjs|.com", "proxy.golang|.org"];
    let hosts: Vec<String> = hosts.iter().map(|host| host.replace('|', "")).collect();
    if file.path == "Cargo.lock" { Vec::new() } else { lines_with(file, &file.text, &hosts) }
}

fn no_machine_paths(file: &Source) -> Vec<String> {
    let paths: Vec<String> = ["/ro|ot/", "/wo|rk/", "/ho|me/"].iter().map(|path| path.replace('|', "")).collect();
    lines_with(file, &file.text, &paths)
}

fn short_script(file: &Source) -> Vec<String> {
    let is_script = [".py", ".js", ".cjs", ".mjs"].iter().any(|end| file.path.ends_with(end));
    let lines = file.text.lines().count();
    found(file, is_script && lines > SCRIPT_LINES, &format!("{lines} lines, more than {SCRIPT_LINES}"))
}

fn found(file: &Source, is_broken: bool, what: &str) -> Vec<String> {
    if is_broken { vec![format!("{}: {what}", file.path)] } else { Vec::new() }
}

fn in_all_code(file: &Source, keep: Keep, parts: &[&str]) -> Vec<String> {
    if !file.is_rust() {
        return Vec::new();
    }
    let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
    lines_with(file, &blanked(&file.text, keep), &parts)
}

/// The same, unit tests left out.
fn in_code(file: &Source, keep: Keep, parts: &[&str]) -> Vec<String> {
    let path = file.path.clone();
    in_all_code(&Source { path, text: without_unit_tests(&file.text).to_owned() }, keep, parts)
}

fn lines_with(file: &Source, text: &str, parts: &[String]) -> Vec<String> {
    let mut broken = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let here = parts.iter().filter(|part| line.contains(part.as_str()));
        broken.extend(here.map(|part| format!("{}:{}: `{part}`", file.path, number + 1)));
    }
    broken
}
