// SPDX-License-Identifier: MIT OR Apache-2.0
//! An authority for one test: its folder of certificates, and configs for clients.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};
use tempfile::TempDir;

use crate::frontend::nbd::{NbdOptions, Tls};

/// An authority, and what it has certified.
pub(super) struct Pki {
    dir: TempDir,
    root: CertificateDer<'static>,
}

impl Pki {
    /// A folder as an operator has it, and a certificate for a client.
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap();
        fs::write(dir.path().join("ca-cert.pem"), authority.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        for (name, usage) in
            [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
        {
            let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            fs::write(dir.path().join(format!("{name}-cert.pem")), certificate.pem()).unwrap();
            let path = dir.path().join(format!("{name}-key.pem"));
            fs::write(&path, key.serialize_pem()).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        }
        Self { root: authority.der().clone(), dir }
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A server's options.
    pub(super) fn options(&self, verify_peer: bool) -> NbdOptions {
        NbdOptions { tls: Some(Tls::load(self.dir(), verify_peer).unwrap()), ..NbdOptions::default() }
    }

    /// What a client trusts.
    pub(super) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        roots
    }

    /// A client that trusts this authority, and shows a certificate of `shows`.
    pub(super) fn client(&self, version: &'static SupportedProtocolVersion, shows: Option<&Self>) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(self.roots());
        let config = match shows {
            None => builder.with_no_client_auth(),
            Some(pki) => {
                let certificate = CertificateDer::from_pem_file(pki.file("client-cert.pem")).unwrap();
                let key = PrivateKeyDer::from_pem_file(pki.file("client-key.pem")).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        Arc::new(config)
    }

    /// A client without a certificate.
    pub(super) fn any_client(&self) -> Arc<ClientConfig> {
        self.client(&version::TLS13, None)
    }
}
