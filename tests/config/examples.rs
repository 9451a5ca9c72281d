//! The commented examples: they load, they show every key, and what they show as default is the default.

use std::{fs, path::PathBuf};

use lanekeeper::{
    config::{HostConfig, HostLimits},
    manifest,
};
use serde_json::Value;

use crate::files::Files;

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(example(name)).unwrap()
}

/// The example with every setting that is commented out put in force: `#key = …` and `#[section]`, never `# prose`.
pub(crate) fn in_force(name: &str) -> String {
    let setting =
        |line: &str| line.starts_with(|c: char| c.is_ascii_lowercase() || c == '[').then(|| format!("{line}\n"));
    let line = |line: &str| line.strip_prefix('#').and_then(setting).unwrap_or_else(|| format!("{line}\n"));
    text(name).lines().map(line).collect()
}

#[test]
fn they_load_as_they_are() {
    let host = HostConfig::load(&example("lanekeeper.toml")).unwrap();
    assert_eq!(host.manifest, example("spaces.toml"));
    let defaults = HostConfig { file: host.file.clone(), manifest: host.manifest.clone(), ..HostConfig::default() };
    assert_eq!(host, defaults);
    let manifest = manifest::load(&host.manifest, &host).unwrap();
    let names: Vec<&str> = manifest.spaces.keys().map(|space| space.as_str()).collect();
    assert_eq!(names, ["alpha", "beta"]);
    assert_eq!(manifest.spaces[&"alpha".parse().unwrap()].credentials, example("credentials/alpha"));
}

#[test]
fn they_load_with_every_setting_in_force_and_show_the_defaults() {
    let files = Files::new();
    let config = files.write("lanekeeper.toml", in_force("lanekeeper.toml"));
    files.write_mode("admin.token", "0123456789abcdef0123456789abcdef\n", 0o600);
    let spaces = files.write("spaces.toml", in_force("spaces.toml"));
    let host = HostConfig::load(&config).unwrap();
    let defaults = HostConfig::default();
    assert_eq!(host.hosts, ["lane-a", "lane-b"]);
    assert_eq!((&host.servers, host.admin.listen), (&defaults.servers, defaults.admin.listen));
    assert_eq!((&host.limits, host.lane), (&HostLimits::default(), lanekeeper_lane::Limits::default()));
    let manifest = manifest::load(&spaces, &host).unwrap();
    let alpha = &manifest.spaces[&"alpha".parse().unwrap()];
    assert_eq!((alpha.limits, alpha.enabled, alpha.tags.len()), (host.lane, true, 2));
    assert!(!manifest.allow_mass_close);
}

/// Every key of a schema with its schema.
fn keys<'a>(schema: &'a Value, found: &mut Vec<(&'a str, &'a Value)>) {
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        found.push((key, inner));
        keys(inner, found);
        keys(&inner["items"], found);
    }
}

#[test]
fn they_show_every_key_and_every_key_is_described() {
    for (name, schema) in
        [("lanekeeper.toml", lanekeeper::config::schema_text()), ("spaces.toml", lanekeeper::manifest::schema_text())]
    {
        let schema: Value = serde_json::from_str(&schema).unwrap();
        let (mut found, text) = (Vec::new(), in_force(name));
        keys(&schema, &mut found);
        assert!(found.len() > 8, "{found:?}");
        for (key, schema) in found {
            assert!(schema["description"].as_str().is_some_and(|text| text.len() > 8), "{key} has no description");
            let is_shown = text.lines().any(|line| {
                line.starts_with(&format!("{key} =")) || line.trim_matches(['[', ']']).rsplit('.').next() == Some(key)
            });
            assert!(is_shown, "config/{name} does not show `{key}`");
        }
    }
}

#[test]
fn descriptions_name_the_real_defaults_of_a_lane() {
    let schema: Value = serde_json::from_str(&lanekeeper::config::schema_text()).unwrap();
    let limits = lanekeeper_lane::Limits::default();
    let lane = &schema["properties"]["lane"]["properties"];
    for (key, default) in [
        ("ack_wait_ms", limits.ack_wait.as_millis()),
        ("broker_window_ms", limits.broker_window.as_millis()),
        ("max_in_hand", limits.max_in_hand as u128),
        ("max_in_flight", limits.max_in_flight as u128),
    ] {
        let text = lane[key]["description"].as_str().unwrap();
        assert!(text.ends_with(&format!("Else {default}.")), "{key}: {text}");
    }
}
