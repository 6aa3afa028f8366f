// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of NBD servers as the operator writes them, and as clients do.

use std::fmt;
use std::path::PathBuf;

/// An address to listen at, or to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// `unix:PATH`
    Unix(PathBuf),
    /// `tcp:HOST:PORT`
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// 0 = the system chooses.
        port: u16,
    },
}

/// An address that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// The address begins neither with `unix:` nor with `tcp:`.
    #[error("NBD address {0:?}: expected unix:PATH or tcp:HOST:PORT")]
    Scheme(String),
    /// `unix:` and nothing.
    #[error("NBD address {0:?}: the path of the socket is missing")]
    NoPath(String),
    /// `tcp:` without a host.
    #[error("NBD address {0:?}: the host is missing; for this machine only: tcp:127.0.0.1:10809")]
    NoHost(String),
    /// `tcp:` without a port.
    #[error("NBD address {0:?}: expected a port from 0 to 65535 at the end, as in tcp:HOST:10809")]
    Port(String),
}

impl Listen {
    /// Reads `unix:PATH` or `tcp:HOST:PORT` (`tcp:[::1]:10809` for IPv6).
    ///
    /// # Errors
    /// Tells what is expected instead.
    pub fn parse(text: &str) -> Result<Self, ListenError> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(ListenError::NoPath(text.to_owned()));
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let Some(rest) = text.strip_prefix("tcp:") else {
            return Err(ListenError::Scheme(text.to_owned()));
        };
        let Some((host, port)) = rest.rsplit_once(':') else {
            return Err(ListenError::Port(text.to_owned()));
        };
        let port = port.parse().map_err(|_| ListenError::Port(text.to_owned()))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        if host.is_empty() {
            return Err(ListenError::NoHost(text.to_owned()));
        }
        Ok(Self::Tcp { host: host.to_owned(), port })
    }

    /// The URI clients use for the export `name` (empty = the default one). Inside `tls`, if that
    /// is what TCP is served in; a unix socket is served without it too.
    #[must_use]
    pub fn uri(&self, name: &str, tls: bool) -> String {
        let name = escape(name.as_bytes());
        let scheme = if tls { "nbds" } else { "nbd" };
        match self {
            Self::Unix(path) => {
                // A client may be started in another folder.
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                let path = escape(path.as_os_str().as_encoded_bytes());
                format!("nbd+unix:///{name}?socket={path}")
            }
            Self::Tcp { host, port } => {
                let slash = if name.is_empty() { "" } else { "/" };
                if host.contains(':') {
                    format!("{scheme}://[{host}]:{port}{slash}{name}")
                } else {
                    format!("{scheme}://{host}:{port}{slash}{name}")
                }
            }
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

/// Percent-encodes all but the unreserved characters of a URI and the slash.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}
