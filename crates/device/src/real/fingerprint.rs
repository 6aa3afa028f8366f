// SPDX-License-Identifier: MIT OR Apache-2.0
//! Has an origin been changed behind our back? A hash of samples of its content tells, mostly.
//!
//! Sampled: the size, the first and the last MiB (partition table, superblocks and their copies)
//! and 64 blocks spread over the rest. A file system that was mounted and written to changes its
//! superblock at the start, so the usual accident is seen; a change of one block far inside is
//! found with probability 64 / blocks only. About 0.6 s on an HDD.

use std::io;

use super::file::DeviceFile;
use crate::Rng;

const END_BYTES: u64 = 1 << 20;
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: u64 = 4096;
/// Fixed for ever: superblocks keep hashes made with it.
const SEED: u64 = 0x666c_6173_6866_726f;

/// What an origin looked like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// CRC-64/NVME of the size and the samples.
    pub content: u64,
    /// When a regular file was last changed; `None` for block devices, which don't say.
    pub changed_ns: Option<u64>,
}

/// Takes the fingerprint of a device.
///
/// # Errors
/// As reading the device.
pub fn fingerprint(device: &DeviceFile) -> io::Result<Fingerprint> {
    let size = device.geometry().size_bytes;
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    digest.update(&size.to_le_bytes());
    let mut buf = vec![0; END_BYTES as usize];
    let mut add = |offset: u64, len: u64| -> io::Result<()> {
        let part = &mut buf[..len as usize];
        device.read_at(offset, part)?;
        digest.update(part);
        Ok(())
    };
    add(0, size.min(END_BYTES))?;
    if size > END_BYTES {
        add(size - END_BYTES, END_BYTES)?;
    }
    if size > 2 * END_BYTES {
        let mut rng = Rng::new(SEED);
        // Sorted: one sweep of the head.
        let blocks = (size - 2 * END_BYTES) / SAMPLE_BYTES;
        let mut places: Vec<_> = (0..SAMPLES).map(|_| rng.below(blocks)).collect();
        places.sort_unstable();
        for place in places {
            add(END_BYTES + place * SAMPLE_BYTES, SAMPLE_BYTES)?;
        }
    }
    Ok(Fingerprint { content: digest.finalize(), changed_ns: device.changed_ns()? })
}
