// SPDX-License-Identifier: MIT OR Apache-2.0
//! NBD inside TLS: the operator's certificates, and a client's stream.
//!
//! TLS itself is rustls (versions 1.2 and 1.3), which does no I/O. It is the cargo feature `tls`;
//! without it [`Tls`] has no values, so that everybody else needs no `cfg`.

use std::io;
use std::path::PathBuf;

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod certificates;
#[cfg(feature = "tls")]
mod session;

#[cfg(not(feature = "tls"))]
pub use absent::Tls;
#[cfg(not(feature = "tls"))]
pub(super) use absent::TlsStream;
#[cfg(feature = "tls")]
pub use certificates::Tls;
#[cfg(feature = "tls")]
pub(super) use session::TlsStream;

/// Why TLS can't be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The feature is not there.
    #[error("this flashfront was built without TLS; build it with the cargo feature `tls`, or don't ask for TLS")]
    NotBuilt,
    /// A file is missing, or can't be read.
    #[error(
        "{path}: {error}; the folder of --tls-certificates must have server-cert.pem and server-key.pem, and ca-cert.pem for --tls-verify-peer",
        path = path.display()
    )]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file holds something else.
    #[error(
        "{path}: no {what} in PEM form found here ({error}); expected -----BEGIN {label}-----",
        path = path.display()
    )]
    Pem {
        /// Which file.
        path: PathBuf,
        /// What is looked for.
        what: &'static str,
        /// How it begins.
        label: &'static str,
        /// Why it isn't that.
        error: String,
    },
    /// The key is no secret.
    #[error(
        "{path}: every user of this machine may use this private key (mode {mode:04o}), and pose as this server; chmod o= {path}, and make a new key if others may have read it",
        path = path.display()
    )]
    KeyOpen {
        /// Which file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Certificate or key can't be used.
    #[error("{path}: this {what} can't be used: {error}", path = path.display())]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// What it holds.
        what: &'static str,
        /// Why.
        error: String,
    },
    /// They are of two servers.
    #[error("{key} is not the key of the certificate {certificate}; put the two that were made together there",
        key = key.display(), certificate = certificate.display())]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
}
