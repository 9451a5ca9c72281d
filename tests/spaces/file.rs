//! A manifest that is one file.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::Value;

use crate::ground::{Ground, listed};

/// As a careful person wrote it.
const WRITTEN: &str = "\
# The spaces of host one.
# Tell the shop before you touch theirs.

# The shop's.
[[space]]
name = \"shop\"       # since 2025
credentials = \"/nowhere/shop\"
tags = { tier = 'gold' } # pays

[space.limits]
max_in_hand = 128   # small
";

#[tokio::test(flavor = "multi_thread")]
async fn a_space_is_made_and_a_lane_can_be_opened_with_it() {
    let ground = Ground::new("spaces.toml").await;
    let mut adding = ground.adding("demo");
    adding.args(["--tag", "tier=gold", "--tag", "region=eu", "--own-server"]);
    let told = ground.run(adding).await.good();
    assert!(told.starts_with("added `demo`"), "{told}");
    let spec = ground.load().spaces.into_values().next().unwrap();
    assert_eq!((spec.space.as_str(), spec.enabled, spec.tags.len()), ("demo", true, 2));
    assert_eq!(spec.servers, vec![ground.mesh.broker.url().parse().unwrap()]);
    let files = ["connection-evictor.creds", "delivery.creds", "membership-observer.creds", "membership-rw.creds"];
    assert_eq!(listed(&spec.credentials), files);
    for path in [&ground.credentials, &spec.credentials] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700, "{}", path.display());
    }
    ground.preflight("demo").await.unwrap();
    ground.assert_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_wrote_stays_to_the_byte() {
    let ground = Ground::new("spaces.toml").await;
    fs::write(&ground.manifest, WRITTEN).unwrap();
    fs::set_permissions(&ground.manifest, fs::Permissions::from_mode(0o640)).unwrap();
    ground.add("one").await;
    let after_one = ground.text();
    assert!(after_one.starts_with(WRITTEN) && after_one.len() > WRITTEN.len(), "{after_one}");
    ground.add("two").await;
    ground.run(ground.removing("one")).await.good();
    assert_eq!(ground.names(), ["shop", "two"]);
    ground.run(ground.removing("two")).await.good();
    assert_eq!(ground.text(), WRITTEN);
    assert_eq!(fs::metadata(&ground.manifest).unwrap().permissions().mode() & 0o777, 0o640);
    ground.assert_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_space_leaves_a_manifest_that_says_so() {
    let ground = Ground::new("spaces.toml").await;
    ground.add("only").await;
    let told = ground.run(ground.removing("only")).await.good();
    assert!(told.contains("reload --allow-mass-close") && told.contains("are kept"), "{told}");
    assert!(ground.load().spaces.is_empty() && ground.text().contains("allow_empty = true"), "{}", ground.text());
    ground.run(ground.removing("only")).await.bad(&["no entry for `only`", "nothing was changed"]);
    // Its account and credentials were kept, so it comes back as it was.
    let kept = fs::read(ground.credentials.join("only/delivery.creds")).unwrap();
    ground.add("only").await;
    assert_eq!(ground.names(), ["only"]);
    assert!(!ground.text().contains("allow_empty"), "{}", ground.text());
    let key =
        |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().find(|line| line.starts_with("SU")).map(str::to_owned);
    let now = fs::read(ground.credentials.join("only/delivery.creds")).unwrap();
    assert!(key(&kept).is_some() && key(&kept) == key(&now), "the same user");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_or_cannot_be_read_is_refused_before_anything_is_made() {
    let ground = Ground::new("spaces.toml").await;
    ground.add("demo").await;
    let before = ground.text();
    for (name, part) in [("demo", "entry for `demo` already"), ("Demo", "entry for `demo` already")] {
        ground.run(ground.adding(name)).await.bad(&[part, "remove it first"]);
    }
    let status = ground.run(ground.adding("a.b")).await.status;
    assert_eq!(status.code(), Some(2), "no space can have this name");
    assert_eq!((ground.text(), listed(&ground.credentials)), (before.clone(), vec!["demo".to_owned()]));

    for (text, part) in [
        (format!("{before}\n[[space]]\nname = 7\n"), "mend them first"),
        ("space = [\n".to_owned(), "not TOML"),
        ("space = [{ name = \"x\", credentials = \"/x\" }]\n".to_owned(), "[[space]] sections"),
        (String::new(), "mend them first"),
    ] {
        fs::write(&ground.manifest, &text).unwrap();
        ground.run(ground.adding("other")).await.bad(&[part]);
        assert_eq!((ground.text(), listed(&ground.credentials)), (text, vec!["demo".to_owned()]));
    }
    ground.assert_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_or_its_keys_the_manifest_stays() {
    let ground = Ground::new("spaces.toml").await;
    ground.add("demo").await;
    let before = ground.text();
    ground.run(ground.adding_at("other", "nats://127.0.0.1:1")).await.bad(&["manifest was not changed", "127.0.0.1:1"]);
    let seed = ground.home().join("operator-signing.seed");
    fs::set_permissions(&seed, fs::Permissions::from_mode(0o644)).unwrap();
    ground.run(ground.adding("other")).await.bad(&["operator-signing.seed", "chmod 600"]);
    fs::set_permissions(&seed, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&ground.credentials, fs::Permissions::from_mode(0o755)).unwrap();
    ground.run(ground.adding("other")).await.bad(&["credentials", "chmod 700"]);
    fs::set_permissions(&ground.credentials, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(ground.text(), before);
    ground.add("other").await;
    ground.preflight("other").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_to_the_manifest_stays_a_link() {
    let ground = Ground::new("spaces.toml").await;
    let real = ground.manifest.with_file_name("real.toml");
    fs::write(&real, WRITTEN).unwrap();
    std::os::unix::fs::symlink("real.toml", &ground.manifest).unwrap();
    ground.add("demo").await;
    assert!(fs::symlink_metadata(&ground.manifest).unwrap().is_symlink());
    assert!(fs::read_to_string(real).unwrap().contains("name = \"demo\""));
    assert_eq!(ground.names(), ["demo", "shop"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn spaces_are_listed() {
    let ground = Ground::new("spaces.toml").await;
    ground.add("b").await;
    let mut adding = ground.adding("a");
    adding.arg("--disabled");
    ground.run(adding).await.good();
    let told = ground.run(ground.command(&["space", "list"])).await.good();
    let credentials = fs::canonicalize(&ground.credentials).unwrap();
    let expected = format!(
        "SPACE  ENABLED   CREDENTIALS\na      no        {0}/a\nb      yes       {0}/b\n",
        credentials.display()
    );
    assert_eq!(told, expected);
    let mut listing = ground.command(&["space", "list", "--json"]);
    listing.arg("--home").arg(ground.home());
    let listed: Value = serde_json::from_str(&ground.run(listing).await.good()).unwrap();
    assert_eq!((&listed[0]["space"], &listed[0]["enabled"]), (&Value::from("a"), &Value::from(false)));
    assert!(listed[1]["account"].as_str().unwrap().starts_with('A'), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_lose_nothing() {
    let ground = Ground::new("spaces.toml").await;
    fs::write(&ground.manifest, WRITTEN).unwrap();
    many_at_once(&ground, vec!["shop".to_owned()]).await;
    assert!(ground.text().starts_with(WRITTEN));
}

/// Six processes add a space each, two of them the same, while two more take one out each.
pub(crate) async fn many_at_once(ground: &Ground, there: Vec<String>) {
    for name in ["old1", "old2"] {
        ground.add(name).await;
    }
    let names = ["n1", "n2", "n3", "n4", "n5", "n5"];
    let adding = names.map(|name| ground.run(ground.adding(name)));
    let removing = ["old1", "old2"].map(|name| ground.run(ground.removing(name)));
    let (added, removed) = tokio::join!(futures::future::join_all(adding), futures::future::join_all(removing));
    let good = added.iter().filter(|ended| ended.status.success()).count();
    assert_eq!(good, 5, "each once: {added:#?}");
    assert!(added.iter().all(|ended| ended.status.success() || ended.stderr.contains("`n5` already")), "{added:#?}");
    assert!(removed.iter().all(|ended| ended.status.success()), "{removed:#?}");
    let mut expected = there;
    expected.extend(["n1", "n2", "n3", "n4", "n5"].map(str::to_owned));
    expected.sort();
    assert_eq!(ground.names(), expected);
    for name in ["n1", "n2", "n3", "n4", "n5"] {
        ground.preflight(name).await.unwrap();
    }
    ground.assert_tidy();
}
