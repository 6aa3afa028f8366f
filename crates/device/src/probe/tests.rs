// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of recognition: what real tools write, and hand-made magic where there is no tool.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{look, probe};

const SIZE: u64 = 400 << 20;

fn disk(folder: &Path, size: u64) -> PathBuf {
    let path = folder.join("disk");
    // Removed first: a fresh sparse file.
    let _ = std::fs::remove_file(&path);
    std::fs::File::create(&path).unwrap().set_len(size).unwrap();
    path
}

fn names(path: &Path) -> Vec<String> {
    probe(path).unwrap().into_iter().map(|found| found.what).collect()
}

#[test]
fn nothing_is_found_on_an_empty_or_random_disk() {
    let folder = tempfile::tempdir().unwrap();
    for size in [0, 1, 511, 512, 4096, 65536, 512 << 10, SIZE] {
        assert_eq!(names(&disk(folder.path(), size)), [""; 0], "{size} zeroes");
    }
    let mut rng = crate::Rng::new(5);
    for size in [512, 4096, 1 << 20] {
        let path = disk(folder.path(), size);
        let noise: Vec<u8> = (0..size / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        std::fs::write(&path, noise).unwrap();
        assert_eq!(names(&path), [""; 0], "{size} random bytes");
    }
}

#[test]
fn what_cannot_be_read_is_found_and_hides_nothing_else() {
    const SIZE: u64 = 4 << 20;
    let read = |bad: u64| {
        let found = look(SIZE, |offset, out| {
            if (offset..offset + out.len() as u64).contains(&bad) {
                return Err(std::io::Error::from_raw_os_error(5));
            }
            out.fill(0);
            // The magic of XFS.
            if offset == 0 {
                out[..4].copy_from_slice(b"XFSB");
            }
            Ok(())
        });
        found.into_iter().map(|found| (found.what, found.offset)).collect::<Vec<_>>()
    };
    let [xfs] = &read(SIZE / 2)[..] else { panic!("{:?}", read(SIZE / 2)) };
    for bad in [8192, SIZE - 1] {
        let [first, second] = &read(bad)[..] else { panic!("{:?}", read(bad)) };
        assert!(first == xfs && second.0.contains("can't be read") && second.1 == bad / 4096 * 4096, "{second:?}");
    }
    let [bad] = &read(0)[..] else { panic!("{:?}", read(0)) };
    assert!(bad.0.contains("can't be read") && bad.1 == 0);
}

/// Makes a disk with a tool, with a fixed label and UUID, and says what is found on it.
fn made_by(program: &str, args: &[&str], stdin: &str) -> Option<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), SIZE);
    let mut command = Command::new(program);
    command.args(args).arg(&path).stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(why) => {
            eprintln!("skipped: {program}: {why}");
            return None;
        }
    };
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), stdin.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{program} failed");
    Some(names(&path))
}

#[test]
fn what_real_tools_write_is_recognised() {
    const UUID: &str = "12345678-9abc-def0-1234-56789abcdef0";
    let gpt = "label: gpt\n,100M\n";
    let mbr = "label: dos\n,100M\n,50M\n";
    let rows: &[(&str, &[&str], &str, &[&str])] = &[
        ("mkfs.ext2", &["-q", "-F", "-L", "home", "-U", UUID], "", &["ext2 file system \"home\" (UUID)"]),
        ("mkfs.ext3", &["-q", "-F", "-L", "home", "-U", UUID], "", &["ext3 file system \"home\" (UUID)"]),
        ("mkfs.ext4", &["-q", "-F", "-L", "home", "-U", UUID], "", &["ext4 file system \"home\" (UUID)"]),
        (
            "mkfs.xfs",
            &["-q", "-L", "data", "-m", "uuid=12345678-9abc-def0-1234-56789abcdef0"],
            "",
            &["XFS file system \"data\" (UUID)"],
        ),
        ("mkfs.btrfs", &["-q", "-L", "data", "-U", UUID], "", &["btrfs file system \"data\" (UUID)"]),
        ("mkswap", &["-L", "swap", "-U", UUID], "", &["swap area \"swap\" (UUID)"]),
        ("mkfs.fat", &["-F", "32", "-n", "BOOT"], "", &["FAT32 file system \"BOOT\""]),
        ("sfdisk", &["-q"], gpt, &["GPT partition table"]),
        ("sfdisk", &["-q"], mbr, &["MBR partition table with 2 partitions"]),
        ("qemu-img", &["create", "-q", "-f", "qcow2", "-o", "size=1M"], "", &["qcow2 image"]),
    ];
    let mut done = 0;
    for (program, args, stdin, expected) in rows {
        // qemu-img takes the size from its options: the file name is last for all of them.
        if let Some(found) = made_by(program, args, stdin) {
            let expected: Vec<_> = expected.iter().map(|what| what.replace("UUID", UUID)).collect();
            assert_eq!(found, expected, "{program}");
            done += 1;
        }
    }
    eprintln!("{done} of {} tools were there", rows.len());
}

/// Magic, where it goes on a disk of `SIZE` bytes, what it is.
#[test]
fn hand_made_magic_is_recognised() {
    let zfs = 0x00ba_b10c_u64.to_le_bytes();
    let md = |minor: u32| [0xa92b_4efc_u32.to_le_bytes(), minor.to_le_bytes()].concat();
    let md090 = [md(0), 90u32.to_le_bytes().to_vec()].concat();
    let lvm = [&b"LABELONE"[..], &[0; 16], b"LVM2 001abcdefghijklmnopqrstuvwxyz012345"].concat();
    let bcache = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
    // Version 1 (backing), then the magic, eight bytes after it.
    let backing = [&[1, 0, 0, 0, 0, 0, 0, 0][..], bcache].concat();
    let thin = 27_022_010_u64.to_le_bytes();
    let dm_cache = 0o6142003_u64.to_le_bytes();
    let rows: &[(u64, &[u8], &str)] = &[
        (0, b"FLASHFRT", "Flashfront cache device"),
        (SIZE - 4096, b"FLASHFRT", "Flashfront cache device (second superblock)"),
        (512, b"EFI PART", "GPT partition table"),
        (4096, b"EFI PART", "GPT partition table"),
        (SIZE - 512, b"EFI PART", "GPT partition table (backup at the end)"),
        (SIZE - 4096, b"EFI PART", "GPT partition table (backup at the end)"),
        (512, &lvm, "LVM2 physical volume (abcdefghijklmnopqrstuvwxyz012345)"),
        (0, b"LUKS\xba\xbe\x00\x01", "LUKS1 encrypted volume"),
        (0, b"LUKS\xba\xbe\x00\x02", "LUKS2 encrypted volume"),
        (0x4000, b"SKUL\xba\xbe\x00\x02", "LUKS2 encrypted volume (second header)"),
        (SIZE - 65536, &md090, "Linux RAID member (version 0.90)"),
        (SIZE - 8192, &md(1), "Linux RAID member (version 1.0)"),
        (0, &md(1), "Linux RAID member (version 1.1)"),
        (4096, &md(1), "Linux RAID member (version 1.2)"),
        (0x1018, bcache, "bcache cache device"),
        (0x1010, &backing, "bcache backing device"),
        (32, &thin, "dm-thin metadata"),
        (32, &dm_cache, "dm-cache metadata"),
        (0, &0x5742_7374_u32.to_le_bytes(), "dm-writeboost cache device"),
        (0, &0x2348_9321_u32.to_le_bytes(), "dm-writecache device"),
        (128 << 10, &zfs, "ZFS pool member"),
        (SIZE - (512 << 10) + (130 << 10), &zfs, "ZFS pool member"),
        (3, b"NTFS    ", "NTFS file system"),
        (3, b"EXFAT   ", "exFAT file system"),
        (54, b"FAT16   ", "FAT16 file system"),
        (0x8001, b"CD001", "ISO 9660 image"),
        (0x400, b"\x10\x20\xf5\xf2", "f2fs file system"),
        (0, b"hsqs", "squashfs image"),
        (0x10040, b"_BHRfS_M", "btrfs file system"),
        (0, b"QFI\xfb", "qcow2 image"),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (offset, magic, what) in rows {
        let path = disk(folder.path(), SIZE);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(magic, *offset).unwrap();
        assert_eq!(names(&path), [*what], "{magic:x?} at {offset}");
    }
}

/// Boot sectors end like a partition table but have code in its place.
#[test]
fn a_boot_sector_is_not_a_partition_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), SIZE);
    let mut sector = vec![0x77; 512];
    sector[510..].copy_from_slice(b"\x55\xaa");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&sector, 0).unwrap();
    assert_eq!(names(&path), [""; 0]);
    // An empty table is nothing to lose either.
    sector[..510].fill(0);
    file.write_all_at(&sector, 0).unwrap();
    assert_eq!(names(&path), [""; 0]);
}

/// A GPT keeps a table with one entry in the old place, which gets no line of its own. A protective
/// table without its GPT does.
#[test]
fn a_protective_table_is_part_of_its_gpt() {
    let folder = tempfile::tempdir().unwrap();
    let path = disk(folder.path(), SIZE);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"\x55\xaa", 510).unwrap();
    file.write_all_at(&[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0xff, 0, 0], 446).unwrap();
    assert_eq!(names(&path), ["MBR partition table with 1 partition"]);
    file.write_all_at(b"EFI PART", 512).unwrap();
    assert_eq!(names(&path), ["GPT partition table"]);
}
