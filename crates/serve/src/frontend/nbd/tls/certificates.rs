// SPDX-License-Identifier: MIT OR Apache-2.0
//! Certificates and key, in the files that nbdkit, qemu and libnbd keep them in.
//!
//! They are read once, at the start. Checked is what would fail every client later: that the files
//! are there and parse, and that key and certificate belong together. Not checked are names
//! and dates, which only clients can judge.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{Error, RootCertStore, ServerConfig};

use super::{TlsError, TlsStream};
use crate::frontend::nbd::stream::Socket;

/// No certificate and no key is near this.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What is needed to speak TLS with clients.
#[derive(Clone, Debug)]
pub struct Tls(Arc<ServerConfig>);

impl Tls {
    /// Reads `server-cert.pem` and `server-key.pem` in `dir`. With `verify_peer` also
    /// `ca-cert.pem`, and then only clients with a certificate of that authority are served.
    ///
    /// # Errors
    /// The first file that can't be used.
    pub fn load(dir: &Path, verify_peer: bool) -> Result<Self, TlsError> {
        let (chain_path, key_path) = (dir.join("server-cert.pem"), dir.join("server-key.pem"));
        let chain = certificates(&chain_path)?;
        let key = private_key(&key_path)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("ring has ciphers for both versions");
        let builder = if verify_peer {
            let path = dir.join("ca-cert.pem");
            let unusable = |error: &dyn std::error::Error| TlsError::Unusable {
                path: path.clone(),
                what: "authority's certificate",
                error: error.to_string(),
            };
            let mut roots = RootCertStore::empty();
            for certificate in certificates(&path)? {
                roots.add(certificate).map_err(|error| unusable(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| unusable(&error))?)
        } else {
            builder.with_no_client_auth()
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            Error::InconsistentKeys(_) => TlsError::Mismatch { certificate: chain_path.clone(), key: key_path.clone() },
            Error::InvalidCertificate(_) => {
                TlsError::Unusable { path: chain_path.clone(), what: "certificate", error: error.to_string() }
            }
            _ => TlsError::Unusable { path: key_path.clone(), what: "private key", error: error.to_string() },
        })?;
        // A client stays for days. Resuming would save it a millisecond, and cost us memory.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    /// Goes on with a client inside TLS.
    pub(in crate::frontend::nbd) fn start(&self, socket: Socket) -> io::Result<TlsStream> {
        TlsStream::new(socket, Arc::clone(&self.0))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(open(path)?, path)?;
    let failed =
        |error: String| TlsError::Pem { path: path.to_owned(), what: "certificate", label: "CERTIFICATE", error };
    let all = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|error| failed(error.to_string()))?;
    if all.is_empty() { Err(failed("the file has none".to_owned())) } else { Ok(all) }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let file = open(path)?;
    // Of the open file, so that it is the one that is read. The group may be a service's own, as
    // ssl-cert is on Debian.
    let mode = file.metadata().map_err(|error| TlsError::Read { path: path.to_owned(), error })?.mode() & 0o7777;
    if mode & 0o007 != 0 {
        return Err(TlsError::KeyOpen { path: path.to_owned(), mode });
    }
    let bytes = read(file, path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| TlsError::Pem {
        path: path.to_owned(),
        what: "private key without a passphrase",
        label: "PRIVATE KEY",
        error: error.to_string(),
    })
}

fn open(path: &Path) -> Result<File, TlsError> {
    File::open(path).map_err(|error| TlsError::Read { path: path.to_owned(), error })
}

fn read(file: File, path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(|error| TlsError::Read { path: PathBuf::from(path), error })?;
    Ok(bytes)
}
