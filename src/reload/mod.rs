//! Noticing that the manifest or a credential directory changed, and reading both anew.
//!
//! Owns the file watches and the look at everything that is wanted. A watch only ever says `go and look`; what is read is
//! the newest there is. It must not decide what a change means: the supervisor plans.

mod content;
mod look;
mod watch;

pub(crate) use content::{content_of, is_readable};
pub(crate) use look::{Looked, Looker};
