//! The repository's files, and Rust source with what is not code blanked out.
//!
//! Owns the walk and the lexer. It must not know a rule.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Directories that hold nothing of ours.
const SKIPPED: [&str; 5] = ["target", ".git", "node_modules", "__pycache__", "proptest-regressions"];

/// One file of the repository.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its path below the root, with `/`.
    pub(crate) path: String,
    /// Its content.
    pub(crate) text: String,
}

impl Source {
    /// A file that is not there, to try a rule on.
    pub(crate) fn sample(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Integration tests; unit tests live in the files they test.
    pub(crate) fn is_test(&self) -> bool {
        self.path.starts_with("tests/") || self.path.contains("/tests/")
    }
}

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file of ours, sorted by path.
pub(crate) fn files() -> Vec<Source> {
    let mut found = Vec::new();
    walk(root(), &mut found);
    found.sort_by(|a: &Source, b: &Source| a.path.cmp(&b.path));
    assert!(found.len() > 100, "the walk found only {} files", found.len());
    found
}

fn walk(dir: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                walk(&path, found);
            }
        } else if let Ok(text) = fs::read_to_string(&path) {
            let path = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
            found.push(Source { path, text });
        }
    }
}

/// What of Rust source is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Code alone.
    Code,
    /// Code and the content of strings.
    CodeAndStrings,
}

/// The source with comments, and with [`Keep::Code`] also the content of strings and characters, replaced by spaces.
/// Lines stay where they are.
pub(crate) fn blanked(text: &str, keep: Keep) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let (end, is_code) = token(&chars, at);
        let is_string = !is_code && !chars[at..].starts_with(&['/', '/']) && !chars[at..].starts_with(&['/', '*']);
        let is_kept = is_code || (is_string && keep == Keep::CodeAndStrings);
        out.extend(chars[at..end].iter().map(|c| if is_kept || *c == '\n' { *c } else { ' ' }));
        at = end;
    }
    out
}

/// The end of the token that starts at `at`, and whether it is code.
fn token(chars: &[char], at: usize) -> (usize, bool) {
    let rest = &chars[at..];
    if rest.starts_with(&['/', '/']) {
        return (until(chars, at, '\n'), false);
    }
    if rest.starts_with(&['/', '*']) {
        return (block_comment(chars, at), false);
    }
    if let Some(end) = raw_string(chars, at) {
        return (end, false);
    }
    match rest[0] {
        '"' => (quoted(chars, at, '"'), false),
        // `'a` is a lifetime unless a quote closes it.
        '\'' if rest.get(1) == Some(&'\\') || rest.get(2) == Some(&'\'') => (quoted(chars, at, '\''), false),
        _ => (at + 1, true),
    }
}

fn until(chars: &[char], at: usize, end: char) -> usize {
    chars[at..].iter().position(|c| *c == end).map_or(chars.len(), |length| at + length)
}

/// Block comments nest.
fn block_comment(chars: &[char], at: usize) -> usize {
    let (mut depth, mut now) = (0, at);
    while now < chars.len() {
        if chars[now..].starts_with(&['/', '*']) {
            (depth, now) = (depth + 1, now + 2);
        } else if chars[now..].starts_with(&['*', '/']) {
            (depth, now) = (depth - 1, now + 2);
            if depth == 0 {
                return now;
            }
        } else {
            now += 1;
        }
    }
    chars.len()
}

/// `r"…"`, `r#"…"#` and so on, also as byte strings.
fn raw_string(chars: &[char], at: usize) -> Option<usize> {
    let is_word = |c: &char| c.is_alphanumeric() || *c == '_';
    if at > 0 && chars.get(at - 1).is_some_and(|c| is_word(c) && *c != 'b') || chars[at] != 'r' {
        return None;
    }
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return None;
    }
    let mut end = vec!['"'];
    end.extend(std::iter::repeat_n('#', hashes));
    let body = at + 2 + hashes;
    let length = chars[body..].windows(end.len()).position(|window| window == end.as_slice());
    Some(length.map_or(chars.len(), |length| body + length + end.len()))
}

fn quoted(chars: &[char], at: usize, quote: char) -> usize {
    let mut now = at + 1;
    while now < chars.len() && chars[now] != quote {
        now += if chars[now] == '\\' { 2 } else { 1 };
    }
    (now + 1).min(chars.len())
}

/// The source before its unit tests, which may do what the rest may not.
pub(crate) fn without_unit_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text)
}

/// Each function with a body: its name, the line it starts on, and how many lines its body has between the braces.
pub(crate) fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let code = blanked(text, Keep::Code);
    let mut found = Vec::new();
    for (start, _) in code.match_indices("fn ") {
        let is_word = code[..start].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
        let name: String = code[start + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if is_word || name.is_empty() {
            continue;
        }
        if let Some((from, to)) = body(&code, start) {
            let line = code[..start].matches('\n').count() + 1;
            found.push((name, line, code[from..to].matches('\n').count().saturating_sub(1)));
        }
    }
    found
}

/// Where the braces of the function at `start` are; `None` without a body.
fn body(code: &str, start: usize) -> Option<(usize, usize)> {
    let (mut braces, mut brackets) = (0_i32, 0_i32);
    let mut from = start;
    for (at, c) in code[start..].char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => {
                if braces == 0 {
                    from = start + at;
                }
                braces += 1;
            }
            '}' => {
                braces -= 1;
                if braces == 0 {
                    return Some((from, start + at));
                }
            }
            _ => {}
        }
    }
    None
}

#[test]
fn only_code_is_left_and_lines_stay() {
    let text =
        "let a = \"{ // \\\" }\"; // {\nlet b = r#\"\" { \"#; /* { /* */ { */ let c = '{';\nfn f<'a>(x: &'a str) {}\n";
    let code = blanked(text, Keep::Code);
    assert_eq!(code.matches('{').count(), 1, "{code}");
    assert_eq!(code.lines().count(), 3);
    assert!(code.contains("fn f<'a>(x: &'a str) {}"), "{code}");
    let with_strings = blanked(text, Keep::CodeAndStrings);
    assert!(with_strings.contains("{ // \\\" }") && !with_strings.contains("; // {"), "{with_strings}");
}

#[test]
fn functions_are_measured() {
    let text = "trait T { fn none(&self) -> [u8; 2]; }\nfn none_in_it() {\n}\n    async fn two_in_it(a: &str) -> Result<(), ()> {\n        if a == \"}\" {\n        }\n    }\n";
    assert_eq!(functions(text), [("none_in_it".to_owned(), 2, 0), ("two_in_it".to_owned(), 4, 2)]);
}
