//! The host: commands of the `lanekeeper` binary.
