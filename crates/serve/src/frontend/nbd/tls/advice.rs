// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advice about handshakes that failed, in the operator's words.

use rustls::{AlertDescription, CertificateError, Error};

/// Says what an operator can do about an error.
pub(super) fn advice(error: &Error) -> &'static str {
    match error {
        Error::NoCertificatesPresented => {
            "it showed no certificate, and --tls-verify-peer wants one of the authority in ca-cert.pem: give the client \
             client-cert.pem and client-key.pem"
        }
        Error::InvalidCertificate(error) => about_certificate(error),
        Error::AlertReceived(alert) => about_alert(*alert),
        Error::PeerIncompatible(_) => "it must speak TLS 1.2 or 1.3, with the ciphers of those",
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => {
            "what it sent is no TLS: it may be another protocol's client, or the connection was tampered with"
        }
        _ => "see what the client says, and whether another client gets in",
    }
}

/// The client's certificate can't be used.
fn about_certificate(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "make the client a new certificate; if it is not that old, set this machine's clock (date)"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "wait, or set the clock (date) of this machine, or of the one where it was made"
        }
        CertificateError::UnknownIssuer => {
            "its certificate is not of the authority in ca-cert.pem: sign it with that one, or add its authority's \
             certificate to ca-cert.pem and reload the daemon (SIGHUP)"
        }
        CertificateError::BadSignature => {
            "its authority has the name of the one in ca-cert.pem and another key: put the right ca-cert.pem there"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its certificate is not for clients: make it with extendedKeyUsage=clientAuth"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its certificate must be signed with SHA-256 or better, by RSA of 2048 to 8192 bits, ECDSA with P-256 or \
             P-384, or Ed25519"
        }
        CertificateError::Other(_) if is_version(error) => {
            "its certificate is not of X.509 version 3: sign it anew with extensions, as in `printf \
             extendedKeyUsage=clientAuth >ext; openssl x509 -req -in client.csr -CA ca-cert.pem -CAkey ca-key.pem \
             -CAcreateserial -days 365 -extfile ext -out client-cert.pem`"
        }
        _ => "make the client a new certificate",
    }
}

/// Whether a certificate is of another version of X.509 than 3. The library says so by its name
/// alone.
pub(super) fn is_version(error: &CertificateError) -> bool {
    format!("{error:?}").contains("UnsupportedCertVersion")
}

/// Advises about the alert that a client sent before it hung up: mostly its view of our
/// certificate.
fn about_alert(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::UnknownCA => {
            "the client doesn't know who has signed this server's certificate: give it that authority's certificate, as \
             its ca-cert.pem"
        }
        AlertDescription::CertificateExpired => {
            "this server's certificate has expired, or the client's clock is wrong: look at `openssl x509 -noout -dates -in \
             server-cert.pem`"
        }
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate => {
            "the client refuses this server's certificate: the name by which it connects must be among those that \
             `openssl x509 -noout -ext subjectAltName -in server-cert.pem` tells, and the purpose be serverAuth"
        }
        AlertDescription::ProtocolVersion
        | AlertDescription::HandshakeFailure
        | AlertDescription::InsufficientSecurity => "the client must allow TLS 1.2 or 1.3, with the ciphers of those",
        _ => "look at the client's own message, which says why",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_failure_has_something_to_do() {
        for (error, words) in [
            (Error::NoCertificatesPresented, "client-cert.pem"),
            (Error::InvalidCertificate(CertificateError::Expired), "new certificate"),
            (Error::InvalidCertificate(CertificateError::NotValidYet), "clock"),
            (Error::InvalidCertificate(CertificateError::UnknownIssuer), "ca-cert.pem"),
            (Error::InvalidCertificate(CertificateError::BadSignature), "another key"),
            (Error::InvalidCertificate(CertificateError::InvalidPurpose), "clientAuth"),
            (Error::AlertReceived(AlertDescription::UnknownCA), "authority"),
            (Error::AlertReceived(AlertDescription::CertificateExpired), "-dates"),
            (Error::AlertReceived(AlertDescription::BadCertificate), "subjectAltName"),
        ] {
            assert!(advice(&error).contains(words), "{error:?}: {}", advice(&error));
        }
    }
}
