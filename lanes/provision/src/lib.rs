//! Operators, accounts, credentials, streams and buckets of a space.
//!
//! For `lanekeeper dev`, the provisioning commands and tests. It holds signing keys, so the running daemon must never
//! use it. It knows the wire contract and the broker's account model; it must not know the daemon, its manifest or its
//! lanes.

pub mod credentials;
pub mod home;
pub mod jwt;
pub mod members;
pub mod private_file;
pub mod profile;
mod rows;
pub mod space_account;
pub mod streams;
pub mod system_client;

pub use credentials::{Credentials, CredentialsFault};
pub use home::{Home, HomeFault};
pub use jwt::Validity;
pub use members::{
    MemberFault, MemberSettings, add_member, new_lifecycle_uid, retire_member, set_channel_config, set_read_acl,
};
pub use profile::{AgentProfile, DeliveryExtras, SpaceProfile, SystemProfile};
pub use rows::RowFault;
pub use space_account::{AccountSettings, LaneCredentialSettings, SpaceAccount, lane_files};
pub use streams::{Retention, SpaceSettings, StreamFault, ensure_space};
pub use system_client::{SystemClient, SystemFault};
