// SPDX-License-Identifier: MIT OR Apache-2.0
//! How large an NBD export is: fio takes a smaller one without a word, and asks for less.

use flashfront_bench::fill;
use flashfront_bench::suite::{Scale, Suite};
use flashfront_bench::target::{TargetSpec, What};
use flashfront_serve::frontend::nbd::{Listen, connect};

use super::told;

/// NBD's port.
const PORT: u16 = 10809;

/// Refuses exports that the suite's jobs would go beyond. What can't be asked here (TLS, an address
/// in a form that only libnbd knows) is left to fio.
pub(super) fn check(targets: &[TargetSpec], suite: &Suite, scale: Scale) -> anyhow::Result<()> {
    let needs = suite.needs_bytes();
    for target in targets {
        let What::Nbd(uri) = &target.what else { continue };
        let Some((at, name)) = address(uri) else { continue };
        let Ok(client) = connect(&at, &name, true) else { continue };
        let has = client.info().size_bytes;
        // The server notices an end without it, too.
        let _ = client.disconnect();
        if has < needs {
            return Err(told(fill::too_small(uri, has, needs, scale.divisor())));
        }
    }
    Ok(())
}

/// `nbd+unix:///NAME?socket=PATH`, `nbd://HOST[:PORT]/NAME`.
fn address(uri: &str) -> Option<(Listen, String)> {
    let (scheme, rest) = uri.split_once("://")?;
    // Escaped names are libnbd's business.
    if rest.contains('%') {
        return None;
    }
    match scheme {
        "nbd+unix" => {
            let (name, query) = rest.strip_prefix('/')?.split_once('?')?;
            let socket = query.split('&').find_map(|part| part.strip_prefix("socket="))?;
            Some((Listen::Unix(socket.into()), name.to_owned()))
        }
        "nbd" => {
            let (authority, name) = rest.split_once('/').unwrap_or((rest, ""));
            let (host, port) = match authority.rsplit_once(':') {
                Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
                _ => (authority, PORT),
            };
            let host = host.trim_matches(['[', ']']).to_owned();
            Some((Listen::Tcp { host, port }, name.to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_an_address_and_a_name() {
        let of = |uri: &str| address(uri).map(|(at, name)| (at.to_string(), name));
        let is = |at: &str, name: &str| Some((at.to_owned(), name.to_owned()));
        assert_eq!(of("nbd+unix:///data?socket=/run/a.sock"), is("unix:/run/a.sock", "data"));
        assert_eq!(of("nbd+unix:///?socket=/run/a.sock"), is("unix:/run/a.sock", ""));
        assert_eq!(of("nbd://host:99/data"), is("tcp:host:99", "data"));
        assert_eq!(of("nbd://host"), is("tcp:host:10809", ""));
        assert_eq!((of("nbds://host/x"), of("nbd+unix:///a%20b?socket=/s"), of("nbd:unix:/s")), (None, None, None));
    }
}
