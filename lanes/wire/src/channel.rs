//! Channels and channel patterns. Owns their grammar and how patterns relate; must not know who may read what.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::pattern;
use crate::text::{serde_as_text, shown};

/// Longest channel or pattern, in characters.
pub const MAX_CHANNEL_CHARS: usize = 4096;

/// Why a text is not a channel or a channel pattern. The text is shortened and escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelFault {
    /// Longer than [`MAX_CHANNEL_CHARS`].
    #[error("channel \"{text}\" is refused: {len_bytes} bytes, use at most 4096 characters")]
    TooLong {
        /// The start of the text.
        text: String,
        /// Its whole length in bytes.
        len_bytes: usize,
    },
    /// Nothing before, after or between dots.
    #[error("channel \"{text}\" is refused: empty segment, put a name between the dots")]
    EmptySegment {
        /// The text.
        text: String,
    },
    /// A segment with a character outside the grammar.
    #[error("channel \"{text}\" is refused: segment \"{segment}\" may hold only A-Z, a-z, 0-9, _ and -")]
    BadSegment {
        /// The text.
        text: String,
        /// The offending segment.
        segment: String,
    },
    /// A `>` before the last segment.
    #[error("channel \"{text}\" is refused: > stands only in the last segment")]
    TailNotLast {
        /// The text.
        text: String,
    },
    /// A wildcard where one concrete channel is needed.
    #[error("channel \"{text}\" is refused: name one channel, without * or >")]
    NotConcrete {
        /// The text.
        text: String,
    },
}

/// One concrete channel, such as `team.backend`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channel(Arc<str>);

/// A channel, or a family of channels such as `team.>` or `team.*.alerts`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelPattern(Arc<str>);

impl Channel {
    /// The channel as it stands on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The pattern that matches this channel alone.
    pub fn to_pattern(&self) -> ChannelPattern {
        ChannelPattern(Arc::clone(&self.0))
    }
}

impl ChannelPattern {
    /// The pattern as it stands on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern has no wildcard.
    pub fn is_concrete(&self) -> bool {
        !self.0.bytes().any(|b| matches!(b, b'*' | b'>'))
    }

    /// The channel, if the pattern has no wildcard.
    pub fn as_channel(&self) -> Option<Channel> {
        self.is_concrete().then(|| Channel(Arc::clone(&self.0)))
    }

    /// Whether the channel is one of this pattern's.
    pub fn covers(&self, channel: &Channel) -> bool {
        pattern::matches_well_formed(&self.0, &channel.0)
    }

    /// Whether every channel of `other` is one of this pattern's.
    pub fn covers_pattern(&self, other: &Self) -> bool {
        pattern::covers(&self.0, &other.0)
    }

    /// Whether some channel belongs to both patterns.
    pub fn overlaps(&self, other: &Self) -> bool {
        pattern::overlaps(&self.0, &other.0)
    }
}

fn check(text: &str) -> Result<(), ChannelFault> {
    if text.len() > MAX_CHANNEL_CHARS {
        return Err(ChannelFault::TooLong { text: shown(text), len_bytes: text.len() });
    }
    let mut segments = text.split('.').peekable();
    while let Some(segment) = segments.next() {
        match segment {
            "" => return Err(ChannelFault::EmptySegment { text: shown(text) }),
            ">" if segments.peek().is_some() => return Err(ChannelFault::TailNotLast { text: shown(text) }),
            ">" | "*" => {}
            name if name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')) => {}
            name => return Err(ChannelFault::BadSegment { text: shown(text), segment: shown(name) }),
        }
    }
    Ok(())
}

impl FromStr for ChannelPattern {
    type Err = ChannelFault;

    fn from_str(text: &str) -> Result<Self, ChannelFault> {
        check(text)?;
        Ok(Self(text.into()))
    }
}

impl FromStr for Channel {
    type Err = ChannelFault;

    fn from_str(text: &str) -> Result<Self, ChannelFault> {
        let pattern: ChannelPattern = text.parse()?;
        pattern.as_channel().ok_or_else(|| ChannelFault::NotConcrete { text: shown(text) })
    }
}

impl From<Channel> for ChannelPattern {
    fn from(channel: Channel) -> Self {
        Self(channel.0)
    }
}

impl TryFrom<ChannelPattern> for Channel {
    type Error = ChannelFault;

    fn try_from(pattern: ChannelPattern) -> Result<Self, ChannelFault> {
        pattern.as_channel().ok_or_else(|| ChannelFault::NotConcrete { text: shown(&pattern.0) })
    }
}

macro_rules! shown_as_text {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

shown_as_text!(Channel);
shown_as_text!(ChannelPattern);
serde_as_text!(Channel, "a channel");
serde_as_text!(ChannelPattern, "a channel pattern");
