// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache device that runs out of space under a daemon: a sparse file in a full file system.
//!
//! The same with other failures, and with dirty data left over, is tested in crates/serve
//! (daemon::tests).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{Daemon, MIB, Volume, flashfront, is_root, must, output, show, skip, skip_without, tool};
use crate::refusal::assert_refused;
use crate::told;

/// A small tmpfs, unmounted when dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(volume: &Volume, bytes: u64) -> Option<Self> {
        if !is_root() {
            skip("only root may mount a small file system to fill");
            return None;
        }
        if skip_without(&["mount", "umount"]) {
            return None;
        }
        let dir = volume.place.socket("small");
        std::fs::create_dir_all(&dir).expect("a mount point can be made");
        let mounted = output(tool("mount").args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "none"]).arg(&dir));
        if !mounted.status.success() {
            skip(&format!("no tmpfs to be had: {}", show(&mounted)));
            return None;
        }
        Some(Self(dir))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        output(tool("umount").arg("--lazy").arg(&self.0));
    }
}

#[test]
fn a_cache_device_that_fails_is_told_marked_and_refused() {
    let mut volume = Volume::new(32, 64);
    let Some(small) = Tmpfs::mount(&volume, 6 * MIB) else { return };
    volume.cache = small.0.join("cache.img");
    File::create(&volume.cache).and_then(|file| file.set_len(32 * MIB)).expect("a sparse file can be made here");
    must(&mut volume.format());
    let mut daemon = Daemon::spawn(&mut volume.serve(), &volume.log);
    daemon.ready();
    assert_eq!(volume.status()["cache_failed"], false);

    // Long after the file system is full: no client sees an error, and each block is durable
    // somewhere.
    let mut client = volume.connect();
    let block = |nth: u64| [nth as u8 | 1; 4096];
    let acknowledged = 4000;
    for nth in 0..acknowledged {
        client.write_at(nth * 3 * 4096, &block(nth), true).expect("the origin takes what the cache can't");
    }
    let status = volume.status();
    assert_eq!(status["cache_failed"], true, "{status}");
    assert!(must(&mut volume.ask("status")).contains("FAILED"));
    let said = volume.stderr();
    told::assert_log_is_told(&said);
    assert!(said.contains("the cache device failed") && said.contains("ENOSPC"), "{said}");
    assert_eq!(said.matches("nothing new is trusted to it").count(), 1, "once is enough: {said}");

    // Everything acknowledged is served, and reaches the origin.
    let mut bytes = [0; 4096];
    for nth in 0..acknowledged {
        client.read_at(nth * 3 * 4096, &mut bytes).expect("what was acknowledged can be read");
        assert_eq!(bytes, block(nth), "block {nth}");
    }
    drop(client);
    volume.drain();
    daemon.signal(rustix::process::Signal::TERM);
    let status = daemon.ended();
    let said = volume.stderr();
    told::assert_log_is_told(&said);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("All that was acknowledged is on the origin") && !said.contains("panicked"), "{said}");
    let origin = File::open(&volume.origin).expect("the file is ours");
    for nth in 0..acknowledged {
        origin.read_exact_at(&mut bytes, nth * 3 * 4096).expect("the file is ours");
        assert_eq!(bytes, block(nth), "block {nth} of the origin");
    }

    // It is not served again, not even by the operator's word, and both say how to go on.
    let words = ["cache.img", "failed in the last run", "flashfront detach"];
    assert_refused(&volume.place, &mut volume.serve(), &words);
    assert_refused(&volume.place, volume.serve().arg("--accept-changed-origin"), &words);
    assert_refused(&volume.place, &mut volume.format(), &["failed in the last run", "--force"]);
    assert!(must(flashfront().arg("dump").arg(&volume.cache)).contains("FAILED"));
    let report = output(flashfront().arg("check").arg(&volume.cache).arg("--json"));
    let json: Value = serde_json::from_slice(&report.stdout).unwrap_or_else(|_| panic!("{}", show(&report)));
    assert_eq!(json["cache_failed"], true, "{json}");
    must(flashfront().arg("detach").arg("--cache").arg(&volume.cache).arg("--origin").arg(&volume.origin));
}

/// The cache device takes no writes any more, not even its mark, and the daemon is killed. The
/// state folder remembers, and all that was acknowledged as durable is on the origin.
#[test]
fn a_failure_that_cannot_be_marked_is_remembered() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let daemon = Daemon::spawn(volume.serve().args(["--inject", "cache:eio,op=write,after=40"]), &volume.log);
    daemon.ready();
    let mut client = volume.connect();
    let block = |nth: u64| [nth as u8 | 1; 4096];
    for nth in 0..500 {
        client.write_at(nth * 3 * 4096, &block(nth), true).expect("the origin takes what the cache can't");
    }
    assert_eq!(volume.status()["cache_failed"], true);
    drop(client);
    daemon.kill9();
    let origin = File::open(&volume.origin).expect("the file is ours");
    let mut bytes = [0; 4096];
    for nth in 0..500 {
        origin.read_exact_at(&mut bytes, nth * 3 * 4096).expect("the file is ours");
        assert_eq!(bytes, block(nth), "block {nth} of the origin");
    }
    // The device is well again, and knows of nothing.
    assert_refused(&volume.place, &mut volume.serve(), &["cache.img", "failed in the last run"]);
}
