// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that take more than comparing bytes at a fixed place: variants, several places, the
//! disk's end.

use super::{Disk, Found, named};

pub(super) fn look(disk: &Disk, found: &mut Vec<Found>) {
    for check in [ext, gpt, mbr, lvm, md, bcache, zfs, flashfront_end] {
        check(disk, found);
    }
}

fn ext(disk: &Disk, found: &mut Vec<Found>) {
    const MAGIC_AT: u64 = 0x438;
    if !disk.is(MAGIC_AT, b"\x53\xef") {
        return;
    }
    let (compatible, incompatible) = (disk.u32(0x45c).unwrap_or(0), disk.u32(0x460).unwrap_or(0));
    let name = if incompatible & 0x8 != 0 {
        "ext journal device"
    } else if incompatible & (0x40 | 0x80 | 0x200) != 0 {
        // Extents, 64 bit, flexible block groups.
        "ext4 file system"
    } else if compatible & 0x4 != 0 {
        "ext3 file system"
    } else {
        "ext2 file system"
    };
    found.push(Found { what: named(name, disk.text(0x478, 16), disk.uuid(0x468)), offset: MAGIC_AT });
}

fn gpt(disk: &Disk, found: &mut Vec<Found>) {
    // In the second logical block, and again in the last one; blocks of 512 or 4096 bytes.
    let places = [512, 4096].into_iter().flat_map(|block| [block, disk.size.saturating_sub(block)]);
    let Some(offset) = places.into_iter().find(|at| disk.is(*at, b"EFI PART")) else { return };
    let name = if offset <= 4096 { "GPT partition table" } else { "GPT partition table (backup at the end)" };
    found.push(Found { what: name.into(), offset });
}

fn mbr(disk: &Disk, found: &mut Vec<Found>) {
    let Some(sector) = disk.bytes(0, 512).filter(|sector| sector.ends_with(b"\x55\xaa")) else { return };
    // The boot sectors of FAT and NTFS end alike, but have code where the table is.
    let entries = || sector[446..510].chunks_exact(16);
    let used = entries().filter(|entry| entry[4] != 0 && entry[12..16] != [0; 4]).count();
    let whole = entries().all(|entry| entry[0] & 0x7f == 0);
    let protective = entries().any(|entry| entry[4] == 0xee);
    let gpt = found.iter().any(|found| found.what.starts_with("GPT"));
    if used > 0 && whole && !(protective && gpt) {
        let what = format!("MBR partition table with {used} partition{}", if used == 1 { "" } else { "s" });
        found.push(Found { what, offset: 510 });
    }
}

fn lvm(disk: &Disk, found: &mut Vec<Found>) {
    // The label is in one of the first four sectors, in practice the second.
    let label = (0..4).map(|sector| sector * 512).find(|at| disk.is(*at, b"LABELONE") && disk.is(at + 24, b"LVM2 001"));
    if let Some(offset) = label {
        found.push(Found { what: named("LVM2 physical volume", None, disk.text(offset + 32, 32)), offset });
    }
}

fn md(disk: &Disk, found: &mut Vec<Found>) {
    let magic = b"\xfc\x4e\x2b\xa9";
    // Version 1: at the end (8 KiB before it, rounded down to 4 KiB), at the start, at 4 KiB.
    let end = disk.size.saturating_sub(8192) / 4096 * 4096;
    for (version, at) in [("1.0", end), ("1.1", 0), ("1.2", 4096)] {
        if disk.is(at, magic) && disk.u32(at + 4) == Some(1) {
            let name = format!("Linux RAID member (version {version})");
            found.push(Found { what: named(&name, disk.text(at + 32, 32), disk.uuid(at + 16)), offset: at });
        }
    }
    // Version 0.90: in the last whole 64 KiB but one.
    let old = (disk.size / 65536 * 65536).saturating_sub(65536);
    if disk.is(old, magic) && disk.u32(old + 4) == Some(0) && disk.u32(old + 8) == Some(90) {
        found.push(Found { what: "Linux RAID member (version 0.90)".into(), offset: old });
    }
}

fn bcache(disk: &Disk, found: &mut Vec<Found>) {
    const MAGIC_AT: u64 = 0x1018;
    if !disk.is(MAGIC_AT, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81") {
        return;
    }
    // linux/bcache.h: 1, 4 and 6 are backing devices; 0, 3 and 5 cache devices.
    let backing = matches!(disk.u64(0x1010), Some(1 | 4 | 6));
    let name = if backing { "bcache backing device" } else { "bcache cache device" };
    found.push(Found { what: named(name, disk.text(0x1048, 32), disk.uuid(0x1028)), offset: MAGIC_AT });
}

fn zfs(disk: &Disk, found: &mut Vec<Found>) {
    // Four labels of 256 KiB, two at each end; the upper half of each is the ring of uberblocks,
    // 1 KiB each. Either byte order.
    const LABEL: u64 = 256 << 10;
    let last = disk.size / LABEL * LABEL;
    let labels = [0, LABEL, last.saturating_sub(2 * LABEL), last.saturating_sub(LABEL)];
    let slots = labels.into_iter().flat_map(|label| (128..256).map(move |slot| label + slot * 1024));
    let magic = [0x00ba_b10c_u64, 0x00ba_b10c_u64.swap_bytes()];
    if let Some(offset) = slots.into_iter().find(|at| disk.u64(*at).is_some_and(|word| magic.contains(&word))) {
        found.push(Found { what: "ZFS pool member".into(), offset });
    }
}

/// The second superblock: the first may have been overwritten.
fn flashfront_end(disk: &Disk, found: &mut Vec<Found>) {
    let offset = disk.size.saturating_sub(4096) / 4096 * 4096;
    if offset > 0 && disk.is(offset, b"FLASHFRT") {
        found.push(Found { what: "Flashfront cache device (second superblock)".into(), offset });
    }
}
