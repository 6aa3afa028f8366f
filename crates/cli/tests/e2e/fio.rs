// SPDX-License-Identifier: MIT OR Apache-2.0
//! fio writes 8 times what the cache holds, in pieces of 512 bytes to 1 MiB, 32 at a time. It
//! verifies every one by its checksum: in each mode, random and sequential, with threads for
//! clients, and for lanes.

use std::fs::File;

use serde_json::Value;

use crate::harness::{Volume, must, skip_without, tool};

const CACHE_MIB: u64 = 32;
const DATA_MIB: u64 = 8 * CACHE_MIB;

/// Sizes with their share in percent: mostly small ones, most bytes in large ones.
const SIZES: &str = "--bssplit=512/20:1k/5:4k/35:12k/10:64k/20:256k/7:1m/3";

#[test]
fn fio_verifies_writeback() {
    verify("writeback", 1, 1);
}

#[test]
fn fio_verifies_writeback_by_three_threads() {
    verify("writeback", 3, 1);
}

#[test]
fn fio_verifies_writeback_by_a_thread_for_each_lane() {
    verify("writeback", 1, 2);
}

#[test]
fn fio_verifies_writethrough() {
    verify("writethrough", 1, 1);
}

#[test]
fn fio_verifies_writearound() {
    verify("writearound", 1, 1);
}

#[test]
fn fio_verifies_passthrough() {
    verify("passthrough", 1, 1);
}

/// Random writes, then sequential ones over them. Each is read back while others are written, and
/// all of them at the end. Then the origin alone must hold what clients saw last.
fn verify(mode: &str, threads: usize, lane_threads: usize) {
    if skip_without(&["fio"]) {
        return;
    }
    let mut volume = Volume::new(CACHE_MIB, DATA_MIB);
    (volume.threads, volume.lanes, volume.lane_threads) = (threads, lane_threads, lane_threads);
    must(volume.format().args(["--mode", mode]));
    volume.start();
    run(&volume, "randwrite", 1);
    run(&volume, "write", 2);
    run(&volume, "randwrite", 3);
    let status = volume.status();
    assert_eq!(status["mode"], mode);
    assert_eq!(status["corrupt_blocks"], 0, "{status}");
    assert_eq!(status["lost_blocks"], 0, "{status}");
    volume.stop();
    volume.assert_sound();

    // What a stop kept must be there for the next daemon, and after a drain in the origin.
    volume.start();
    let expected = volume.place.file("expected.img");
    copy_of_volume(&volume, &expected);
    volume.drain();
    volume.assert_serves(&expected);
    volume.stop();
    volume.assert_sound();
    crate::harness::assert_same(&volume.origin, &expected);
}

fn run(volume: &Volume, pattern: &str, seed: u64) {
    let mut fio = tool("fio");
    fio.args(["--name=verify", "--ioengine=nbd", "--iodepth=32", "--output-format=json", SIZES]);
    fio.args(["--blockalign=512", "--verify=crc32c", "--verify_fatal=1", "--verify_backlog=256"]);
    fio.arg(format!("--uri={}", volume.uri())).arg(format!("--size={DATA_MIB}m"));
    fio.arg(format!("--rw={pattern}")).arg(format!("--randseed={seed}"));
    // Its state file goes where nothing is left behind.
    fio.arg("--verify_state_save=0").current_dir(volume.place.dir());
    let text = must(&mut fio);
    // fio may print notes around its report.
    let report = text.find('{').map_or("", |start| &text[start..]);
    let report = serde_json::Deserializer::from_str(report).into_iter::<Value>().next();
    let report = report.and_then(Result::ok).unwrap_or_else(|| panic!("fio says no JSON: {text}"));
    let job = &report["jobs"][0];
    assert_eq!(job["error"], 0, "{job}");
    // It must have written about everything, and read all of it back.
    let (written, read) = (job["write"]["io_bytes"].as_u64(), job["read"]["io_bytes"].as_u64());
    let enough = Some((DATA_MIB << 20) * 9 / 10);
    assert!(written >= enough && read >= enough, "{pattern}: written {written:?}, read {read:?}");
}

fn copy_of_volume(volume: &Volume, to: &std::path::Path) {
    let mut client = volume.connect();
    let file = File::create(to).expect("the copy can be made");
    let bytes = client.info().size_bytes;
    let mut piece = vec![0; 1 << 20];
    for offset in (0..bytes).step_by(piece.len()) {
        client.read_at(offset, &mut piece).expect("the volume can be read");
        std::os::unix::fs::FileExt::write_all_at(&file, &piece, offset).expect("the copy can be written");
    }
}
