// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront volume convert`: a cache of format version 1 becomes one of version 2. A kill before
//! any of its writes leaves one of both, with all that is dirty.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use flashfront_engine::format::{OriginRecord, Superblock};

use crate::harness::{MIB, Volume, flashfront, must, output, show, skip_without, tool};

/// Blocks that are dirty, and what is in them.
const DIRTY: u64 = 256;
const BYTE: u8 = 7;

/// A volume whose cache is as an older program left it, with dirty data that its origin does not
/// take. Its daemon was killed.
fn of_version_1() -> Volume {
    let mut volume = Volume::new(64, 64);
    volume.options = vec!["--inject", "origin:eio,op=write"];
    must(&mut volume.format());
    let device = File::options().read(true).write(true).open(&volume.cache).expect("the file is ours");
    for offset in Superblock::offsets(64 * MIB) {
        let mut block = [0; 4096];
        device.read_exact_at(&mut block, offset).expect("the file is ours");
        let mut superblock = Superblock::decode(&block).expect("a superblock");
        // Such a superblock has its origins in itself.
        superblock.table = None;
        superblock.origins =
            vec![OriginRecord { name: "data".to_owned(), size_bytes: 64 * MIB, ..OriginRecord::default() }];
        device.write_all_at(&superblock.encode(), offset).expect("the file is ours");
    }
    volume.start();
    volume.connect().write_at(0, &[BYTE; 1 << 20], true).expect("the volume can be written");
    volume
}

fn convert(volume: &Volume) -> Command {
    let mut command = flashfront();
    command.args(["volume", "convert", "--cache"]).arg(&volume.cache);
    command
}

/// The volume is served with all that was dirty.
#[track_caller]
fn assert_has_all(volume: &mut Volume) {
    volume.start();
    assert_eq!(volume.status()["blocks_dirty"], DIRTY);
    let mut bytes = vec![0; 1 << 20];
    volume.connect().read_at(0, &mut bytes).expect("the volume can be read");
    assert!(bytes.iter().all(|byte| *byte == BYTE), "{}", volume.stderr());
}

fn add(volume: &Volume) -> std::process::Output {
    let other = volume.place.file("other.img");
    if !other.exists() {
        volume.place.sparse("other.img", 8 * MIB);
    }
    let mut command = volume.ask_two(["volume", "add"]);
    output(command.args(["--name", "other", "--origin"]).arg(&other))
}

/// A cache as an older program left it is served, killed, and converted. What is dirty stays.
#[test]
fn a_cache_of_version_1_keeps_what_is_dirty_while_it_is_converted() {
    let mut volume = of_version_1();
    let refused = add(&volume);
    assert!(!refused.status.success() && show(&refused).contains("flashfront volume convert"), "{}", show(&refused));
    volume.kill9();
    let said = must(&mut convert(&volume));
    assert!(said.contains("has room for"), "{said}");
    let again = output(&mut convert(&volume));
    assert!(show(&again).contains("has format version 2"), "{}", show(&again));
    assert_has_all(&mut volume);
    assert!(add(&volume).status.success());
    volume.kill9();
    volume.assert_sound();
}

/// Each write and each flush of the conversion is the first that a kill keeps from happening.
#[test]
fn a_kill_of_the_conversion_leaves_one_of_both_formats_with_all_data() {
    if skip_without(&["strace"]) {
        return;
    }
    let (mut killed, mut converted) = (0, 0);
    for call in ["pwrite64", "fdatasync"] {
        for nth in 1.. {
            let mut volume = of_version_1();
            volume.kill9();
            let program = convert(&volume);
            let mut traced = tool("strace");
            traced.args(["-f", "-o", "/dev/null", "-e", &format!("trace={call}")]);
            traced.args(["-e", &format!("inject={call}:signal=KILL:when={nth}")]);
            traced.arg(program.get_program()).args(program.get_args());
            let ended = output(&mut traced);
            if ended.status.success() {
                assert!(nth > 2, "the conversion has no more than {nth} {call}");
                break;
            }
            assert_eq!(ended.status.signal(), Some(9), "{call} {nth}: {}", show(&ended));
            killed += 1;
            assert_has_all(&mut volume);
            volume.kill9();
            // The cache is of version 2, or can be converted still.
            let again = output(&mut convert(&volume));
            let is_converted = show(&again).contains("has format version 2");
            assert!(again.status.success() != is_converted, "{call} {nth}: {}", show(&again));
            converted += u32::from(is_converted);
            assert_has_all(&mut volume);
            assert!(add(&volume).status.success(), "{call} {nth}");
            volume.kill9();
            volume.assert_sound();
        }
    }
    println!("{killed} kills, {converted} of which left a cache of version 2");
    assert!(0 < converted && converted < killed);
}
