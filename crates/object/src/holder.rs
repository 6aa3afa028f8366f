// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tells the writer of a volume from others: the machine, and the cache that it writes from
//! (ADR 0077).
//!
//! Names of hosts don't: cloned machines and containers share them.

use ring::hmac;

/// The identity of a machine is hashed with this, as machine-id(5) asks for: whoever reads the
/// bucket must not learn the identity itself.
const PURPOSE: &[u8] = b"flashfront: the machine that writes a volume";
/// Hexadecimal digits of a machine's identity.
const DIGITS: usize = 32;

/// A machine and a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The hash of the machine's identity; zeroes: it has none.
    pub machine: [u8; 16],
    /// The UUID of the cache; zeroes: there is none.
    pub cache: [u8; 16],
}

impl Holder {
    /// Names a writer. `machine_id` is the content of /etc/machine-id.
    #[must_use]
    pub fn new(machine_id: &str, cache: Option<[u8; 16]>) -> Self {
        Self { machine: hashed(machine_id.trim()), cache: cache.unwrap_or_default() }
    }

    /// The cache, if the writer has one.
    #[must_use]
    pub fn cache(&self) -> Option<[u8; 16]> {
        (self.cache != [0; 16]).then_some(self.cache)
    }

    /// The machine, if it has an identity.
    #[must_use]
    pub fn machine(&self) -> Option<[u8; 16]> {
        (self.machine != [0; 16]).then_some(self.machine)
    }
}

/// Hashes an identity. A file that is empty, or says "uninitialized", has none.
fn hashed(machine_id: &str) -> [u8; 16] {
    let mut machine = [0; 16];
    if machine_id.len() == DIGITS && machine_id.bytes().all(|it| it.is_ascii_hexdigit()) {
        let key = hmac::Key::new(hmac::HMAC_SHA256, machine_id.to_ascii_lowercase().as_bytes());
        machine.copy_from_slice(&hmac::sign(&key, PURPOSE).as_ref()[..16]);
    }
    machine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_told_from_others_and_its_identity_is_not_told() {
        let id = "0123456789abcdef0123456789abcdef";
        let one = Holder::new(&format!("{id}\n"), Some([7; 16]));
        assert_eq!(one, Holder::new(&id.to_uppercase(), Some([7; 16])));
        assert!(one.machine().is_some() && one.cache() == Some([7; 16]));
        let hex: String = one.machine.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_ne!(hex, id);
        assert_ne!(Holder::new("1123456789abcdef0123456789abcdef", None).machine(), one.machine());
        for none in ["", "uninitialized\n", "0123"] {
            assert_eq!(Holder::new(none, None), Holder::default(), "{none:?}");
        }
        assert_eq!((Holder::default().machine(), Holder::default().cache()), (None, None));
    }
}
