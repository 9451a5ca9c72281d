//! Each fault a manifest file can have, with the exact line that tells it.

use std::{fs, os::unix::fs::symlink};

use crate::files::{Files, assert_lines, space};

const DIR: &str = "the directory with the lane's credential files, `delivery.creds` and its neighbours";

fn refused(text: &str, expected: &[&str]) {
    let files = Files::new();
    files.write("s.toml", text);
    assert_lines(&files.manifest_faults("s.toml"), expected);
}

#[test]
fn every_key_is_known_there_and_of_its_kind() {
    let alpha = space("alpha");
    for (text, expected) in [
        (
            "[[spaces]]\nname = \"a\"\n".to_owned(),
            "s.toml:1:3: unknown key `spaces`: nothing reads it, it would change nothing; write `space`".to_owned(),
        ),
        (
            format!("{alpha}ack_wait_ms = 5\n"),
            "s.toml:4:1: unknown key `ack_wait_ms` in `space`: nothing reads it, it would change nothing; remove it, or use one of name, credentials, servers, enabled, limits, tags".to_owned(),
        ),
        (
            format!("{alpha}[space.limits]\nack_wait = 5\n"),
            "s.toml:5:1: unknown key `ack_wait` in `space.limits`: nothing reads it, it would change nothing; remove it, or use one of ack_wait_ms, broker_window_ms, max_in_hand, max_in_flight".to_owned(),
        ),
        ("[[space]]\nname = \"a\"\n".to_owned(), format!("s.toml:1:1: `credentials` is missing in this `space`: it is {DIR}; add the line `credentials = …`")),
        (
            "[[space]]\nname = \"a\"\ncredentials = [\"x\"]\n".to_owned(),
            format!("s.toml:3:15: `space.credentials` is a list, it must be a string: {DIR}; write it in quotes"),
        ),
        (
            "[[space]]\nname = \"a\"\ncredentials = \"\"\n".to_owned(),
            format!("s.toml:3:15: `space.credentials` is empty, write a value or remove the key: {DIR}"),
        ),
        (
            format!("{alpha}enabled = \"yes\"\n"),
            "s.toml:4:11: `space.enabled` is a string, it must be true or false: whether the space has a lane; write true or false, without quotes".to_owned(),
        ),
        (
            "space = 3\n".to_owned(),
            "s.toml:1:9: `space` is a whole number, it must be a list: one space; write each one below a line [[space]]".to_owned(),
        ),
        (
            "[space]\nname = \"a\"\ncredentials = \"b\"\n".to_owned(),
            "s.toml:1:1: `space` is a table, it must be a list: one space; write each one below a line [[space]]".to_owned(),
        ),
        (
            format!("{alpha}servers = []\n"),
            "s.toml:4:11: `space.servers` is an empty list, name at least one or remove the key: the brokers of this space, instead of the host's".to_owned(),
        ),
        (
            format!("{alpha}servers = [\"nats://u:p@a\"]\n"),
            "s.toml:4:12: the server address has a user or password in it: lanes sign in with their credential files only; write nats://host:port, or tls://host:port to insist on TLS".to_owned(),
        ),
        (
            format!("{alpha}[space.limits]\nmax_in_hand = 63\n"),
            "s.toml:5:15: `space.limits.max_in_hand` is 63, it must be from 64 to 4096: the most posts, and the most entries, between taken and settled".to_owned(),
        ),
    ] {
        refused(&text, &[&expected]);
    }
}

#[test]
fn a_broken_line_is_not_told_as_a_missing_key_too() {
    refused(
        "[[space]]\nname = \"a\"\ncredentials = = \"b\"\n",
        &[
            "s.toml:3:15: this is not TOML: extra `=`, expected nothing; correct the line, what comes after it is judged then",
            "s.toml:3:17: this is not TOML: unexpected key or value, expected newline, `#`; correct the line, what comes after it is judged then",
        ],
    );
    let files = Files::new();
    files.write("s.toml", "[[space]]\nname = \"a\"\n= \"b\"\n");
    let found = files.manifest_faults("s.toml");
    assert!(found.iter().all(|line| line.starts_with("s.toml:3:") && line.contains("not TOML")), "{found:#?}");
}

#[test]
fn a_key_with_two_slips_is_still_recognised() {
    refused(
        "[[space]]\nnmae = \"a\"\ncredentials = \"b\"\n",
        &[
            "s.toml:1:1: `name` is missing in this `space`: it is the space's name: 1 to 235 of A-Z, a-z, 0-9, _ and -; add the line `name = …`",
            "s.toml:2:1: unknown key `nmae` in `space`: nothing reads it, it would change nothing; write `name`",
        ],
    );
}

#[test]
fn a_name_is_a_token_and_never_rewritten() {
    let long = "x".repeat(236);
    for (name, shown) in [
        ("a.b", "a.b"),
        ("..", ".."),
        ("a/b", "a/b"),
        ("*", "*"),
        ("a b", "a b"),
        ("ä", "ä"),
        (long.as_str(), &format!("{}…", "x".repeat(60))),
    ] {
        let files = Files::new();
        files.write("s.toml", format!("[[space]]\nname = '{name}'\ncredentials = 'c'\n"));
        let found = files.manifest_faults("s.toml");
        assert_eq!(found.len(), 1, "{found:#?}");
        let start = format!("s.toml:2:8: space \"{}", shown.trim_end_matches('…'));
        assert!(found[0].starts_with(&start), "{found:#?}");
        assert!(found[0].ends_with("it is never rewritten, because two names could become one"), "{found:#?}");
    }
    refused(
        "[[space]]\nname = \"\"\ncredentials = \"c\"\n",
        &[
            "s.toml:2:8: `space.name` is empty, write a value or remove the key: the space's name: 1 to 235 of A-Z, a-z, 0-9, _ and -",
        ],
    );
    let files = Files::new();
    files.write("s.toml", space(&"x".repeat(235)));
    files.manifest("s.toml").unwrap();
}

#[test]
fn no_two_spaces_have_names_that_can_be_taken_for_each_other() {
    refused(
        &format!("{}{}", space("alpha"), "[[space]]\nname = \"alpha\"\ncredentials = \"x\"\n"),
        &["s.toml:5:8: space `alpha` is named twice, first in s.toml:2: a space has one lane; remove one"],
    );
    for (first, second) in [("alpha", "Alpha"), ("a-b", "a_b"), ("A-b", "a_B")] {
        let text = format!("{}[[space]]\nname = \"{second}\"\ncredentials = \"x\"\n", space(first));
        let line = format!(
            "s.toml:5:8: space `{second}` and `{first}` (s.toml:2) differ only by case, `.`, `-` or `_`: their files and metrics could be taken for each other; rename one"
        );
        refused(&text, &[&line]);
    }
}

#[test]
fn no_two_spaces_have_one_credentials_directory() {
    let line = |named: &str| {
        format!(
            "s.toml:6:15: credentials `{named}` are also those of space `a` (s.toml:3): each space signs in as itself; give it its own directory"
        )
    };
    // Whether it is there or not, and however it is written.
    for named in ["credentials/a", "./credentials/a/", "credentials/x/../a"] {
        refused(&format!("{}[[space]]\nname = \"b\"\ncredentials = \"{named}\"\n", space("a")), &[&line(named)]);
    }
    let files = Files::new();
    fs::create_dir_all(files.path("credentials/a")).unwrap();
    symlink("a", files.path("credentials/link")).unwrap();
    files.write("s.toml", format!("{}[[space]]\nname = \"b\"\ncredentials = \"credentials/link\"\n", space("a")));
    assert_lines(&files.manifest_faults("s.toml"), &[&line("credentials/link")]);
}

#[test]
fn tags_are_short_texts_of_one_line() {
    let alpha = space("alpha");
    for (tag, line) in [
        ("\"a b\" = \"x\"", "s.toml:5:1: tag `a b` is refused: use 1 to 64 of A-Z, a-z, 0-9, ., _ and -"),
        ("\"\" = \"x\"", "s.toml:5:1: tag `` is refused: use 1 to 64 of A-Z, a-z, 0-9, ., _ and -"),
        ("a = \"x\\ny\"", "s.toml:5:1: the value of tag `a` is refused: use at most 256 characters of one line"),
        ("a = 5", "s.toml:5:5: `space.tags.a` is a whole number, it must be a string; write it in quotes"),
    ] {
        refused(&format!("{alpha}[space.tags]\n{tag}\n"), &[line]);
    }
    let tag = |number| format!("t{number:02} = \"x\"\n");
    let many: String = (0..17).map(tag).collect();
    refused(&format!("{alpha}[space.tags]\n{many}"), &["s.toml:21:1: a space has at most 16 tags; remove `t16`"]);
    let files = Files::new();
    files.write("s.toml", format!("{alpha}[space.tags]\n{}", (0..16).map(tag).collect::<String>()));
    assert_eq!(files.manifest("s.toml").unwrap().spaces.values().next().unwrap().tags.len(), 16);
}

#[test]
fn no_spaces_is_never_read_out_of_a_broken_file() {
    const NO_SPACE: &str = "s.toml:1:1: the file names no space: that is taken for a broken write, never for `nothing`; add a [[space]], or say `allow_empty = true`";
    refused("# nothing\n", &[NO_SPACE]);
    refused("allow_empty = false\n", &[NO_SPACE]);
    refused("allow_mass_close = true\n", &[NO_SPACE]);
    refused("space = []\n", &[NO_SPACE]);
    for text in ["{\n", "spaces:\n  - name: a\n", "{\"space\": []}\n"] {
        let files = Files::new();
        files.write("s.toml", text);
        let found = files.manifest_faults("s.toml");
        assert!(found.iter().all(|line| line.contains("this is not TOML")), "{found:#?}");
    }
    let files = Files::new();
    files.write("s.toml", "allow_empty = true\n");
    assert!(files.manifest("s.toml").unwrap().spaces.is_empty());
    files.write("s.toml", format!("allow_empty = true\n{}", space("a")));
    assert_eq!(files.manifest("s.toml").unwrap().spaces.len(), 1);
    assert_lines(
        &files.manifest_faults("none.toml"),
        &[
            "none.toml:1:1: the manifest does not exist: a missing manifest is never taken for `no spaces`; create it or name the right one with --manifest",
        ],
    );
}

#[test]
fn a_file_cut_anywhere_is_refused_or_ends_with_a_whole_line() {
    let files = Files::new();
    let whole = format!("{}enabled = false\n[space.limits]\nack_wait_ms = 60000\n{}", space("alpha"), space("beta"));
    for end in 0..whole.len() {
        files.write("s.toml", &whole[..end]);
        let is_whole_line = whole[..end].ends_with('\n');
        if files.manifest("s.toml").is_ok() {
            assert!(is_whole_line, "taken, cut at {end}: {:?}", &whole[..end]);
        }
    }
}

#[test]
fn everything_is_told_at_once_also_between_faulty_spaces() {
    refused(
        "allow_mass_clos = true\n[[space]]\nname = \"a\"\ncredentials = 5\n[[space]]\nname = \"A\"\n[[space]]\nname = \"b\"\ncredentials = \"c\"\nsrvers = []\n[[space]]\nname = \"c\"\ncredentials = \"c\"\nservers = [\"ws://x\"]\n",
        &[
            "s.toml:1:1: unknown key `allow_mass_clos`: nothing reads it, it would change nothing; write `allow_mass_close`",
            &format!(
                "s.toml:4:15: `space.credentials` is a whole number, it must be a string: {DIR}; write it in quotes"
            ),
            &format!(
                "s.toml:5:1: `credentials` is missing in this `space`: it is {DIR}; add the line `credentials = …`"
            ),
            "s.toml:6:8: space `A` and `a` (s.toml:3) differ only by case, `.`, `-` or `_`: their files and metrics could be taken for each other; rename one",
            "s.toml:10:1: unknown key `srvers` in `space`: nothing reads it, it would change nothing; write `servers`",
            "s.toml:13:15: credentials `c` are also those of space `b` (s.toml:9): each space signs in as itself; give it its own directory",
            "s.toml:14:12: server `ws://x` has a scheme that is not supported; write nats://host:port, or tls://host:port to insist on TLS",
        ],
    );
}

#[test]
fn a_file_full_of_faults_is_not_listed_for_ever() {
    let files = Files::new();
    files.write("s.toml", (0..1000).map(|number| format!("k{number} = 1\n")).collect::<String>());
    let found = files.manifest_faults("s.toml");
    assert_eq!(found.len(), 201);
    assert_eq!(found[200], "s.toml:1000:9: 800 more faults in this file are not listed: is it the right file?");
}
