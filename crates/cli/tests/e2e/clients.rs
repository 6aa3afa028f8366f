// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients of other makers: nbdinfo, nbdcopy, qemu-io, qemu-img. They implement NBD without us.

use std::fs;

use serde_json::Value;

use crate::harness::{MIB, Random, Volume, assert_same, must, skip_without, tool};

#[test]
fn nbdinfo_sees_what_is_offered() {
    if skip_without(&["nbdinfo"]) {
        return;
    }
    let mut volume = Volume::served(32, 64, "writeback");
    let text = must(tool("nbdinfo").arg("--json").arg(volume.uri()));
    let info: Value = serde_json::from_str(&text).expect("nbdinfo speaks JSON");
    assert_eq!(info["protocol"], "newstyle-fixed", "{info}");
    let export = &info["exports"][0];
    assert_eq!(export["export-size"].as_u64(), Some(64 * MIB), "{info}");
    assert_eq!(export["is_read_only"], false, "{info}");
    for ability in ["can_flush", "can_fua", "can_trim", "can_zero", "can_multi_conn"] {
        assert_eq!(export[ability], true, "{ability}: {info}");
    }
    let list = must(tool("nbdinfo").arg("--list").arg("--json").arg(volume.uri()));
    let list: Value = serde_json::from_str(&list).expect("nbdinfo speaks JSON");
    assert_eq!(list["exports"].as_array().map(Vec::len), Some(1), "{list}");
    volume.stop();
}

#[test]
fn nbdcopy_brings_in_and_takes_out_the_same() {
    if skip_without(&["nbdcopy"]) {
        return;
    }
    for mode in ["writeback", "writethrough", "writearound", "passthrough"] {
        let mut volume = Volume::served(32, 128, mode);
        let image = volume.place.file("image.img");
        // Data with holes of zeroes in it, so that nbdcopy uses WRITE_ZEROES too.
        let mut random = Random::new(7);
        let piece = |nth: u64| {
            if nth % 4 == 3 { vec![0; MIB as usize] } else { random.bytes(MIB as usize) }
        };
        let bytes = (0..128).map(piece).collect::<Vec<_>>().concat();
        fs::write(&image, bytes).expect("the image can be written");
        must(tool("nbdcopy").arg("--flush").arg(&image).arg(volume.uri()));
        let back = volume.place.file("back.img");
        must(tool("nbdcopy").arg(volume.uri()).arg(&back));
        assert_same(&image, &back);
        volume.drain();
        volume.stop();
        volume.assert_sound();
        assert_same(&image, &volume.origin);
    }
}

#[test]
fn qemu_sees_a_disk_like_a_plain_file() {
    if skip_without(&["qemu-io", "qemu-img"]) {
        return;
    }
    let mut volume = Volume::served(32, 256, "writeback");
    let plain = volume.place.sparse("plain.img", 256 * MIB);
    let seed = 11;
    let mut random = Random::new(seed);
    let modes = ["writethrough", "writearound", "passthrough", "writeback"];
    for mode in modes {
        let commands: Vec<String> = (0..120).map(|_| command(&mut random)).collect();
        for target in [volume.uri(), plain.display().to_string()] {
            let mut io = tool("qemu-io");
            io.args(["-f", "raw", "-d", "unmap"]).arg(&target);
            for command in &commands {
                io.arg("-c").arg(command);
            }
            let said = must(&mut io);
            assert!(!said.contains("failed"), "seed {seed}: {said}");
        }
        let compare = ["compare", "-f", "raw", "-F", "raw"];
        must(tool("qemu-img").args(compare).arg(volume.uri()).arg(&plain));
        // The next round meets what this one left behind, in another mode.
        must(volume.ask("set").args(["--mode", mode]));
    }
    volume.drain();
    volume.stop();
    volume.assert_sound();
    assert_same(&plain, &volume.origin);
}

/// Makes a command of qemu-io that changes data or reads data. It is often aligned to 512 bytes, up
/// to 1 MiB, and often in the same few MiB, so that later ones meet earlier ones.
fn command(random: &mut Random) -> String {
    let unit = if random.below(2) == 0 { 512 } else { 1 };
    let bytes = (1 + random.below(2048)) * 512 - (512 / unit - 1).min(random.below(512));
    let bytes = if random.below(3) > 0 { bytes.min(9 * 512) } else { bytes };
    let span = if random.below(2) == 0 { 4 * MIB } else { 255 * MIB };
    let offset = random.below(span / 512) * 512 + (512 / unit - 1).min(random.below(512));
    let pattern = 1 + random.below(255);
    match random.below(10) {
        0..5 => format!("write -P {pattern} {offset} {bytes}"),
        5 => format!("write -f -P {pattern} {offset} {bytes}"),
        6 => format!("write -z {offset} {bytes}"),
        7 => format!("write -z -u {offset} {bytes}"),
        8 => format!("read {offset} {bytes}"),
        _ => "flush".into(),
    }
}
