// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `format` refuses: devices that are missing, too small, the same, in use, or not empty.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::harness::{MIB, Place, Volume, flashfront, must, skip_without, tool};
use crate::refusal::{Table, assert_refused, refused};

fn format(cache: &Path, origin: &Path) -> Command {
    let mut command = flashfront();
    command.arg("format").arg("--cache").arg(cache).arg("--origin").arg(origin);
    command
}

#[test]
fn format_refuses_devices_that_cannot_work() {
    let place = Place::new();
    let cache = place.sparse("cache.img", 32 * MIB);
    let origin = place.sparse("origin.img", 64 * MIB);
    let small = place.sparse("small.img", MIB / 4);
    let empty = place.sparse("empty.img", 0);
    let missing = place.file("missing.img");
    let (symbolic, hard) = (place.file("symbolic.img"), place.file("hard.img"));
    std::os::unix::fs::symlink(&cache, &symbolic).expect("links can be made");
    fs::hard_link(&cache, &hard).expect("links can be made");
    let folder = place.file("folder");
    fs::create_dir(&folder).expect("folders can be made");

    let (other, cache_of_one) = (place.sparse("other.img", 64 * MIB), place.sparse("cache-of-one.img", 32 * MIB));
    must(&mut format(&cache_of_one, &origin));

    let mut table = Table::default();
    let cases = [
        ("missing cache", &missing, &origin, vec!["missing.img"]),
        ("missing origin", &cache, &missing, vec!["missing.img"]),
        ("cache too small", &small, &origin, vec!["small.img", "at least"]),
        ("cache empty", &empty, &origin, vec!["empty.img"]),
        ("origin empty", &cache, &empty, vec!["empty.img"]),
        ("cache is the origin", &cache, &cache, vec!["cache.img", "same device"]),
        ("cache is the origin, through a symbolic link", &cache, &symbolic, vec!["same device"]),
        ("cache is the origin, through a hard link", &cache, &hard, vec!["same device"]),
        ("cache and origin swapped", &other, &cache_of_one, vec!["cache-of-one.img", "swapped"]),
        ("cache is a folder", &folder, &origin, vec!["folder"]),
        ("origin is a folder", &cache, &folder, vec!["folder"]),
    ];
    for (name, cache, origin, words) in cases {
        table.case(name, refused(&place, &mut format(cache, origin), &words));
        // What can't work can't be forced either.
        table.case(&format!("{name}, forced"), refused(&place, format(cache, origin).arg("--force"), &words));
    }
    let mut modes = format(&cache, &origin);
    modes.args(["--mode", "writesideways"]);
    table.case("unknown mode", refused(&place, &mut modes, &["writesideways", "writeback"]));
    table.assert();
}

#[test]
fn format_names_what_it_found_and_leaves_it_alone() {
    let place = Place::new();
    let origin = place.sparse("origin.img", 64 * MIB);
    let mut table = Table::default();
    let mut case = |name: &str, bytes: u64, words: &[&str], fill: &dyn Fn(&Path)| {
        let cache = place.sparse("cache.img", bytes);
        fill(&cache);
        let words: Vec<&str> = words.iter().chain(&["cache.img", "--force"]).copied().collect();
        table.case(name, refused(&place, &mut format(&cache, &origin), &words));
    };
    if !skip_without(&["mkfs.ext4"]) {
        case("ext4", 32 * MIB, &["ext4"], &|cache| {
            must(tool("mkfs.ext4").args(["-q", "-F"]).arg(cache));
        });
    }
    if !skip_without(&["mkfs.xfs"]) {
        // The least that mkfs.xfs makes.
        case("xfs", 320 * MIB, &["xfs"], &|cache| {
            must(tool("mkfs.xfs").args(["-q", "-f"]).arg(cache));
        });
    }
    case("GPT", 32 * MIB, &["gpt"], &|cache| {
        write(cache, 446, &[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0xff, 0, 0]);
        write(cache, 510, &[0x55, 0xaa]);
        write(cache, 512, b"EFI PART\0\0\x01\0\x5c\0\0\0");
    });
    case("MBR", 32 * MIB, &["mbr"], &|cache| {
        write(cache, 446, &[0, 0, 2, 0, 0x83, 0xff, 0xff, 0xff, 0, 8, 0, 0, 0, 0xf8, 0, 0]);
        write(cache, 510, &[0x55, 0xaa]);
    });
    case("LVM", 32 * MIB, &["lvm"], &|cache| {
        write(cache, 512, b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001");
    });
    case("LUKS", 32 * MIB, &["luks"], &|cache| write(cache, 0, b"LUKS\xba\xbe\0\x02"));
    case("swap", 32 * MIB, &["swap"], &|cache| write(cache, 4086, b"SWAPSPACE2"));
    case("another cache", 32 * MIB, &["flashfront"], &|cache| {
        must(&mut format(cache, &origin));
    });
    case("raw data", 32 * MIB, &["data of no known kind, from byte 10485760 on"], &|cache| {
        write(cache, 10 * MIB, b"the only copy of something");
    });
    table.assert();
}

/// A device that a cache has left is free, until somebody uses it.
#[test]
fn what_a_cache_has_left_needs_no_force() {
    let mut volume = Volume::served(32, 64, "writeback");
    volume.connect().write_at(0, &[7; MIB as usize], true).expect("the volume takes it");
    volume.drain();
    volume.stop();
    must(flashfront().arg("detach").arg("--cache").arg(&volume.cache).arg("--origin").arg(&volume.origin));
    must(&mut volume.format());
    must(flashfront().arg("detach").arg("--cache").arg(&volume.cache).arg("--origin").arg(&volume.origin));
    write(&volume.cache, 65536, b"somebody else's");
    assert_refused(&volume.place, &mut volume.format(), &["data of no known kind"]);
}

#[test]
fn format_overwrites_only_by_force() {
    if skip_without(&["mkfs.ext4"]) {
        return;
    }
    let mut volume = Volume::new(32, 64);
    must(tool("mkfs.ext4").args(["-q", "-F"]).arg(&volume.cache));
    assert_refused(&volume.place, &mut volume.format(), &["ext4"]);
    must(volume.format().arg("--force"));
    volume.assert_sound();
    volume.start();
    volume.stop();
}

#[test]
fn format_refuses_devices_in_use() {
    let mut volume = Volume::served(32, 64, "writeback");
    let mut client = volume.connect();
    client.write_at(0, &[1; 4096], true).expect("the volume can be written");
    let other = volume.place.sparse("other.img", 32 * MIB);
    // Files of a running daemon change by themselves, so these look at the message alone.
    for mut command in [volume.format(), format(&volume.cache, &other), format(&other, &volume.origin)] {
        let output = crate::harness::output(command.arg("--force"));
        let said = crate::harness::show(&output);
        assert!(!output.status.success() && said.contains("in use"), "{command:?}: {said}");
    }
    let mut bytes = [0; 4096];
    client.read_at(0, &mut bytes).expect("the volume can be read");
    assert_eq!(bytes, [1; 4096]);
    volume.stop();
    volume.assert_sound();
}

fn write(path: &Path, offset: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).expect("the file is ours");
    file.write_all_at(bytes, offset).expect("the file is ours");
}
