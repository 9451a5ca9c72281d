//! A manifest that is not valid, or would close too much, changes nothing.

use lanekeeper_wire::Space;

use crate::fleet::{Fleet, command, identity, lane};

const SPACES: [&str; 3] = ["ada", "bob", "cyd"];

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_manifest_keeps_every_lane_and_a_later_valid_one_applies() {
    let mut fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.toml", &fleet.manifest(&SPACES));
    let host = fleet.start().await;
    host.until_serving(&SPACES).await;
    let mut before = Vec::new();
    for space in SPACES {
        before.push(identity(&fleet, &host, space).await);
    }
    let whole = fleet.manifest(&SPACES);
    let ada = fleet.entry("ada");
    let broken = [
        ("half a file", whole[..whole.len() - 20].to_owned(), "spaces.toml:"),
        ("an open brace", "{".to_owned(), "spaces.toml:1:"),
        ("nothing", String::new(), "spaces.toml:1:1"),
        ("another type", "space = \"ada\"\n".to_owned(), "spaces.toml:1:"),
        ("a name twice", format!("{whole}{ada}"), "spaces.toml:11:"),
        ("names that fold", format!("{whole}{}", ada.replace("\"ada\"", "\"Ada\"")), "spaces.toml:11:"),
        ("an unknown key", format!("{whole}[other]\n"), "spaces.toml:10:"),
        ("two faults at once", format!("{ada}{ada}colour = 1\n"), "spaces.toml:"),
    ];
    let count = u64::try_from(broken.len()).unwrap();
    for (number, (what, text, place)) in (1..).zip(broken) {
        fleet.replace("conf/spaces.toml", &text);
        let status = host.until(what, |status| status.reloads_refused == number).await;
        let last = status.last_reload.unwrap();
        assert!(!last.applied && last.refused.iter().any(|(at, _)| at.contains(place)), "{what}: {last:?}");
        assert_eq!((status.generation, status.lanes.len()), (1, 3), "{what}");
        if what == "two faults at once" {
            assert!(last.refused.len() >= 2, "{last:?}");
        }
    }
    for (space, before) in SPACES.iter().zip(&before) {
        assert_eq!(before, &identity(&fleet, &host, space).await);
    }
    fleet.add("dan").await;
    fleet.replace("conf/spaces.toml", &fleet.manifest(&["ada", "bob", "cyd", "dan"]));
    let status = host.until_serving(&["ada", "bob", "cyd", "dan"]).await;
    let last = status.last_reload.unwrap();
    assert_eq!(last.opened, ["dan".parse::<Space>().unwrap()], "only what is new is opened");
    assert_eq!((last.unchanged, status.reloads_refused), (3, count));
    for (space, before) in SPACES.iter().zip(&before) {
        assert_eq!(before, &identity(&fleet, &host, space).await);
    }
    host.stop().await;
    fleet.assert_no_violations();
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_more_than_half_needs_to_be_allowed() {
    let fleet = Fleet::new(&SPACES).await;
    fleet.write("conf/spaces.toml", &fleet.manifest(&SPACES));
    let host = fleet.start().await;
    host.until_serving(&SPACES).await;
    let before = identity(&fleet, &host, "bob").await;
    fleet.replace("conf/spaces.toml", &fleet.manifest(&["ada"]));
    let status = host.until("refused", |status| status.reloads_refused == 1).await;
    let last = status.last_reload.unwrap();
    assert!(last.refused[0].1.contains("close 2 of 3") && last.refused[0].1.contains("allow_mass_close"), "{last:?}");
    assert_eq!(before, identity(&fleet, &host, "bob").await);
    let log = fleet.path("reload.log");
    assert!(!command(&host, &["reload"], &log).await, "a plain reload is refused like the file event");
    assert!(command(&host, &["reload", "--allow-mass-close"], &log).await);
    let status = host.until_serving(&["ada"]).await;
    assert_eq!(status.last_reload.unwrap().closed.len(), 2);
    assert_eq!(fleet.connections("bob").await, [0u64; 0]);
    // The other way: the manifest says so itself.
    fleet.replace("conf/spaces.toml", "allow_empty = true\n");
    host.until("refused", |status| status.reloads_refused == 3).await;
    fleet.replace("conf/spaces.toml", "allow_empty = true\nallow_mass_close = true\n");
    let status = host.until("empty", |status| status.lanes.is_empty()).await;
    assert!(lane(&status, "ada").is_none());
    host.stop().await;
    fleet.assert_no_violations();
}
