//! One space's entry in the text of a manifest: found, added, taken out, and every other byte left as it is. Pure.
//!
//! Owns the edit alone. What a manifest may say is `manifest`'s to judge, and files are `place`'s.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use lanekeeper_wire::Space;
use toml_edit::{Document, Item, Table, TableLike, Value};

/// The array with the spaces.
const SPACE: &str = "space";

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The space.
    pub space: Space,
    /// The directory with its lane's credentials.
    pub credentials: PathBuf,
    /// Its own servers; empty for the host's.
    pub servers: Vec<String>,
    /// Whether it is served.
    pub is_enabled: bool,
    /// Its labels.
    pub tags: BTreeMap<String, String>,
}

/// An entry as it was found, read leniently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its name, as it stands there.
    pub name: String,
    /// Its credentials directory, as it stands there.
    pub credentials: Option<String>,
    /// Whether it is served.
    pub is_enabled: bool,
}

impl Entry {
    /// An entry that says no more than it must.
    #[must_use]
    pub fn new(space: Space, credentials: PathBuf) -> Self {
        Self { space, credentials, servers: Vec::new(), is_enabled: true, tags: BTreeMap::new() }
    }

    /// The entry as text.
    ///
    /// # Errors
    /// The credentials directory's name is not text.
    pub fn text(&self) -> Result<String> {
        let path = self.credentials.to_str();
        let path = path.with_context(|| format!("{} is not text; rename it", self.credentials.display()))?;
        let mut out = format!("[[{SPACE}]]\nname = {}\ncredentials = {}\n", quoted(self.space.as_str()), quoted(path));
        if !self.servers.is_empty() {
            let servers: Vec<String> = self.servers.iter().map(|server| quoted(server)).collect();
            out.push_str(&format!("servers = [{}]\n", servers.join(", ")));
        }
        if !self.is_enabled {
            out.push_str("enabled = false\n");
        }
        if !self.tags.is_empty() {
            let tags: Vec<String> =
                self.tags.iter().map(|(key, value)| format!("{} = {}", quoted(key), quoted(value))).collect();
            out.push_str(&format!("tags = {{ {} }}\n", tags.join(", ")));
        }
        Ok(out)
    }
}

/// The entries of a manifest's text.
///
/// # Errors
/// The text is not TOML, or its spaces are not written as tables.
pub fn entries(text: &str) -> Result<Vec<Found>> {
    let document = parse(text)?;
    let tables = tables(&document)?;
    Ok(tables.iter().map(|table| found(table)).collect())
}

/// The text with `entry` at its end.
///
/// # Errors
/// The text cannot be edited, or has such an entry; names that differ only in case are the same.
pub fn add(text: &str, entry: &Entry) -> Result<String> {
    let before = entries(text)?;
    if let Some(there) = before.iter().find(|there| there.name.eq_ignore_ascii_case(entry.space.as_str())) {
        bail!("the manifest has an entry for `{}` already; remove it first, or edit it", there.name);
    }
    let mut out = text.to_owned();
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    if !out.trim().is_empty() {
        out.push('\n');
    }
    out.push_str(&entry.text()?);
    // What was written is read again, since it is about to become what a host acts on.
    let after = entries(&out).context("the entry cannot be added at the end of the manifest; add it by hand")?;
    ensure!(after.len() == before.len() + 1, "the entry cannot be added at the end of the manifest; add it by hand");
    Ok(out)
}

/// The text without the entry of `space`, and how many entries are left; `None` if there was no such entry. The comment
/// lines right above an entry go with it.
///
/// # Errors
/// The text cannot be edited.
pub fn remove(text: &str, space: &Space) -> Result<Option<(String, usize)>> {
    let document = parse(text)?;
    let tables = tables(&document)?;
    let Some(at) = tables.iter().position(|table| found(table).name == space.as_str()) else { return Ok(None) };
    let heads = heads(&document);
    let own = heads_of(tables[at]);
    let mut out = String::with_capacity(text.len());
    let mut kept_from = 0;
    for (index, start) in heads.iter().enumerate() {
        if own.contains(start) {
            let from = block_start(text, *start);
            let to = heads.get(index + 1).map_or(text.len(), |next| block_start(text, *next));
            out.push_str(&text[kept_from..from]);
            kept_from = to;
        }
    }
    out.push_str(&text[kept_from..]);
    let left = tables.len() - 1;
    let out = if out.trim().is_empty() { String::new() } else { format!("{}\n", out.trim_end()) };
    let after = entries(&out)?;
    let is_as_wanted = after.len() == left && after.iter().all(|there| there.name != space.as_str());
    ensure!(is_as_wanted, "the entry of `{space}` cannot be taken out; take it out by hand");
    Ok(Some((out, left)))
}

fn parse(text: &str) -> Result<Document<&str>> {
    Document::parse(text).map_err(|error| anyhow::anyhow!("this is not TOML: {}; mend it first", one_line(&error)))
}

fn one_line(error: &toml_edit::TomlError) -> String {
    error.to_string().lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

fn tables<'d>(document: &'d Document<&str>) -> Result<Vec<&'d Table>> {
    match document.get(SPACE) {
        None => Ok(Vec::new()),
        Some(Item::ArrayOfTables(tables)) => Ok(tables.iter().collect()),
        Some(Item::None | Item::Value(_) | Item::Table(_)) => {
            bail!("`{SPACE}` is not written as [[{SPACE}]] sections; write it so, then it can be edited")
        }
    }
}

fn found(table: &Table) -> Found {
    let text = |key: &str| table.get(key).and_then(Item::as_str).map(str::to_owned);
    Found {
        name: text("name").unwrap_or_default(),
        credentials: text("credentials"),
        is_enabled: table.get("enabled").and_then(Item::as_bool).unwrap_or(true),
    }
}

/// Where each section of the document starts, in order.
fn heads(document: &Document<&str>) -> Vec<usize> {
    let mut heads = Vec::new();
    for (_, item) in document.iter() {
        collect(item, &mut heads);
    }
    heads.sort_unstable();
    heads
}

/// Where the sections of one entry start: its own and those below it.
fn heads_of(table: &Table) -> Vec<usize> {
    let mut heads = Vec::new();
    collect_table(table, &mut heads);
    heads
}

fn collect(item: &Item, heads: &mut Vec<usize>) {
    match item {
        Item::Table(table) => collect_table(table, heads),
        Item::ArrayOfTables(tables) => tables.iter().for_each(|table| collect_table(table, heads)),
        Item::None | Item::Value(_) => {}
    }
}

fn collect_table(table: &Table, heads: &mut Vec<usize>) {
    // One without a header of its own, such as that of a dotted key, is inside another section.
    if !table.is_implicit() && !table.is_dotted() {
        heads.extend(table.span().map(|span| span.start));
    }
    for (_, item) in TableLike::iter(table) {
        collect(item, heads);
    }
}

/// The start of the section's block: of the comment lines right above its header.
fn block_start(text: &str, head: usize) -> usize {
    let mut start = text[..head].rfind('\n').map_or(0, |end| end + 1);
    while start > 0 {
        let above = text[..start - 1].rfind('\n').map_or(0, |end| end + 1);
        if !text[above..start].trim_start().starts_with('#') {
            break;
        }
        start = above;
    }
    start
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# The spaces of this host.
# Ask before you touch it.

allow_mass_close = false # not today

# Alpha, for the shop.
[[space]]
name = \"alpha\"   # aligned
credentials = \"/c/alpha\"
[space.limits]
ack_wait_ms = 1000
[space.tags]
\"a.b\" = '[[space]]'

# Beta.
# Two lines.
[[space]]
name = \"beta\"
credentials = \"\"\"
/c/beta
[[space]]
name = \"nobody\"
\"\"\"
enabled = false

[[space]]
credentials = \"/c/gamma\"
name = 'gamma'
# the end
";

    fn entry(name: &str) -> Entry {
        Entry {
            space: name.parse().unwrap(),
            credentials: format!("/c/{name}").into(),
            servers: Vec::new(),
            is_enabled: true,
            tags: BTreeMap::new(),
        }
    }

    fn names(text: &str) -> Vec<String> {
        entries(text).unwrap().into_iter().map(|found| found.name).collect()
    }

    #[test]
    fn an_entry_is_added_at_the_end_and_nothing_else_changes() {
        let added = add(FILE, &entry("delta")).unwrap();
        assert_eq!(added, format!("{FILE}\n[[space]]\nname = \"delta\"\ncredentials = \"/c/delta\"\n"));
        assert_eq!(names(&added), ["alpha", "beta", "gamma", "delta"]);
        assert_eq!(add("", &entry("a")).unwrap(), "[[space]]\nname = \"a\"\ncredentials = \"/c/a\"\n");
        let full = Entry {
            servers: vec!["nats://a:1".into(), "nats://b:2".into()],
            is_enabled: false,
            tags: BTreeMap::from([("tier".to_owned(), "go\"ld".to_owned())]),
            ..entry("b")
        };
        let text = "[[space]]\nname = \"b\"\ncredentials = \"/c/b\"\nservers = [\"nats://a:1\", \"nats://b:2\"]\nenabled = false\n";
        assert_eq!(full.text().unwrap(), format!("{text}tags = {{ \"tier\" = 'go\"ld' }}\n"));
    }

    #[test]
    fn an_entry_goes_with_its_comment_and_its_sections() {
        let (without_alpha, left) = remove(FILE, &"alpha".parse().unwrap()).unwrap().unwrap();
        let start = FILE.find("# Alpha").unwrap();
        let end = FILE.find("# Beta").unwrap();
        assert_eq!(without_alpha, format!("{}{}", &FILE[..start], &FILE[end..]));
        assert_eq!(left, 2);
        let (without_beta, _) = remove(FILE, &"beta".parse().unwrap()).unwrap().unwrap();
        let to = FILE.rfind("[[space]]").unwrap();
        assert_eq!(without_beta, format!("{}{}", &FILE[..end], &FILE[to..]));
        let (without_gamma, _) = remove(FILE, &"gamma".parse().unwrap()).unwrap().unwrap();
        assert_eq!(without_gamma, format!("{}\n", FILE[..to].trim_end()));
        assert_eq!(remove(FILE, &"Alpha".parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn adding_and_removing_gives_the_same_bytes() {
        let added = add(FILE, &entry("delta")).unwrap();
        assert_eq!(remove(&added, &"delta".parse().unwrap()).unwrap().unwrap(), (FILE.to_owned(), 3));
        let one = add("", &entry("a")).unwrap();
        assert_eq!(remove(&one, &"a".parse().unwrap()).unwrap().unwrap(), (String::new(), 0));
    }

    #[test]
    fn sections_that_lie_apart_all_go() {
        let text = "[[space]]\nname = \"a\"\n\n# other\n[other]\nx = 1\n\n# limits of a\n[space.limits]\ny = 2\n\n[[space]]\nname = \"b\"\n";
        let (left, _) = remove(text, &"a".parse().unwrap()).unwrap().unwrap();
        assert_eq!(left, "# other\n[other]\nx = 1\n\n[[space]]\nname = \"b\"\n");
    }

    #[test]
    fn what_cannot_be_edited_is_refused() {
        let cases = [
            ("a = \n", "not TOML"),
            ("space = [{ name = \"x\" }]\n", "not written as [[space]]"),
            ("[space]\nname = \"x\"\n", "not written as [[space]]"),
            ("[[space]]\nname = \"ALPHA\"\n", "an entry for `ALPHA` already"),
        ];
        for (text, part) in cases {
            let error = format!("{:#}", add(text, &entry("alpha")).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }
}
