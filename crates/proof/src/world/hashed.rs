// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hashes all effects of an engine. Equal hashes mean that two runs behaved the same.

use std::hash::{DefaultHasher, Hash, Hasher};

use flashfront_device::Arena;
use flashfront_engine::{DeviceId, Effect, Io, Memory, Op, Time};

/// The hash of the effects so far.
#[derive(Clone, Default)]
pub(super) struct Hashed(DefaultHasher);

impl Hashed {
    /// Takes an effect into the hash, with the payload that it writes.
    pub(super) fn note(&mut self, now: Time, effect: &Effect, arena: &Arena) {
        let now = now.0;
        match *effect {
            Effect::Io(Io { token, device, op, offset, len, span }) => {
                let device = match device {
                    DeviceId::Origin(id) => i64::from(id.0),
                    DeviceId::Cache => -1,
                    DeviceId::Mirror => -2,
                };
                let sum = span.filter(|_| op == Op::Write).map(|span| arena.checksum(span));
                (now, token.0, device, op as u8, offset, len, sum).hash(&mut self.0);
            }
            Effect::Reply { id, result, .. } => (now, id.0, result.is_ok()).hash(&mut self.0),
            Effect::Event(event) => (now, format!("{event:?}")).hash(&mut self.0),
        }
    }

    /// The hash as a number.
    pub(super) fn number(&self) -> u64 {
        self.0.finish()
    }
}
