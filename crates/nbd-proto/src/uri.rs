// SPDX-License-Identifier: MIT OR Apache-2.0
//! NBD URIs: the name of an export, and where its server is.
//!
//! The grammar is that of doc/uri.md of github.com/NetworkBlockDevice/nbd:
//! `nbd://HOST[:PORT]/EXPORT`, `nbds://` with TLS, `nbd+unix:///EXPORT?socket=PATH` and
//! `nbds+unix://`. `%XX` stands for a byte. Nothing that a URI says is ignored: what this client
//! can't do is refused.

use std::fmt;
use std::str::FromStr;

/// The port that IANA has given to NBD.
const PORT: u16 = 10809;
/// The longest name of an export that the protocol allows.
const EXPORT_BYTES_MAX: usize = 4096;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP port.
    Tcp {
        /// A name or an address. IPv6 has no brackets here.
        host: String,
        /// The port.
        port: u16,
    },
    /// A unix socket with this path.
    Unix(String),
}

/// What a URI says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uri {
    /// Where the server listens.
    pub address: Address,
    /// All that follows the greeting must be inside TLS.
    pub tls: bool,
    /// The export; the empty name is the server's default.
    pub export: String,
    /// The folder of ca-cert.pem, and perhaps client-cert.pem and client-key.pem
    /// (`tls-certificates`).
    pub certificates: Option<String>,
    /// The name that the server's certificate must have, instead of the host's (`tls-hostname`).
    pub tls_hostname: Option<String>,
}

/// Why a URI is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} (in the NBD URI {uri}); {todo}")]
pub struct UriError {
    /// The URI.
    pub uri: String,
    /// What is wrong, and where.
    pub what: String,
    /// What to do.
    pub todo: &'static str,
}

const SCHEMES: &str = "write nbd://HOST/EXPORT, nbds://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH or nbds+unix:///EXPORT?socket=PATH; \
     other kinds of storage are reached through qemu-nbd or nbdkit";
const SOCKET: &str = "write nbd+unix:///EXPORT?socket=PATH, with the whole path of the server's socket";
const HOST: &str = "write nbd://HOST:PORT/EXPORT; an IPv6 address is written in brackets, like [::1]";
const PERCENT: &str = "write % and two hexadecimal digits for a byte, and %25 for a % itself";
const QUERY: &str = "the known ones are socket, tls-certificates and tls-hostname, each at most once";
const TLS: &str = "use nbds:// or nbds+unix:// for TLS, or leave the parameter out";

impl Uri {
    /// Whether a text is a URI of any kind, and no path: it begins with a scheme and `://`.
    #[must_use]
    pub fn is_uri(text: &str) -> bool {
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    }
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        parse(text).map_err(|(what, todo)| UriError { uri: text.to_owned(), what, todo })
    }
}

type Wrong = (String, &'static str);

fn parse(text: &str) -> Result<Uri, Wrong> {
    let (scheme, rest) = text.split_once("://").ok_or_else(|| ("there is no `://`".to_owned(), SCHEMES))?;
    let (tls, unix) = match scheme.to_ascii_lowercase().as_str() {
        "nbd" => (false, false),
        "nbds" => (true, false),
        "nbd+unix" => (false, true),
        "nbds+unix" => (true, true),
        _ => return Err((format!("the scheme {scheme:?} is not known"), SCHEMES)),
    };
    if rest.contains('#') {
        return Err(("there is a fragment (#)".to_owned(), "leave it out, or write %23 for the character"));
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    let export = decode(export, "the export's name")?;
    if export.len() > EXPORT_BYTES_MAX {
        let what = format!("the export's name has {} bytes, and the protocol allows {EXPORT_BYTES_MAX}", export.len());
        return Err((what, "name another export"));
    }
    let Query { socket, certificates, tls_hostname } = parameters(query)?;
    if authority.contains('@') {
        let todo = "users belong to keys that are shared beforehand (PSK), which this client has not: use certificates";
        return Err((format!("there is a user in {authority:?}"), todo));
    }
    let address = if unix {
        if !authority.is_empty() {
            return Err((format!("there is a host, {authority:?}, for a unix socket"), SOCKET));
        }
        match socket {
            Some(path) if path.starts_with('/') => Address::Unix(path),
            Some(path) => return Err((format!("the socket {path:?} is no whole path"), SOCKET)),
            None => return Err(("the parameter socket is missing".to_owned(), SOCKET)),
        }
    } else {
        if let Some(path) = socket {
            return Err((format!("there is a socket, {path:?}, beside a host"), SOCKET));
        }
        tcp(authority)?
    };
    if !tls && (certificates.is_some() || tls_hostname.is_some()) {
        return Err(("there is a parameter of TLS for a server without TLS".to_owned(), TLS));
    }
    Ok(Uri { address, tls, export, certificates, tls_hostname })
}

fn tcp(authority: &str) -> Result<Address, Wrong> {
    let (host, port) = match authority.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, port))) => (host, port.strip_prefix(':').or(if port.is_empty() { Some("") } else { None })),
        Some(None) => return Err((format!("the bracket in {authority:?} is not closed"), HOST)),
        None => authority.split_once(':').map_or((authority, Some("")), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(("there is no host".to_owned(), HOST));
    }
    let host = decode(host, "the host")?;
    let port = match port {
        Some("") => Some(PORT),
        // `parse` would take a sign.
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port.parse().ok().filter(|port| *port > 0),
        _ => None,
    };
    let port = port.ok_or_else(|| (format!("the port in {authority:?} is no number from 1 to 65535"), HOST))?;
    Ok(Address::Tcp { host, port })
}

#[derive(Default)]
struct Query {
    socket: Option<String>,
    certificates: Option<String>,
    tls_hostname: Option<String>,
}

fn parameters(query: &str) -> Result<Query, Wrong> {
    let mut all = Query::default();
    // libnbd takes `;` between two parameters, too.
    for parameter in query.split(['&', ';']).filter(|it| !it.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let place = match key {
            "socket" => &mut all.socket,
            "tls-certificates" => &mut all.certificates,
            "tls-hostname" => &mut all.tls_hostname,
            _ => return Err((format!("the parameter {key:?} is not known"), QUERY)),
        };
        let value = decode(value, "a parameter")?;
        if value.is_empty() {
            return Err((format!("the parameter {key:?} has no value"), QUERY));
        }
        if place.replace(value).is_some() {
            return Err((format!("the parameter {key:?} is there twice"), QUERY));
        }
    }
    Ok(all)
}

/// Text with `%XX` for bytes.
fn decode(text: &str, place: &str) -> Result<String, Wrong> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        rest = behind;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let [high, low, behind @ ..] = behind else { return Err((format!("{place} ends within a %XX"), PERCENT)) };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (Some(high), Some(low)) = (digit(*high), digit(*low)) else {
            return Err((format!("{place} has a % without two hexadecimal digits"), PERCENT));
        };
        bytes.push((high * 16 + low) as u8);
        rest = behind;
    }
    match String::from_utf8(bytes) {
        Ok(text) if text.contains('\0') => Err((format!("{place} has a byte of zero"), "name it without")),
        Ok(text) => Ok(text),
        Err(_) => Err((format!("{place} is no UTF-8"), "name it in UTF-8")),
    }
}

impl fmt::Display for Uri {
    /// Writes the URI in its one shortest form, so that two URIs of one export are alike.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.tls { "s" } else { "" };
        let export = encode(&self.export);
        let mut mark = '?';
        match &self.address {
            Address::Tcp { host, port } => {
                let host = if host.contains(':') { format!("[{}]", encode(host)) } else { encode(host) };
                write!(f, "nbd{tls}://{host}")?;
                if *port != PORT {
                    write!(f, ":{port}")?;
                }
                write!(f, "/{export}")?;
            }
            Address::Unix(path) => {
                write!(f, "nbd{tls}+unix:///{export}?socket={}", encode(path))?;
                mark = '&';
            }
        }
        let parameters = [("tls-certificates", &self.certificates), ("tls-hostname", &self.tls_hostname)];
        for (key, value) in parameters.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
            write!(f, "{mark}{key}={}", encode(value))?;
            mark = '&';
        }
        Ok(())
    }
}

/// The opposite of [`decode`].
fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:,+".contains(&byte);
    let encoded = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encoded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, tls: bool, export: &str) -> Uri {
        let address = Address::Tcp { host: host.to_owned(), port };
        Uri { address, tls, export: export.to_owned(), certificates: None, tls_hostname: None }
    }

    #[test]
    fn a_uri_says_where_an_export_is() {
        let unix =
            |path: &str, tls, export: &str| Uri { address: Address::Unix(path.to_owned()), ..tcp("", 0, tls, export) };
        let with_certificates =
            Uri { certificates: Some("/etc/pki".into()), tls_hostname: Some("disk".into()), ..tcp("h", 5, true, "a") };
        for (text, uri) in [
            ("nbd://disks.example", tcp("disks.example", 10809, false, "")),
            ("nbd://disks.example/", tcp("disks.example", 10809, false, "")),
            ("NBDS://h:7/data", tcp("h", 7, true, "data")),
            ("nbd://[::1]:7//a/b", tcp("::1", 7, false, "/a/b")),
            ("nbd://[fe80::1]/", tcp("fe80::1", 10809, false, "")),
            ("nbd://h/a%20b%3f%25", tcp("h", 10809, false, "a b?%")),
            ("nbd+unix:///?socket=/run/s", unix("/run/s", false, "")),
            ("nbd+unix:///data?socket=/run/a%26b", unix("/run/a&b", false, "data")),
            ("nbd+unix://?socket=/s", unix("/s", false, "")),
            ("nbds+unix:///x?socket=/s", unix("/s", true, "x")),
            ("nbds://h:5/a?tls-certificates=/etc/pki&tls-hostname=disk", with_certificates),
        ] {
            assert_eq!(text.parse(), Ok(uri.clone()), "{text}");
            assert_eq!(uri.to_string().parse(), Ok(uri), "{text}");
            assert!(Uri::is_uri(text));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("nbd:h", "no `://`"),
            ("iscsi://h/x", "\"iscsi\" is not known"),
            ("nbd+vsock:///x", "\"nbd+vsock\" is not known"),
            ("nbd:///x", "no host"),
            ("nbd://h:0/", "port"),
            ("nbd://h:65536/", "port"),
            ("nbd://h:+5/", "port"),
            ("nbd://[::1]5/", "port"),
            ("nbd://[::1/", "bracket"),
            ("nbd://user@h/", "user"),
            ("nbd://h/%4", "ends within"),
            ("nbd://h/%zz", "hexadecimal"),
            ("nbd://h/%ff", "UTF-8"),
            ("nbd://h/%00", "zero"),
            ("nbd://h/x#y", "fragment"),
            ("nbd://h/x?socket=/s", "beside a host"),
            ("nbd://h/x?tls-certificates=/s", "without TLS"),
            ("nbds://h/x?tls-psk-file=/s", "\"tls-psk-file\" is not known"),
            ("nbd+unix:///x", "socket is missing"),
            ("nbd+unix:///x?socket=", "no value"),
            ("nbd+unix:///x?socket=s", "no whole path"),
            ("nbd+unix:///x?socket=/s&socket=/s", "twice"),
            ("nbd+unix://h/x?socket=/s", "a host"),
        ] {
            let error = text.parse::<Uri>().unwrap_err();
            assert!(error.what.contains(part), "{text}: {error}");
            assert!(error.to_string().contains(text), "{error}");
        }
        let long = format!("nbd://h/{}", "x".repeat(4097));
        assert!(long.parse::<Uri>().unwrap_err().what.contains("4097 bytes"));
    }

    #[test]
    fn a_path_is_no_uri() {
        for text in ["/dev/sdb", "disk.img", "./nbd://x", "://x", "1nbd://h", "a b://c", ""] {
            assert!(!Uri::is_uri(text), "{text}");
        }
        assert!(Uri::is_uri("s3://bucket/prefix"));
    }
}
