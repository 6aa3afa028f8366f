// SPDX-License-Identifier: MIT OR Apache-2.0
//! NBD inside TLS: the operator's certificates, and a client's stream.
//!
//! The handshake is rustls's (versions 1.2 and 1.3). What follows are `records`, by the `keys` that
//! the handshake ended with, so that another process can go on with them (ADR 0085). TLS is the
//! cargo feature `tls`; without it [`Tls`] has no values, so that everybody else needs no `cfg`.

use std::io;
use std::path::PathBuf;

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod advice;
#[cfg(feature = "tls")]
mod certificates;
#[cfg(feature = "tls")]
mod der;
#[cfg(feature = "tls")]
mod fault;
#[cfg(feature = "tls")]
mod handshake;
#[cfg(feature = "tls")]
mod keys;
#[cfg(feature = "tls")]
mod records;
#[cfg(feature = "tls")]
mod session;

#[cfg(not(feature = "tls"))]
pub use absent::Tls;
#[cfg(not(feature = "tls"))]
pub(super) use absent::{SavedTls, TlsStream};
#[cfg(feature = "tls")]
pub use certificates::Tls;
#[cfg(feature = "tls")]
pub(super) use session::{SavedTls, TlsStream};

/// Why TLS can't be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The feature is not there.
    #[error("this flashfront was built without TLS; build it with the cargo feature `tls`, or don't ask for TLS")]
    NotBuilt,
    /// A file is missing, or can't be read.
    #[error(
        "{path}: {error}; {advice}",
        path = path.display(), advice = missing(error)
    )]
    Read {
        /// The file.
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
        /// The file.
        path: PathBuf,
        /// The kind of object that the file lacks.
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
        /// The file.
        path: PathBuf,
        /// The permissions of the file.
        mode: u32,
    },
    /// A certificate that has no extensions, which no client of today takes.
    #[error(
        "{path}: this certificate is of X.509 version {version}, and version 3 is needed. `openssl x509 -req` makes such ones when it is given no extensions (OpenSSL 3.0 and before); sign it anew: printf subjectAltName=DNS:localhost >ext; openssl x509 -req -in server.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 365 -extfile ext -out {path} (with the name by which clients connect)",
        path = path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The version of the certificate.
        version: u8,
    },
    /// A key of a length that the library refuses.
    #[error(
        "{path}: this private key is RSA of {bits} bits; expected RSA of 2048, 3072 or 4096 bits, ECDSA with P-256 or P-384, or Ed25519. Make a new key and certificate: openssl req -newkey rsa:3072 -nodes -keyout server-key.pem -out server.csr, then sign server.csr",
        path = path.display()
    )]
    KeySize {
        /// The file.
        path: PathBuf,
        /// The length of the key.
        bits: usize,
    },
    /// Certificate or key can't be used.
    #[error("{path}: this {what} can't be used: {error}", path = path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The kind of object that the file holds.
        what: &'static str,
        /// Why.
        error: String,
    },
    /// The key and the certificate are of two servers.
    #[error("{key} is not the key of the certificate {certificate}; put the two that were made together there",
        key = key.display(), certificate = certificate.display())]
    Mismatch {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
}

/// Advises about a file that can't be read.
fn missing(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "make it readable for the user of the daemon (chown, or chgrp and chmod g+r), and a key for nobody else"
        }
        _ => {
            "the folder of --tls-certificates must have server-cert.pem and server-key.pem, and ca-cert.pem for --tls-verify-peer"
        }
    }
}
