//! A manifest that is a directory, one file a space.

use std::fs;

use crate::{
    file::many_at_once,
    ground::{Ground, listed},
};

async fn ground() -> Ground {
    let ground = Ground::new("spaces.d").await;
    fs::create_dir(&ground.manifest).unwrap();
    ground
}

#[tokio::test(flavor = "multi_thread")]
async fn each_space_is_a_file() {
    let ground = ground().await;
    ground.add("a").await;
    ground.add("b").await;
    assert_eq!(listed(&ground.manifest), ["a.toml", "b.toml"]);
    ground.preflight("b").await.unwrap();
    ground.run(ground.adding("A")).await.bad(&["a.toml", "entry for `a` already"]);
    ground.run(ground.removing("a")).await.good();
    assert_eq!(listed(&ground.manifest), ["b.toml"]);
    // An empty directory would be taken for a broken one.
    ground.run(ground.removing("b")).await.good();
    assert_eq!(listed(&ground.manifest), ["no.spaces.toml"]);
    assert!(ground.load().spaces.is_empty());
    ground.add("c").await;
    assert_eq!(listed(&ground.manifest), ["c.toml"]);
    ground.assert_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_several_keeps_the_others() {
    let ground = ground().await;
    let text = "# two of them\n\n[[space]]\nname = \"x\"\ncredentials = \"/nowhere/x\"\n\n# y's\n[[space]]\nname = \"y\"\ncredentials = \"/nowhere/y\"\n";
    fs::write(ground.manifest.join("both.toml"), text).unwrap();
    ground.add("a").await;
    ground.run(ground.removing("x")).await.good();
    let left = fs::read_to_string(ground.manifest.join("both.toml")).unwrap();
    assert_eq!(left, "# two of them\n\n# y's\n[[space]]\nname = \"y\"\ncredentials = \"/nowhere/y\"\n");
    ground.run(ground.removing("y")).await.good();
    assert_eq!(listed(&ground.manifest), ["a.toml"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_that_name_with_something_else_in_it_stays() {
    let ground = ground().await;
    let text = "[[space]]\nname = \"x\"\ncredentials = \"/nowhere/x\"\n";
    fs::write(ground.manifest.join("demo.toml"), text).unwrap();
    ground.run(ground.adding("demo")).await.bad(&["demo.toml", "rename it"]);
    assert_eq!(fs::read_to_string(ground.manifest.join("demo.toml")).unwrap(), text);
    assert!(listed(&ground.credentials).is_empty(), "nothing was made");
    ground.assert_tidy();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_lose_nothing() {
    let ground = ground().await;
    many_at_once(&ground, Vec::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_not_there_is_not_made() {
    let ground = Ground::new("spaces.d").await;
    ground.run(ground.adding("demo")).await.bad(&["does not exist", "create the directory"]);
    assert!(!ground.manifest.exists());
}
