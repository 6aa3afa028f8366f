// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volume as /dev/ublkbN of this machine. Few machines of tests have the driver: `cargo x vm
//! ublk` does far more, in a guest.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::harness::{Daemon, Volume, is_root, must, output, show, skip};

/// Far from what anybody else would take.
const NUMBER: &str = "117";
const DEVICE: &str = "/dev/ublkb117";

#[test]
fn a_device_outlives_a_killed_daemon() {
    let mut volume = Volume::new(32, 128);
    must(&mut volume.format());
    let mut serve = volume.serve_nowhere();
    serve.args(["--ublk", NUMBER, "--durability", "always"]);
    if !Path::new("/dev/ublk-control").exists() {
        let refused = output(&mut serve);
        let said = show(&refused);
        assert!(!refused.status.success() && said.contains("modprobe ublk_drv") && said.contains("--fuse"), "{said}");
        return skip("this machine has no ublk driver (modprobe ublk_drv)");
    }
    if !is_root() {
        return skip("only root may make block devices");
    }
    let daemon = Daemon::spawn(&mut serve, &volume.log);
    assert_eq!(daemon.ready(), format!("file://{DEVICE}"));
    let direct = OFlags::DIRECT.bits() as i32;
    let device = File::options().read(true).write(true).custom_flags(direct).open(DEVICE).expect("it is there");
    let mut memory = vec![0x77_u8; 8192];
    let skipped = memory.as_ptr().align_offset(4096);
    device.write_all_at(&memory[skipped..][..4096], 4096).expect("a write");

    daemon.kill9();
    let daemon = Daemon::spawn(&mut serve, &volume.log);
    daemon.ready();
    memory.fill(0);
    let part = &mut memory[skipped..][..4096];
    device.read_exact_at(part, 4096).expect("the device of before the kill");
    assert!(part.iter().all(|byte| *byte == 0x77), "acknowledged and lost\n{}", volume.stderr());
    drop(device);
    daemon.stop();
    let end = Instant::now() + Duration::from_secs(20);
    while Path::new(DEVICE).exists() {
        assert!(Instant::now() < end, "a clean stop takes it away");
        std::thread::sleep(Duration::from_millis(5)); // pacing: a poll; udev removes the node in its own time
    }
    volume.start();
    let mut client = volume.connect();
    let mut content = [0; 4096];
    client.read_at(4096, &mut content).expect("the volume can be read");
    assert_eq!(content, [0x77; 4096]);
    client.disconnect().expect("the daemon is there");
    volume.stop();
}
