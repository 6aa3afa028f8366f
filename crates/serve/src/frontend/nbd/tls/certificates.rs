// SPDX-License-Identifier: MIT OR Apache-2.0
//! Certificates and key, in the files that nbdkit, qemu and libnbd keep them in.
//!
//! They are read at the start, and again when the operator asks for it. Checked is what would fail
//! every client later: that the files are there and parse, and that key and certificate belong
//! together. Names and dates only clients can judge; what looks wrong of them is a warning.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{Error, RootCertStore, ServerConfig};

use super::{SavedTls, TlsError, TlsStream, der};
use crate::frontend::nbd::stream::Socket;

/// The most bytes of a file. Certificates and keys are far smaller.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The certificates to speak TLS with clients. All clones share them.
#[derive(Clone, Debug)]
pub struct Tls(Arc<RwLock<Loaded>>);

/// What was read of the files.
#[derive(Clone, Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// Whether clients must have a certificate.
    verifies: bool,
}

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
        judge(&chain_path, &chain)?;
        let key_bits = rsa_bits(&key);
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
            _ => match key_bits {
                Some(bits) => TlsError::KeySize { path: key_path.clone(), bits },
                None => TlsError::Unusable {
                    path: key_path.clone(),
                    what: "private key",
                    error: format!(
                        "{error}; expected RSA of 2048, 3072 or 4096 bits, ECDSA with P-256 or P-384, or Ed25519"
                    ),
                },
            },
        })?;
        // A client stays for days. Resuming would save it a millisecond, and cost us memory.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(RwLock::new(Loaded { config: Arc::new(config), verifies: verify_peer }))))
    }

    /// Goes on with a client inside TLS.
    pub(in crate::frontend::nbd) fn start(&self, socket: Socket) -> io::Result<TlsStream> {
        TlsStream::new(socket, &self.loaded().config)
    }

    /// Whether a client of another program may go on. It may have come when nobody had to show a
    /// certificate.
    pub(in crate::frontend::nbd) fn takes(&self, saved: &SavedTls) -> bool {
        !self.loaded().verifies || saved.is_verified()
    }

    /// Puts the certificates of `other` in place of these. New connections use them; old
    /// connections go on.
    pub fn replace(&self, other: &Self) {
        let loaded = other.loaded();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = loaded;
    }

    fn loaded(&self) -> Loaded {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Refuses a certificate that no client would take, and warns of one that clients may refuse.
fn judge(path: &Path, chain: &[CertificateDer<'_>]) -> Result<(), TlsError> {
    // If it can't be read here, rustls names its fault.
    let Some(facts) = chain.first().and_then(|certificate| der::facts(certificate)) else { return Ok(()) };
    if facts.version != 3 {
        return Err(TlsError::Version { path: path.to_owned(), version: facts.version });
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if let Some(doubt) = doubt(&facts, &der::Moment::of_unix(now)) {
        tracing::warn!("{}: {doubt}", path.display());
    }
    Ok(())
}

/// Why clients may refuse a certificate.
fn doubt(facts: &der::Facts, now: &der::Moment) -> Option<String> {
    let der::Facts { not_before, not_after, .. } = facts;
    if now > not_after {
        Some(format!(
            "this certificate expired on {not_after}, and it is {now}: clients that verify it refuse this server; put a new one there, or set this machine's clock"
        ))
    } else if now < not_before {
        Some(format!(
            "this certificate is not valid before {not_before}, and it is {now}: clients that verify it refuse this server until then; set this machine's clock, if that is wrong"
        ))
    } else if !facts.has_names {
        Some(
            "this certificate names no host (subjectAltName): clients that verify names may refuse this server; sign it anew with -extfile, and in that file subjectAltName=DNS: and the name by which they connect"
                .to_owned(),
        )
    } else {
        None
    }
}

/// Bits of an RSA key; `None` for others.
fn rsa_bits(key: &PrivateKeyDer<'_>) -> Option<usize> {
    match key {
        PrivateKeyDer::Pkcs1(key) => der::rsa_bits(key.secret_pkcs1_der()),
        PrivateKeyDer::Pkcs8(key) => der::rsa_bits_in_pkcs8(key.secret_pkcs8_der()),
        _ => None,
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
    // The permissions are those of the open file, so that they are of the file that is read. The
    // group may be a service's own, as ssl-cert is on Debian.
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

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    #[test]
    fn what_clients_may_refuse_is_doubted() {
        let facts = |names: &[&str], from: i32, to: i32| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let mut params = CertificateParams::new(names).unwrap();
            (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            der::facts(certificate.der()).unwrap()
        };
        // 2026-01-01.
        let doubt = |facts| doubt(&facts, &der::Moment::of_unix(1_767_225_600)).unwrap_or_default();
        assert_eq!(doubt(facts(&["localhost"], 2025, 2027)), "");
        assert!(doubt(facts(&["localhost"], 2024, 2025)).contains("expired on 2025-01-01 00:00:00 UTC"));
        assert!(doubt(facts(&["localhost"], 2027, 2028)).contains("not valid before 2027-01-01 00:00:00 UTC"));
        assert!(doubt(facts(&[], 2025, 2027)).contains("subjectAltName"));
    }
}
