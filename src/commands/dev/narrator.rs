//! The story's voice: one line a step on standard output, numbered.
//!
//! Owns the numbers and the form of figures. Logs go elsewhere; it must not be used for them.

use std::{
    fmt::Display,
    io::{self, Write as _},
    time::Duration,
};

use anyhow::{Context as _, Result};

/// Numbers and prints.
#[derive(Debug, Default)]
pub(super) struct Narrator {
    steps: u32,
}

impl Narrator {
    /// Tells the next step.
    ///
    /// # Errors
    /// Nobody reads standard output any more.
    pub(super) fn step(&mut self, text: impl Display) -> Result<()> {
        self.steps += 1;
        let number = self.steps;
        self.line(format_args!("{number}. {text}"))
    }

    /// Prints a line that is no step.
    ///
    /// # Errors
    /// Nobody reads standard output any more.
    pub(super) fn line(&mut self, text: impl Display) -> Result<()> {
        // `println!` would panic where the reader has gone away, and a panic closes nothing in order.
        writeln!(io::stdout(), "{text}").context("cannot write to standard output")
    }
}

/// A time for people.
pub(super) fn took(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    if ms < 10.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_times_keep_a_digit() {
        assert_eq!(took(Duration::from_micros(3_140)), "3.1 ms");
        assert_eq!(took(Duration::from_millis(1_234)), "1234 ms");
    }
}
