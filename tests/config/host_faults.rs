//! Each fault a `lanekeeper.toml` can have, with the exact line that tells it.

use std::{fs, os::unix::fs::symlink, path::Path};

use lanekeeper::config::HostConfig;

use crate::files::{Files, assert_lines};

fn faults(text: &str) -> Vec<String> {
    let faults = HostConfig::parse(Path::new("l.toml"), text).unwrap_err();
    faults.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn every_key_is_known_and_of_its_kind() {
    for (text, line) in [
        (
            "server = []\n",
            "l.toml:1:1: unknown key `server`: nothing reads it, it would change nothing; write `servers`",
        ),
        (
            "[admin]\n  port = 1\n",
            "l.toml:2:3: unknown key `port` in `admin`: nothing reads it, it would change nothing; remove it, or use one of listen, token_file",
        ),
        (
            "# é\n\n[telemetry]\n",
            "l.toml:3:2: `telemetry` is reserved and nothing reads it yet: settings in it would change nothing; remove the section",
        ),
        (
            "[tls]\nca = \"x\"\n",
            "l.toml:1:2: `tls` is reserved and nothing reads it yet: settings in it would change nothing; remove the section and write the servers as tls://host:port; SSL_CERT_FILE names a CA of your own",
        ),
        (
            "host = 5\n",
            "l.toml:1:8: `host` is a whole number, it must be a string: the name of this host among `hosts`; write it in quotes",
        ),
        (
            "hosts = \"a\"\n",
            "l.toml:1:9: `hosts` is a string, it must be a list: the names of all hosts that share the manifest, this one among them; write it in square brackets",
        ),
        (
            "servers = [\"nats://a\", 5]\n",
            "l.toml:1:24: `servers[]` is a whole number, it must be a string: an address such as `nats://host:4222`; write it in quotes",
        ),
        (
            "limits = 5\n",
            "l.toml:1:10: `limits` is a whole number, it must be a table: what bounds the host; write `key = value` lines below a line of its own in square brackets",
        ),
        (
            "[limits]\nopen_timeout_ms = \"30s\"\n",
            "l.toml:2:19: `limits.open_timeout_ms` is a string, it must be a whole number: how long one lane may take to open, milliseconds, before it is aborted and tried again later; write digits without quotes, unit or fraction",
        ),
        (
            "[limits]\npoll_ms = 1.5\n",
            "l.toml:2:11: `limits.poll_ms` is a number with a fraction, it must be a whole number: how often the manifest is looked at, milliseconds, where no file event was seen; write digits without quotes, unit or fraction",
        ),
    ] {
        assert_lines(&faults(text), &[line]);
    }
}

#[test]
fn every_number_has_its_bounds() {
    for (text, line) in [
        ("[limits]\nopens_at_once = 0\n", "is 0, it must be from 1 to 256: how many lanes open at once"),
        ("[limits]\nopens_at_once = -1\n", "is -1, it must be from 1 to 256: how many lanes open at once"),
        ("[limits]\nopens_at_once = 0x101\n", "is 257, it must be from 1 to 256: how many lanes open at once"),
        (
            "[limits]\nopens_at_once = 99999999999999999999999999999999999999999\n",
            "has too many digits, it must be from 1 to 256: how many lanes open at once",
        ),
    ] {
        assert_lines(&faults(text), &[&format!("l.toml:2:17: `limits.opens_at_once` {line}")]);
    }
    assert_lines(
        &faults("[lane]\nmax_in_hand = 63\nmax_in_flight = 8193\n"),
        &[
            "l.toml:2:15: `lane.max_in_hand` is 63, it must be from 64 to 4096: the most posts, and the most entries, between taken and settled",
            "l.toml:3:17: `lane.max_in_flight` is 8193, it must be from 64 to 8192: the most copies of one stage that are sent and not yet confirmed",
        ],
    );
    assert_lines(
        &faults("[limits]\nbackoff_first_ms = 60000\n"),
        &[
            "l.toml:2:1: `limits.backoff_first_ms` is 60000 and `limits.backoff_cap_ms` is 30000: the first pause would be longer than the longest; raise the cap",
        ],
    );
}

#[test]
fn names_and_addresses_must_hold() {
    for (text, line) in [
        (
            "host = \"-a\"\nhosts = [\"a\"]\n",
            "l.toml:1:8: `host` holds `-a`: a host name has 1 to 253 of A-Z, a-z, 0-9, ., _ and -, and starts with a letter or digit; correct it",
        ),
        (
            "host = \"\"\n",
            "l.toml:1:8: `host` is empty, write a value or remove the key: the name of this host among `hosts`",
        ),
        (
            "host = \"a\"\nhosts = [\"b\"]\n",
            "l.toml:1:8: this host is `a` (set with `host`) and `hosts` does not list it: no space would prefer it; add it to `hosts` or correct `host`",
        ),
        (
            "host = \"a\"\nhosts = [\"a\", \"A\"]\n",
            "l.toml:2:15: host `A` is named twice, as `a`: each host counts once; remove one",
        ),
        (
            "hosts = []\n",
            "l.toml:1:9: `hosts` is an empty list, name at least one or remove the key: the names of all hosts that share the manifest, this one among them",
        ),
        (
            "servers = [\"nats://me:secret@a\"]\n",
            "l.toml:1:12: the server address has a user or password in it: lanes sign in with their credential files only; write nats://host:port, or tls://host:port to insist on TLS",
        ),
        (
            "servers = [\"http://a\"]\n",
            "l.toml:1:12: server `http://a` is no address; write nats://host:port, or tls://host:port to insist on TLS",
        ),
        (
            "servers = [\"a\", \"nats://A:4222\"]\n",
            "l.toml:1:17: server A:4222 is named twice: it would be dialled twice as often; remove one",
        ),
        (
            "[admin]\nlisten = \"localhost\"\n",
            "l.toml:2:10: `admin.listen` is `localhost`, which is no address and port; write it as 127.0.0.1:8470 or [::1]:8470",
        ),
        (
            "[admin]\nlisten = \"0.0.0.0:80\"\n",
            "l.toml:2:10: `admin.listen` is 0.0.0.0:80, which others can reach, and there is no token: anybody could close lanes; set `admin.token_file` or listen on 127.0.0.1",
        ),
        (
            "manifest = \"\"\n",
            "l.toml:1:12: `manifest` is empty, write a value or remove the key: the space manifest, a file or a directory of `*.toml`",
        ),
    ] {
        assert_lines(&faults(text), &[line]);
    }
}

#[test]
fn a_host_that_takes_the_systems_name_must_be_listed_too() {
    let [line] = faults("hosts = [\"surely-another\"]\n").try_into().unwrap();
    assert!(line.starts_with("l.toml:1:9: this host is `") && line.contains("(the system's name)"), "{line}");
}

#[test]
fn everything_is_told_at_once() {
    assert_lines(
        &faults(
            "nmae = 3\nhosts = [\"b\", \"B\", 5]\nhost = \"b\"\n[limits]\npoll_ms = 1\n[admin]\nlisten = \"no\"\n[lane]\nmax_in_hand = 1\n",
        ),
        &[
            "l.toml:1:1: unknown key `nmae`: nothing reads it, it would change nothing; remove it, or use one of host, hosts, servers, manifest, admin, limits, lane",
            "l.toml:2:15: host `B` is named twice, as `b`: each host counts once; remove one",
            "l.toml:2:20: `hosts[]` is a whole number, it must be a string: the name of a host; write it in quotes",
            "l.toml:5:11: `limits.poll_ms` is 1, it must be from 1000 to 3600000: how often the manifest is looked at, milliseconds, where no file event was seen",
            "l.toml:7:10: `admin.listen` is `no`, which is no address and port; write it as 127.0.0.1:8470 or [::1]:8470",
            "l.toml:9:15: `lane.max_in_hand` is 1, it must be from 64 to 4096: the most posts, and the most entries, between taken and settled",
        ],
    );
}

#[test]
fn all_syntax_faults_are_told_and_nothing_that_only_follows_from_them() {
    const REST: &str = "correct the line, what comes after it is judged then";
    let found = faults("x = 1\nhost = = 2\nmanifest = \"x\n[limits\npol_ms = 3\nhost = 4\n");
    assert_lines(
        &found,
        &[
            "l.toml:1:1: unknown key `x`: nothing reads it, it would change nothing; remove it, or use one of host, hosts, servers, manifest, admin, limits, lane",
            &format!("l.toml:2:8: this is not TOML: extra `=`, expected nothing; {REST}"),
            &format!("l.toml:2:10: this is not TOML: unexpected key or value, expected newline, `#`; {REST}"),
            &format!("l.toml:3:14: this is not TOML: invalid basic string, expected `\"`; {REST}"),
            &format!("l.toml:4:8: this is not TOML: unclosed table, expected `]`; {REST}"),
        ],
    );
    assert_lines(
        &faults("host = \"a\"\nhost = \"b\"\n"),
        &[&format!("l.toml:2:1: this is not TOML: duplicate key; {REST}")],
    );
}

#[test]
fn what_is_no_whole_text_file_is_refused() {
    let files = Files::new();
    let path = files.path("l.toml");
    let line = |expected: &str| {
        assert_lines(&files.lines(&HostConfig::load(&path).unwrap_err()), &[expected]);
    };
    line("l.toml:1:1: the file does not exist; create it or name the right one");
    symlink("nowhere", &path).unwrap();
    line("l.toml:1:1: the file does not exist; create it or name the right one");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    line("l.toml:1:1: this is not a regular file; name a file");
    fs::remove_dir(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    line("l.toml:1:1: this is not a regular file; name a file");
    fs::remove_file(&path).unwrap();
    const EMPTY: &str = "l.toml:1:1: the file is empty: an empty file is taken for a broken write, never for `nothing`; write it again, or say `allow_empty = true` in the manifest where no space is wanted";
    for empty in ["", "\n", " \t\r\n\n"] {
        files.write("l.toml", empty);
        line(EMPTY);
    }
    files.write("l.toml", "host = \"a\"\npoll");
    line(
        "l.toml:2:4: the last line has no line end: the file was cut short, or is still being written; write it whole, beside its place, and rename it over",
    );
    files.write("l.toml", b"# \xc3\xa9\nhost = \"\xff\"\n");
    line("l.toml:2:9: the file is not UTF-8 text: it is damaged or of another kind; write it again");
    files.write("l.toml", vec![b'\n'; 8 * 1024 * 1024 + 1]);
    line("l.toml:1:1: the file has more than 8388608 bytes; split the manifest into a directory");
    if !rustix::process::geteuid().is_root() {
        files.write_mode("l.toml", "host = \"a\"\n", 0);
        line(
            "l.toml:1:1: the file cannot be read: Permission denied (os error 13); let the user that runs this read it",
        );
    }
}

#[test]
fn a_token_file_is_looked_at_with_the_configuration() {
    let files = Files::new();
    let config = files.write("l.toml", "[admin]\nlisten = \"0.0.0.0:0\"\ntoken_file = \"token\"\n");
    let refused = |part: &str| {
        let [line] = files.lines(&HostConfig::load(&config).unwrap_err()).try_into().unwrap();
        assert!(line.starts_with("l.toml:3:14: token file `token`") && line.contains(part), "{line}");
        assert!(!line.contains("topsecret"), "{line}");
    };
    refused("cannot be read");
    files.write_mode("token", "topsecret-topsecret-topsecret\n", 0o644);
    refused("mode 0644");
    files.write_mode("token", "topsecret\n", 0o600);
    refused("fewer than 16");
    files.write_mode("token", "topsecret-topsecret-topsecret\n", 0o600);
    let host = HostConfig::load(&config).unwrap();
    assert_eq!(host.admin.token_file, Some(files.path("token")));
}
