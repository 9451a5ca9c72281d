//! Times, rates and texts for people who look at a table. Pure.
//!
//! Owns their short forms. Everything that comes from outside is made safe for a terminal here.

use std::time::Duration;

/// A length of time in at most five characters up to 99 days: `8s`, `3m20s`, `2h05m`, `4d07h`.
#[must_use]
pub fn span(time: Duration) -> String {
    let s = time.as_secs();
    let (minutes, hours, days) = (s / 60, s / 3600, s / 86_400);
    if s < 60 {
        format!("{s}s")
    } else if hours == 0 {
        format!("{minutes}m{:02}s", s % 60)
    } else if days == 0 {
        format!("{hours}h{:02}m", minutes % 60)
    } else if days < 100 {
        format!("{days}d{:02}h", hours % 24)
    } else {
        format!("{days}d")
    }
}

/// A count in at most four characters: `0`, `999`, `1.2k`, `45k`, `3.0M`.
#[must_use]
pub fn count(number: f64) -> String {
    /// From where on the next unit is used: what would be rounded up to four digits belongs there.
    const NEXT: f64 = 999.5;
    let (value, unit) = match number {
        n if n < NEXT => (n, ""),
        n if n < NEXT * 1e3 => (n / 1e3, "k"),
        n if n < NEXT * 1e6 => (n / 1e6, "M"),
        n => (n / 1e9, "G"),
    };
    // Below ten a digit behind the point says something; a whole number needs none.
    let has_digit = value < 9.95 && (!unit.is_empty() || value.fract() > 0.0);
    if has_digit { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

/// The text without anything a terminal would act on: control characters, and those that change the direction of writing.
#[must_use]
pub fn safe(text: &str) -> String {
    let is_unsafe = |c: char| {
        c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if is_unsafe(c) { ' ' } else { c }).collect()
}

/// The text shortened to `width` characters, with `…` for what is missing.
#[must_use]
pub fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.truncate(short.trim_end().len());
    if width > 0 {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units_at_most() {
        let table = [
            (0, "0s"),
            (59, "59s"),
            (60, "1m00s"),
            (200, "3m20s"),
            (3599, "59m59s"),
            (3600, "1h00m"),
            (7500, "2h05m"),
            (86_399, "23h59m"),
            (86_400, "1d00h"),
            (8_639_999, "99d23h"),
            (8_640_000, "100d"),
        ];
        for (seconds, text) in table {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn counts_are_four_characters_at_most() {
        let table = [
            (0.0, "0"),
            (0.04, "0.0"),
            (1.25, "1.2"),
            (9.96, "10"),
            (7.0, "7"),
            (999.0, "999"),
            (999.6, "1.0k"),
            (1_234.0, "1.2k"),
            (45_000.0, "45k"),
            (999_600.0, "1.0M"),
            (3e9, "3.0G"),
        ];
        for (number, text) in table {
            assert_eq!(count(number), text, "{number}");
        }
    }

    #[test]
    fn a_terminal_is_never_told_what_to_do() {
        assert_eq!(safe("a\u{1b}[2Jb\nc\u{202e}d\u{7}"), "a [2Jb c d ");
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(shortened("ab cdef", 4), "ab…");
        assert_eq!(shortened("äöü€", 3), "äö…");
        assert_eq!(shortened("abc", 0), "");
    }
}
