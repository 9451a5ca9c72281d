//! Entry point of the `lanekeeper` binary.

fn main() {}
