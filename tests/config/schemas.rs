//! The committed JSON Schemas are those of the types.

use std::{fs, path::PathBuf};

/// Set it to write the schemas instead of comparing them.
const WRITE_VARIABLE: &str = "LANEKEEPER_WRITE_SCHEMAS";

#[test]
fn the_committed_schemas_are_those_of_the_types() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config");
    for (name, text) in [
        ("lanekeeper.schema.json", lanekeeper::config::schema_text()),
        ("spaces.schema.json", lanekeeper::manifest::schema_text()),
    ] {
        let path = dir.join(name);
        if std::env::var_os(WRITE_VARIABLE).is_some() {
            fs::write(&path, &text).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "config/{name} is not what the types say; run this test with {WRITE_VARIABLE}=1");
    }
}
