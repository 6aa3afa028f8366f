// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshake of a TLS session, by rustls, and the keys that it ends with.
//!
//! rustls is given no byte behind the record that ends the handshake. So all that follows is still
//! here, and so are the secrets that later keys of TLS 1.3 are made of.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::{ConnectionTrafficSecrets, Error, KeyLog, ProtocolVersion, ServerConfig, ServerConnection};
use zeroize::Zeroizing;

use super::keys::{Cipher, HEADER_BYTES, Keys, Suite, Version};
use super::records::Records;

const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

/// A session whose handshake goes on.
#[derive(Debug)]
pub(super) struct Handshake {
    session: ServerConnection,
    secrets: Arc<Secrets>,
    /// Bytes that are to come of the record that rustls has begun to read.
    left: usize,
}

/// The client's and the server's first traffic secrets of TLS 1.3.
#[derive(Default)]
struct Secrets {
    client: Mutex<Zeroizing<Vec<u8>>>,
    server: Mutex<Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

impl KeyLog for Secrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let place = match label {
            CLIENT => &self.client,
            SERVER => &self.server,
            _ => return,
        };
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Zeroizing::new(secret.to_vec());
    }

    fn will_log(&self, label: &str) -> bool {
        [CLIENT, SERVER].contains(&label)
    }
}

impl Handshake {
    pub(super) fn new(config: &ServerConfig) -> Result<Self, Error> {
        let secrets = Arc::new(Secrets::default());
        let mut config = config.clone();
        config.key_log = Arc::<Secrets>::clone(&secrets);
        config.enable_secret_extraction = true;
        Ok(Self { session: ServerConnection::new(Arc::new(config))?, secrets, left: 0 })
    }

    /// Takes from `bytes` what belongs to one record, and appends answers to `out`. Returns how
    /// many bytes were taken.
    pub(super) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Error> {
        if self.left == 0 {
            let Some(&[_, _, _, high, low]) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(0) };
            self.left = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
        }
        let part = &bytes[..bytes.len().min(self.left)];
        if part.is_empty() {
            return Ok(0);
        }
        let read = self.session.read_tls(&mut &*part).map_err(|error| Error::General(error.to_string()))?;
        self.left -= read;
        let judged = self.session.process_new_packets();
        self.put_output(out);
        judged.map(|_| read)
    }

    /// Whether all that follows are records of the session.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0 && !self.session.is_handshaking()
    }

    /// Whether the client has shown a certificate, which was verified.
    pub(super) fn is_verified(&self) -> bool {
        self.session.peer_certificates().is_some()
    }

    /// Ends the handshake, when it is done.
    pub(super) fn finish(self) -> Result<Records, Error> {
        let Self { session, secrets, .. } = self;
        // No older one is offered.
        let version = match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => Version::Tls13,
            _ => Version::Tls12,
        };
        let extracted = session.dangerous_extract_secrets()?;
        let keys = |(number, secrets): (u64, ConnectionTrafficSecrets), traffic: &Mutex<Zeroizing<Vec<u8>>>| {
            let (cipher, secret) = secret(secrets)?;
            let traffic = traffic.lock().unwrap_or_else(PoisonError::into_inner);
            let secret = if version == Version::Tls13 { &*traffic } else { &secret };
            Keys::new(Suite { version, cipher }, secret, number)
        };
        let incoming = keys(extracted.rx, &secrets.client);
        let outgoing = keys(extracted.tx, &secrets.server);
        let (incoming, outgoing) =
            incoming.zip(outgoing).ok_or_else(|| Error::General("a cipher without keys".to_owned()))?;
        Ok(Records::new(incoming, outgoing, false))
    }

    /// Tells the client that nothing more comes.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        self.session.send_close_notify();
        self.put_output(out);
    }

    fn put_output(&mut self, out: &mut Vec<u8>) {
        while self.session.wants_write() {
            // A vector takes everything.
            let _ = self.session.write_tls(out);
        }
    }
}

/// Returns a cipher, and its key and IV one after the other.
fn secret(of: ConnectionTrafficSecrets) -> Option<(Cipher, Zeroizing<Vec<u8>>)> {
    let (cipher, key, iv) = match of {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (Cipher::Chacha20Poly1305, key, iv),
        _ => return None,
    };
    Some((cipher, Zeroizing::new([key.as_ref(), iv.as_ref()].concat())))
}
