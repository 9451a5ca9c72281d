//! Operators, accounts, credentials, streams and buckets of a space.
