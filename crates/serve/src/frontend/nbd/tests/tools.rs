// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real clients: nbdinfo, nbdcopy, qemu-io, fio. Skipped aloud where they aren't installed.

use std::fs;
use std::process::{Command, Output};

use super::ram::Ram;
use super::server::{Order, Server};

/// Whether the tool is there; says so if not.
pub(super) fn have(tool: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().unwrap();
    if !found.status.success() {
        eprintln!("SKIPPED: {tool} is not installed");
    }
    found.status.success()
}

pub(super) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn nbdinfo_understands_us() {
    if !have("nbdinfo") {
        return;
    }
    let server = Server::start(Ram::new(64 << 20, 512), Order::Fifo);
    let output = run(Command::new("nbdinfo").args(["--json", &server.uri]));
    let json = String::from_utf8(output.stdout).unwrap();
    for part in [
        "\"protocol\": \"newstyle-fixed\"",
        "\"export-size\": 67108864",
        "\"block_size_minimum\": 1",
        "\"base:allocation\"",
        "\"can_cache\": true",
        "\"block_size_preferred\": 4096",
        "\"block_size_maximum\": 33554432",
        "\"can_flush\": true",
        "\"can_fua\": true",
        "\"can_multi_conn\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"can_df\": true",
        "\"is_read_only\": false",
    ] {
        assert!(json.contains(part), "{part} is missing in {json}");
    }
    let list = run(Command::new("nbdinfo").args(["--list", "--json", &server.uri]));
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains("\"export-name\": \"disk\""), "{list}");
    server.stop();
}

#[test]
fn nbdcopy_copies_there_and_back() {
    if !have("nbdcopy") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (there, back) = (dir.path().join("there"), dir.path().join("back"));
    let content = noise(48 << 20);
    fs::write(&there, &content).unwrap();
    for order in [Order::Fifo, Order::Shuffled] {
        let server = Server::start(Ram::new(48 << 20, 512), order);
        let args = ["--connections=4", "--requests=64", "--flush", "--request-size=8388608"];
        run(Command::new("nbdcopy").args(args).arg(&there).arg(&server.uri));
        run(Command::new("nbdcopy").args(args).arg(&server.uri).arg(&back));
        assert!(fs::read(&back).unwrap() == content);
        assert!(server.stop().disk == content);
    }
}

#[test]
fn qemu_io_reads_what_it_wrote() {
    if !have("qemu-io") {
        return;
    }
    let server = Server::start(Ram::new(64 << 20, 512), Order::Shuffled);
    let commands = [
        "write -P 0x11 0 32M",
        "write -f -P 0x22 1536 512",
        "aio_write -P 0x33 2097152 1048576",
        "aio_write -P 0x44 3145728 65536",
        "aio_flush",
        "flush",
        "write -z -u 8M 1M",
        "discard 16M 4M",
        "read -P 0x11 0 1536",
        "read -P 0x22 1536 512",
        "read -P 0x11 2048 1M",
        "read -P 0x33 2M 1M",
        "read -P 0x44 3M 64k",
        "read -P 0 8M 1M",
        "read -P 0x11 9M 7M",
        "read -P 0 16M 4M",
        "read -P 0x11 20M 12M",
    ];
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]);
    for line in commands {
        command.args(["-c", line]);
    }
    let output = run(command.arg(&server.uri));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("failed"), "{text}");
    server.stop();
}

#[test]
fn fio_verifies_its_writes() {
    if !have("fio") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (rw, sizes, order) in [
        ("randwrite", "--bs=4k", Order::Shuffled),
        ("randwrite", "--bsrange=512-1m", Order::Fifo),
        ("randrw", "--bsrange=512-1m", Order::Shuffled),
        ("write", "--bs=256k", Order::Shuffled),
    ] {
        let server = Server::start(Ram::new(64 << 20, 512), order);
        let output = Command::new("fio")
            .current_dir(dir.path())
            .args(["--name=verify", "--ioengine=nbd", "--size=64m", "--iodepth=32"])
            .args(["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--randseed=7"])
            .args(["--serialize_overlap=1", "--fsync=64"])
            .arg(format!("--uri={}", server.uri))
            .arg(format!("--rw={rw}"))
            .arg(sizes)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if text.contains("engine nbd not loadable") || text.contains("failed to load engine") {
            eprintln!("SKIPPED: this fio has no ioengine=nbd");
            return;
        }
        assert!(output.status.success(), "{rw} {sizes}: {text}");
        server.stop();
    }
}
