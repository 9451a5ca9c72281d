//! The member side of the wire: join, post, receive, acknowledge.
