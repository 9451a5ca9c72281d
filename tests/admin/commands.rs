//! The commands as an operator types them, against a server with a recorded state.

use std::{
    fs,
    io::Read as _,
    os::fd::OwnedFd,
    path::Path,
    process::{ExitStatus, Stdio},
};

use lanekeeper::{
    admin::{Answer, Order},
    supervisor::status::Outcome,
};
use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::Command,
    time::timeout,
};

use crate::{
    http::{PATIENCE, Server, token_file},
    recorded::{Recorded, host},
};

struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanekeeper"));
    command.args(args).current_dir(dir).stdin(Stdio::null()).env_remove("LANEKEEPER_CONFIG").env_remove("NO_COLOR");
    command.kill_on_drop(true);
    command
}

/// Runs it in an empty directory, where no configuration is found.
async fn run(args: &[&str]) -> Ended {
    run_in(TempDir::new().unwrap().path(), args).await
}

async fn run_in(dir: &Path, args: &[&str]) -> Ended {
    let output = timeout(PATIENCE, command(dir, args).output()).await.expect("an end in time").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Ended {
    fn good(self) -> String {
        assert!(self.status.success() && self.stderr.is_empty(), "{} {} {}", self.status, self.stdout, self.stderr);
        self.stdout
    }

    fn bad(self, parts: &[&str]) {
        assert_eq!(self.status.code(), Some(1), "{} {}", self.stdout, self.stderr);
        assert!(parts.iter().all(|part| self.stderr.contains(part)), "{parts:?} in {}", self.stderr);
        assert!(self.stderr.starts_with("lanekeeper: "), "{}", self.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_are_shown_whole_in_a_pipe() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    let address = server.address.to_string();
    let shown = run(&["lanes", "--admin", &address]).await.good();
    assert!(shown.starts_with("one  generation 12") && shown.contains("check the address"), "{shown}");
    assert!(!shown.contains('\u{1b}') && !shown.contains('…'), "{shown}");
    let one = run(&["lanes", "alpha", "--admin", &address]).await.good();
    assert!(one.contains("lease         revision 4711, held here\n"), "{one}");
    let json = run(&["lanes", "--json", "--admin", &address]).await.good();
    assert_eq!(serde_json::from_str::<lanekeeper::supervisor::HostStatus>(&json).unwrap(), host());
    let json = run(&["lanes", "beta", "--json", "--admin", &address]).await.good();
    assert!(json.contains("\"space\": \"beta\""), "{json}");
    run(&["lanes", "nobody", "--admin", &address]).await.bad(&["no lane `nobody`", "/lanes lists them"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_found_in_the_configuration() {
    let (dir, recorded) = (TempDir::new().unwrap(), Recorded::showing(host()));
    let token = "secret-0123456789abcdef";
    let file = token_file(dir.path(), token);
    let server = Server::on("127.0.0.1:0", Some(file), &recorded).await;
    let text = format!("[admin]\nlisten = \"{}\"\ntoken_file = \"token\"\n", server.address);
    fs::write(dir.path().join("lanekeeper.toml"), text).unwrap();
    assert!(run_in(dir.path(), &["lanes"]).await.good().starts_with("one "));
    // A host that is named is not one of the configuration, so its token stays here.
    let address = server.address.to_string();
    run_in(dir.path(), &["lanes", "--admin", &address])
        .await
        .bad(&["bearer token is missing or wrong", "--token-file"]);
    let with = ["lanes", "--admin", &address, "--token-file", "token"];
    assert!(run_in(dir.path(), &with).await.good().starts_with("one "));
    fs::write(dir.path().join("other"), "x").unwrap();
    let ended = run_in(dir.path(), &["lanes", "--admin", &address, "--token-file", "other"]).await;
    assert!(!ended.stderr.contains(token));
    ended.bad(&["admin token cannot be used", "chmod 600"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_there_or_no_lanekeeper_is_said() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
            let _ = stream.write_all(reply).await;
        }
    });
    run(&["lanes", "--admin", &address]).await.bad(&["not of a lanekeeper", "check --admin"]);
    other.abort();
    let _ = other.await;
    run(&["lanes", "--admin", &address]).await.bad(&["no lanekeeper answers at", &address, "lanekeeper run"]);
    run(&["lanes", "--admin", "nonsense"]).await.bad(&["no lanekeeper answers at nonsense"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_given_and_told() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    let address = server.address.to_string();
    recorded.answering(Answer::Taken(vec!["alpha".parse().unwrap(), "beta".parse().unwrap()]));
    for (args, told) in [
        (vec!["drain", "alpha"], "handed over: `alpha`, `beta`; "),
        (vec!["drain"], "handed over: "),
        (vec!["undrain"], "taking part again: "),
        (vec!["undrain", "alpha"], "taking part again: "),
        (vec!["reopen", "alpha"], "closed and opened again: "),
        (vec!["unpark", "alpha"], "tried again: "),
    ] {
        let mut args = args;
        args.extend(["--admin", &address]);
        let shown = run(&args).await.good();
        assert!(shown.starts_with(told), "{shown}");
    }
    recorded.answering(Answer::Taken(Vec::new()));
    assert_eq!(run(&["drain", "--admin", &address]).await.good(), "no lane is concerned\n");
    let alpha = || "alpha".parse().unwrap();
    let expected = [
        Order::Drain(Some(alpha())),
        Order::Drain(None),
        Order::Undrain(None),
        Order::Undrain(Some(alpha())),
        Order::Reopen(alpha()),
        Order::Unpark(alpha()),
        Order::Drain(None),
    ];
    assert_eq!(recorded.taken(), expected);
    recorded.answering(Answer::NoLane("nobody".parse().unwrap()));
    run(&["unpark", "nobody", "--admin", &address]).await.bad(&["no lane `nobody`"]);
    assert_eq!(run(&["reopen", "--admin", &address]).await.status.code(), Some(2), "a single lane has to be named");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_is_refused_fails_and_lists_why() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    let address = server.address.to_string();
    let done = Outcome { generation: 13, applied: true, unchanged: 7, ..Outcome::default() };
    recorded.answering(Answer::Reloaded(Box::new(done)));
    let shown = run(&["reload", "--admin", &address, "--allow-mass-close"]).await.good();
    assert!(shown.starts_with("generation 13 ") && shown.contains("unchanged 7\n"), "{shown}");
    assert_eq!(recorded.taken(), [Order::Reload { allow_mass_close: true }]);
    let refused = [("spaces.toml:3:1", "unknown key `nmae`"), ("spaces.toml:9:1", "`name` is missing")];
    let refused = refused.map(|(what, why)| (what.to_owned(), why.to_owned())).to_vec();
    recorded.answering(Answer::Reloaded(Box::new(Outcome { refused, ..Outcome::default() })));
    let parts =
        ["nothing was changed", "\n  spaces.toml:3:1: unknown key `nmae`\n  spaces.toml:9:1: `name` is missing\n"];
    run(&["reload", "--admin", &address]).await.bad(&parts);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_goes_on_over_a_restart_of_the_host() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    let address = server.address.to_string();
    let dir = TempDir::new().unwrap();
    let args = ["lanes", "--watch", "--every-ms", "100", "--admin", &address];
    let mut child = command(dir.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut wait = async |start: &str| {
        let found = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.starts_with(start) {
                    return;
                }
            }
            panic!("it ended without {start:?}");
        };
        timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("no {start:?}"));
    };
    wait("one  generation 12").await;
    wait("one  generation 12").await;
    server.stop().await;
    wait(&format!("no lanekeeper answers at {address}")).await;
    let server = Server::on(&address, None, &recorded).await;
    wait("one  generation 12").await;
    let pid = Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert!(timeout(PATIENCE, child.wait()).await.expect("an end in time").unwrap().success());
    server.stop().await;
}

/// Runs it on a terminal of this width.
async fn on_terminal(args: &[&str], columns: u16, no_colour: Option<&str>) -> String {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
    tcsetwinsize(&controller, Winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let terminal: OwnedFd = fs::File::options().read(true).write(true).open(name).unwrap().into();
    let dir = TempDir::new().unwrap();
    let mut command = command(dir.path(), args);
    command.stdout(terminal).env("TERM", "xterm");
    if let Some(value) = no_colour {
        command.env("NO_COLOR", value);
    }
    let mut child = command.spawn().unwrap();
    drop(command);
    let read = tokio::task::spawn_blocking(move || {
        // The end of the last user of a terminal shows as an error.
        let (mut bytes, mut file) = (Vec::new(), fs::File::from(controller));
        let _ = file.read_to_end(&mut bytes);
        String::from_utf8(bytes).unwrap()
    });
    assert!(timeout(PATIENCE, child.wait()).await.expect("an end in time").unwrap().success());
    timeout(PATIENCE, read).await.expect("its output").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_gets_its_width_and_its_colours() {
    let recorded = Recorded::showing(host());
    let server = Server::open(&recorded).await;
    let address = server.address.to_string();
    let args = ["lanes", "--admin", &address];
    let coloured = on_terminal(&args, 80, None).await;
    assert!(coloured.contains("\u{1b}[32mserving\u{1b}[0m") && coloured.contains('…'), "{coloured:?}");
    let plain = on_terminal(&args, 90, Some("1")).await;
    assert!(!plain.contains('\u{1b}') && plain.contains('…'), "{plain:?}");
    assert!(plain.lines().all(|line| line.trim_end().chars().count() <= 90), "{plain}");
    let wide = on_terminal(&args, 250, None).await;
    assert!(!wide.contains('…') && wide.contains("TRY"), "{wide:?}");
    server.stop().await;
}
