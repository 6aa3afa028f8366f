// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ordered destage under ext4: the cache is thrown away at a random moment. The origin alone is
//! then a file system as a power cut leaves it. Its journal is replayed, and it is clean. It has
//! every transaction that is older than `status` said.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::block_device::{BlockDevice, Mount, skip_without_block_devices};
use crate::filesystem::check;
use crate::fuse::skip_without_fuse;
use crate::harness::{Daemon, Random, Volume, must, output, show, skip_without, tool};

const RECORD: u64 = 4096;

/// What was left of a file system whose cache is gone.
struct Left {
    /// What `e2fsck -n` found after the journal was replayed, unless nothing.
    broken: Option<String>,
    /// Transactions that were acknowledged, and how many of them the origin alone has.
    acknowledged: u64,
    found: u64,
    /// Transactions older than the oldest FLUSH that was not sent yet, and missing all the same.
    missing: u64,
    unsent_s: u64,
}

/// Writes transactions until the device fails. One is a record in a log, and a file that takes
/// another's name; both are synced. Notes when each was.
fn write(folder: &Path, done: &Mutex<Vec<Instant>>) {
    let log = File::create(folder.join("log"));
    let one = |nth: u64| -> std::io::Result<()> {
        let log = log.as_ref().map_err(|error| std::io::Error::from(error.kind()))?;
        log.write_all_at(&[nth as u8 | 1; RECORD as usize], nth * RECORD)?;
        log.sync_all()?;
        let (new, name) = (folder.join("new"), folder.join(format!("file{}", nth % 7)));
        let mut file = File::create(&new)?;
        file.write_all(&vec![nth as u8; 3000 + nth as usize % 9000])?;
        file.sync_all()?;
        fs::rename(&new, &name)?;
        File::open(folder)?.sync_all()
    };
    for nth in 0.. {
        if one(nth).is_err() {
            return;
        }
        done.lock().expect("nobody panics with it").push(Instant::now());
    }
}

/// Throws the cache away after so many transactions.
fn lose_cache(destage: &str, after: usize) -> Left {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let folder = volume.place.socket("disk");
    fs::create_dir(&folder).expect("a folder can be made");
    let mut serve = volume.serve_nowhere();
    serve.arg("--fuse").arg(&folder).args(["--destage", destage]);
    let daemon = Daemon::spawn(&mut serve, &volume.log);
    daemon.ready();
    let device = BlockDevice::of_file(&folder.join("data"), 512);

    must(tool("mkfs.ext4").args(["-q", "-J", "size=4"]).arg(&device.path));
    let mount = Mount::new(&device, &volume);
    let done = Mutex::new(Vec::new());
    let count = || done.lock().expect("nobody panics with it").len();
    let (killed, unsent_s) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&mount.dir, &done));
        while count() < after && !writer.is_finished() {
            std::thread::yield_now();
        }
        let status = volume.status();
        let killed = Instant::now();
        daemon.kill9();
        (killed, status["volumes"][0]["oldest_unsent_flush_s"].as_u64().expect("a number"))
    });
    drop(mount);
    drop(device);
    output(tool("umount").arg("--lazy").arg("--quiet").arg(&folder));
    fs::remove_file(&volume.cache).expect("the cache is there until now");

    // e2fsck says 1 if it has done something.
    let replayed = output(tool("e2fsck").args(["-y", "-E", "journal_only"]).arg(&volume.origin));
    let checked = output(&mut check("ext4", &volume.origin));
    let broken = (!checked.status.success()).then(|| format!("{}\n{}", show(&replayed), show(&checked)));
    let copy = volume.place.file("log");
    output(tool("debugfs").arg("-R").arg(format!("dump /log {}", copy.display())).arg(&volume.origin));
    let bytes = fs::read(&copy).unwrap_or_default();
    let has = |nth: usize| {
        let record = bytes.get(nth * RECORD as usize..(nth + 1) * RECORD as usize);
        record.is_some_and(|record| record.iter().all(|byte| *byte == nth as u8 | 1))
    };
    let done = done.into_inner().expect("nobody panics with it");
    // `status` tells whole seconds.
    let limit = Duration::from_secs(unsent_s + 1);
    let old = |at: &Instant| killed.checked_duration_since(*at).is_some_and(|age| age > limit);
    let missing = done.iter().enumerate().filter(|(nth, at)| old(at) && !has(*nth)).count();
    Left {
        broken,
        acknowledged: done.len() as u64,
        found: (0..done.len()).filter(|nth| has(*nth)).count() as u64,
        missing: missing as u64,
        unsent_s,
    }
}

fn skip() -> bool {
    skip_without_fuse() || skip_without_block_devices() || skip_without(&["mkfs.ext4", "e2fsck", "debugfs"])
}

/// Loses so many caches, in order and in the default order, and shows what is left.
fn lose(times: usize, both: bool) {
    let mut random = Random::new(std::process::id().into());
    let mut broken = [0, 0];
    for nth in 0..times {
        for (which, destage) in ["ordered", "free"].into_iter().enumerate().take(1 + usize::from(both)) {
            let left = lose_cache(destage, 5 + random.below(200) as usize);
            println!(
                "{nth}: {destage}: {}, {} of {} transactions, {} missing that are older than {} s",
                if left.broken.is_some() { "broken" } else { "clean" },
                left.found,
                left.acknowledged,
                left.missing,
                left.unsent_s + 1
            );
            broken[which] += usize::from(left.broken.is_some());
            if destage == "ordered" {
                assert!(left.broken.is_none(), "{}", left.broken.unwrap_or_default());
                assert_eq!(left.missing, 0, "of {}, {} are there", left.acknowledged, left.found);
            }
        }
    }
    println!(
        "file systems that are broken: {} of {times} ordered, {} of {times} in the default order",
        broken[0], broken[1]
    );
}

#[test]
fn a_lost_cache_costs_seconds_and_not_the_file_system() {
    if !skip() {
        lose(2, false);
    }
}

#[test]
#[ignore = "takes more than two minutes: thirty caches of each order; run it by hand with --ignored --nocapture"]
fn thirty_lost_caches() {
    if !skip() {
        lose(30, true);
    }
}
