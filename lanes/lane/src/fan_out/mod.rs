//! The fan-out writer's judgement: which members get a copy of a post.
//!
//! Owns the decision and the memory of which posts were judged lately (a join needs it). It must not publish, and it grants
//! nothing: a routed copy is released only by the reader.

mod judged;

use std::sync::Arc;

use lanekeeper_wire::{Bucket, DeliveryClass, EntryReason, EntryTemplate, PostFault, Space, message::check_post};

pub(crate) use judged::{Judged, Missed};

use crate::{
    copies::Copy,
    intake::Delivery,
    registry::Registry,
    stage::{Judge, Verdict},
};

/// Judges posts of CHAT.
#[derive(Debug)]
pub(crate) struct FanOut {
    /// The space.
    pub space: Space,
    /// Who is a member of what.
    pub registry: Arc<Registry>,
    /// Which posts were judged.
    pub judged: Arc<Judged>,
}

impl Judge for FanOut {
    const PART: &'static str = "fan_out";
    const NEEDS: &'static [Bucket] = &[Bucket::Members, Bucket::Channels];

    fn judge(&self, delivery: &Delivery) -> Verdict {
        let post = match check_post(&self.space, delivery.subject.as_str(), &delivery.payload) {
            Ok(post) => post,
            Err(fault) => return refuse(&fault),
        };
        let tables = self.registry.tables();
        // Noted under the same lock as the look-up, so that a join knows exactly which posts did not see its row.
        self.judged.note(delivery.seq, &post.channel);
        match tables.class(&post.channel) {
            DeliveryClass::Live => Verdict::Copies(Vec::new()),
            DeliveryClass::Durable => {
                let mut template = None;
                let mut copies = Vec::new();
                tables.recipients(&post.channel, delivery.seq, &post.sender, |member, generation| {
                    let template = template
                        .get_or_insert_with(|| EntryTemplate::new(&post, delivery.seq, EntryReason::DurableChannel));
                    let payload = template.for_generation(generation);
                    copies.push(Copy { to: member.clone(), seq: delivery.seq, payload });
                });
                Verdict::Copies(copies)
            }
        }
    }

    fn settled(&self, _delivery: &Delivery) {}
}

fn refuse(fault: &PostFault) -> Verdict {
    Verdict::Term(fault.code(), fault.to_string())
}
