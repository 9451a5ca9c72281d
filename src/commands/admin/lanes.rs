//! `lanekeeper lanes`: the state of every lane of a running host, or of one.
//!
//! Owns the terminal: its size, whether colours are wanted, drawing anew. What is drawn is `table` and `detail`.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result};
use clap::Args;
use lanekeeper_wire::Space;
use rustix::termios::tcgetwinsize;
use serde_json::Value;

use super::{
    AdminArgs,
    client::AdminClient,
    detail, figures,
    table::{self, Look},
};
use crate::{
    signals,
    supervisor::status::{HostStatus, LaneStatus},
};

/// Arguments of `lanekeeper lanes`.
#[derive(Debug, Clone, Args)]
pub struct LanesArgs {
    /// Only the lane of this space, with everything that is known of it.
    pub space: Option<Space>,
    /// Look again and again until Ctrl-C.
    #[arg(long)]
    pub watch: bool,
    /// Between two looks, milliseconds.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(100..=3_600_000))]
    pub every_ms: u64,
    /// Print the state as JSON, with --watch one line a look.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub(super) admin: AdminArgs,
}

/// Prints the state.
///
/// # Errors
/// The host does not answer, or knows no such lane. With `--watch` a host that stops answering is shown, not an error.
pub async fn run(args: LanesArgs) -> Result<()> {
    let client = args.admin.client()?;
    if !args.watch {
        let text = look(&args, &client).await?;
        return print(&text);
    }
    let stop = signals::stop_on_signal()?;
    let mut has_answered = false;
    loop {
        let text = match look(&args, &client).await {
            Ok(text) => text,
            // A wrong address is told at once; a host that restarts is waited for.
            Err(error) if !has_answered => return Err(error),
            Err(error) => format!("{}\n", figures::safe(&format!("{error:#}"))),
        };
        has_answered = true;
        let clear = if args.json || !io::stdout().is_terminal() { "" } else { "\u{1b}[H\u{1b}[2J" };
        print(&format!("{clear}{text}"))?;
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(Duration::from_millis(args.every_ms)) => {}
        }
    }
}

async fn look(args: &LanesArgs, client: &AdminClient) -> Result<String> {
    let path = args.space.as_ref().map_or_else(|| "/lanes".to_owned(), |space| format!("/lanes/{space}"));
    let answer = client.get(&path).await?;
    if args.json {
        let value: Value = answer.json()?;
        let text = if args.watch { value.to_string() } else { serde_json::to_string_pretty(&value)? };
        return Ok(format!("{text}\n"));
    }
    let look = terminal(args.watch)?;
    Ok(if args.space.is_some() {
        detail::draw(&answer.json::<LaneStatus>()?, &look)
    } else {
        table::draw(&answer.json::<HostStatus>()?, &look)
    })
}

/// How standard output wants it: nothing is shortened or coloured for a file or a pipe.
fn terminal(is_watching: bool) -> Result<Look> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970; set it")?;
    let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let is_terminal = io::stdout().is_terminal();
    let size = if is_terminal { tcgetwinsize(io::stdout()).ok() } else { None };
    let positive = |number: u16| (number > 0).then_some(usize::from(number));
    Ok(Look {
        width: size.and_then(|size| positive(size.ws_col)),
        height: size.and_then(|size| positive(size.ws_row)).filter(|_| is_watching),
        has_colour: has_colour(is_terminal, |name| std::env::var_os(name)),
        now_ms,
    })
}

/// Colours on a terminal, unless `NO_COLOR` is set to something or the terminal has none.
fn has_colour(is_terminal: bool, variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> bool {
    let is_unwanted = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = variable("TERM").is_some_and(|value| value == "dumb");
    is_terminal && !is_unwanted && !is_dumb
}

fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        let with = |no_colour: Option<&'static str>, term: &'static str| {
            has_colour(true, move |name| match name {
                "NO_COLOR" => no_colour.map(Into::into),
                "TERM" => Some(term.into()),
                _ => None,
            })
        };
        assert!(with(None, "xterm") && with(Some(""), "xterm"));
        assert!(!with(Some("1"), "xterm") && !with(None, "dumb"));
        assert!(!has_colour(false, |_| None));
    }
}
