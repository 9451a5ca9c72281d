//! What may stand in a manifest: keys, kinds, bounds and defaults, for the loader and for the JSON Schema.
//!
//! Owns the file's form. It must not check how values relate to each other or to the world; [`super::validate`] does.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::config::{
    document::FileType,
    file::{LaneSection, ServerUrl},
};

/// The spaces of a host, one lane each. Relative paths start at the directory of this file.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "spaces.toml")]
pub(crate) struct ManifestFile {
    /// Says that a file without any space is meant that way. Without it such a file is refused as a broken write.
    pub(crate) allow_empty: bool,
    /// Lets a reload close more than half of the serving lanes. Set it for that one change.
    pub(crate) allow_mass_close: bool,
    /// One space.
    #[schemars(with = "Vec<SpaceEntry>")]
    pub(crate) space: Vec<Spanned<SpaceEntry>>,
}

impl FileType for ManifestFile {
    const RESERVED: &'static [(&'static str, &'static str)] =
        &[("telemetry", "remove the section"), ("defaults", "set limits of every lane in [lane] of lanekeeper.toml")];
}

/// One space.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "credentials"]))]
pub(crate) struct SpaceEntry {
    /// The space's name: 1 to 235 of A-Z, a-z, 0-9, _ and -. Used as it stands, never rewritten.
    #[schemars(with = "String", length(min = 1), extend("pattern" = "^[A-Za-z0-9_-]{1,235}$"))]
    pub(crate) name: Option<Spanned<String>>,
    /// The directory with the lane's credential files, `delivery.creds` and its neighbours.
    #[schemars(with = "String", length(min = 1))]
    pub(crate) credentials: Option<Spanned<String>>,
    /// The brokers of this space, instead of the host's.
    #[schemars(with = "Option<Vec<ServerUrl>>", length(min = 1))]
    pub(crate) servers: Option<Spanned<Vec<Spanned<String>>>>,
    /// Whether the space has a lane. A space that is switched off stays checked.
    #[serde(default = "yes")]
    pub(crate) enabled: bool,
    /// What bounds the lane, where it differs from [lane] of lanekeeper.toml.
    pub(crate) limits: LaneSection,
    /// Texts for people and dashboards, such as plan or region; at most 16.
    #[schemars(with = "BTreeMap<String, String>", extend("maxProperties" = 16))]
    pub(crate) tags: BTreeMap<Spanned<String>, String>,
}

fn yes() -> bool {
    true
}
