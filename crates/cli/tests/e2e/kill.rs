// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kill -9` at random moments, again and again, under clients that record what was acknowledged.
//!
//! A crash of the process is not one of the machine: what the kernel has taken survives. Power
//! cuts are the simulation's business; here the real binary must come back by itself each time.

use std::fmt::Display;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use flashfront_serve::frontend::nbd::{Client, ClientError};

use crate::harness::{MIB, Random, Volume, must, skip_without, tool};
use crate::stamps::{Record, SECTOR};
use crate::writers::{Answered, Disk, lock, write_until_over};

const KILLS: u64 = 36;
const WRITERS: u64 = 3;
/// Each writer's part of the disk. All parts together are more than the cache holds.
const PART_SECTORS: u64 = 16 * MIB / SECTOR as u64;
const CACHE_MIB: u64 = 32;
const ORIGIN_MIB: u64 = 64;

/// What the daemon may be started with, each as often as not: a cache must come back whatever it
/// was served with before.
const OPTIONS: [&[&str]; 7] = [
    &["--mode=writeback", "--mode=writeback", "--mode=writethrough", "--mode=writearound", "--mode=passthrough"],
    &["--policy=fifo", "--policy=reinsert"],
    &["--dirty-limit=2MiB", "--dirty-limit=10%"],
    &["--max-dirty-age=1s"],
    &["--ram-front-bytes=8MiB"],
    &["--read-around=0B", "--read-around=256KiB"],
    &["--sequential-bypass=0B", "--sequential-bypass=64KiB"],
];

/// When the daemon is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// While clients write.
    Writing,
    /// While it starts: in the middle of replay, or just before or after.
    Starting,
    /// While it drains under clients that write.
    Draining,
    /// While it stops after SIGTERM.
    Stopping,
}

#[test]
fn flushed_writes_survive_kill_9() {
    // Another seed for each run; the one of a failure is in its message.
    let seed = std::env::var("FLASHFRONT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed: FLASHFRONT_SEED={seed}");
    let mut random = Random::new(seed);
    let mut volume = Volume::new(CACHE_MIB, ORIGIN_MIB);
    volume.lanes = 2;
    must(&mut volume.format());
    let records: Vec<_> =
        (0..WRITERS).map(|nth| Mutex::new(Record::new(seed, nth * PART_SECTORS, PART_SECTORS))).collect();

    for round in 0..KILLS {
        let moment = match round % 9 {
            2 => Moment::Draining,
            4 | 7 => Moment::Starting,
            5 => Moment::Stopping,
            _ => Moment::Writing,
        };
        let wait = Duration::from_micros(random.below(3_000));
        (volume.threads, volume.lane_threads) = (1 + round as usize % 3, 1 + round as usize / 3 % 2);
        volume.options = options(&mut random);
        if moment == Moment::Starting {
            let daemon = volume.spawn();
            thread::sleep(wait * 10); // pacing: a random moment of the start
            daemon.kill9();
        } else {
            volume.start();
            write_until_killed(&mut volume, &records, moment, random.next(), wait);
        }
        volume.start();
        for record in &records {
            verify_after_crash(
                &volume,
                &mut lock(record),
                &format!("seed {seed}, kill {round}, {moment:?}, {:?}", volume.options),
            );
        }
        // Every third time the next daemon finds a cache that was stopped well.
        if round % 3 == 0 { volume.stop() } else { volume.kill9() }
    }

    volume.assert_sound();
    volume.start();
    volume.drain();
    volume.stop();
    volume.assert_sound();
    let origin = std::fs::read(&volume.origin).expect("the origin can be read");
    for record in &records {
        let record = lock(record);
        let from = record.first() as usize * SECTOR;
        let bytes = &origin[from..from + record.sectors() as usize * SECTOR];
        let wrong = record.wrong_alive(record.first(), bytes);
        assert!(wrong.is_none(), "seed {seed}, the origin alone: {wrong:?}");
    }
}

/// A choice of [`OPTIONS`].
fn options(random: &mut Random) -> Vec<&'static str> {
    let mut chosen = Vec::new();
    for all in OPTIONS {
        if random.below(2) == 0 {
            chosen.push(all[random.below(all.len() as u64) as usize]);
        }
    }
    chosen
}

/// Writers write; after a random number of acknowledged requests the daemon is killed.
fn write_until_killed(volume: &mut Volume, records: &[Mutex<Record>], moment: Moment, seed: u64, wait: Duration) {
    let answered = Answered::default();
    let goal = 1 + seed % 600;
    let clients: Vec<Client> = records.iter().map(|_| volume.connect()).collect();
    thread::scope(|scope| {
        for (nth, mut client) in clients.into_iter().enumerate() {
            let answered = &answered;
            let mut random = Random::new(seed ^ nth as u64);
            scope.spawn(move || {
                // It ends with an error, since the daemon is killed or stops.
                let written = write_until_over(&mut client, records, nth, &mut random, answered);
                let error = written.expect_err("nobody says that it is over");
                answered.gone();
                match error {
                    ClientError::Io(_) | ClientError::Failed(_) => {}
                    other => panic!("seed {seed}: {other}"),
                }
            });
        }
        answered.wait_for(goal);
        let mut drain = None;
        match moment {
            Moment::Draining => {
                let mut command = volume.ask("drain");
                command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
                drain = Some(command.spawn().expect("flashfront can be started"));
            }
            Moment::Stopping => volume.signal(rustix::process::Signal::TERM),
            Moment::Writing | Moment::Starting => {}
        }
        thread::sleep(wait); // pacing: a random moment of the work
        volume.kill9();
        if let Some(mut drain) = drain {
            drain.wait().expect("our own child can be waited for");
        }
    });
}

/// All that was durable must be there, and nothing that never was written. It is made durable, so
/// that it must be there from now on.
pub(crate) fn verify_after_crash(volume: &Volume, record: &mut Record, when: &str) {
    verify_disk(&mut volume.connect(), record, when, || volume.stderr());
}

/// Does that with any disk. `log` is what the daemon has said.
pub(crate) fn verify_disk<D: Disk>(disk: &mut D, record: &mut Record, when: &str, log: impl Fn() -> String)
where
    D::Error: Display,
{
    let mut bytes = vec![0; record.sectors() as usize * SECTOR];
    for (nth, piece) in bytes.chunks_mut(MIB as usize).enumerate() {
        let offset = record.first() * SECTOR as u64 + nth as u64 * MIB;
        disk.read_at(offset, piece).unwrap_or_else(|error| panic!("{when}: {error}\n{}", log()));
    }
    let wrong = record.wrong_after_crash(record.first(), &bytes);
    assert!(wrong.is_none(), "{when}: {}\n{}", wrong.unwrap_or_default(), log());
    disk.flush().unwrap_or_else(|error| panic!("{when}: {error}"));
    record.adopt(record.first(), &bytes);
}

#[test]
fn a_file_system_survives_kill_9() {
    if skip_without(&["mkfs.ext4", "e2fsck", "nbdcopy"]) {
        return;
    }
    let mut volume = Volume::new(CACHE_MIB, 8 * CACHE_MIB);
    must(&mut volume.format());
    let image = volume.place.sparse("image.img", 8 * CACHE_MIB * MIB);
    must(tool("mkfs.ext4").args(["-q", "-F", "-d"]).arg(crate::existing_data::sources()).arg(&image));
    volume.start();
    must(tool("nbdcopy").arg("--flush").arg(&image).arg(volume.uri()));
    volume.kill9();
    volume.start();
    volume.assert_serves(&image);
    volume.drain();
    volume.stop();
    volume.assert_sound();
    must(tool("e2fsck").arg("-fn").arg(&volume.origin));
    crate::harness::assert_same(&volume.origin, &image);
}
