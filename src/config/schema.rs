//! The JSON Schema of a file type: what editors complete with and what the loader checks, out of the same types.
//!
//! Owns the generation and the form TOML gives it. It must not check anything.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

/// The schema of `T`, everything inline.
#[must_use]
pub(crate) fn of<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    in_toml_terms(&mut schema);
    schema
}

/// The schema of `T` as it is committed: indented, with a line end.
#[must_use]
pub(crate) fn text<T: JsonSchema>() -> String {
    format!("{:#}\n", of::<T>())
}

/// TOML has no null: a key that is not set is absent. A description is one paragraph.
fn in_toml_terms(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::Array(kinds)) = map.get_mut("type") {
                kinds.retain(|kind| kind != "null");
                if let [kind] = kinds.as_slice() {
                    let kind = kind.clone();
                    map.insert("type".to_owned(), kind);
                }
            }
            if map.get("default").is_some_and(|default| default.is_null() || default.as_object().is_some()) {
                map.shift_remove("default");
            }
            if let Some(Value::String(text)) = map.get_mut("description") {
                *text = text.replace('\n', " ");
            }
            map.values_mut().for_each(in_toml_terms);
        }
        Value::Array(values) => values.iter_mut().for_each(in_toml_terms),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
