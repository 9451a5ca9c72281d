//! Find or fetch a `nats-server`, run it as a child process, and a TCP relay that tests can cut.
//!
//! This crate owns three things and nothing else:
//!
//! - [`find()`] and [`fetch()`]: where the broker's binary comes from, and proof that it is the one meant;
//! - [`Broker`]: one `nats-server` child, its configuration file, its log and its end;
//! - [`Relay`]: a TCP relay between a client and a broker whose faults a test can switch on and off.
//!
//! It knows nothing of Cotal, and production does not need it: there the broker is somebody else's service.
//! It runs on Linux only, as it reads `/proc` and ties a child's life to its owner's with a parent-death signal.

mod broker;
mod config;
mod find;
mod log;
mod port;
mod process;
mod pump;
mod ready;
mod relay;
mod spawn;
mod version;
mod wait;
mod wheel;

pub use broker::{Broker, BrokerError, Stopped};
pub use config::{BrokerConfig, ConfigError};
pub use find::{BinaryProblem, FindError, NatsServer, Origin, SearchEnv, VARIABLE, find, find_in};
pub use process::{ProcessError, process_cpu_time, process_rss_bytes, process_start_ticks};
pub use ready::{NotReady, ServerInfo};
pub use relay::{Direction, Relay};
pub use version::{MIN_VERSION, ParseVersionError, Version};
pub use wait::{TimedOut, wait_until};
pub use wheel::{FetchError, PINNED_VERSION, fetch, fetch_in};
