//! The Cotal wire contract as types: tokens, subjects, names, messages, records, frames.
//!
//! This crate owns what bytes and names on the broker look like, in both directions. It must not know a broker client,
//! an async runtime or a clock: everything here is a pure function of its arguments, and every parser takes any bytes.

pub mod channel;
pub mod control;
pub mod entry;
pub mod frame;
pub mod interval;
mod json;
pub mod liveness;
pub mod message;
pub mod names;
mod pattern;
pub mod post;
pub mod principal;
pub mod record;
pub mod reply;
pub mod subject;
mod text;
pub mod timer;
pub mod token;

pub use channel::{Channel, ChannelFault, ChannelPattern, MAX_CHANNEL_CHARS};
pub use control::{
    ControlRequest, DEFAULT_HISTORY_LIMIT, DeliveryOp, MAX_HISTORY_LIMIT, MAX_REQUEST_BYTES, RawRequest, RequestFault,
};
pub use entry::{EntryFault, EntryReason, EntryTemplate, InboxEntry};
pub use frame::{DeliveryFrame, FRAME_HEADER, FRAME_VERSION, FrameFault};
pub use interval::Interval;
pub use liveness::{LivenessAnswer, LivenessFault, Responder};
pub use message::{CheckedPost, Message, MessageFault, PostFault};
pub use names::{
    Bucket, CHANNEL_DEFAULTS_KEY, FANOUT_DURABLE, FEED_KEY, LEASE_KEY, MemberKey, MemberKeyFault, READER_DURABLE,
    StreamKind,
};
pub use post::{Part, Post, Sender};
pub use principal::{Lifecycle, Principal};
pub use record::{
    AclRow, Card, ChannelConfig, ChannelDefaults, ClosedInterval, DeliveryClass, FeedHeartbeat, FeedRow, LeaseRow,
    MembershipRow, MembershipState, PresenceFault, PresenceRow, PresenceStatus, RecordFault, ReplayWindow,
};
pub use reply::{ControlReply, HistoryPage, JoinData, MembershipItem, RawHistoryPage, ReplyFault};
pub use subject::{CONTROL_ADMIN_QUEUE, CONTROL_QUEUE, Plane, Subject, SubjectFault};
pub use timer::{MAX_DEADLINE_MS, ScheduleRequest, TimerFault, TimerSubject, TimerVerb};
pub use token::{Actor, EndpointToken, Epoch, InstanceId, LifecycleUid, Owner, Role, Space, TimerId, TokenFault};
