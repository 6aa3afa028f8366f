// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that a request was meant for this port, against DNS rebinding.
//!
//! A page of a stranger can make a browser ask this port if the stranger's name suddenly means
//! 127.0.0.1. The browser then names the stranger's host. So only names that a stranger can't own
//! are answered: `localhost`, loopback addresses, and the address that the port listens at. Where
//! the port is open to other machines (`--insecure`), their scrapers may call this machine by any
//! name, for `/metrics` and `/healthz` alone. A client that names no host is no browser.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, Uri, header};

/// The request was meant for another host.
#[derive(Debug, thiserror::Error)]
#[error(
    "this port is not called {named:?}: ask http://localhost:{port} or http://{listens}; a name that others can own is not \
     answered, so that no page of theirs reads this one", port = listens.port()
)]
pub(super) struct Strange {
    named: String,
    listens: SocketAddr,
}

/// Why a request is refused, if it is.
pub(super) fn refused(uri: &Uri, headers: &HeaderMap, listens: SocketAddr) -> Option<Strange> {
    if !listens.ip().is_loopback() && ["/metrics", "/healthz"].contains(&uri.path()) {
        return None;
    }
    let named = headers.get_all(header::HOST).iter().map(|it| it.to_str().unwrap_or("?"));
    let mut named = named.chain(uri.authority().map(|it| it.as_str()));
    let named = named.find(|host| !is_ours(host, listens))?.to_owned();
    Some(Strange { named, listens })
}

/// Whether the host of a `Host` header is this port's.
fn is_ours(host: &str, listens: SocketAddr) -> bool {
    let name = match host.rsplit_once(':') {
        // The last colon of an address of IPv6 without a port is inside the brackets.
        Some((name, port)) if port.parse::<u16>().is_ok() && !name.is_empty() => name,
        _ => host,
    };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(name);
    bare.parse::<IpAddr>().is_ok_and(|address| {
        let address = address.to_canonical();
        // A port that listens at all addresses has them all. An address is no name that could be
        // made to mean another.
        address.is_loopback() || address == listens.ip().to_canonical() || listens.ip().is_unspecified()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(path: &str, host: Option<&str>, listens: &str) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(header::HOST, host.parse().unwrap());
        }
        refused(&path.parse().unwrap(), &headers, listens.parse().unwrap()).is_none()
    }

    #[test]
    fn only_names_that_nobody_else_can_own_are_answered() {
        let loopback = "127.0.0.1:9809";
        for host in
            ["localhost", "LocalHost:9809", "127.0.0.1:9809", "127.9.9.9", "[::1]:9809", "[::1]", "127.0.0.1:80"]
        {
            assert!(answered("/", Some(host), loopback), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9809",
            "localhost.evil.example",
            "127.0.0.1.evil.example:9809",
            "192.168.1.5",
            "",
            "?",
            ":9809",
        ] {
            for path in ["/", "/metrics", "/api/status"] {
                assert!(!answered(path, Some(host), loopback), "{host}");
            }
        }
        assert!(answered("/healthz", None, loopback), "a prober of HTTP/1.0");
        assert!(!answered("http://evil.example/", Some("localhost"), loopback));
    }

    #[test]
    fn a_port_that_is_open_to_others_is_called_by_its_address_and_by_scrapers_as_they_like() {
        for (host, answers) in
            [("192.168.1.5:9809", true), ("localhost", true), ("192.168.1.6", false), ("nas.example", false)]
        {
            assert_eq!(answered("/", Some(host), "192.168.1.5:9809"), answers, "{host}");
            assert!(answered("/metrics", Some(host), "192.168.1.5:9809"));
        }
        assert!(answered("/", Some("10.0.0.1:9809"), "0.0.0.0:9809") && answered("/", Some("[fd00::1]"), "[::]:9809"));
        assert!(!answered("/api/history", Some("nas.example"), "0.0.0.0:9809"));
    }
}
