//! Find or fetch a nats-server, run it as a child, and a relay that tests can cut.
