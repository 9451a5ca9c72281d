//! Tests of the wire contract through its public face; one binary, so that it links once.
//! Must not need a broker, a clock or a file.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod control;
mod entries;
mod hostile;
mod matching;
mod messages;
mod records;
mod refusals;
mod round_trips;
mod samples;
