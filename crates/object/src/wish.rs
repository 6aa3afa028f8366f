// SPDX-License-Identifier: MIT OR Apache-2.0
//! A wish: what somebody beside the writer wants of a volume.

use crate::manifest::{Manifest, Snapshot};
use crate::wire::{Put, Take, is_sealed};

const MAGIC: &[u8; 8] = b"FFWISH01";
const CRC_AT: usize = 8;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The state of a manifest is to be kept under a name.
    Snapshot {
        /// The name. A name that is in use stays what it was.
        name: String,
        /// The manifest.
        manifest: u64,
    },
    /// A snapshot is to be forgotten.
    Forget {
        /// Its name.
        name: String,
    },
}

/// A wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The volume's random number.
    pub volume: [u8; 16],
    /// A random number of its maker, by which a lost reply is told from a lost race.
    pub maker: [u8; 16],
    /// What is wanted.
    pub wanted: Wanted,
}

impl Wish {
    /// Writes it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut put = Put::default();
        put.bytes(MAGIC).u32(0).bytes(&self.volume).bytes(&self.maker);
        match &self.wanted {
            Wanted::Snapshot { name, manifest } => put.u32(1).text(name).u64(*manifest),
            Wanted::Forget { name } => put.u32(2).text(name).u64(0),
        };
        put.seal(CRC_AT)
    }

    /// Reads it, and verifies it. A torn one wishes nothing.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        if take.bytes(8)? != MAGIC || !is_sealed(bytes, CRC_AT) {
            return None;
        }
        let _ = take.u32()?;
        let (volume, maker, kind) = (take.array()?, take.array()?, take.u32()?);
        let (name, manifest) = (take.text()?, take.u64()?);
        let wanted = match kind {
            1 => Wanted::Snapshot { name, manifest },
            2 => Wanted::Forget { name },
            _ => return None,
        };
        Some(Self { volume, maker, wanted })
    }

    /// Grants the next wish of a volume, as the store has it. A torn one wishes nothing.
    pub fn grant(stored: &[u8], volume: &mut Manifest) {
        volume.wishes += 1;
        let (wish, snapshots) = (volume.wishes, &mut volume.snapshots);
        match Self::decode(stored).filter(|it| it.volume == volume.volume).map(|it| it.wanted) {
            Some(Wanted::Snapshot { name, manifest }) if snapshots.iter().all(|it| it.name != name) => {
                snapshots.push(Snapshot { name, manifest, wish });
            }
            Some(Wanted::Forget { name }) => snapshots.retain(|it| it.name != name),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_read_as_it_was_written_and_a_torn_one_wishes_nothing() {
        for wanted in
            [Wanted::Snapshot { name: "monday".to_owned(), manifest: 7 }, Wanted::Forget { name: "monday".to_owned() }]
        {
            let wish = Wish { volume: [1; 16], maker: [2; 16], wanted };
            let bytes = wish.encode();
            assert_eq!(Wish::decode(&bytes), Some(wish));
            for at in 0..bytes.len() {
                assert_eq!(Wish::decode(&bytes[..at]), None);
            }
        }
    }
}
