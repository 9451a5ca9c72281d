//! From manifest files as they were read to spaces that can stand beside each other.
//!
//! Owns the rules between entries: names, credentials directories and accounts are each one space's own. It must not
//! connect, and must not refuse for what only concerns one lane, such as a missing credential file.

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use lanekeeper_lane::credentials::Credential;
use lanekeeper_wire::Space;

use super::{
    Manifest, Origin, SpaceSpec,
    file::SpaceEntry,
    load::{Part, at_start},
};
use crate::config::{ConfigFault, HostConfig, fault::shown, fold, servers, source::Source};

/// The credential whose account a lane works in.
const DELIVERY: &str = "delivery.creds";
/// Most tags of a space.
const MAX_TAGS: usize = 16;
/// Longest key of a tag, characters.
const MAX_TAG_KEY: usize = 64;
/// Longest value of a tag, characters.
const MAX_TAG_VALUE: usize = 256;

/// One entry and where it stands.
struct Entry<'a> {
    source: &'a Source,
    value: &'a SpaceEntry,
}

/// The first entry that has something for its own, and what it is called.
struct Owner<'a> {
    source: &'a Source,
    at: usize,
    name: String,
}

impl Owner<'_> {
    fn place(&self) -> String {
        let (line, _) = self.source.place(self.at);
        format!("{}:{line}", self.source.path().display())
    }
}

/// The manifest made of `parts`. Everything that does not hold goes to `faults`; then the value is of no use.
pub(super) fn manifest(parts: &[Part], host: &HostConfig, hash: String, faults: &mut Vec<ConfigFault>) -> Manifest {
    let mut rules = Rules { names: BTreeMap::new(), dirs: BTreeMap::new(), accounts: BTreeMap::new(), faults };
    let mut manifest = Manifest { spaces: BTreeMap::new(), origins: BTreeMap::new(), hash, allow_mass_close: false };
    for part in parts {
        let Some(file) = &part.file else { continue };
        manifest.allow_mass_close |= file.allow_mass_close;
        // Where something was left out, it may have been the spaces.
        if file.space.is_empty() && !file.allow_empty && part.is_understood {
            rules.faults.push(at_start(&part.source, NO_SPACE));
        }
        for spanned in &file.space {
            let entry = Entry { source: &part.source, value: spanned.get_ref() };
            if let Some((spec, origin)) = rules.entry(&entry, host) {
                manifest.origins.insert(spec.space.clone(), origin);
                manifest.spaces.insert(spec.space.clone(), spec);
            }
        }
    }
    manifest
}

const NO_SPACE: &str = "the file names no space: that is taken for a broken write, never for `nothing`; add a [[space]], or say \
                        `allow_empty = true`";
struct Rules<'a> {
    names: BTreeMap<String, Owner<'a>>,
    dirs: BTreeMap<PathBuf, Owner<'a>>,
    accounts: BTreeMap<String, Owner<'a>>,
    faults: &'a mut Vec<ConfigFault>,
}

impl<'a> Rules<'a> {
    /// The spec of one entry, where enough of it can be used.
    fn entry(&mut self, entry: &Entry<'a>, host: &HostConfig) -> Option<(SpaceSpec, Origin)> {
        let space = self.name(entry);
        let credentials = self.credentials(entry);
        let (servers, tags) = (self.servers(entry, host), self.tags(entry));
        let (space, credentials) = (space?, credentials?);
        let (line, column) = entry.source.place(entry.value.name.as_ref()?.span().start);
        let spec = SpaceSpec {
            space,
            credentials,
            servers,
            enabled: entry.value.enabled,
            limits: entry.value.limits.over(&host.lane),
            tags,
        };
        Some((spec, Origin { file: entry.source.path().to_owned(), line, column }))
    }

    /// A space of this name, if no other has one that can be taken for it.
    fn name(&mut self, entry: &Entry<'a>) -> Option<Space> {
        let named = entry.value.name.as_ref()?;
        let (name, at) = (named.get_ref(), named.span());
        let space = match name.parse::<Space>() {
            Ok(space) => space,
            Err(fault) => {
                let message = format!("{fault}; it is never rewritten, because two names could become one");
                self.report(entry, at, message);
                return None;
            }
        };
        let owner = Owner { source: entry.source, at: at.start, name: name.clone() };
        let Some(first) = self.names.get(&fold(name)) else {
            self.names.insert(fold(name), owner);
            return Some(space);
        };
        let message = if first.name == *name {
            format!("space `{name}` is named twice, first in {}: a space has one lane; remove one", first.place())
        } else {
            format!(
                "space `{name}` and `{}` ({}) differ only by case, `.`, `-` or `_`: their files and metrics could be taken for each other; rename one",
                first.name,
                first.place()
            )
        };
        self.report(entry, at, message);
        None
    }

    /// The entry's credentials directory, if no other entry has it or its account.
    fn credentials(&mut self, entry: &Entry<'a>) -> Option<PathBuf> {
        let named = entry.value.credentials.as_ref()?;
        let (text, at) = (named.get_ref(), named.span());
        let dir = match entry.source.resolve(text) {
            Ok(dir) => dir,
            Err(error) => {
                self.report(entry, at, format!("the path cannot be resolved: {error}; write it from /"));
                return None;
            }
        };
        let name = entry.value.name.as_ref().map_or_else(String::new, |name| shown(name.get_ref()));
        let owner = || Owner { source: entry.source, at: at.start, name: name.clone() };
        // A link to another space's directory is that directory.
        let real = fs::canonicalize(&dir).unwrap_or_else(|_| plain(&dir));
        if let Some(first) = self.dirs.get(&real) {
            let message = format!(
                "credentials `{}` are also those of space `{}` ({}): each space signs in as itself; give it its own directory",
                shown(text),
                first.name,
                first.place()
            );
            self.report(entry, at, message);
            return None;
        }
        self.dirs.insert(real, owner());
        // What is wrong with the file itself is the lane's fault, and its account is unknown then.
        if let Ok(credential) = Credential::read(&dir.join(DELIVERY)) {
            let account = credential.account().to_owned();
            if let Some(first) = self.accounts.get(&account) {
                let message = format!(
                    "space `{name}` has the account of space `{}` ({}), {account}: two lanes would serve each other's members; give it an account of its own",
                    first.name,
                    first.place()
                );
                self.report(entry, at, message);
                return None;
            }
            self.accounts.insert(account, owner());
        }
        Some(dir)
    }

    fn servers(&mut self, entry: &Entry<'a>, host: &HostConfig) -> Vec<async_nats::ServerAddr> {
        let Some(named) = &entry.value.servers else { return host.servers.clone() };
        let mut found = Vec::new();
        let servers = servers::parse(named.get_ref(), &mut found);
        for (at, message) in found {
            self.report(entry, at, message);
        }
        servers
    }

    fn tags(&mut self, entry: &Entry<'a>) -> BTreeMap<String, String> {
        let tags = &entry.value.tags;
        for (index, (key, value)) in tags.iter().enumerate() {
            let is_key = (1..=MAX_TAG_KEY).contains(&key.get_ref().len())
                && key.get_ref().bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
            let is_value = value.chars().count() <= MAX_TAG_VALUE && !value.chars().any(char::is_control);
            let message = if index >= MAX_TAGS {
                format!("a space has at most {MAX_TAGS} tags; remove `{}`", shown(key.get_ref()))
            } else if !is_key {
                format!(
                    "tag `{}` is refused: use 1 to {MAX_TAG_KEY} of A-Z, a-z, 0-9, ., _ and -",
                    shown(key.get_ref())
                )
            } else if !is_value {
                format!(
                    "the value of tag `{}` is refused: use at most {MAX_TAG_VALUE} characters of one line",
                    shown(key.get_ref())
                )
            } else {
                continue;
            };
            self.report(entry, key.span(), message);
        }
        tags.iter().map(|(key, value)| (key.get_ref().clone(), value.clone())).collect()
    }

    fn report(&mut self, entry: &Entry<'a>, at: Range<usize>, message: String) {
        self.faults.push(entry.source.fault(at, message));
    }
}

/// The path without `.` and `..`, for a directory that is not there.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                out.pop();
            }
            std::path::Component::Prefix(_) | std::path::Component::RootDir | std::path::Component::Normal(_) => {
                out.push(part)
            }
        }
    }
    out
}
