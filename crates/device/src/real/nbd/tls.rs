// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLS to a server: certificates in the files that nbdkit, qemu and libnbd keep them in.
//!
//! The server's certificate is always verified: that it is of the authority in `ca-cert.pem`, and
//! that it has the name of the host.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use flashfront_nbd_proto::uri::{Address, Uri};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::dial::{CERTIFICATES, DialError};
use super::stream::{Socket, wait};

/// A socket inside TLS.
pub(super) type TlsStream = StreamOwned<ClientConnection, Socket>;

/// Where certificates are if the URI names no folder: of the system's services.
const FOLDER: &str = "/etc/pki/libnbd";
/// No certificate and no key is near this.
const FILE_BYTES_MAX: u64 = 1 << 20;

const FILES: &str = "name the folder of ca-cert.pem (and of client-cert.pem and client-key.pem, if the server asks for them) by ?tls-certificates=DIR";

/// What is needed to speak TLS with a server.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// Reads the files that a URI names. A client's certificate is optional.
    pub(super) fn load(uri: &Uri) -> Result<Self, DialError> {
        let folder = Path::new(uri.certificates.as_deref().unwrap_or(FOLDER));
        let wrong = |path: PathBuf, what: &str| DialError { what: format!("{}: {what}", path.display()), todo: FILES };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(folder.join("ca-cert.pem"))? {
            let added = roots.add(certificate);
            added
                .map_err(|error| wrong(folder.join("ca-cert.pem"), &format!("no authority's certificate: {error}")))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has ciphers for both versions")
            .with_root_certificates(roots);
        let (chain, key) = (folder.join("client-cert.pem"), folder.join("client-key.pem"));
        let config = match chain.exists() || key.exists() {
            false => builder.with_no_client_auth(),
            true => {
                let bytes = secret(&key)?;
                let own = PrivateKeyDer::from_pem_slice(&bytes)
                    .map_err(|error| wrong(key.clone(), &format!("no private key without a passphrase: {error}")))?;
                let built = builder.with_client_auth_cert(certificates(chain)?, own);
                built.map_err(|error| wrong(key, &format!("not the key of client-cert.pem: {error}")))?
            }
        };
        let host = match (&uri.tls_hostname, &uri.address) {
            (Some(name), _) => name.as_str(),
            (None, Address::Tcp { host, .. }) => host.as_str(),
            (None, Address::Unix(_)) => "localhost",
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| DialError {
            what: format!("{host:?} is no name that a certificate can have"),
            todo: "give the name in the server's certificate by ?tls-hostname=NAME",
        })?;
        Ok(Self { config: Arc::new(config), name })
    }

    /// Goes on inside TLS, once the server has shown its certificate.
    pub(super) fn start(&self, socket: Socket, deadline: Instant) -> Result<TlsStream, DialError> {
        let failed = |error: io::Error| DialError { what: format!("TLS: {error}"), todo: CERTIFICATES };
        let session = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let mut stream = TlsStream::new(session.map_err(|error| failed(io::Error::other(error)))?, socket);
        while stream.conn.is_handshaking() {
            match stream.conn.complete_io(&mut stream.sock) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait(&stream.sock, stream.conn.wants_write(), deadline).map_err(failed)?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(stream)
    }
}

fn certificates(path: PathBuf) -> Result<Vec<CertificateDer<'static>>, DialError> {
    let bytes = read(&path)?;
    let all = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(DialError { what: format!("{}: there is no certificate in it", path.display()), todo: FILES }),
        Err(error) => Err(DialError { what: format!("{}: no certificate: {error}", path.display()), todo: FILES }),
    }
}

/// Reads a private key, which must be one: other users could pose as this client by it. The group
/// may be a service's own. The permissions are those of the open file, so of what is read.
fn secret(path: &Path) -> Result<Vec<u8>, DialError> {
    let file = File::open(path).or_else(|error| unreadable(path, &error))?;
    let mode = file.metadata().or_else(|error| unreadable(path, &error))?.mode() & 0o7777;
    if mode & 0o007 != 0 {
        return Err(DialError {
            what: format!(
                "{}: every user of this machine may use this private key (mode {mode:04o}), and pose as this client",
                path.display()
            ),
            todo: "chmod o= client-key.pem, and make a new key if others may have read it",
        });
    }
    contents(file, path)
}

fn read(path: &Path) -> Result<Vec<u8>, DialError> {
    contents(File::open(path).or_else(|error| unreadable(path, &error))?, path)
}

fn contents(file: File, path: &Path) -> Result<Vec<u8>, DialError> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).or_else(|error| unreadable(path, &error))?;
    Ok(bytes)
}

fn unreadable<T>(path: &Path, error: &io::Error) -> Result<T, DialError> {
    Err(DialError { what: format!("cannot read {}: {error}", path.display()), todo: FILES })
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_that_every_user_may_read_is_refused() {
        let path = std::env::temp_dir().join(format!("client-key-{}.pem", std::process::id()));
        write(&path, "a key").expect("the file is ours");
        let with = |mode| {
            set_permissions(&path, Permissions::from_mode(mode)).expect("the file is ours");
            secret(&path)
        };
        let (open, grouped) = (with(0o644), with(0o640));
        std::fs::remove_file(&path).expect("the file is ours");
        assert!(open.is_err_and(|error| error.what.contains("mode 0644") && error.todo.contains("chmod o=")));
        assert_eq!(grouped, Ok(b"a key".to_vec()), "a service's group may read it");
    }
}
