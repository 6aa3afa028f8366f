// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contents that are recognised by fixed bytes at a fixed place. One line adds a kind.
//!
//! Sources: util-linux libblkid/src/superblocks, the kernel's headers, `file`'s magic.

use super::{Disk, Found, named};

/// The place of a label or UUID, relative to the start of the disk.
#[derive(Clone, Copy)]
enum Tag {
    None,
    /// Text of this length.
    Text(u64, u64),
    /// 16 bytes.
    Uuid(u64),
}
use Tag::{None as NO, Text, Uuid};

/// Name, offset of the magic, magic, label, UUID.
type Row = (&'static str, u64, &'static [u8], Tag, Tag);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("Flashfront cache device", 0, b"FLASHFRT", NO, NO),
    ("XFS file system", 0, b"XFSB", Text(108, 12), Uuid(32)),
    ("btrfs file system", 0x10040, b"_BHRfS_M", Text(0x1012b, 256), Uuid(0x10020)),
    ("f2fs file system", 0x400, b"\x10\x20\xf5\xf2", NO, Uuid(0x46c)),
    ("JFS file system", 0x8000, b"JFS1", Text(0x8098, 16), Uuid(0x8088)),
    ("ReiserFS file system", 0x10034, b"ReIsEr", Text(0x10064, 16), Uuid(0x10054)),
    ("NTFS file system", 3, b"NTFS    ", NO, NO),
    ("exFAT file system", 3, b"EXFAT   ", NO, NO),
    ("FAT12 file system", 54, b"FAT12   ", Text(43, 11), NO),
    ("FAT16 file system", 54, b"FAT16   ", Text(43, 11), NO),
    ("FAT32 file system", 82, b"FAT32   ", Text(71, 11), NO),
    ("HFS+ file system", 0x400, b"H+\x00\x04", NO, NO),
    ("HFSX file system", 0x400, b"HX\x00\x05", NO, NO),
    ("APFS container", 32, b"NXSB", NO, Uuid(72)),
    ("ISO 9660 image", 0x8001, b"CD001", Text(0x8028, 32), NO),
    ("UDF file system", 0x8801, b"NSR02", NO, NO),
    ("UDF file system", 0x8801, b"NSR03", NO, NO),
    ("squashfs image", 0, b"hsqs", NO, NO),
    ("EROFS image", 0x400, b"\xe2\xe1\xf5\xe0", Text(0x440, 16), Uuid(0x430)),
    ("swap area", 4086, b"SWAPSPACE2", Text(1052, 16), Uuid(1036)),
    ("swap area", 4086, b"SWAP-SPACE", NO, NO),
    ("swap area (64 KiB pages)", 65526, b"SWAPSPACE2", Text(1052, 16), Uuid(1036)),
    ("hibernation image in a swap area", 4086, b"S1SUSPEND", NO, NO),
    ("LUKS1 encrypted volume", 0, b"LUKS\xba\xbe\x00\x01", NO, Text(168, 40)),
    ("LUKS2 encrypted volume", 0, b"LUKS\xba\xbe\x00\x02", Text(24, 48), Text(168, 40)),
    ("LUKS2 encrypted volume (second header)", 0x4000, b"SKUL\xba\xbe\x00\x02", NO, NO),
    ("BitLocker encrypted volume", 3, b"-FVE-FS-", NO, NO),
    ("bcachefs file system", 0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", NO, NO),
    // Octal in the kernel's dm-cache-metadata.c: 06142003.
    ("dm-cache metadata", 32, b"\x03\xc4\x18\x00\x00\x00\x00\x00", NO, NO),
    ("dm-thin metadata", 32, b"\xba\x52\x9c\x01\x00\x00\x00\x00", NO, NO),
    ("dm-writecache device", 0, b"\x21\x93\x48\x23", NO, NO),
    ("dm-writeboost cache device", 0, b"\x74\x73\x42\x57", NO, NO),
    ("VDO volume", 0, b"dmvdo001", NO, NO),
    ("Ceph BlueStore device", 0, b"bluestore block device\n", NO, NO),
    ("Oracle ASM disk", 32, b"ORCLDISK", Text(40, 24), NO),
    ("qcow2 image", 0, b"QFI\xfb", NO, NO),
    ("VHDX image", 0, b"vhdxfile", NO, NO),
    ("VMDK image", 0, b"KDMV", NO, NO),
    ("VDI image", 0x40, b"\x7f\x10\xda\xbe", NO, NO),
];

pub(super) fn look(disk: &Disk, found: &mut Vec<Found>) {
    for (name, offset, magic, label, uuid) in ROWS {
        if disk.is(*offset, magic) {
            let tag = |tag: &Tag| match *tag {
                Tag::None => None,
                Text(at, len) => disk.text(at, len),
                Uuid(at) => disk.uuid(at),
            };
            found.push(Found { what: named(name, tag(label), tag(uuid)), offset: *offset });
        }
    }
}
