//! A file as a checked value of its type: every syntax fault, every key and value that does not fit, then the type.
//!
//! Owns the order of these steps and what is told of a file whose syntax is broken. It must not know a particular file.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use toml::{
    Spanned,
    de::{DeTable, Deserializer},
};

use super::{
    source::Source,
    structure::{self, Shape},
};

/// What the parser says of a key that is there twice.
const DUPLICATE: &str = "duplicate key";

/// What a file type must be, so that its schema is what the loader checks.
pub(crate) trait FileType: DeserializeOwned + JsonSchema {
    /// Top-level keys that a later version may give a meaning to, and what to do until then.
    const RESERVED: &'static [(&'static str, &'static str)];
}

/// What was read of a file.
pub(crate) struct Read<T> {
    /// What could be understood, with faulty keys left out; `None` where the syntax is broken.
    pub(crate) value: Option<T>,
    /// Every fault, with its place.
    pub(crate) faults: Vec<(Range<usize>, String)>,
}

/// Reads `source` as a `T`.
pub(crate) fn read<T: FileType>(source: &Source) -> Read<T> {
    let (table, errors) = DeTable::parse_recoverable(source.text());
    let end = source.text().len();
    let at = |error: &toml::de::Error| error.span().unwrap_or(end..end);
    let first = |errors: &[&toml::de::Error]| errors.iter().map(|error| source.place(at(error).start).0).min();
    let all: Vec<&toml::de::Error> = errors.iter().collect();
    let (doubles, others): (Vec<_>, Vec<_>) = all.iter().copied().partition(|error| error.message() == DUPLICATE);
    // Behind a broken header a key stands in another table, and is there twice only because of that.
    let certain_until = first(&others).unwrap_or(usize::MAX);
    let doubles = doubles.into_iter().filter(|error| source.place(at(error).start).0 < certain_until);
    let mut faults: Vec<_> = others.iter().copied().chain(doubles).map(|error| (at(error), syntax(error))).collect();
    let first_broken = first(&all);
    let schema = super::schema::of::<T>();
    let mut structure = Vec::new();
    let table = structure::prune(&Shape { schema: &schema, reserved: T::RESERVED }, table, &mut structure);
    // Behind a broken line nothing is certain: a key may stand in another table, or not at all. A value without text of its
    // own is the parser's guess at a broken one.
    let is_certain = |fault: &structure::Misfit| {
        first_broken
            .is_none_or(|line| source.place(fault.at.start).0 < line && !fault.is_absence && !fault.at.is_empty())
    };
    faults.extend(structure.into_iter().filter(is_certain).map(|fault| (fault.at, fault.message)));
    let value = if first_broken.is_none() { typed(table, &mut faults) } else { None };
    Read { value, faults }
}

/// The typed value. What the schema lets through fits the type; should it not, that is a fault and no panic.
fn typed<T: for<'de> Deserialize<'de>>(
    table: Spanned<DeTable<'_>>,
    faults: &mut Vec<(Range<usize>, String)>,
) -> Option<T> {
    let whole = table.span();
    match T::deserialize(Deserializer::from(table)) {
        Ok(value) => Some(value),
        Err(error) => {
            let message = format!("{}; correct the value", one_line(error.message()));
            faults.push((error.span().unwrap_or(whole), message));
            None
        }
    }
}

fn syntax(error: &toml::de::Error) -> String {
    format!("this is not TOML: {}; correct the line, what comes after it is judged then", one_line(error.message()))
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(", ")
}
