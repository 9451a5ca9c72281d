//! JSON without a tree: an object as its members' exact text, and lenient readings of single values.
//! Owns how untrusted JSON is walked (no recursion, no panic); must not know any record.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The members of an object as ranges of its source text, in order of first appearance; of a repeated name the last
/// value counts, as it does for a JavaScript peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Members(Vec<Member>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// The name with its quotes.
    pub(crate) name: Range<usize>,
    /// The value.
    pub(crate) value: Range<usize>,
}

impl Members {
    /// Reads the object that `source` is. Values are skipped without recursion, so any depth of nesting is safe.
    pub(crate) fn parse(source: &str) -> Result<Self, serde_json::Error> {
        let RawPairs(pairs) = serde_json::from_str(source)?;
        let start = source.as_ptr() as usize;
        let range = |raw: &RawValue| {
            let at = raw.get().as_ptr() as usize - start;
            at..at + raw.get().len()
        };
        let mut members: Vec<Member> = Vec::with_capacity(pairs.len());
        let mut index_of: HashMap<Cow<'_, str>, usize> = HashMap::with_capacity(pairs.len());
        for (name, value) in pairs {
            let next = members.len();
            let index = *index_of.entry(text_of(name.get()).unwrap_or_default()).or_insert(next);
            match members.get_mut(index) {
                Some(member) => member.value = range(value),
                None => members.push(Member { name: range(name), value: range(value) }),
            }
        }
        Ok(Self(members))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.0.iter()
    }

    /// The value of the member with this name, as its exact text in `source`.
    pub(crate) fn get<'s>(&self, source: &'s str, name: &str) -> Option<&'s str> {
        let member = self.iter().find(|member| member.is_named(source, name))?;
        source.get(member.value.clone())
    }

    /// The members as values. One that does not fit a tree (nested too deep, a number out of range) is left out.
    pub(crate) fn values(&self, source: &str) -> Map<String, Value> {
        let value_of = |member: &Member| {
            let name = text_of(source.get(member.name.clone())?)?;
            let value = serde_json::from_str(source.get(member.value.clone())?).ok()?;
            Some((name.into_owned(), value))
        };
        self.iter().filter_map(value_of).collect()
    }
}

impl Member {
    pub(crate) fn is_named(&self, source: &str, name: &str) -> bool {
        source.get(self.name.clone()).and_then(text_of).is_some_and(|own| own == name)
    }
}

struct RawPairs<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for RawPairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = RawPairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry::<&'de RawValue, &'de RawValue>()? {
                    pairs.push(pair);
                }
                Ok(RawPairs(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// The text of a JSON string, `None` for any other value. A lone surrogate escape, which a JavaScript peer may send,
/// reads as U+FFFD.
pub(crate) fn text_of(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    let LossyText(text) = serde_json::from_str(raw).ok()?;
    Some(Cow::Owned(text))
}

struct LossyText(String);

impl<'de> Deserialize<'de> for LossyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = LossyText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<LossyText, E> {
                Ok(LossyText(String::from_utf8_lossy(bytes).into_owned()))
            }
        }
        deserializer.deserialize_bytes(Text)
    }
}

/// The elements of a JSON array as their exact text, `None` for any other value.
pub(crate) fn elements(raw: &str) -> Option<Vec<&str>> {
    let elements: Vec<&RawValue> = serde_json::from_str(raw).ok()?;
    Some(elements.into_iter().map(RawValue::get).collect())
}

/// A JSON number as an unsigned integer; a fraction is cut off, a negative or unreadable number is `None`.
pub(crate) fn unsigned_of(raw: &str) -> Option<u64> {
    if let Ok(number) = raw.parse::<u64>() {
        return Some(number);
    }
    let number: f64 = serde_json::from_str(raw).ok()?;
    (number >= 0.0).then_some(number as u64)
}

/// Reads a struct from a JSON object in UTF-8. Left to itself serde also takes an array in the order of the fields, and
/// does not look at the bytes of strings that it skips.
pub(crate) fn object_from_slice<T: DeserializeOwned>(payload: &[u8]) -> Result<T, serde_json::Error> {
    let source = std::str::from_utf8(payload).map_err(serde_json::Error::custom)?;
    if source.trim_ascii_start().starts_with('[') {
        return Err(serde_json::Error::custom("an array where an object is expected"));
    }
    serde_json::from_str(source)
}

/// Deserialises a time in ms since 1970 from a number (a fraction is cut off).
pub(crate) fn whole_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct Ms;
    impl Visitor<'_> for Ms {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a time in ms since 1970")
        }

        fn visit_u64<E: serde::de::Error>(self, ms: u64) -> Result<u64, E> {
            Ok(ms)
        }

        fn visit_i64<E: serde::de::Error>(self, ms: i64) -> Result<u64, E> {
            Ok(u64::try_from(ms).unwrap_or(0))
        }

        fn visit_f64<E: serde::de::Error>(self, ms: f64) -> Result<u64, E> {
            Ok(ms as u64)
        }
    }
    deserializer.deserialize_u64(Ms)
}

/// Writes `text` as a JSON string.
pub(crate) fn push_text(out: &mut String, text: &str) {
    out.push_str(&to_text(text));
}

/// Serialises one of our own types, whose keys are strings and whose numbers are finite, so that it cannot fail.
pub(crate) fn to_text<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| {
        debug_assert!(false, "own type did not serialise: {error}");
        String::from("null")
    })
}

/// As [`elements`] for values inside a larger struct: skips what is not an array of strings.
pub(crate) fn texts_of<'a>(raw: &'a str) -> Vec<Cow<'a, str>> {
    elements(raw).unwrap_or_default().into_iter().filter_map(text_of).collect()
}
