// SPDX-License-Identifier: MIT OR Apache-2.0
//! Has an origin been changed behind our back? A hash of samples of its content tells, mostly.
//!
//! Sampled: the size, the first and the last MiB (partition table, superblocks and their copies), 64 blocks spread
//! over the rest, and where file systems have their superblocks if they are not at the start: at the first partitions,
//! at 1 MiB (LVM's first extent, most first partitions), at 16 MiB (LUKS2's data), and a block of each of the
//! first 32 MiB. A file system that was mounted and written to changes its superblock, so the usual accident is
//! seen (tests: `a_fingerprint_notices_changes`, `partitions_are_found_wherever_they_begin`); a change of one block far inside is found with
//! probability 64 / blocks only, and so is a file system on a logical volume further back. About 1 s on an HDD, by calculation.

use std::io;

use super::file::DeviceFile;
use crate::Rng;

const MIB: u64 = 1 << 20;
const END_BYTES: u64 = MIB;
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: u64 = 4096;
/// So far there is a sample in each MiB.
const SPARSE_BYTES: u64 = 32 * MIB;
/// Looked at where partitions and other data begin: btrfs has its superblock at 64 KiB, all others before.
const DATA_BYTES: u64 = 128 << 10;
/// Of a GPT. That many is what all tools make.
const PARTITIONS_MAX: u64 = 128;
/// Fixed for ever: superblocks keep hashes made with it.
const SEED: u64 = 0x666c_6173_6866_726f;

/// What an origin looked like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// CRC-64/NVME of the size and the samples.
    pub content: u64,
    /// The same of the ends and the 64 blocks alone, as it was recorded before.
    pub content_before: u64,
    /// When a regular file was last changed; `None` for block devices, which don't say.
    pub changed_ns: Option<u64>,
}

impl Fingerprint {
    /// Whether this content was recorded. A record of before has the hash of fewer samples, which no content has as its
    /// hash now but by chance, so it needs no mark.
    #[must_use]
    pub fn is_content(&self, recorded: u64) -> bool {
        [self.content, self.content_before].contains(&recorded)
    }
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
    if size > END_BYTES {
        add(0, END_BYTES)?;
        add(size - END_BYTES, END_BYTES)?;
    } else {
        add(0, size)?;
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
    let content_before = digest.finalize();
    let mut head = vec![0; size.min(END_BYTES) as usize];
    device.read_at(0, &mut head)?;
    for (start, end) in superblocks(&head, size) {
        let mut part = vec![0; (end - start) as usize];
        device.read_at(start, &mut part)?;
        digest.update(&part);
    }
    Ok(Fingerprint { content: digest.finalize(), content_before, changed_ns: device.changed_ns()? })
}

/// Where superblocks of file systems may be, beyond the first MiB: sorted, and each byte once.
fn superblocks(head: &[u8], size: u64) -> Vec<(u64, u64)> {
    let mut places: Vec<(u64, u64)> = (1..SPARSE_BYTES / MIB).map(|nth| (nth * MIB, SAMPLE_BYTES)).collect();
    places.extend([(MIB, DATA_BYTES), (16 * MIB, DATA_BYTES)]);
    places.extend(partitions(head).map(|start| (start, DATA_BYTES)));
    places.retain(|(start, _)| *start < size);
    places.sort_unstable();
    let mut apart: Vec<(u64, u64)> = Vec::new();
    for (start, len) in places {
        let end = start.saturating_add(len).min(size);
        match apart.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => apart.push((start, end)),
        }
    }
    apart
}

/// First bytes of partitions, by what a partition table at the start says; of nonsense it says nonsense, and only
/// what is read depends on that. As a copy of a disk may be read in other sectors, both sizes are tried. Of an
/// extended partition the first logical one is not looked for.
fn partitions(head: &[u8]) -> impl Iterator<Item = u64> + '_ {
    [512, 4096].into_iter().flat_map(move |sector: u64| {
        let sectors: Vec<u64> = if bytes(head, sector, 8) == Some(b"EFI PART") {
            gpt(head, sector)
        } else if bytes(head, 510, 2) == Some(&[0x55, 0xaa]) {
            (0..4).filter_map(|nth| number(head, 446 + nth * 16 + 8, 4)).collect()
        } else {
            Vec::new()
        };
        sectors.into_iter().filter(|start| *start > 0).filter_map(move |start| start.checked_mul(sector))
    })
}

/// First sectors by a GUID partition table (UEFI specification, 5.3).
fn gpt(head: &[u8], sector: u64) -> Vec<u64> {
    let field = |at, len| number(head, sector + at, len);
    let (Some(entries), Some(count), Some(len)) = (field(72, 8), field(80, 4), field(84, 4)) else { return Vec::new() };
    let Some(entries) = entries.checked_mul(sector).filter(|_| len >= 128) else { return Vec::new() };
    let place = |nth: u64| entries.checked_add(nth * len)?.checked_add(32);
    (0..count.min(PARTITIONS_MAX)).filter_map(|nth| number(head, place(nth)?, 8)).collect()
}

fn bytes(head: &[u8], at: u64, len: u64) -> Option<&[u8]> {
    head.get(usize::try_from(at).ok()?..usize::try_from(at.checked_add(len)?).ok()?)
}

fn number(head: &[u8], at: u64, len: u64) -> Option<u64> {
    Some(bytes(head, at, len)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of one partition from `start` on, in sectors.
    fn table(sector: u64, start: u64, guid: bool) -> Vec<u8> {
        let mut head = vec![0; END_BYTES as usize];
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        head[446 + 4] = if guid { 0xee } else { 0x83 };
        head[446 + 8..][..4].copy_from_slice(&(if guid { 1 } else { start as u32 }).to_le_bytes());
        if guid {
            let header = &mut head[sector as usize..];
            header[..8].copy_from_slice(b"EFI PART");
            header[72..80].copy_from_slice(&2u64.to_le_bytes());
            header[80..84].copy_from_slice(&128u32.to_le_bytes());
            header[84..88].copy_from_slice(&128u32.to_le_bytes());
            head[2 * sector as usize + 5 * 128 + 32..][..8].copy_from_slice(&start.to_le_bytes());
        }
        head
    }

    fn is_sampled(head: &[u8], size: u64, at: u64) -> bool {
        superblocks(head, size).iter().any(|(start, end)| (*start..*end).contains(&at))
    }

    #[test]
    fn partitions_are_found_wherever_they_begin() {
        let (size, at) = (1 << 40, 100 << 30);
        for sector in [512, 4096] {
            for guid in [false, true] {
                let head = table(sector, at / sector, guid);
                for offset in [0, 1080, 65536 + 64, DATA_BYTES - 1] {
                    assert!(is_sampled(&head, size, at + offset), "{sector} {guid} {offset}");
                }
                assert!(!is_sampled(&head, size, at + DATA_BYTES));
            }
        }
        assert!(!is_sampled(&[0; END_BYTES as usize], size, at));
    }

    #[test]
    fn nonsense_is_read_within_the_device_and_once() {
        let mut rng = Rng::new(7);
        for round in 0..2000 {
            let size = 512 * (1 + rng.below(1 << 12 << (round % 20)));
            let mut head = table([512, 4096][round % 2], rng.next_u64() >> rng.below(64), round % 3 > 0);
            for _ in 0..rng.below(40) {
                let at = rng.below(16 << 10) as usize;
                head[at] = if round % 4 == 0 { 0xff } else { rng.next_u64() as u8 };
            }
            head[510..512].copy_from_slice(&[0x55, 0xaa]);
            head[512..520].copy_from_slice(b"EFI PART");
            head.truncate(size.min(END_BYTES) as usize);
            let mut last = 0;
            for (start, end) in superblocks(&head, size) {
                assert!(last <= start && start < end && end <= size, "{start} {end} of {size}");
                last = end;
            }
        }
    }
}
