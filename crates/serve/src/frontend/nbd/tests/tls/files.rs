// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders of certificates that can't be used: each is refused, with what, where and what to do.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::super::super::{Tls, TlsError};
use super::pki::Pki;

/// Returns the error of a folder after `change`.
fn refused(verify_peer: bool, change: impl FnOnce(&Pki)) -> (TlsError, String) {
    let pki = Pki::new();
    change(&pki);
    let error = Tls::load(pki.dir(), verify_peer).map(drop).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&pki.dir().display().to_string()), "{text}");
    (error, text)
}

#[test]
fn a_missing_file_is_named() {
    for name in ["server-cert.pem", "server-key.pem", "ca-cert.pem"] {
        let (error, text) = refused(true, |pki| fs::remove_file(pki.file(name)).unwrap());
        assert!(matches!(error, TlsError::Read { .. }), "{text}");
        assert!(text.contains(&format!("/{name}: No such file")) && text.contains("--tls-certificates"), "{text}");
    }
    // Without --tls-verify-peer the file is not needed.
    let pki = Pki::new();
    fs::remove_file(pki.file("ca-cert.pem")).unwrap();
    Tls::load(pki.dir(), false).unwrap();
}

#[test]
fn a_file_of_something_else_is_named() {
    for (name, content, label) in [
        ("server-cert.pem", "", "BEGIN CERTIFICATE"),
        ("server-cert.pem", "once upon a time", "BEGIN CERTIFICATE"),
        ("server-cert.pem", "-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n", "BEGIN CERTIFICATE"),
        ("server-key.pem", "", "BEGIN PRIVATE KEY"),
        ("ca-cert.pem", "", "BEGIN CERTIFICATE"),
    ] {
        let (error, text) = refused(true, |pki| fs::write(pki.file(name), content).unwrap());
        assert!(matches!(error, TlsError::Pem { .. }), "{text}");
        assert!(text.contains(name) && text.contains(label), "{text}");
    }
    // In the right form, and yet no certificate, and no key.
    let pem = |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n");
    for (name, label) in
        [("server-cert.pem", "CERTIFICATE"), ("server-key.pem", "PRIVATE KEY"), ("ca-cert.pem", "CERTIFICATE")]
    {
        let (error, text) = refused(true, |pki| fs::write(pki.file(name), pem(label)).unwrap());
        assert!(matches!(error, TlsError::Unusable { .. }) && text.contains(name), "{text}");
    }
}

#[test]
fn a_key_that_is_no_secret_is_refused() {
    for (mode, served) in [(0o600, true), (0o640, true), (0o644, false), (0o604, false), (0o666, false)] {
        let pki = Pki::new();
        fs::set_permissions(pki.file("server-key.pem"), Permissions::from_mode(mode)).unwrap();
        match Tls::load(pki.dir(), false) {
            Ok(_) => assert!(served, "{mode:o}"),
            Err(error) => {
                let text = error.to_string();
                assert!(!served && matches!(error, TlsError::KeyOpen { .. }), "{text}");
                assert!(text.contains("server-key.pem") && text.contains("chmod"), "{text}");
            }
        }
    }
}

#[test]
fn key_and_certificate_must_belong_together() {
    let other = Pki::new();
    let (error, text) = refused(false, |pki| {
        fs::copy(other.file("server-key.pem"), pki.file("server-key.pem")).unwrap();
    });
    assert!(matches!(error, TlsError::Mismatch { .. }), "{text}");
    assert!(text.contains("server-key.pem") && text.contains("server-cert.pem"), "{text}");
}
