//! Text helpers: how untrusted text is shown in a fault, and how a string type is read with serde.
//! Must not decide what is valid; the types do.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Most characters of foreign text that a fault repeats.
const SHOWN_CHARS: usize = 64;

/// `text` cut to 64 characters and escaped, so that a fault stays one short line whatever a peer sent.
pub(crate) fn shown(text: &str) -> String {
    shown_up_to(text, SHOWN_CHARS)
}

/// As [`shown`], with another limit.
pub(crate) fn shown_up_to(text: &str, max_chars: usize) -> String {
    let mut out: String = text.chars().take(max_chars).flat_map(char::escape_debug).collect();
    if text.chars().nth(max_chars).is_some() {
        out.push_str("...");
    }
    out
}

/// The reason in a JSON error, short and on one line; serde repeats offending strings in full otherwise.
pub(crate) fn json_reason(error: &serde_json::Error) -> String {
    let full = error.to_string();
    let mut out: String = full.chars().take(160).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if full.chars().nth(160).is_some() {
        out.push_str("...");
    }
    out
}

struct ParsedStr<T>(&'static str, PhantomData<T>);

impl<T> Visitor<'_> for ParsedStr<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<T, E> {
        value.parse().map_err(E::custom)
    }
}

/// Deserialises a string through `FromStr`, without an allocation for the text in between.
pub(crate) fn parsed_str<'de, T, D>(deserializer: D, expected: &'static str) -> Result<T, D::Error>
where
    T: FromStr,
    T::Err: fmt::Display,
    D: Deserializer<'de>,
{
    deserializer.deserialize_str(ParsedStr(expected, PhantomData))
}

/// Gives a type with `Display` and `FromStr` the string form in serde, validated on the way in.
macro_rules! serde_as_text {
    ($name:ident, $expected:literal) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::text::parsed_str(deserializer, $expected)
            }
        }
    };
}
pub(crate) use serde_as_text;
