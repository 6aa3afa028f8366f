// SPDX-License-Identifier: MIT OR Apache-2.0
//! An origin with a file system on it, from before the cache came, and after it has gone.

use std::path::{Path, PathBuf};

use crate::harness::{MIB, Volume, assert_same, flashfront, must, skip_without, tool};

/// A tree of files that every checkout has: the crates' sources.
pub(crate) fn sources() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.expect("the crate lies among the others").to_owned()
}

/// A volume whose origin holds ext4 with files, and a copy of that origin.
fn with_ext4() -> (Volume, PathBuf) {
    let volume = Volume::new(32, 256);
    must(tool("mkfs.ext4").args(["-q", "-F", "-d"]).arg(sources()).arg(&volume.origin));
    let copy = volume.place.file("copy.img");
    must(tool("cp").arg("--sparse=always").arg(&volume.origin).arg(&copy));
    (volume, copy)
}

#[test]
fn what_was_on_the_origin_is_served_and_left_unchanged() {
    if skip_without(&["mkfs.ext4"]) {
        return;
    }
    for mode in ["writeback", "writethrough", "writearound", "passthrough"] {
        let (mut volume, copy) = with_ext4();
        must(volume.format().args(["--mode", mode]));
        assert_same(&volume.origin, &copy);
        volume.start();
        // Twice: from the origin, then in part from the cache.
        volume.assert_serves(&copy);
        volume.assert_serves(&copy);
        volume.stop();
        volume.start();
        volume.assert_serves(&copy);
        volume.stop();
        detach(&volume);
        assert_same(&volume.origin, &copy);
    }
}

#[test]
fn detach_refuses_as_long_as_the_cache_holds_the_only_copy() {
    if skip_without(&["mkfs.ext4"]) {
        return;
    }
    let (mut volume, copy) = with_ext4();
    must(&mut volume.format());
    volume.start();
    // Every other block of 32 MiB: more than is destaged before the stop below.
    let mut client = volume.connect();
    let expected = std::fs::File::options().write(true).open(&copy).expect("the copy is ours");
    for block in (0..8192_u64).step_by(2) {
        let offset = 128 * MIB + block * 4096;
        client.write_at(offset, &[0x5a; 4096], false).expect("the volume can be written");
        std::os::unix::fs::FileExt::write_all_at(&expected, &[0x5a; 4096], offset).expect("the copy is ours");
    }
    client.flush().expect("the volume can be flushed");
    let dirty = volume.gauge("blocks_dirty");
    volume.stop();
    if dirty > 0 {
        let mut command = flashfront();
        command.arg("detach").arg("--cache").arg(&volume.cache).arg("--origin").arg(&volume.origin);
        crate::refusal::assert_refused(&volume.place, &mut command, &["dirty", "flashfront destage"]);
    }
    must(flashfront().arg("destage").arg("--cache").arg(&volume.cache).arg("--origin").arg(&volume.origin));
    detach(&volume);
    assert_same(&volume.origin, &copy);
}

fn detach(volume: &Volume) {
    must(flashfront().arg("detach").arg("--cache").arg(&volume.cache).arg("--origin").arg(&volume.origin));
}
