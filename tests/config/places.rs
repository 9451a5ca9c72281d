//! Where the files are looked for without options.

use std::fs;

use lanekeeper::config::{HostConfig, Places};

use crate::files::{Files, assert_lines, space};

fn places(files: &Files, variable: Option<&str>) -> Places {
    Places { variable: variable.map(|name| files.path(name)), dirs: vec![files.path("etc"), files.path("here")] }
}

#[test]
fn the_option_then_the_variable_then_the_directories_in_order() {
    let files = Files::new();
    fs::create_dir(files.path("etc")).unwrap();
    fs::create_dir(files.path("here")).unwrap();
    let host = |variable, option: Option<&str>| {
        let option = option.map(|name| files.path(name));
        HostConfig::find_in(&places(&files, variable), option.as_deref()).unwrap()
    };
    let nothing = host(None, None);
    assert_eq!((nothing.file.clone(), nothing.manifest.clone()), (None, files.path("here/spaces.toml")));
    assert_eq!(nothing, HostConfig { manifest: nothing.manifest.clone(), ..HostConfig::default() });
    files.write("here/lanekeeper.toml", "host = \"here\"\n");
    assert_eq!(host(None, None).host, "here");
    files.write("etc/lanekeeper.toml", "host = \"etc\"\n");
    assert_eq!(host(None, None).host, "etc");
    files.write("v.toml", "host = \"variable\"\n");
    assert_eq!(host(Some("v.toml"), None).host, "variable");
    files.write("o.toml", "host = \"option\"\n");
    assert_eq!(host(Some("v.toml"), Some("o.toml")).host, "option");
}

#[test]
fn a_file_that_is_named_or_there_is_never_passed_over() {
    let files = Files::new();
    files.write("here/lanekeeper.toml", "host = \"here\"\n");
    let missing = HostConfig::find_in(&places(&files, Some("none.toml")), None).unwrap_err();
    assert_lines(&files.lines(&missing), &["none.toml:1:1: the file does not exist; create it or name the right one"]);
    fs::create_dir_all(files.path("etc/lanekeeper.toml")).unwrap();
    let unreadable = HostConfig::find_in(&places(&files, None), None).unwrap_err();
    assert_lines(&files.lines(&unreadable), &["etc/lanekeeper.toml:1:1: this is not a regular file; name a file"]);
    fs::remove_dir(files.path("etc/lanekeeper.toml")).unwrap();
    std::os::unix::fs::symlink("gone", files.path("etc/lanekeeper.toml")).unwrap();
    let dangling = HostConfig::find_in(&places(&files, None), None).unwrap_err();
    assert_lines(
        &files.lines(&dangling),
        &["etc/lanekeeper.toml:1:1: the file does not exist; create it or name the right one"],
    );
}

#[test]
fn the_manifest_lies_beside_the_configuration() {
    let files = Files::new();
    let config = files.write("etc/lanekeeper.toml", "host = \"a\"\n");
    let manifest = || HostConfig::load(&config).unwrap().manifest;
    assert_eq!(manifest(), files.path("etc/spaces.toml"), "named in the fault when nothing is there");
    files.write("etc/spaces.d/a.toml", space("a"));
    assert_eq!(manifest(), files.path("etc/spaces.d"));
    files.write("etc/spaces.toml", space("a"));
    assert_eq!(manifest(), files.path("etc/spaces.toml"));
    files.write("etc/lanekeeper.toml", "manifest = \"../other/m.toml\"\n");
    assert_eq!(manifest(), files.path("etc/../other/m.toml"));
    files.write("etc/lanekeeper.toml", "manifest = \"/m.toml\"\n");
    assert_eq!(manifest(), std::path::Path::new("/m.toml"));
}

#[test]
fn the_standard_places_are_these() {
    let standard = Places::standard();
    assert_eq!(standard.dirs, ["/etc/lanekeeper", ""].map(std::path::PathBuf::from));
    assert_eq!(standard.variable, std::env::var_os("LANEKEEPER_CONFIG").map(Into::into));
}
