// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells whether an origin was changed behind our back, by a hash of samples of its content.
//!
//! Samples are the size, the first and the last MiB (partition table, superblocks and their
//! copies), and 64 blocks spread over the rest. More samples lie where file systems have
//! superblocks that are not at the start. These are the first partitions, 1 MiB (LVM's first
//! extent, most first partitions), and 16 MiB (LUKS2's data). A block of each of the first 32 MiB
//! is one, too.
//!
//! A file system that was mounted and written to changes its superblock, so the usual accident is
//! seen (tests: `a_fingerprint_notices_changes`, `partitions_are_found_wherever_they_begin`). A
//! change of one block far inside is found with probability 64 / blocks only. So is a file system
//! on a logical volume further back. It takes about 1 s on an HDD, by calculation.

use std::cell::RefCell;
use std::io;

use super::file::DeviceFile;
use super::remote::ReadAt;
use crate::Rng;
use crate::real::aligned::AlignedBuf;

const MIB: u64 = 1 << 20;
const END_BYTES: u64 = MIB;
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: u64 = 4096;
/// Each MiB up to here has a sample.
const SPARSE_BYTES: u64 = 32 * MIB;
/// Looked at where partitions and other data begin: btrfs has its superblock at 64 KiB, all others
/// before.
const DATA_BYTES: u64 = 128 << 10;
/// Labels and superblocks of all but btrfs: LVM, md 1.2, GPT, ext4, XFS with its first headers of
/// free space.
const LABELS_BYTES: u64 = 8 << 10;
/// The place of btrfs's superblock.
const BTRFS_AT: u64 = 64 << 10;
/// Bytes at the end that are vital: the second GPT, md 1.0.
const TAIL_BYTES: u64 = 12 << 10;
const SECTOR_BYTES: u64 = 512;
/// The most partitions of a GPT that are looked at. All tools make this many.
const PARTITIONS_MAX: u64 = 128;
/// Fixed for ever: superblocks keep hashes made with it.
const SEED: u64 = 0x666c_6173_6866_726f;

/// The hash of an origin's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// CRC-64/NVME of the size and the samples.
    pub content: u64,
    /// The checksum of the ends and the 64 blocks alone, as it was recorded before.
    pub content_before: u64,
    /// When a regular file was last changed; `None` for block devices, which don't say.
    pub changed_ns: Option<u64>,
}

impl Fingerprint {
    /// Whether this content was recorded.
    ///
    /// A record of an older version has the hash of fewer samples. No content has that as its hash
    /// now but by chance, so it needs no mark.
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
    let [content, content_before] = content(size, &mut |at, into| device.read_at(at, into))?;
    Ok(Fingerprint { content, content_before, changed_ns: device.changed_ns()? })
}

/// Whether a device of this size, which `read` reads, has the content that was recorded.
///
/// # Errors
/// The errors of `read`.
pub fn has_content(size: u64, read: &mut ReadAt<'_>, recorded: u64) -> io::Result<bool> {
    Ok(content(size, read)?.contains(&recorded))
}

thread_local! {
    /// The buffer for samples. A start with many volumes does little else than to read them, and
    /// fresh pages for each took half of its time.
    static BUFFER: RefCell<Option<AlignedBuf>> = const { RefCell::new(None) };
}

/// The hash of all samples, and the hash of those that were taken before.
fn content(size: u64, read: &mut ReadAt<'_>) -> io::Result<[u64; 2]> {
    let mut buf = BUFFER.take().unwrap_or_else(|| AlignedBuf::new(END_BYTES as usize));
    let hashes = content_by(&mut buf, size, read);
    BUFFER.set(Some(buf));
    hashes
}

fn content_by(buf: &mut AlignedBuf, size: u64, read: &mut ReadAt<'_>) -> io::Result<[u64; 2]> {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    digest.update(&size.to_le_bytes());
    let head = &mut buf[..size.min(END_BYTES) as usize];
    read(0, head)?;
    digest.update(head);
    let superblocks = superblocks(head, size);
    let mut add = |digest: &mut crc_fast::Digest, start: u64, end: u64| -> io::Result<()> {
        for at in (start..end).step_by(END_BYTES as usize) {
            let part = &mut buf[..(end - at).min(END_BYTES) as usize];
            read(at, part)?;
            digest.update(part);
        }
        Ok(())
    };
    if size > END_BYTES {
        add(&mut digest, size - END_BYTES, size)?;
    }
    for place in spread(size) {
        add(&mut digest, place, place + SAMPLE_BYTES)?;
    }
    let content_before = digest.finalize();
    for (start, end) in superblocks {
        add(&mut digest, start, end)?;
    }
    Ok([digest.finalize(), content_before])
}

/// The blocks that are spread over the device, between its ends; sorted: one sweep of the head.
fn spread(size: u64) -> Vec<u64> {
    let blocks = size.saturating_sub(2 * END_BYTES) / SAMPLE_BYTES;
    if blocks == 0 {
        return Vec::new();
    }
    let mut rng = Rng::new(SEED);
    let mut places: Vec<_> = (0..SAMPLES).map(|_| END_BYTES + rng.below(blocks) * SAMPLE_BYTES).collect();
    places.sort_unstable();
    places
}

/// The samples of a fingerprint, in two kinds: ranges of bytes, sorted, each byte in one of them at
/// most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// Ranges with superblocks and labels, which are written whenever a file system is mounted or a
    /// volume is used.
    pub vital: Vec<(u64, u64)>,
    /// All other ranges.
    pub others: Vec<(u64, u64)>,
}

/// Finds the samples of this device, by the partition table that it has now.
///
/// # Errors
/// The errors of reading the device.
pub fn sampled(device: &DeviceFile) -> io::Result<Sampled> {
    let size = device.geometry().size_bytes;
    let mut head = vec![0; size.min(END_BYTES) as usize];
    device.read_at(0, &mut head)?;
    Ok(sampled_of(&head, size))
}

fn sampled_of(head: &[u8], size: u64) -> Sampled {
    let starts = [0, MIB, 16 * MIB].into_iter().chain(partitions(head));
    let of_start = |start: u64| [(start, LABELS_BYTES), (start.saturating_add(BTRFS_AT), SAMPLE_BYTES)];
    let sparse = (1..SPARSE_BYTES / MIB).map(|nth| (nth * MIB, SAMPLE_BYTES));
    let tail = (size.saturating_sub(TAIL_BYTES) / SECTOR_BYTES * SECTOR_BYTES, TAIL_BYTES);
    let vital = apart(starts.flat_map(of_start).chain(sparse).chain([tail]).collect(), size);
    let ends = [(0, END_BYTES), (size.saturating_sub(END_BYTES), END_BYTES)];
    let spread = spread(size).into_iter().map(|at| (at, SAMPLE_BYTES));
    let superblocks = superblocks(head, size).into_iter().map(|(start, end)| (start, end - start));
    let all = apart(ends.into_iter().chain(spread).chain(superblocks).collect(), size);
    Sampled { others: without(&all, &vital), vital }
}

/// Returns the ranges of `all` without those of `taken`; both are sorted and apart.
fn without(all: &[(u64, u64)], taken: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    for &(start, end) in all {
        let mut from = start;
        for &(taken_start, taken_end) in taken.iter().filter(|it| it.0 < end && start < it.1) {
            left.extend((from < taken_start).then_some((from, taken_start)));
            from = from.max(taken_end);
        }
        left.extend((from < end).then_some((from, end)));
    }
    left
}

/// Finds ranges beyond the first MiB that may have superblocks of file systems: sorted, and each
/// byte once.
fn superblocks(head: &[u8], size: u64) -> Vec<(u64, u64)> {
    let mut places: Vec<(u64, u64)> = (1..SPARSE_BYTES / MIB).map(|nth| (nth * MIB, SAMPLE_BYTES)).collect();
    places.extend([(MIB, DATA_BYTES), (16 * MIB, DATA_BYTES)]);
    places.extend(partitions(head).map(|start| (start, DATA_BYTES)));
    apart(places, size)
}

/// Places with their lengths, as ranges within the device: sorted, and each byte once.
fn apart(mut places: Vec<(u64, u64)>, size: u64) -> Vec<(u64, u64)> {
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

/// Returns the first bytes of partitions, by the partition table at the start.
///
/// Of nonsense it returns nonsense, and only the choice of samples depends on that. A copy of a
/// disk may be read in other sectors, so both sizes are tried. The first logical partition of an
/// extended one is not looked for.
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
    fn each_byte_is_sampled_as_one_kind() {
        for size in [512, 4096, 100 << 10, 3 << 20, 64 << 20, 1 << 40] {
            let mut head = table(512, 204_800, false);
            head.truncate(size.min(END_BYTES) as usize);
            let Sampled { vital, others } = sampled_of(&head, size);
            let mut all = [vital.clone(), others].concat();
            all.sort_unstable();
            assert!(all.iter().all(|(start, end)| start < end && *end <= size), "{all:?}");
            assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{all:?}");
            // The whole of a fingerprint is there.
            let has = |at: u64| all.iter().any(|(start, end)| (*start..*end).contains(&at));
            assert!(
                (0..size.min(END_BYTES)).step_by(512).all(has) && has(size - 1) && spread(size).into_iter().all(has)
            );
            let is_vital = |at: u64| vital.iter().any(|(start, end)| (*start..*end).contains(&at));
            for at in [0, 1080, 65536 + 64, (100 << 20) + 1080, (100 << 20) + 65536 + 64, size - 1] {
                assert_eq!(is_vital(at), at < size, "{at} of {size}");
            }
        }
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
