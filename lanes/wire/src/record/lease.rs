//! The delivery lease. Owns the row's JSON, old spellings included; must not decide who holds it.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::RecordFault;

/// Who serves the space. A row is ours only when holder and incarnation both match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRow {
    /// The daemon's principal.
    pub holder: String,
    /// A random id of one run of the daemon.
    pub incarnation: String,
    /// Since when, in ms since 1970. Read from a number or an ISO 8601 text, written as a number.
    #[serde(deserialize_with = "ms_or_iso")]
    pub since: u64,
    /// Whether fan-out, reader and control are bound.
    pub ready: bool,
}

impl LeaseRow {
    /// Reads a row.
    ///
    /// # Errors
    /// Anything but a whole row, and a date that is none: such a row is unreadable, never free to take.
    pub fn parse(payload: &[u8]) -> Result<Self, RecordFault> {
        super::read("delivery lease", payload)
    }

    /// The row as JSON.
    pub fn to_json(&self) -> String {
        crate::json::to_text(self)
    }
}

fn ms_or_iso<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct Since;
    impl Visitor<'_> for Since {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("ms since 1970 or an ISO 8601 time")
        }

        fn visit_u64<E: Error>(self, ms: u64) -> Result<u64, E> {
            Ok(ms)
        }

        fn visit_i64<E: Error>(self, _: i64) -> Result<u64, E> {
            Err(E::custom("a time before 1970"))
        }

        fn visit_f64<E: Error>(self, ms: f64) -> Result<u64, E> {
            if ms >= 0.0 { Ok(ms as u64) } else { Err(E::custom("a time before 1970")) }
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
            iso_ms(text).ok_or_else(|| E::custom("a text that is no ISO 8601 time such as 2026-01-31T12:00:00.000Z"))
        }
    }
    deserializer.deserialize_any(Since)
}

/// `YYYY-MM-DDTHH:MM:SS[.fraction](Z|±HH:MM)` as ms since 1970; `None` for anything else and for times before 1970.
fn iso_ms(text: &str) -> Option<u64> {
    let (date, clock) = text.split_once(['T', 't'])?;
    let mut date = date.split('-');
    let (year, month, day) = (digits(date.next()?, 4)?, digits(date.next()?, 2)?, digits(date.next()?, 2)?);
    let (clock, offset_min) = split_zone(clock)?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut clock = clock.split(':');
    let (hour, min, sec) = (digits(clock.next()?, 2)?, digits(clock.next()?, 2)?, digits(clock.next()?, 2)?);
    let whole = date.next().is_none() && clock.next().is_none();
    let real = (1..=12).contains(&month) && day >= 1 && day <= days_in(year, month) && hour < 24 && min < 60;
    if !whole || !real || sec > 60 || fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let ms: i64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let seconds = days_from_1970(year, month, day) * 86_400 + hour * 3_600 + (min - offset_min) * 60 + sec;
    u64::try_from(seconds * 1_000 + ms).ok()
}

fn split_zone(clock: &str) -> Option<(&str, i64)> {
    if let Some(clock) = clock.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let at = clock.rfind(['+', '-'])?;
    let (clock, zone) = clock.split_at(at);
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
    (hours < 24 && minutes < 60).then_some((clock, sign * (hours * 60 + minutes)))
}

fn digits(text: &str, count: usize) -> Option<i64> {
    (text.len() == count && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

fn is_leap(year: i64) -> bool {
    (year % 4 == 0 && year % 100 != 0) || year % 400 == 0
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_from_1970(year: i64, month: i64, day: i64) -> i64 {
    let leaps_before = |y: i64| (y - 1) / 4 - (y - 1) / 100 + (y - 1) / 400;
    let years = (year - 1970) * 365 + leaps_before(year) - leaps_before(1970);
    let months: i64 = (1..month).map(|m| days_in(year, m)).sum();
    years + months + day - 1
}

#[cfg(test)]
mod tests {
    use super::iso_ms;

    #[test]
    fn iso_times_are_read_to_the_millisecond() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00:00.001Z", 1),
            ("2000-02-29T23:59:59.999Z", 951_868_799_999),
            ("2026-11-29T16:50:00.123456Z", 1_795_971_000_123),
            ("2026-11-29T17:50:00.5+01:00", 1_795_971_000_500),
            ("2026-11-29T11:20:00-05:30", 1_795_971_000_000),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ] {
            assert_eq!(iso_ms(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "now",
            "2026-11-29",
            "2026-11-29T16:50:00",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.1x3Z",
            "2026-01-01T00:00:00+1:00",
            "2026-01-01T00:00:00+01",
            "2026-1-01T00:00:00Z",
            "+026-01-01T00:00:00Z",
            "2026-01-01T00:00:00:00Z",
            "2026-01-01-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-01-01T00:00:00é",
        ] {
            assert_eq!(iso_ms(text), None, "{text}");
        }
    }
}
