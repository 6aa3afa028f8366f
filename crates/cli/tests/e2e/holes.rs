// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients of other makers ask which parts of a volume are holes, skip them, and write single
//! bytes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use serde_json::Value;

use crate::harness::{MIB, Random, Volume, assert_same, must, skip_without, tool};

const DISK_MIB: u64 = 256;

/// A volume whose origin has a MiB of data at 16 MiB and some at 200 MiB, and holes.
fn sparse_volume(threads: usize) -> Volume {
    let mut volume = Volume::new(32, DISK_MIB);
    volume.threads = threads;
    let origin = File::options().write(true).open(&volume.origin).expect("the origin is there");
    let mut random = Random::new(5);
    origin.write_all_at(&random.bytes(MIB as usize), 16 * MIB).expect("the origin can be written");
    origin.write_all_at(&random.bytes(64 << 10), 200 * MIB).expect("the origin can be written");
    origin.sync_all().expect("the origin can be written");
    must(&mut volume.format());
    volume.start();
    volume
}

/// What nbdinfo tells: offset, length, type.
fn map(volume: &Volume) -> Vec<(u64, u64, u64)> {
    let text = must(tool("nbdinfo").args(["--map", "--json"]).arg(volume.uri()));
    let map: Value = serde_json::from_str(&text).expect("nbdinfo speaks JSON");
    let number = |extent: &Value, key: &str| extent[key].as_u64().expect("a number");
    let extents = map.as_array().expect("a list").iter();
    extents.map(|it| (number(it, "offset"), number(it, "length"), number(it, "type"))).collect()
}

/// Whether a byte is in a hole that reads as zeroes. A file system may have larger blocks than
/// ours.
fn is_hole(map: &[(u64, u64, u64)], at: u64) -> bool {
    let extent = map.iter().find(|(offset, len, _)| (*offset..offset + len).contains(&at));
    extent.expect("all of the volume is told of").2 == 3
}

/// Bytes that a file takes.
fn allocated(path: &Path) -> u64 {
    fs::metadata(path).expect("the file is there").blocks() * 512
}

#[test]
fn what_is_dirty_over_a_hole_is_no_hole() {
    if skip_without(&["nbdinfo"]) {
        return;
    }
    for threads in [1, 3] {
        let mut volume = sparse_volume(threads);
        let before = map(&volume);
        let points = [0, 16 * MIB, 17 * MIB - 1, 18 * MIB, 100 * MIB, 200 * MIB, DISK_MIB * MIB - 1];
        assert_eq!(points.map(|at| is_hole(&before, at)), [true, false, false, true, true, false, true], "{before:?}");
        let mut client = volume.connect();
        client.write_at(100 * MIB, &[7; 8192], false).expect("a write");
        client.write_at(128 * MIB + 5, &[8], false).expect("a write of a byte");
        client.write_at(DISK_MIB * MIB - 1, &[9], false).expect("a write of the last byte");
        let dirty = map(&volume);
        for (at, len) in [(100 * MIB, 8192), (128 * MIB, 4096), (DISK_MIB * MIB - 4096, 4096)] {
            assert!(dirty.contains(&(at, len, 0)), "{dirty:?} in one of {threads} threads");
        }
        // What is clean is where the origin has it.
        volume.drain();
        let clean = map(&volume);
        let written = [100 * MIB, 128 * MIB + 5, DISK_MIB * MIB - 1];
        assert_eq!(written.map(|at| is_hole(&clean, at)), [false; 3], "{clean:?}");
        // Zeroes and a discard take the space back, over what is dirty too.
        client.write_at(100 * MIB, &[7; 8192], false).expect("a write");
        client.write_zeroes(100 * MIB - MIB, 2 << 20).expect("zeroes");
        client.trim(16 * MIB, 1 << 20).expect("a discard");
        let zeroed = map(&volume);
        assert_eq!([16 * MIB, 100 * MIB].map(|at| is_hole(&zeroed, at)), [true; 2], "{zeroed:?}");
        client.disconnect().expect("the daemon is there");
        volume.stop();
    }
}

#[test]
fn copies_out_of_a_sparse_volume_are_sparse() {
    if skip_without(&["nbdcopy", "qemu-img"]) {
        return;
    }
    let mut volume = sparse_volume(1);
    let mut client = volume.connect();
    client.write_at(100 * MIB + 1, &[7; 300_000], false).expect("a write");
    client.disconnect().expect("the daemon is there");
    let plain = volume.place.file("plain.img");
    let (copied, converted) = (volume.place.file("copied.img"), volume.place.file("converted.img"));
    must(tool("nbdcopy").arg(volume.uri()).arg(&copied));
    must(tool("qemu-img").args(["convert", "-f", "raw", "-O", "raw"]).arg(volume.uri()).arg(&converted));
    let told = must(tool("qemu-img").args(["map", "--output=json", "-f", "raw"]).arg(volume.uri()));
    let told: Value = serde_json::from_str(&told).expect("qemu-img speaks JSON");
    let extents = told.as_array().expect("a list");
    let data: u64 = extents.iter().filter(|it| it["data"] == true).filter_map(|it| it["length"].as_u64()).sum();
    assert!((MIB..3 * MIB).contains(&data), "{told}");
    must(tool("qemu-img").args(["compare", "-f", "raw", "-F", "raw"]).arg(volume.uri()).arg(&copied));
    volume.drain();
    volume.stop();
    fs::copy(&volume.origin, &plain).expect("the origin can be copied");
    for copy in [&copied, &converted] {
        assert_same(copy, &plain);
        assert!(allocated(copy) < 4 * MIB, "{} takes {} bytes", copy.display(), allocated(copy));
    }
}

#[test]
fn copies_into_a_volume_leave_it_sparse() {
    if skip_without(&["nbdcopy", "qemu-img"]) {
        return;
    }
    for qemu in [false, true] {
        let mut volume = sparse_volume(1);
        let image = volume.place.sparse("image.img", DISK_MIB * MIB);
        let file = File::options().write(true).open(&image).expect("the image is there");
        let mut random = Random::new(9);
        for at in [3 * MIB, 180 * MIB] {
            file.write_all_at(&random.bytes(2 * MIB as usize), at).expect("the image can be written");
        }
        if qemu {
            must(tool("qemu-img").args(["convert", "-n", "-f", "raw", "-O", "raw"]).arg(&image).arg(volume.uri()));
        } else {
            must(tool("nbdcopy").arg("--flush").arg(&image).arg(volume.uri()));
        }
        volume.drain();
        volume.stop();
        volume.assert_sound();
        assert_same(&image, &volume.origin);
        // What it had at 16 and 200 MiB is gone.
        assert!(allocated(&volume.origin) < 6 * MIB, "{} bytes, qemu: {qemu}", allocated(&volume.origin));
    }
}

/// Neighbours write single bytes and more, many at once, on several connections.
const ODD: &str = r#"
import random
random.seed(1)
uri, size, base = h.get_uri(), h.get_size(), 3 * 1048576 - 700
handles = [h] + [nbd.NBD() for _ in range(2)]
for other in handles[1:]:
    other.connect_uri(uri)
model = bytearray(h.pread(400000, base))
for _ in range(30):
    at, asked = random.randrange(100000), []
    for nth in range(60):
        n = random.choice([1, 2, 511, 512, 513, random.randrange(1, 5000)])
        data = bytearray([random.randrange(1, 256)]) * n
        who = handles[nth % 3]
        asked.append((who, who.aio_pwrite(nbd.Buffer.from_bytearray(data), base + at)))
        model[at:at + n] = data
        at += n + random.choice([0, 0, 1])
    for who, cookie in asked:
        while not who.aio_command_completed(cookie):
            who.poll(-1)
    at = random.randrange(1000)
    h.zero(at + 77, base + at)
    model[at:at + at + 77] = bytes(at + 77)
    assert h.pread(400000, base) == model
for n in (1, 511, 513, 4097):
    assert h.pread(n, base + 99) == model[99:99 + n]
h.pwrite(b'end', size - 3)
assert h.pread(5, size - 5)[2:] == b'end'
h.cache(123457, 1)
h.trim(123457, base + 300001)
h.flush()
assert h.pread(300001, base) == model[:300001]
"#;

#[test]
fn single_bytes_are_written_beside_others() {
    if skip_without(&["nbdsh"]) {
        return;
    }
    for mode in ["writeback", "writethrough", "passthrough"] {
        let mut volume = Volume::served(32, 64, mode);
        // The system's Python has libnbd; another one that comes first may not.
        must(tool("nbdsh").env("PATH", "/usr/bin:/bin").arg("-u").arg(volume.uri()).arg("-c").arg(ODD));
        volume.drain();
        volume.stop();
        volume.assert_sound();
    }
}
