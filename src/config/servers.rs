//! Broker addresses as they stand in a file.
//!
//! Owns which addresses are taken. It must never repeat an address that holds a password.

use std::ops::Range;

use async_nats::ServerAddr;
use toml::Spanned;

use super::fault::shown;

/// The addresses in `named`; what is wrong with one goes to `faults`.
pub(crate) fn parse(named: &[Spanned<String>], faults: &mut Vec<(Range<usize>, String)>) -> Vec<ServerAddr> {
    let mut servers: Vec<ServerAddr> = Vec::new();
    for text in named {
        match one(text.get_ref()) {
            Ok(server) if servers.iter().any(|other| same(other, &server)) => {
                let message = format!(
                    "server {}:{} is named twice: it would be dialled twice as often; remove one",
                    server.host(),
                    server.port()
                );
                faults.push((text.span(), message));
            }
            Ok(server) => servers.push(server),
            Err(message) => faults.push((text.span(), message)),
        }
    }
    servers
}

fn one(text: &str) -> Result<ServerAddr, String> {
    const FORM: &str = "write nats://host:port, or tls://host:port to insist on TLS";
    if text.contains('@') {
        return Err(format!(
            "the server address has a user or password in it: lanes sign in with their credential files only; {FORM}"
        ));
    }
    let server: ServerAddr = text.parse().map_err(|_| format!("server `{}` is no address; {FORM}", shown(text)))?;
    if !matches!(server.scheme(), "nats" | "tls") {
        return Err(format!("server `{}` has a scheme that is not supported; {FORM}", shown(text)));
    }
    let url = server.clone().into_inner();
    let has_more = !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some();
    if server.host().is_empty() || has_more || text.chars().any(char::is_whitespace) {
        return Err(format!("server `{}` must be a host and a port, and nothing else; {FORM}", shown(text)));
    }
    Ok(server)
}

fn same(one: &ServerAddr, other: &ServerAddr) -> bool {
    one.host().eq_ignore_ascii_case(other.host()) && one.port() == other.port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_or_refused_without_their_secrets() {
        for good in ["nats://a:4222", "tls://a.b.c:443", "a", "127.0.0.1:5", "nats://[::1]:4222"] {
            one(good).unwrap();
        }
        for bad in [
            "",
            "nats://",
            "http://a",
            "ws://a",
            "nats://u:secret@a",
            "nats://a/x",
            "nats://a?x",
            "nats://a :1",
            "a:b",
            "nats://a:99999",
        ] {
            let message = one(bad).unwrap_err();
            assert!(!message.contains("secret") && message.contains("write nats://host:port"), "{message}");
        }
    }
}
