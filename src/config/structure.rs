//! Whether the keys and values of a TOML table fit a JSON Schema, all misfits at once, each at its place.
//!
//! Owns the part of JSON Schema that our types use, and the wording. It must not know a particular file, and it drops
//! what does not fit, so that the rest can still be looked at.

use std::{fmt::Write as _, ops::Range};

use serde_json::Value;
use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue},
};

use super::fault::shown;

/// Most misspelt characters for which a known key is suggested.
const TYPING_SLIPS: usize = 2;

/// The schema keywords that are checked here.
#[cfg(test)]
pub(crate) const CHECKED: [&str; 10] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
];

/// What a table must look like.
pub(crate) struct Shape<'a> {
    /// The schema of the file's type.
    pub(crate) schema: &'a Value,
    /// Top-level keys that are reserved, and what to do instead.
    pub(crate) reserved: &'static [(&'static str, &'static str)],
}

/// A key or value that does not fit.
pub(crate) struct Misfit {
    /// Where.
    pub(crate) at: Range<usize>,
    /// What, why, and what to do.
    pub(crate) message: String,
    /// True for a key that is missing.
    pub(crate) is_absence: bool,
}

/// Drops everything that does not fit and says what it was.
pub(crate) fn prune<'i>(
    shape: &Shape<'_>,
    table: Spanned<DeTable<'i>>,
    misfits: &mut Vec<Misfit>,
) -> Spanned<DeTable<'i>> {
    let mut pruner = Pruner { reserved: shape.reserved, misfits };
    let span = table.span();
    let table = pruner.table(shape.schema, "", &span, table.into_inner());
    Spanned::new(span, table)
}

struct Pruner<'a> {
    reserved: &'static [(&'static str, &'static str)],
    misfits: &'a mut Vec<Misfit>,
}

impl Pruner<'_> {
    fn table<'i>(&mut self, schema: &Value, path: &str, span: &Range<usize>, table: DeTable<'i>) -> DeTable<'i> {
        let mut kept = DeTable::new();
        let mut seen = Vec::new();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            seen.push(name.to_owned());
            let known = schema["properties"].get(name);
            let Some(inner) = known.or_else(|| schema.get("additionalProperties").filter(|any| any.is_object())) else {
                let message = self.unknown(schema, path, name);
                self.report(key.span(), message);
                continue;
            };
            let inner_path = if path.is_empty() { shown(name) } else { format!("{path}.{}", shown(name)) };
            if let Some(value) = self.value(inner, &inner_path, value) {
                kept.insert(key, value);
            }
        }
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for name in required.filter(|name| !seen.iter().any(|seen| seen == name)) {
            let place = if path.is_empty() { "the file".to_owned() } else { format!("this `{path}`") };
            let about = about(&schema["properties"][name]);
            let message = format!("`{name}` is missing in {place}: it is {about}; add the line `{name} = …`");
            self.misfits.push(Misfit { at: span.clone(), message, is_absence: true });
        }
        kept
    }

    fn value<'i>(&mut self, schema: &Value, path: &str, value: Spanned<DeValue<'i>>) -> Option<Spanned<DeValue<'i>>> {
        let span = value.span();
        let found = kind_of(value.get_ref());
        let wanted = schema["type"].as_str().unwrap_or_default();
        if found != wanted {
            let (found, wanted, hint) = (spelled(found), spelled(wanted), hint(wanted, schema, path));
            self.report(span, format!("`{path}` is {found}, it must be {wanted}{}; {hint}", why(schema)));
            return None;
        }
        let misfit = match value.get_ref() {
            DeValue::Integer(number) => {
                out_of_range(schema, i128::from_str_radix(number.as_str(), number.radix()).ok())
            }
            DeValue::String(text) => bad_length(schema, text),
            DeValue::Array(items) => too_few(schema, items),
            DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Table(_) => None,
        };
        if let Some(misfit) = misfit {
            self.report(span, format!("`{path}` {misfit}{}", why(schema)));
            return None;
        }
        let inner = match value.into_inner() {
            DeValue::Table(table) => DeValue::Table(self.table(schema, path, &span, table)),
            DeValue::Array(items) => DeValue::Array(self.items(&schema["items"], path, items)),
            plain @ (DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)) => plain,
        };
        Some(Spanned::new(span, inner))
    }

    fn items<'i>(&mut self, schema: &Value, path: &str, items: DeArray<'i>) -> DeArray<'i> {
        let path = if schema["type"] == "object" { path.to_owned() } else { format!("{path}[]") };
        let mut kept = DeArray::new();
        for item in items {
            if let Some(item) = self.value(schema, &path, item) {
                kept.push(item);
            }
        }
        kept
    }

    fn unknown(&self, schema: &Value, path: &str, name: &str) -> String {
        let place = if path.is_empty() { String::new() } else { format!(" in `{path}`") };
        if let Some((_, instead)) = self.reserved.iter().find(|(key, _)| path.is_empty() && *key == name) {
            return format!(
                "`{name}` is reserved and nothing reads it yet: settings in it would change nothing; {instead}"
            );
        }
        let known: Vec<&str> =
            schema["properties"].as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        let mut message = format!("unknown key `{}`{place}: nothing reads it, it would change nothing; ", shown(name));
        match known.iter().map(|key| (slips(name, key), key)).min() {
            Some((slips, key)) if slips <= TYPING_SLIPS => {
                let _ = write!(message, "write `{key}`");
            }
            Some(_) | None => {
                let _ = write!(message, "remove it, or use one of {}", known.join(", "));
            }
        }
        message
    }

    fn report(&mut self, at: Range<usize>, message: String) {
        self.misfits.push(Misfit { at, message, is_absence: false });
    }
}

/// The name JSON Schema has for the kind of value.
fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "string",
        DeValue::Integer(_) => "integer",
        DeValue::Float(_) => "number",
        DeValue::Boolean(_) => "boolean",
        DeValue::Datetime(_) => "date",
        DeValue::Array(_) => "array",
        DeValue::Table(_) => "object",
    }
}

fn spelled(kind: &str) -> &'static str {
    match kind {
        "string" => "a string",
        "integer" => "a whole number",
        "number" => "a number with a fraction",
        "boolean" => "true or false",
        "date" => "a date",
        "array" => "a list",
        _ => "a table",
    }
}

fn hint(kind: &str, schema: &Value, path: &str) -> String {
    match kind {
        "string" => "write it in quotes".to_owned(),
        "integer" => "write digits without quotes, unit or fraction".to_owned(),
        "boolean" => "write true or false, without quotes".to_owned(),
        "array" if schema["items"]["type"] == "object" => format!("write each one below a line [[{path}]]"),
        "array" => "write it in square brackets".to_owned(),
        _ => "write `key = value` lines below a line of its own in square brackets".to_owned(),
    }
}

fn out_of_range(schema: &Value, number: Option<i128>) -> Option<String> {
    let bound = |name: &str| schema[name].as_i64().map(i128::from);
    let (low, high) = (bound("minimum").unwrap_or(i128::MIN), bound("maximum").unwrap_or(i128::MAX));
    match number {
        Some(number) if number >= low && number <= high => None,
        Some(number) => Some(format!("is {number}, it must be from {low} to {high}")),
        None => Some(format!("has too many digits, it must be from {low} to {high}")),
    }
}

fn bad_length(schema: &Value, text: &str) -> Option<String> {
    let bound = |name: &str| schema[name].as_u64().and_then(|bound| usize::try_from(bound).ok());
    let (low, high) = (bound("minLength").unwrap_or(0), bound("maxLength").unwrap_or(usize::MAX));
    let length = text.chars().count();
    if length == 0 && low > 0 {
        return Some("is empty, write a value or remove the key".to_owned());
    }
    (length < low || length > high).then(|| format!("has {length} characters, it must have from {low} to {high}"))
}

fn too_few(schema: &Value, items: &DeArray<'_>) -> Option<String> {
    let low = schema["minItems"].as_u64().and_then(|low| usize::try_from(low).ok()).unwrap_or(0);
    (items.len() < low).then(|| "is an empty list, name at least one or remove the key".to_owned())
}

/// What the key is for, as the reason.
fn why(schema: &Value) -> String {
    let about = about(schema);
    if about.is_empty() { about } else { format!(": {about}") }
}

/// The first sentence of what the type says about the key.
fn about(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let sentence = text.split(". ").next().unwrap_or_default().trim_end_matches('.');
    let mut chars = sentence.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// How many characters have to be put in, taken out or changed to make one text the other.
fn slips(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    if one.len() > 2 * other.len() + TYPING_SLIPS {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, left) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (at, right) in other.iter().enumerate() {
            let changed = diagonal + usize::from(left != *right);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_counted() {
        for (one, other, expected) in
            [("servers", "servers", 0), ("server", "servers", 1), ("nmae", "name", 2), ("x", "name", 4)]
        {
            assert_eq!(slips(one, other), expected, "{one} {other}");
        }
        assert_eq!(slips(&"x".repeat(1_000_000), "name"), usize::MAX);
    }

    /// Keywords that help editors; what they say is checked with the values.
    const FOR_EDITORS: [&str; 7] = ["$schema", "title", "description", "default", "format", "pattern", "maxProperties"];

    /// The keywords of a schema and of everything below it, names of properties left out.
    fn keywords(schema: &Value, found: &mut std::collections::BTreeSet<String>) {
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            found.insert(keyword.clone());
            match keyword.as_str() {
                "properties" => value.as_object().unwrap().values().for_each(|inner| keywords(inner, found)),
                _ => keywords(value, found),
            }
        }
    }

    #[test]
    fn no_keyword_of_a_schema_is_passed_over() {
        let mut found = std::collections::BTreeSet::new();
        keywords(&crate::config::schema::of::<crate::config::file::ConfigFile>(), &mut found);
        keywords(&crate::config::schema::of::<crate::manifest::file::ManifestFile>(), &mut found);
        let is_known =
            |keyword: &&String| CHECKED.contains(&keyword.as_str()) || FOR_EDITORS.contains(&keyword.as_str());
        let unknown: Vec<&String> = found.iter().filter(|keyword| !is_known(keyword)).collect();
        assert!(unknown.is_empty(), "nothing checks {unknown:?}");
    }
}
