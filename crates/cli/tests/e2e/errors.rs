// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of an origin arrive: at clients as its own error, at the operator as a line and a count.
//! Errors that repeat are not a line each time.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use flashfront_serve::frontend::nbd::{Ask, Client, ClientError, Request};

use crate::harness::{Daemon, MIB, Volume, is_root, must, output, show, skip, tool};
use crate::told;

/// A file system of this size in RAM, unmounted when dropped.
pub(crate) struct Ram<'a>(&'a Path);

impl<'a> Ram<'a> {
    pub(crate) fn mount(folder: &'a Path, options: &str) -> Option<Self> {
        std::fs::create_dir(folder).expect("the place is ours");
        let mounted = output(tool("mount").args(["-t", "tmpfs", "-o", options, "flashfront-test"]).arg(folder));
        mounted.status.success().then_some(Self(folder))
    }
}

impl Drop for Ram<'_> {
    fn drop(&mut self) {
        output(tool("umount").arg("--lazy").arg(self.0));
    }
}

/// The number of an NBD error.
fn number<T: std::fmt::Debug>(result: Result<T, ClientError>) -> u32 {
    match result {
        Err(ClientError::Failed(errno)) => errno.0,
        other => panic!("no error of the server: {other:?}"),
    }
}

/// Writes over all of the volume until the server refuses.
fn fill(client: &mut Client, mib: u64) -> u32 {
    let data = vec![7; MIB as usize];
    let refused = (0..mib).map(|at| client.write_at(at * MIB, &data, false)).find(Result::is_err);
    number(refused.expect("there is no space for all of it"))
}

/// Zeroes that keep their space.
fn zero_without_hole(client: &mut Client, offset: u64, len: u32) -> u32 {
    let ask = Ask::Zeroes { may_discard: false, fast: false };
    client.submit(Request::new(1, ask, offset, len.into()), &[]).expect("the daemon is there");
    client.recv(&mut Vec::new()).expect("it answers").result.map_or_else(|failure| failure.errno.0, |()| 0)
}

const ENOSPC: u32 = 28;

#[test]
fn a_full_origin_is_no_space_for_clients_of_nbd_and_fuse() {
    if !is_root() {
        return skip("only root may mount");
    }
    let mut volume = Volume::new(16, 1);
    let folder = volume.place.file("ram");
    let Some(ram) = Ram::mount(&folder, "size=4m") else { return skip("no tmpfs") };
    volume.origin = folder.join("origin");
    File::create(&volume.origin).and_then(|file| file.set_len(64 * MIB)).expect("a sparse file");
    must(volume.format().args(["--mode", "passthrough"]));
    let fuse = volume.place.file("fuse");
    std::fs::create_dir(&fuse).expect("the place is ours");
    let has_fuse = Path::new("/dev/fuse").exists();
    let mut serve = volume.serve();
    if has_fuse {
        serve.arg("--fuse").arg(&fuse);
    }
    let daemon = Daemon::spawn(&mut serve, &volume.log);
    daemon.ready();
    let mut client = volume.connect();
    assert_eq!(fill(&mut client, 64), ENOSPC);
    assert_eq!(zero_without_hole(&mut client, 32 * MIB, MIB as u32), ENOSPC, "zeroes that keep their space");
    client.write_zeroes(32 * MIB, 32 * MIB).expect("a hole needs none");
    if has_fuse {
        let mut shown = std::fs::read_dir(&fuse).expect("the folder of volumes");
        let path = shown.next().expect("there is one").expect("it can be read").path();
        let file = OpenOptions::new().write(true).open(path).expect("the volume as a file");
        let error = file.write_all_at(&vec![7; MIB as usize], 40 * MIB).expect_err("there is no space");
        assert_eq!(error.raw_os_error(), Some(ENOSPC as i32), "{error}");
    } else {
        skip("no /dev/fuse");
    }
    let counted = volume.status()["volumes"][0]["origin_write_errors"].as_u64();
    assert!(counted >= Some(2), "{counted:?}");
    let log = volume.stderr();
    told::assert_log_is_told(&log);
    assert!(log.contains("no space left (ENOSPC); make room on its file system"), "{log}");
    // There is room again: nobody has to start anything anew.
    must(tool("mount").args(["-o", "remount,size=80m"]).arg(&folder));
    client.write_at(40 * MIB, &vec![8; MIB as usize], false).expect("there is space");
    client.disconnect().expect("the daemon is there");
    daemon.stop();
    drop(ram);
}

/// In writeback the origin needs space only when it is destaged to: who writes on is told then, and
/// not left waiting.
#[test]
fn a_full_origin_is_told_to_who_waits_at_the_dirty_limit() {
    let mut volume = Volume::new(32, 64);
    volume.options = vec!["--dirty-limit", "8MiB", "--sequential-bypass", "0B", "--inject", "origin:nospace,op=write"];
    must(&mut volume.format());
    volume.start();
    let mut client = volume.connect();
    assert_eq!(fill(&mut client, 64), ENOSPC);
    drop(client);
    volume.kill9();
}

#[test]
fn errors_of_the_origin_are_told_and_counted_and_repeated_ones_left_out() {
    let mut volume = Volume::new(32, 64);
    volume.options = vec!["--inject", "origin:eio,op=read,at=16MiB..32MiB"];
    must(&mut volume.format());
    volume.start();
    let mut client = volume.connect();
    let mut block = vec![0; 4096];
    for nth in 0..300 {
        assert_eq!(number(client.read_at(16 * MIB + nth * 4096, &mut block)), 5, "EIO");
    }
    client.read_at(0, &mut block).expect("only a part of it is bad");
    client.disconnect().expect("the daemon is there");
    let errors = volume.status()["volumes"][0]["origin_read_errors"].as_u64().expect("a number");
    assert!(errors >= 300, "{errors}");
    assert!(must(&mut volume.ask("status")).contains("of the origin; see the log"));
    volume.stop();
    let log = volume.stderr();
    told::assert_log_is_told(&log);
    let origin = volume.origin.display();
    assert!(log.contains(&format!("sector 32768 of {origin} failed: I/O error (EIO); look for it")), "{log}");
    assert!(log.contains(" more of this in the last "), "{log}");
    assert!(log.lines().count() < 40, "{log}");
}

#[test]
fn a_cache_that_has_rotted_fills_no_log() {
    let mut volume = Volume::new(32, 16);
    volume.options = vec!["--sequential-bypass", "0B", "--policy", "fifo"];
    must(&mut volume.format());
    volume.start();
    let mut client = volume.connect();
    for at in 0..16 {
        client.write_at(at * MIB, &vec![at as u8 + 1; MIB as usize], false).expect("the volume takes it");
    }
    client.flush().expect("it is durable");
    client.disconnect().expect("the daemon is there");
    // Clean, and in the log whatever the devices' pace: in writethrough it depends on that what is
    // cached.
    volume.drain();
    volume.stop();
    // This flips a byte in each block of payload.
    let cache = OpenOptions::new().read(true).write(true).open(&volume.cache).expect("the file is ours");
    let mut block = vec![0; 4096];
    for at in (4 * MIB..32 * MIB).step_by(4096) {
        cache.read_exact_at(&mut block, at).expect("it is there");
        if block[0] != 0 && block.iter().all(|byte| *byte == block[0]) {
            cache.write_all_at(&[0], at + 100).expect("the file is ours");
        }
    }
    let before = volume.stderr().lines().count();
    volume.start();
    let (mut client, mut data) = (volume.connect(), vec![0; MIB as usize]);
    for at in 0..16 {
        client.read_at(at * MIB, &mut data).expect("the origin has it");
        assert!(data.iter().all(|byte| *byte == at as u8 + 1), "the MiB at {at}");
    }
    client.disconnect().expect("the daemon is there");
    assert!(volume.gauge("corrupt_blocks") > 100);
    volume.stop();
    let log = volume.stderr();
    told::assert_log_is_told(&log);
    assert!(log.lines().count() - before < 30 && log.contains(" more of this in the last "), "{log}");
}

#[test]
fn zeroes_and_trims_of_gibibytes_leave_a_thin_origin_thin() {
    let mut volume = Volume::new(64, 3072);
    must(&mut volume.format());
    volume.start();
    let mut client = volume.connect();
    let held = |volume: &Volume| std::fs::metadata(&volume.origin).expect("the origin is there").blocks() * 512;
    // Cached, dirty, and on the origin.
    for at in [0, 700, 1500, 2900] {
        client.write_at(at * MIB + 512, &vec![9; 64 << 10], false).expect("the volume takes it");
    }
    let zeroed = |client: &mut Client, what: &str| {
        let mut data = vec![1; MIB as usize];
        for at in [0, 700, 1500, 2900] {
            client.read_at(at * MIB, &mut data).expect("the volume can be read");
            assert!(data.iter().all(|byte| *byte == 0), "{what}: the MiB at {at}");
        }
    };
    client.write_zeroes(0, 3072 * MIB).expect("zeroes of any length");
    zeroed(&mut client, "after zeroes");
    client.flush().expect("it is durable");
    assert!(held(&volume) < 4 * MIB, "{} bytes of zeroes", held(&volume));
    client.write_at(700 * MIB, &vec![9; 8 << 20], false).expect("the volume takes it");
    client.trim(512, 3072 * MIB - 512).expect("trims of any length");
    client.write_zeroes(512, 3000 * MIB).expect("zeroes over trims");
    client.flush().expect("it is durable");
    assert!(held(&volume) < 4 * MIB, "{} bytes after a trim", held(&volume));
    client.disconnect().expect("the daemon is there");
    volume.stop();
    volume.start();
    let mut client = volume.connect();
    client.write_zeroes(2900 * MIB, 100 * MIB).expect("zeroes of any length");
    zeroed(&mut client, "after a restart");
    client.disconnect().expect("the daemon is there");
    volume.stop();
    let shown = output(tool("du").arg("--block-size=1").arg(&volume.origin));
    assert!(held(&volume) < 4 * MIB, "{}", show(&shown));
}
