//! Who may ask the admin server: the bearer of the token, or, without a token, programs of this machine.
//!
//! Owns the decision before any route. It must not know a route but the one that says that the process lives.

use std::net::{IpAddr, SocketAddr};

use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, StatusCode,
        header::{AUTHORIZATION, HOST, HeaderName, ORIGIN, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::{TokenGuard, routes::refuse};

/// The route that says nothing but that the process lives, for whoever restarts it.
pub(super) const OPEN_PATH: &str = "/healthz";

/// The decision.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    guard: Option<TokenGuard>,
    address: SocketAddr,
}

impl Gate {
    pub(super) fn new(guard: Option<TokenGuard>, address: SocketAddr) -> Self {
        Self { guard, address }
    }

    /// Why this request may not pass.
    async fn refusal(&self, headers: &HeaderMap) -> Option<Response> {
        if let Some(guard) = &self.guard {
            if guard.admits(text(headers, AUTHORIZATION)).await {
                return None;
            }
            let error = "the bearer token is missing or wrong; send `Authorization: Bearer TOKEN`, or use --token-file";
            let challenge = [(WWW_AUTHENTICATE, "Bearer realm=\"lanekeeper\"")];
            return Some((challenge, refuse(StatusCode::UNAUTHORIZED, error)).into_response());
        }
        // Without a token only this machine is let in, and a browser on it runs what others wrote: a page may send
        // requests to this address, or have its own name resolve to it. Both show in these two headers.
        if headers.contains_key(ORIGIN) {
            let error = "requests of web pages are refused without a token; set `admin.token_file` to allow them";
            return Some(refuse(StatusCode::FORBIDDEN, error));
        }
        let named = text(headers, HOST).map(host);
        if named.is_none_or(|named| self.is_own_name(named)) {
            return None;
        }
        let error = "the request is for another host; ask 127.0.0.1 or localhost, or set `admin.token_file`";
        Some(refuse(StatusCode::FORBIDDEN, error))
    }

    fn is_own_name(&self, named: &str) -> bool {
        let address: Option<IpAddr> = named.parse().ok();
        named.eq_ignore_ascii_case("localhost")
            || address.is_some_and(|address| address.is_loopback() || address == self.address.ip())
    }
}

/// Lets a request pass or answers it.
pub(super) async fn pass(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    if request.uri().path() != OPEN_PATH
        && let Some(refused) = gate.refusal(request.headers()).await
    {
        return refused;
    }
    next.run(request).await
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The host of a `Host` header, without port and brackets.
fn host(header: &str) -> &str {
    if let Some(rest) = header.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    header.rsplit_once(':').map_or(header, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_found_in_its_header() {
        for (header, expected) in [
            ("localhost", "localhost"),
            ("127.0.0.1:8470", "127.0.0.1"),
            ("[::1]:8470", "::1"),
            ("[::1]", "::1"),
            ("", ""),
        ] {
            assert_eq!(host(header), expected);
        }
    }

    #[tokio::test]
    async fn without_a_token_only_programs_of_this_machine_are_let_in() {
        let gate = Gate::new(None, "127.0.0.1:8470".parse().unwrap());
        let with = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(HeaderName::from_static(name), value.parse().unwrap());
            headers
        };
        for host in ["127.0.0.1:8470", "localhost:8470", "LOCALHOST", "[::1]:8470", "127.0.0.2"] {
            assert!(gate.refusal(&with("host", host)).await.is_none(), "{host}");
        }
        for host in ["evil.example:8470", "10.0.0.1:8470", "localhost.evil.example", ""] {
            assert!(gate.refusal(&with("host", host)).await.is_some(), "{host}");
        }
        assert!(gate.refusal(&with("origin", "http://127.0.0.1:8470")).await.is_some());
        assert!(gate.refusal(&HeaderMap::new()).await.is_none());
    }
}
