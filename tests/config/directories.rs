//! A manifest that is a directory: which files count, and that it is one manifest.

use std::{fs, os::unix::fs::symlink};

use lanekeeper::{config::HostConfig, manifest};

use crate::files::{Files, assert_lines, space};

#[test]
fn every_toml_file_counts_and_nothing_else() {
    let files = Files::new();
    files.write("d/b.toml", space("beta"));
    files.write("d/a.toml", format!("{}{}", space("alpha"), space("gamma")));
    for other in
        ["d/.c.toml", "d/.c.toml.swp", "d/c.toml~", "d/c.toml.bak", "d/README.md", "d/..data/c.toml", "d/sub/c.toml"]
    {
        files.write(other, "not read\n");
    }
    let manifest = files.manifest("d").unwrap();
    let names: Vec<String> = manifest.spaces.keys().map(ToString::to_string).collect();
    assert_eq!(names, ["alpha", "beta", "gamma"]);
    let beta = &manifest.spaces[&"beta".parse().unwrap()];
    // Relative to the file that names them.
    assert_eq!(beta.credentials, files.path("d/credentials/beta"));
    let origin = &manifest.origins[&"gamma".parse().unwrap()];
    assert_eq!((origin.file.clone(), origin.line, origin.column), (files.path("d/a.toml"), 5, 8));
}

#[test]
fn one_bad_file_of_many_refuses_everything_and_all_faults_are_told() {
    let files = Files::new();
    for name in ["a", "b", "c", "d"] {
        files.write(&format!("m/{name}.toml"), space(name));
    }
    files.manifest("m").unwrap();
    files.write("m/e.toml", "[[space]]\nname = \"e\"\n");
    files.write("m/f.toml", "");
    files.write("m/g.toml", "[[space]\n");
    files.write("m/h.toml", "[[space]]\nname = \"B\"\ncredentials = \"credentials/b\"\n");
    fs::create_dir(files.path("m/i.toml")).unwrap();
    symlink("gone", files.path("m/j.toml")).unwrap();
    assert_lines(
        &files.manifest_faults("m"),
        &[
            "m/e.toml:1:1: `credentials` is missing in this `space`: it is the directory with the lane's credential files, `delivery.creds` and its neighbours; add the line `credentials = …`",
            "m/f.toml:1:1: the file is empty: an empty file is taken for a broken write, never for `nothing`; write it again, or say `allow_empty = true` in the manifest where no space is wanted",
            "m/g.toml:1:9: this is not TOML: unclosed array table, expected `]`; correct the line, what comes after it is judged then",
            "m/h.toml:2:8: space `B` and `b` (m/b.toml:2) differ only by case, `.`, `-` or `_`: their files and metrics could be taken for each other; rename one",
            "m/h.toml:3:15: credentials `credentials/b` are also those of space `b` (m/b.toml:3): each space signs in as itself; give it its own directory",
            "m/i.toml:1:1: this is not a regular file; name a file",
            "m/j.toml:1:1: the file does not exist; create it or name the right one",
        ],
    );
}

#[test]
fn a_directory_without_files_is_no_manifest() {
    let files = Files::new();
    fs::create_dir(files.path("d")).unwrap();
    const LINE: &str = "d:1:1: the manifest directory holds no *.toml file: an empty directory is never taken for `no spaces`; add a file, or one that says `allow_empty = true`";
    assert_lines(&files.manifest_faults("d"), &[LINE]);
    files.write("d/.hidden.toml", space("a"));
    assert_lines(&files.manifest_faults("d"), &[LINE]);
    files.write("d/none.toml", "allow_empty = true\n");
    assert!(files.manifest("d").unwrap().spaces.is_empty());
}

#[test]
fn a_swapped_link_is_followed() {
    let files = Files::new();
    files.write("v1/s.toml", space("one"));
    files.write("v2/s.toml", space("two"));
    symlink("v1", files.path("..data")).unwrap();
    symlink("..data/s.toml", files.path("s.toml")).unwrap();
    let first = files.manifest("s.toml").unwrap();
    symlink("v2", files.path("..next")).unwrap();
    fs::rename(files.path("..next"), files.path("..data")).unwrap();
    let second = files.manifest("s.toml").unwrap();
    assert!(first.spaces.contains_key(&"one".parse().unwrap()) && second.spaces.contains_key(&"two".parse().unwrap()));
    assert_ne!(first.hash, second.hash);
    // Credentials are found from the path that was named, not from where the link leads.
    assert_eq!(second.spaces.values().next().unwrap().credentials, files.path("credentials/two"));
}

#[test]
fn the_hash_is_that_of_the_content_and_of_nothing_else() {
    let files = Files::new();
    files.write("d/a.toml", space("a"));
    files.write("d/b.toml", space("b"));
    let first = files.manifest("d").unwrap();
    fs::rename(files.path("d"), files.path("e")).unwrap();
    let moved = files.manifest("e").unwrap();
    assert_eq!(first.hash, moved.hash);
    assert_eq!(first.hash.len(), 64);
    files.write("e/b.toml", format!("# a remark\n{}", space("b")));
    let remarked = files.manifest("e").unwrap();
    assert_ne!(remarked.hash, moved.hash);
    assert_eq!(remarked.spaces, moved.spaces, "a space that moves to another line has not changed");
    // The same text in other files is not the same content.
    files.write("f/a.toml", format!("{}{}", space("a"), space("b")));
    files.write("g/a.toml", space("a"));
    files.write("g/b.toml", space("b"));
    assert_ne!(files.manifest("f").unwrap().hash, files.manifest("g").unwrap().hash);
}

#[test]
fn a_space_takes_what_it_does_not_set_from_the_host() {
    let files = Files::new();
    files.write(
        "s.toml",
        format!(
            "allow_mass_close = true\n{}servers = [\"tls://own:1\"]\nenabled = false\n[space.limits]\nmax_in_hand = 64\n[space.tags]\nplan = \"x\"\n{}",
            space("a"),
            space("b")
        ),
    );
    let config = files.write(
        "l.toml",
        "servers = [\"nats://host:1\"]\nmanifest = \"s.toml\"\n[lane]\nmax_in_flight = 100\nack_wait_ms = 5000\n",
    );
    let host = HostConfig::load(&config).unwrap();
    assert_eq!(host.manifest, files.path("s.toml"));
    let manifest = manifest::load(&host.manifest, &host).unwrap();
    assert!(manifest.allow_mass_close);
    let [a, b] = ["a", "b"].map(|name| &manifest.spaces[&name.parse().unwrap()]);
    assert_eq!((a.servers[0].host(), a.enabled, a.limits.max_in_hand), ("own", false, 64));
    assert_eq!((b.servers[0].host(), b.enabled, b.limits.max_in_hand), ("host", true, 4096));
    for spec in [a, b] {
        assert_eq!((spec.limits.max_in_flight, spec.limits.ack_wait.as_millis()), (100, 5000));
    }
    assert_eq!(a.tags["plan"], "x");
}
