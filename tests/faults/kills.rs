//! The daemon killed over and over in mid fan-out: nothing is lost, and nothing comes twice.

use futures::future::{FutureExt as _, select_all};

use crate::support::{Crew, Daemon, World, crew};

const MEMBERS: usize = 20;
const POSTS: usize = 1000;
const KILLS: usize = 20;
/// Daemons that wait for the lease, so that a takeover follows soon after it is free.
const STANDBYS: usize = 3;
/// Short, so that what a killed daemon had in hand comes again soon.
const ARGS: [&str; 3] = ["--ack-wait-ms", "2000", "--standby"];

fn standby(world: &World) -> Daemon {
    Daemon::start(&world.site, &world.site.url, &world.log(), &ARGS)
}

/// The first of these to serve; the others go on waiting.
async fn first_serving(standbys: &mut Vec<Daemon>) -> Daemon {
    let index = {
        let waits = standbys.iter_mut().map(|daemon| daemon.wait_serving().boxed());
        select_all(waits).await.1
    };
    standbys.swap_remove(index)
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_kills_in_mid_fan_out_lose_nothing_and_double_nothing() {
    let world = World::new().await;
    let mut serving = Daemon::serving(&world.site, &world.log(), &ARGS).await;
    let mut standbys: Vec<Daemon> = (0..STANDBYS).map(|_| standby(&world)).collect();
    let crew = Crew::join(&world, MEMBERS, "team").await;
    let sender = world.connect(&world.member("sender", &["team"]).await).await;
    let mut posted = 0;
    for kill in 0..KILLS {
        let until = POSTS * (kill + 1) / KILLS;
        crew::post(&sender, &crew.channel, posted..until).await;
        // Now right behind the posts, now when some of their copies have arrived, now when most have.
        let fresh = (until - posted) * MEMBERS;
        posted = until;
        let moment = crew.received() + [0, fresh / 50, fresh / 4, fresh / 2, fresh * 9 / 10][kill % 5];
        crew.wait_received(moment.min(posted * MEMBERS - 1)).await.unwrap_or_else(|missing| {
            panic!("before kill {kill}: {missing}\n{}", serving.log_text());
        });
        serving.kill().await;
        serving = first_serving(&mut standbys).await;
        standbys.push(standby(&world));
    }
    let tally = crew.complete(POSTS).await;
    eprintln!("{KILLS} kills, {} copies: {tally:?}", crew.received());
    assert_eq!((tally.lost, tally.duplicated), (0, 0), "{tally:?}");
    for daemon in standbys {
        daemon.stop().await;
    }
    serving.stop().await;
    crew.close().await;
    world.assert_no_violations();
}
