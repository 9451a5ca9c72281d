//! The story: two members online, one away; the one that was away misses nothing; then it may read no more.
//!
//! Owns the steps, what each must show, and the figures it is told with. A step is told only after it was checked.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use lanekeeper_broker::wait_until;
use lanekeeper_lane::Watch;
use lanekeeper_peer::PostDraft;
use lanekeeper_wire::{StreamKind, subject};
use tokio::time::Instant;

use super::{
    narrator::{Narrator, took},
    online::{Online, PATIENCE},
    stage::Stage,
};

/// How many posts cleo misses.
const MISSED: usize = 100;
/// How many posts cleo may not read.
const WITHHELD: usize = 10;
/// Posts under way at a time.
const IN_FLIGHT: usize = 64;
/// How long copies that a killed run had taken and not acknowledged stay away: the consumers' ack wait, and a margin.
const LEFTOVER_PATIENCE: Duration = Duration::from_secs(90);

/// One telling.
pub(super) struct Story<'a> {
    stage: &'a Stage,
    lane: Watch,
    say: &'a mut Narrator,
    /// Starts the text of each post of this telling, so that a resumed space tells them from earlier ones.
    run: String,
    /// Durable copies that had reached bob before the first post.
    bob_before: u64,
}

impl<'a> Story<'a> {
    /// A story on `stage`, whose lane serves.
    pub(super) fn new(stage: &'a Stage, lane: Watch, say: &'a mut Narrator) -> Self {
        Self { stage, lane, say, run: format!("run {:08x}", rand::random::<u32>()), bob_before: 0 }
    }

    /// Tells it.
    ///
    /// # Errors
    /// The first step that did not hold, by name.
    pub(super) async fn play(mut self) -> Result<()> {
        let started = Instant::now();
        let (routed, handed) = (read(&self.lane.fan_out.stored), read(&self.lane.reader.stored));
        let did_not_hold = |step: &'static str| format!("this step did not hold: {step}");
        let (ada, mut bob) = self.gather().await.context(did_not_hold("the members join, cleo goes away"))?;
        self.post(&ada, 0, MISSED).await.context(did_not_hold("ada posts"))?;
        self.bob_has_all(&mut bob).await.context(did_not_hold("bob, online, has every post"))?;
        self.copies_wait().await.context(did_not_hold("copies wait for cleo"))?;
        let mut cleo = self.cleo_returns().await.context(did_not_hold("cleo comes back and misses nothing"))?;
        let (ada, bob) = (&ada, &mut bob);
        self.cleo_loses_the_right(ada, bob, &mut cleo).await.context(did_not_hold("cleo may read no more"))?;
        let (routed, handed) = (read(&self.lane.fan_out.stored) - routed, read(&self.lane.reader.stored) - handed);
        self.say.line(format_args!(
            "The story held: {} posts, {routed} copies routed, {handed} authorised and handed over, {WITHHELD} withheld, none \
             lost, none twice ({}).",
            MISSED + WITHHELD,
            took(started.elapsed())
        ))
    }

    /// All three join; what an earlier run left behind is handed over first; then cleo goes away.
    async fn gather(&mut self) -> Result<(Online, Online)> {
        let stage = self.stage;
        if stage.is_resumed {
            // The story took it from her the last time.
            stage.site.set_read(&stage.cleo, &[stage.channel.to_pattern()]).await?;
        }
        let ada = Online::connect(stage, &stage.ada, &self.run, false).await?;
        let bob = Online::connect(stage, &stage.bob, &self.run, false).await?;
        let cleo = Online::connect(stage, &stage.cleo, &self.run, false).await?;
        for member in [&ada, &bob, &cleo] {
            member.join(stage).await?;
        }
        self.hand_over_leftovers(&[&ada, &bob, &cleo]).await?;
        cleo.leave().await?;
        self.bob_before = bob.peer.counters().durable_received;
        self.say.step(format_args!(
            "ada, bob and cleo are members of the durable channel `{}`. cleo goes offline; ada and bob stay online.",
            stage.channel
        ))?;
        Ok((ada, bob))
    }

    async fn hand_over_leftovers(&mut self, members: &[&Online]) -> Result<()> {
        let left = self.copies_held().await?;
        if left == 0 {
            return Ok(());
        }
        let limit = LEFTOVER_PATIENCE.as_secs();
        self.say.line(format_args!(
            "   ({left} copies of an earlier run are handed over first; what it had taken and not acknowledged comes again \
             within {limit} s)"
        ))?;
        self.wait_empty(LEFTOVER_PATIENCE).await?;
        let others: usize = members.iter().map(|member| member.heard().others).sum();
        self.say.line(format_args!("   (done: {others} older posts reached the members)"))
    }

    async fn post(&mut self, ada: &Online, from: usize, count: usize) -> Result<()> {
        let started = Instant::now();
        self.post_silently(ada, from, count).await?;
        self.say.step(format_args!(
            "ada posts {count} messages; the broker has stored all of them ({}).",
            took(started.elapsed())
        ))
    }

    async fn post_silently(&self, ada: &Online, from: usize, count: usize) -> Result<()> {
        let drafts = self.texts(from, count).into_iter().map(PostDraft::text);
        for posted in ada.peer.post_pipelined(&self.stage.channel, drafts, IN_FLIGHT).await {
            posted?;
        }
        Ok(())
    }

    async fn bob_has_all(&mut self, bob: &mut Online) -> Result<()> {
        let started = Instant::now();
        let texts = bob.texts(MISSED).await?;
        check_texts("bob", &texts, &self.texts(0, MISSED))?;
        let copies = self.durable_copies_at(bob, MISSED).await?;
        self.say.step(format_args!(
            "bob is online and has all {MISSED}, in order, each once: live, with {copies} durable copies as the backstop, \
             recognised by their ids and acknowledged ({}).",
            took(started.elapsed())
        ))
    }

    /// Waits until `count` posts of this run have reached bob as durable copies as well, and are settled.
    async fn durable_copies_at(&self, bob: &Online, count: usize) -> Result<usize> {
        let wanted = self.bob_before + u64::try_from(count)?;
        wait_until("bob's durable copies", PATIENCE, async || {
            (bob.peer.counters().durable_received >= wanted).then_some(())
        })
        .await?;
        let store = subject::dlv(&self.stage.site.space, &self.stage.bob.lifecycle);
        self.wait_held(StreamKind::Dlv, &store, 0).await?;
        Ok(count)
    }

    async fn copies_wait(&mut self) -> Result<()> {
        let (space, cleo) = (&self.stage.site.space, &self.stage.cleo.lifecycle);
        self.wait_held(StreamKind::Dlv, &subject::dlv(space, cleo), MISSED).await?;
        self.say.step(format_args!(
            "cleo is away: {MISSED} copies, each checked against what she may read, wait for her in the broker."
        ))
    }

    async fn cleo_returns(&mut self) -> Result<Online> {
        let stage = self.stage;
        let started = Instant::now();
        let mut cleo = Online::connect(stage, &stage.cleo, &self.run, true).await?;
        let texts = cleo.texts(MISSED).await?;
        let time = started.elapsed();
        self.wait_held(StreamKind::Dlv, &subject::dlv(&stage.site.space, &stage.cleo.lifecycle), 0).await?;
        check_texts("cleo", &texts, &self.texts(0, MISSED))?;
        self.say.step(format_args!(
            "cleo comes back and receives all {MISSED} she missed, in order, each once; they are acknowledged and gone from \
             the broker ({}).",
            took(time)
        ))?;
        Ok(cleo)
    }

    /// The read ACL is narrowed while cleo is connected; what is posted after that stops at the lane.
    async fn cleo_loses_the_right(&mut self, ada: &Online, bob: &mut Online, cleo: &mut Online) -> Result<()> {
        let (stage, dropped) = (self.stage, &self.lane.reader.dropped);
        let before = read(dropped);
        stage.site.set_read(&stage.cleo, &[]).await?;
        self.post_silently(ada, MISSED, WITHHELD).await?;
        let texts = bob.texts(MISSED + WITHHELD).await?;
        check_texts("bob", &texts, &self.texts(0, MISSED + WITHHELD))?;
        self.durable_copies_at(bob, MISSED + WITHHELD).await?;
        // The lane has judged every copy when it has dropped hers and nothing is left to judge or to hand over.
        let withheld = u64::try_from(WITHHELD)?;
        wait_until("the lane's refusals", PATIENCE, async || (read(dropped) >= before + withheld).then_some(()))
            .await?;
        self.wait_empty(PATIENCE).await?;
        let refused = read(dropped) - before;
        ensure!(refused == withheld, "the lane withheld {refused} copies instead of {withheld}");
        check_texts("cleo", &cleo.heard().texts, &self.texts(0, MISSED))?;
        self.say.step(format_args!(
            "cleo's read ACL is emptied and ada posts {WITHHELD} more: bob has them, live and durably; the lane looked at \
             cleo's right again, dropped all {withheld} copies, and nothing is stored for her or reaches her."
        ))
    }

    /// The texts of this run's posts.
    fn texts(&self, from: usize, count: usize) -> Vec<String> {
        (from..from + count).map(|number| format!("{} post {number}", self.run)).collect()
    }

    /// Copies in all members' stores, judged or not.
    async fn copies_held(&self) -> Result<usize> {
        let (site, space) = (&self.stage.site, &self.stage.site.space);
        let unjudged = site.held(&StreamKind::Inbox.name(space), &subject::dinbox_filter(space)).await?;
        Ok(unjudged + site.held(&StreamKind::Dlv.name(space), &subject::dlv_filter(space)).await?)
    }

    async fn wait_empty(&self, limit: Duration) -> Result<()> {
        let empty = wait_until("empty stores", limit, async || match self.copies_held().await {
            Ok(0) => Some(Ok(())),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        });
        empty.await?
    }

    async fn wait_held(&self, kind: StreamKind, subject: &str, count: usize) -> Result<()> {
        let stream = kind.name(&self.stage.site.space);
        let what = format!("{count} copies in {stream} on {subject}");
        let held = wait_until(&what, PATIENCE, async || match self.stage.site.held(&stream, subject).await {
            Ok(held) => (held == count).then_some(Ok(())),
            Err(error) => Some(Err(error)),
        });
        held.await?
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Every text once and in order, or the first that is not.
fn check_texts(who: &str, got: &[String], wanted: &[String]) -> Result<()> {
    let same = got.iter().zip(wanted).take_while(|(got, wanted)| got == wanted).count();
    ensure!(
        same == got.len() && same == wanted.len(),
        "{who} has {} posts instead of {}; the first that differs is number {same}: {:?} instead of {:?}",
        got.len(),
        wanted.len(),
        got.get(same),
        wanted.get(same)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_lost_doubled_or_swapped_post_is_named() {
        let wanted = list(&["a", "b", "c"]);
        assert!(check_texts("cleo", &wanted, &wanted).is_ok());
        for got in [list(&["a", "b"]), list(&["a", "b", "b", "c"]), list(&["b", "a", "c"]), list(&["a", "b", "c", "c"])]
        {
            let error = check_texts("cleo", &got, &wanted).unwrap_err().to_string();
            assert!(error.contains("the first that differs"), "{error}");
        }
    }
}
