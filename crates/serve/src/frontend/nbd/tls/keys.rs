// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keys of one direction of a TLS session: encrypts and decrypts single records.
//!
//! Ciphers and hashes are ring's; this file only puts their inputs together, as RFC 8446 (TLS 1.3),
//! RFC 5288 and RFC 7905 (TLS 1.2) say. Secrets are in no output of `Debug`.
//!
//! Invariant: no two records of a key have the same number (tests: `records`).

use std::fmt;
use std::ops::Range;

use ring::{aead, hkdf};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::fault::Fault;

/// Type, version and length of a record.
pub(super) const HEADER_BYTES: usize = 5;
/// The most content of a record.
pub(super) const CONTENT_BYTES_MAX: usize = 1 << 14;
/// The most that may follow a header. TLS 1.2 allows more, which its ciphers here never need.
pub(super) const BODY_BYTES_MAX: usize = CONTENT_BYTES_MAX + 256;
/// The version in all headers, of TLS 1.3 too.
pub(super) const HEADER_VERSION: [u8; 2] = [3, 3];
/// The type in the header of every record of TLS 1.3, and of content.
pub(super) const DATA: u8 = 23;

const TAG_BYTES: usize = 16;
/// With AES-GCM in TLS 1.2 half of the nonce is sent along.
const EXPLICIT_BYTES: usize = 8;
/// Records that one key of AES-GCM may encrypt. They stand for a chance of 2^-60 to tell them from
/// noise; rustls keeps the same limit.
const RECORDS_MAX: u64 = 1 << 24;

/// The version of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Version {
    Tls12,
    Tls13,
}

/// The cipher of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cipher {
    Aes128Gcm,
    Aes256Gcm,
    Chacha20Poly1305,
}

/// Version and cipher, which say how records are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Suite {
    pub(super) version: Version,
    pub(super) cipher: Cipher,
}

impl Suite {
    fn algorithm(self) -> &'static aead::Algorithm {
        match self.cipher {
            Cipher::Aes128Gcm => &aead::AES_128_GCM,
            Cipher::Aes256Gcm => &aead::AES_256_GCM,
            Cipher::Chacha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }

    /// The hash that TLS 1.3 derives keys with, and its length.
    fn hash(self) -> (hkdf::Algorithm, usize) {
        match self.cipher {
            Cipher::Aes256Gcm => (hkdf::HKDF_SHA384, 48),
            Cipher::Aes128Gcm | Cipher::Chacha20Poly1305 => (hkdf::HKDF_SHA256, 32),
        }
    }

    /// Bytes between the header and the content.
    fn explicit_bytes(self) -> usize {
        match (self.version, self.cipher) {
            (Version::Tls13, _) | (_, Cipher::Chacha20Poly1305) => 0,
            (Version::Tls12, _) => EXPLICIT_BYTES,
        }
    }

    fn records_max(self) -> u64 {
        match self.cipher {
            Cipher::Chacha20Poly1305 => u64::MAX,
            Cipher::Aes128Gcm | Cipher::Aes256Gcm => RECORDS_MAX,
        }
    }
}

/// The keys of one direction.
pub(super) struct Keys {
    suite: Suite,
    /// What the keys are made of. TLS 1.3: the traffic secret. TLS 1.2: key and IV.
    secret: Zeroizing<Vec<u8>>,
    key: aead::LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
    /// The number of the next record.
    number: u64,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { suite, number, .. } = self;
        f.debug_struct("Keys").field("suite", suite).field("number", number).finish_non_exhaustive()
    }
}

impl Keys {
    /// The keys that `secret` stands for, from record `number` on. `None`: it has another length.
    pub(super) fn new(suite: Suite, secret: &[u8], number: u64) -> Option<Self> {
        let mut key = Zeroizing::new(vec![0; suite.algorithm().key_len()]);
        let mut iv = [0; aead::NONCE_LEN];
        match suite.version {
            Version::Tls13 => {
                let (hash, hash_bytes) = suite.hash();
                if secret.len() != hash_bytes {
                    return None;
                }
                let secret = hkdf::Prk::new_less_safe(hash, secret);
                expand(&secret, b"key", &mut key)?;
                expand(&secret, b"iv", &mut iv)?;
            }
            Version::Tls12 => {
                let (first, rest) = secret.split_at_checked(key.len())?;
                key.copy_from_slice(first);
                iv = rest.try_into().ok()?;
            }
        }
        let key = aead::LessSafeKey::new(aead::UnboundKey::new(suite.algorithm(), &key).ok()?);
        Some(Self { suite, secret: Zeroizing::new(secret.to_vec()), key, iv, number })
    }

    pub(super) fn suite(&self) -> Suite {
        self.suite
    }

    /// What [`Keys::new`] needs to make these keys again. It must not be shown to anybody.
    pub(super) fn secret(&self) -> &[u8] {
        &self.secret
    }

    /// The number of the next record.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// How many records these keys may still encrypt.
    pub(super) fn left(&self) -> u64 {
        self.suite.records_max().saturating_sub(self.number)
    }

    /// Goes on with the next keys of TLS 1.3.
    pub(super) fn update(&mut self) -> Result<(), Fault> {
        let (hash, hash_bytes) = self.suite.hash();
        let mut next = Zeroizing::new(vec![0; hash_bytes]);
        let derived = expand(&hkdf::Prk::new_less_safe(hash, &self.secret), b"traffic upd", &mut next);
        *self = derived.and_then(|()| Self::new(self.suite, &next, 0)).ok_or(Fault::UsedUp)?;
        Ok(())
    }

    /// Decrypts a whole record in place. Returns the type of its content, and where that is.
    pub(super) fn decrypt(&mut self, record: &mut [u8]) -> Result<(u8, Range<usize>), Fault> {
        let explicit_bytes = self.suite.explicit_bytes();
        let start = HEADER_BYTES + explicit_bytes;
        let overhead = start + TAG_BYTES;
        let outer = *record.first().ok_or(Fault::Damaged)?;
        let mut bytes = record.len().checked_sub(overhead).ok_or(Fault::Damaged)?;
        let (head, body) = record.split_at_mut(start);
        let nonce = self.nonce(&head[HEADER_BYTES..]);
        let bound = self.bound(outer, bytes);
        let content = self.key.open_in_place(nonce, bound, body).map_err(|_| Fault::Damaged)?;
        self.number = self.number.checked_add(1).ok_or(Fault::UsedUp)?;
        let mut kind = outer;
        let most = match self.suite.version {
            Version::Tls12 => CONTENT_BYTES_MAX,
            Version::Tls13 => CONTENT_BYTES_MAX + 1,
        };
        if bytes > most {
            return Err(Fault::TooLong);
        }
        if self.suite.version == Version::Tls13 {
            // The type stands behind the content, and any number of zeroes behind it.
            bytes = content.iter().rposition(|byte| *byte != 0).ok_or(Fault::OutOfPlace)?;
            kind = content[bytes];
        }
        Ok((kind, start..start + bytes))
    }

    /// Appends a record to `out`, with the content that `fill` appends: at most
    /// [`CONTENT_BYTES_MAX`].
    pub(super) fn encrypt(
        &mut self,
        kind: u8,
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Fault> {
        if self.left() == 0 {
            return Err(Fault::UsedUp);
        }
        let begin = out.len();
        let outer = if self.suite.version == Version::Tls13 { DATA } else { kind };
        out.extend_from_slice(&[outer, HEADER_VERSION[0], HEADER_VERSION[1], 0, 0]);
        let own = self.own_nonce();
        let explicit = &own[aead::NONCE_LEN - self.suite.explicit_bytes()..];
        out.extend_from_slice(explicit);
        let start = out.len();
        fill(out);
        if self.suite.version == Version::Tls13 {
            out.push(kind);
        }
        let length = (out.len() + TAG_BYTES - begin - HEADER_BYTES) as u16;
        out[begin + 3..begin + HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
        let bound = self.bound(outer, out.len() - start);
        match self.key.seal_in_place_separate_tag(self.nonce(explicit), bound, &mut out[start..]) {
            Ok(tag) => out.extend_from_slice(tag.as_ref()),
            Err(_) => {
                // Nothing that was not encrypted may stay there.
                out.truncate(begin);
                return Err(Fault::UsedUp);
            }
        }
        self.number += 1;
        Ok(())
    }

    /// The IV and the number of the next record, which make its nonce.
    fn own_nonce(&self) -> [u8; aead::NONCE_LEN] {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= number;
        }
        nonce
    }

    /// The nonce of the next record, the end of which may have come with it.
    fn nonce(&self, explicit: &[u8]) -> aead::Nonce {
        let mut nonce = self.own_nonce();
        if !explicit.is_empty() {
            // In this case the number plays no part in the rest.
            nonce[aead::NONCE_LEN - explicit.len()..].copy_from_slice(explicit);
        }
        aead::Nonce::assume_unique_for_key(nonce)
    }

    /// What is not encrypted, but may not be changed either: the record's number in TLS 1.2, and a
    /// header with these bytes behind it.
    fn bound(&self, outer: u8, bytes: usize) -> aead::Aad<Bound> {
        let (from, bytes) = match self.suite.version {
            Version::Tls12 => (0, bytes),
            Version::Tls13 => (8, bytes + TAG_BYTES),
        };
        let mut all = [0; 13];
        all[..8].copy_from_slice(&self.number.to_be_bytes());
        all[8..11].copy_from_slice(&[outer, HEADER_VERSION[0], HEADER_VERSION[1]]);
        all[11..].copy_from_slice(&(bytes as u16).to_be_bytes());
        aead::Aad::from(Bound { all, from })
    }
}

/// What is bound to a record without being encrypted.
struct Bound {
    all: [u8; 13],
    from: usize,
}

impl AsRef<[u8]> for Bound {
    fn as_ref(&self) -> &[u8] {
        &self.all[self.from..]
    }
}

/// HKDF-Expand-Label of RFC 8446, 7.1, without context.
fn expand(secret: &hkdf::Prk, label: &[u8], out: &mut [u8]) -> Option<()> {
    const PREFIX: &[u8] = b"tls13 ";
    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let bytes = (out.len() as u16).to_be_bytes();
    let label_bytes = [(PREFIX.len() + label.len()) as u8];
    let info = [&bytes[..], &label_bytes, PREFIX, label, &[0]];
    secret.expand(&info, Length(out.len())).and_then(|made| made.fill(out)).ok()
}
