//! Every way a file is replaced is noticed, and nothing else is.

use std::{os::unix::fs::symlink, time::Duration};

use tempfile::TempDir;
use tokio::time::timeout;

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_millis(300);

struct Scene {
    dir: TempDir,
    eyes: Eyes,
    touched: Arc<Notify>,
}

impl Scene {
    fn new() -> Self {
        let touched = Arc::<Notify>::default();
        Self { dir: TempDir::new().unwrap(), eyes: Eyes::new(Arc::clone(&touched), true), touched }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn write(&self, below: &str, text: &str) {
        fs::create_dir_all(self.path(below).parent().unwrap()).unwrap();
        fs::write(self.path(below), text).unwrap();
    }

    fn aim(&mut self, below: &[&str]) {
        let places = below.iter().map(|below| self.path(below)).collect();
        assert!(self.eyes.aim(&places));
    }

    async fn noticed(&self) {
        timeout(PATIENCE, self.touched.notified()).await.expect("the change is noticed");
        while timeout(QUIET, self.touched.notified()).await.is_ok() {}
    }

    async fn not_noticed(&self) {
        assert!(timeout(QUIET, self.touched.notified()).await.is_err(), "nothing that matters happened");
    }
}

#[tokio::test]
async fn each_way_of_replacing_a_file_is_noticed_again_and_again() {
    let mut scene = Scene::new();
    scene.write("conf/spaces.toml", "0");
    scene.aim(&["conf/spaces.toml"]);
    for round in 1..=3 {
        scene.write("conf/spaces.toml", &format!("in place {round}"));
        scene.noticed().await;
        scene.write("conf/new", &format!("renamed {round}"));
        fs::rename(scene.path("conf/new"), scene.path("conf/spaces.toml")).unwrap();
        scene.noticed().await;
        fs::remove_file(scene.path("conf/spaces.toml")).unwrap();
        scene.noticed().await;
        scene.write("conf/spaces.toml", "back");
        scene.noticed().await;
        // The whole directory is replaced; the watch is aimed anew when it is looked at.
        scene.write("next/spaces.toml", "next");
        fs::rename(scene.path("conf"), scene.path(&format!("old{round}"))).unwrap();
        fs::rename(scene.path("next"), scene.path("conf")).unwrap();
        scene.noticed().await;
        scene.aim(&["conf/spaces.toml"]);
    }
}

#[tokio::test]
async fn a_data_swap_is_noticed_at_a_file_and_at_a_directory() {
    for place in ["mount/spaces.toml", "mount/spaces.d"] {
        let mut scene = Scene::new();
        for version in 0..=3 {
            scene.write(&format!("mount/..v{version}/spaces.toml"), &version.to_string());
            scene.write(&format!("mount/..v{version}/spaces.d/a.toml"), &version.to_string());
        }
        let mount = scene.path("mount");
        let swap = |version: u32| {
            symlink(format!("..v{version}"), mount.join("..next")).unwrap();
            fs::rename(mount.join("..next"), mount.join("..data")).unwrap();
        };
        swap(0);
        symlink("..data/spaces.toml", scene.path("mount/spaces.toml")).unwrap();
        symlink("..data/spaces.d", scene.path("mount/spaces.d")).unwrap();
        let places = BTreeSet::from([scene.path(place)]);
        for version in 1..=3 {
            assert!(scene.eyes.aim(&places));
            swap(version);
            scene.noticed().await;
        }
    }
}

#[tokio::test]
async fn what_is_not_there_yet_is_noticed_when_it_comes() {
    let mut scene = Scene::new();
    scene.aim(&["a/b/spaces.toml"]);
    fs::create_dir(scene.path("a")).unwrap();
    scene.noticed().await;
    scene.aim(&["a/b/spaces.toml"]);
    fs::create_dir(scene.path("a/b")).unwrap();
    scene.noticed().await;
    scene.aim(&["a/b/spaces.toml"]);
    scene.write("a/b/spaces.toml", "here");
    scene.noticed().await;
}

#[tokio::test]
async fn reading_and_the_neighbours_are_not_noticed() {
    let mut scene = Scene::new();
    scene.write("lanes/a/delivery.creds", "secret");
    scene.write("lanes/b/delivery.creds", "secret");
    scene.aim(&["lanes/a"]);
    scene.not_noticed().await;
    for _ in 0..3 {
        fs::read(scene.path("lanes/a/delivery.creds")).unwrap();
        fs::read_dir(scene.path("lanes/a")).unwrap().count();
    }
    scene.write("lanes/b/delivery.creds", "other");
    scene.write("lanes/c/delivery.creds", "new");
    scene.write("unrelated", "x");
    scene.not_noticed().await;
    scene.write("lanes/a/delivery.creds", "rotated");
    scene.noticed().await;
}

#[tokio::test]
async fn without_watches_it_says_so_and_goes_on() {
    let touched = Arc::<Notify>::default();
    let mut eyes = Eyes::new(touched, false);
    assert!(!eyes.aim(&BTreeSet::from([PathBuf::from("spaces.toml")])));
}
