//! The Cotal wire contract as types: tokens, subjects, names, records, frames; pure.
