//! One lane: the durable delivery of one space.
