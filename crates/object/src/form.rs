// SPDX-License-Identifier: MIT OR Apache-2.0
//! The form in which extents are stored: as they are, compressed, encrypted, or both.
//!
//! Whoever has the bucket and no key can read which places were written, when, and how much. They
//! can't read content, nor change it unseen. They can put an older state of the volume back.
//!
//! Invariant: no two extents are encrypted with the same key and nonce. Each opening derives keys
//! of its own from its random number, and counts its extents (`no_nonce_is_used_twice`).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::{digest, hkdf};

use crate::wire::{Put, SECTOR_BYTES, Take};

/// The most that a stored extent has beside its content.
pub(crate) const FRAME_BYTES_MAX: u64 = 1 + SEAL_BYTES;
/// Number of the key, random number of the opening, count; and the tag.
const SEAL_BYTES: u64 = 8 + 16 + 8 + 16;
const COMPRESSED: u8 = 1;
const ENCRYPTED: u8 = 2;
/// An extent is stored compressed if that saves one part in so many.
const SAVES: usize = 16;
const KEY_BYTES: usize = 32;

/// How a volume stores its extents. Chosen when it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// Extents are compressed where that saves something.
    pub compressed: bool,
    /// Extents are encrypted. The number names the key of the newest ones.
    pub key: Option<u64>,
}

impl Form {
    /// Extents are stored as they are.
    pub(crate) const fn is_plain(self) -> bool {
        !self.compressed && self.key.is_none()
    }
}

/// Secret keys. The first one encrypts, all of them decrypt.
#[derive(Clone, Default)]
pub struct Keys(Arc<Vec<(u64, [u8; KEY_BYTES])>>);

impl fmt::Debug for Keys {
    /// Shows their numbers alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(number, _)| format!("{number:016x}"))).finish()
    }
}

impl Keys {
    /// Takes keys, the one that encrypts first.
    #[must_use]
    pub fn new(keys: &[[u8; KEY_BYTES]]) -> Self {
        Self(Arc::new(keys.iter().map(|key| (number_of(key), *key)).collect()))
    }

    /// Reads keys from text: 64 hexadecimal digits in a line. Lines that begin with `#` say
    /// nothing.
    ///
    /// # Errors
    /// The number of a line that is no key; 0: there is none at all.
    pub fn parse(text: &str) -> Result<Self, usize> {
        let mut keys = Vec::new();
        let lines = text.lines().map(str::trim).enumerate();
        for (nth, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            keys.push(key_of(line).ok_or(nth + 1)?);
        }
        if keys.is_empty() { Err(0) } else { Ok(Self::new(&keys)) }
    }

    /// The number of the key that encrypts.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        self.0.first().map(|(number, _)| *number)
    }

    fn get(&self, number: u64) -> Option<&[u8; KEY_BYTES]> {
        self.0.iter().find(|it| it.0 == number).map(|(_, key)| key)
    }

    /// Whether there is a key of this number.
    #[must_use]
    pub fn has(&self, number: u64) -> bool {
        self.get(number).is_some()
    }
}

fn key_of(line: &str) -> Option<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    let (digits, rest) = line.as_bytes().as_chunks::<2>();
    if digits.len() != KEY_BYTES || !rest.is_empty() {
        return None;
    }
    let digit = |it: u8| char::from(it).to_digit(16);
    for (byte, [high, low]) in key.iter_mut().zip(digits) {
        *byte = u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?;
    }
    Some(key)
}

/// A number that names a key and does not tell it.
fn number_of(key: &[u8; KEY_BYTES]) -> u64 {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(b"flashfront: the number of a key");
    context.update(key);
    let number = context.finish();
    number.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Puts extents into their form, and takes them out.
#[derive(Debug, Default)]
pub(crate) struct Former {
    form: Form,
    keys: Keys,
    /// The random number of this opening, and the extents that it has encrypted.
    opening: [u8; 16],
    count: u64,
    sealing: Option<LessSafeKey>,
}

impl Former {
    pub(crate) fn new(form: Form, keys: Keys, opening: [u8; 16]) -> Self {
        Self { form, keys, opening, count: 0, sealing: None }
    }

    pub(crate) const fn is_plain(&self) -> bool {
        self.form.is_plain()
    }

    /// Whether extents can be written as the volume wants them.
    pub(crate) fn may_write(&self) -> bool {
        self.form.key.is_none() || self.keys.first().is_some()
    }

    /// Returns the bytes that are stored for an extent.
    pub(crate) fn store<'a>(&mut self, start: u64, content: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_plain() {
            return Cow::Borrowed(content);
        }
        let small = if self.form.compressed { compress(content) } else { None };
        let flags = if small.is_some() { COMPRESSED } else { 0 };
        let body = small.as_deref().unwrap_or(content);
        let mut put = Put(Vec::with_capacity(body.len() + FRAME_BYTES_MAX as usize));
        match self.form.key.and(self.keys.first()) {
            None => _ = put.u8(flags).bytes(body),
            Some(number) => {
                let flags = flags | ENCRYPTED;
                put.u8(flags).u64(number).bytes(&self.opening).u64(self.count);
                let mut body = body.to_vec();
                let place = place(flags, start, content.len() as u64);
                let (count, key) = (self.count, self.sealing_key(number));
                key.seal_in_place_append_tag(nonce(count), Aad::from(place), &mut body)
                    .expect("bug: an extent is too long to be encrypted");
                self.count += 1;
                put.bytes(&body);
            }
        }
        Cow::Owned(put.0)
    }

    /// The key for the next extent.
    fn sealing_key(&mut self, number: u64) -> &LessSafeKey {
        if is_new_key(self.count) {
            self.sealing = None;
        }
        let master = self.keys.get(number).expect("bug: the key that encrypts is there");
        let (opening, count) = (&self.opening, self.count);
        self.sealing.get_or_insert_with(|| derived(master, opening, count))
    }

    /// Returns the content of a stored extent of so many sectors, or says what is wrong with it.
    pub(crate) fn content<'a>(
        &self,
        is_framed: bool,
        (start, sectors): (u64, u64),
        stored: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, String> {
        let bytes = (sectors * SECTOR_BYTES) as usize;
        let wrong_length = || format!("the extent at sector {start} has another length than {bytes} bytes");
        // Plain extents are refused: somebody who can write the bucket could put them there.
        let not_encrypted = || format!("the extent at sector {start} is not encrypted, and this volume is");
        if self.form.key.is_some() && (!is_framed || stored.first().is_none_or(|flags| flags & ENCRYPTED == 0)) {
            return Err(not_encrypted());
        }
        if !is_framed {
            return if stored.len() == bytes { Ok(Cow::Borrowed(stored)) } else { Err(wrong_length()) };
        }
        let (flags, rest) = stored.split_first().ok_or_else(wrong_length)?;
        if flags & !(COMPRESSED | ENCRYPTED) != 0 {
            return Err(format!("the extent at sector {start} has form {flags}, which this version does not know"));
        }
        let body = match flags & ENCRYPTED {
            0 => Cow::Borrowed(rest),
            _ => Cow::Owned(self.decrypt(*flags, (start, sectors), rest)?),
        };
        if flags & COMPRESSED == 0 {
            return if body.len() == bytes { Ok(body) } else { Err(wrong_length()) };
        }
        let mut content = vec![0; bytes];
        match lz4_flex::block::decompress_into(&body, &mut content) {
            Ok(len) if len == bytes => Ok(Cow::Owned(content)),
            _ => Err(wrong_length()),
        }
    }

    fn decrypt(&self, flags: u8, (start, sectors): (u64, u64), sealed: &[u8]) -> Result<Vec<u8>, String> {
        let mut take = Take(sealed);
        let mut fields = || Some((take.u64()?, take.array::<16>()?, take.u64()?, take.0));
        let (number, opening, count, body) =
            fields().ok_or_else(|| format!("the extent at sector {start} is too short to be an encrypted one"))?;
        let master = self.keys.get(number).ok_or_else(|| {
            format!("the extent at sector {start} is encrypted with key {number:016x}, which is not given")
        })?;
        let (mut body, place) = (body.to_vec(), place(flags, start, sectors * SECTOR_BYTES));
        let opened = derived(master, &opening, count).open_in_place(nonce(count), Aad::from(place), &mut body);
        let len = opened.map(|it| it.len()).map_err(|_| {
            format!("the extent at sector {start} is not what was encrypted: somebody changed or moved it")
        })?;
        body.truncate(len);
        Ok(body)
    }
}

/// Compresses if that pays. What could not be read again is not taken.
fn compress(content: &[u8]) -> Option<Vec<u8>> {
    let small = lz4_flex::block::compress(content);
    if small.len() + content.len() / SAVES > content.len() {
        return None;
    }
    let mut again = vec![0; content.len()];
    let len = lz4_flex::block::decompress_into(&small, &mut again).ok()?;
    (len == content.len() && again == content).then_some(small)
}

/// What an encrypted extent is tied to: its form, its place and its length.
fn place(flags: u8, start: u64, bytes: u64) -> [u8; 17] {
    let mut place = [flags; 17];
    place[1..9].copy_from_slice(&start.to_le_bytes());
    place[9..].copy_from_slice(&bytes.to_le_bytes());
    place
}

/// A key is for 2^32 extents: fewer than AES-GCM bears.
const fn is_new_key(count: u64) -> bool {
    count << 32 == 0
}

fn nonce(count: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&count.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// The key of an opening, for the extents around this count.
fn derived(master: &[u8; KEY_BYTES], opening: &[u8; 16], count: u64) -> LessSafeKey {
    let part = (count >> 32).to_le_bytes();
    let info: [&[u8]; 2] = [b"flashfront: extents", &part];
    let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, opening).extract(master);
    let okm = secret.expand(&info, &AES_256_GCM).expect("bug: a key of 32 bytes is not too long");
    LessSafeKey::new(UnboundKey::from(okm))
}

#[cfg(test)]
mod tests;
