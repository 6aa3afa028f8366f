// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache that moves to another device, and a device of two that is removed, while clients write.
//!
//! The origin refuses writes, so that dirty data stays dirty. What happens at each single I/O is
//! tested in crates/proof (sweep `replace`, `remove-lead`, `remove-other`; torture).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use flashfront_serve::frontend::nbd::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Daemon, MIB, Volume, flashfront, must, output, show};
use crate::refusal::assert_refused;
use crate::told;
use crate::upgrade::upgraded;

/// Dirty data stays dirty.
pub(crate) const FROZEN: [&str; 2] = ["--inject", "origin:eio,op=write"];
/// Reads of the old device are slow, so that the copying has a middle.
const SLOW: [&str; 4] = ["--inject", "origin:eio,op=write", "--inject", "cache:stall,op=read,hold=5ms"];
/// So slow that two commands are done before the copying is, also on a busy machine.
const SLOWER: [&str; 4] = ["--inject", "origin:eio,op=write", "--inject", "cache:stall,op=read,hold=50ms"];
/// Blocks that are dirty, from the first block of the volume on.
const DIRTY: u64 = 400;
/// Blocks that were read, behind them.
const CLEAN: std::ops::Range<u64> = 1000..1400;
/// Blocks that a client writes again and again.
const BUSY: std::ops::Range<u64> = 2000..2064;

fn content(nth: u64, round: u64) -> [u8; 4096] {
    let mut block = [nth as u8 | 1; 4096];
    block[..8].copy_from_slice(&nth.to_le_bytes());
    block[8..16].copy_from_slice(&round.to_le_bytes());
    block
}

pub(crate) fn on_device(volume: &Volume, verb: [&str; 2], device: &Path) -> Command {
    let mut command = volume.ask_two(verb);
    command.arg(device);
    command
}

/// Makes some blocks dirty, and others clean.
pub(crate) fn fill(volume: &Volume) {
    let mut client = volume.connect();
    for nth in 0..DIRTY {
        client.write_at(nth * 4096, &content(nth, 0), false).expect("the daemon runs");
    }
    client.flush().expect("the daemon runs");
    for nth in CLEAN {
        client.read_at(nth * 4096, &mut [0; 4096]).expect("the daemon runs");
    }
}

/// The rounds of a block that a client wrote again and again: none is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounds {
    /// The last one that a FLUSH or FUA has acknowledged.
    durable: u64,
    /// The last one that was sent.
    sent: u64,
}

/// A client that writes until it is told to end, or until its daemon is gone.
pub(crate) struct Writer {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Rounds>>,
}

impl Writer {
    pub(crate) fn start(volume: &Volume) -> Self {
        let (over, client) = (Arc::new(AtomicBool::new(false)), volume.connect());
        let until = Arc::clone(&over);
        Self { over, thread: std::thread::spawn(move || write_rounds(client, &until)) }
    }

    /// Ends the client, which must have seen no error.
    pub(crate) fn end(self) -> Vec<Rounds> {
        self.over.store(true, Ordering::SeqCst);
        let rounds = self.thread.join().expect("no client notices");
        let all = rounds.iter().all(|block| block.durable == block.sent && block.sent > 0);
        assert!(all, "a client was told of an error: {rounds:?}");
        rounds
    }

    /// What was written before the daemon was killed.
    pub(crate) fn killed(self) -> Vec<Rounds> {
        self.over.store(true, Ordering::SeqCst);
        self.thread.join().expect("no client panics")
    }
}

fn write_rounds(mut client: Client, over: &AtomicBool) -> Vec<Rounds> {
    let mut rounds = vec![Rounds::default(); (BUSY.end - BUSY.start) as usize];
    for round in 1.. {
        for (nth, block) in BUSY.zip(&mut rounds) {
            block.sent = round;
            let fua = nth % 16 == 0;
            if client.write_at(nth * 4096, &content(nth, round), fua).is_err() {
                return rounds;
            }
            if fua {
                block.durable = round;
            }
        }
        if client.flush().is_err() {
            return rounds;
        }
        rounds.iter_mut().for_each(|block| block.durable = round);
        if over.load(Ordering::SeqCst) {
            break;
        }
    }
    rounds
}

/// Each block has what was written last, or after a kill something sent since.
#[track_caller]
pub(crate) fn assert_holds(volume: &Volume, rounds: &[Rounds]) {
    let mut client = volume.connect();
    let mut bytes = [0; 4096];
    for nth in 0..DIRTY {
        client.read_at(nth * 4096, &mut bytes).unwrap_or_else(|error| panic!("{error}\n{}", volume.stderr()));
        assert_eq!(bytes, content(nth, 0), "block {nth}\n{}", volume.stderr());
    }
    for (nth, block) in BUSY.zip(rounds) {
        client.read_at(nth * 4096, &mut bytes).unwrap_or_else(|error| panic!("{error}\n{}", volume.stderr()));
        let round = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
        assert!((block.durable..=block.sent).contains(&round), "block {nth}: {round} of {block:?}");
        assert_eq!(bytes, if round > 0 { content(nth, round) } else { [0; 4096] }, "block {nth}");
    }
}

/// The blocks that were read come from the cache.
#[track_caller]
fn assert_warm(volume: &Volume) {
    assert_missed_at_most(volume, 0);
}

/// The blocks that were read come from the cache, but for those of the last commit. A kill loses
/// that commit on a device that has not moved, too.
#[track_caller]
fn assert_warm_after_a_kill(volume: &Volume) {
    assert_missed_at_most(volume, 32);
}

#[track_caller]
pub(crate) fn assert_missed_at_most(volume: &Volume, most: u64) {
    let before = volume.gauge("read_misses");
    let mut client = volume.connect();
    for nth in CLEAN {
        client.read_at(nth * 4096, &mut [0; 4096]).expect("the daemon runs");
    }
    let missed = volume.gauge("read_misses") - before;
    assert!(missed <= most, "{missed} blocks have not moved along");
}

/// Runs a command while a client writes. Returns what the client wrote, and what the command says.
#[track_caller]
fn beside_a_writer(volume: &Volume, command: &mut Command) -> (Vec<Rounds>, String) {
    let writer = Writer::start(volume);
    let said = output(command);
    assert!(said.status.success(), "{}\n{}", show(&said), volume.stderr());
    (writer.end(), String::from_utf8(said.stdout).expect("UTF-8"))
}

#[track_caller]
fn assert_alone(volume: &Volume, on: &Path) {
    let status = volume.status();
    assert_eq!(status["mirror"], "none", "{status}");
    assert_eq!(status["cache_path"], on.display().to_string(), "{status}");
    assert_eq!(status["cache_devices"].as_array().map(Vec::len), Some(1), "{status}");
    assert_eq!(status["leaving_path"], Value::Null, "{status}");
}

#[track_caller]
pub(crate) fn assert_sound(cache: &Path) {
    let report = output(flashfront().arg("check").arg(cache).arg("--json"));
    let json: Value = serde_json::from_slice(&report.stdout).unwrap_or_else(|_| panic!("{}", show(&report)));
    assert_eq!(json["ok"], true, "{}: {json}", cache.display());
}

/// The device alone has everything after a kill of its daemon, clean data too.
#[track_caller]
fn assert_survives_a_kill(volume: &Volume, daemon: Daemon, device: &Path, rounds: &[Rounds]) {
    daemon.kill9();
    let daemon = Daemon::spawn(volume.serve_from(device).args(FROZEN), &volume.log);
    daemon.ready();
    assert_warm_after_a_kill(volume);
    assert_holds(volume, rounds);
    daemon.kill9();
    assert_sound(device);
}

/// A volume with dirty blocks and clean ones.
pub(crate) fn served(options: &[&str]) -> (Volume, Daemon) {
    served_by(1, options)
}

/// A volume with dirty blocks and clean ones, by so many threads.
pub(crate) fn served_by(threads: usize, options: &[&str]) -> (Volume, Daemon) {
    let mut volume = Volume::new(32, 64);
    volume.threads = threads;
    must(&mut volume.format());
    let daemon = Daemon::spawn(volume.serve().args(options), &volume.log);
    daemon.ready();
    fill(&volume);
    (volume, daemon)
}

/// Waits until that many blocks were copied, or the copying is over.
#[track_caller]
fn wait_copied(volume: &Volume, blocks: u64, replace: &mut Child) {
    let old = volume.cache.display().to_string();
    let mut begun = false;
    while replace.try_wait().expect("our child").is_none() {
        let status = volume.status();
        let copying = status["leaving_path"] != Value::Null || status["mirror"] != "none";
        begun |= copying;
        let is_there = copying && status["mirror_copied_blocks"].as_u64().is_some_and(|copied| copied >= blocks);
        if is_there || status["cache_path"] != old || begun && !copying {
            return;
        }
    }
}

#[test]
fn a_cache_moves_to_a_larger_device_warm_and_dirty() {
    let (volume, daemon) = served(&FROZEN);
    let new = volume.place.sparse("new.img", 48 * MIB);
    let before = volume.status();
    assert_eq!(before["blocks_dirty"], DIRTY, "{before}");
    let mut replace = on_device(&volume, ["cache", "replace"], &new);
    let (rounds, said) = beside_a_writer(&volume, replace.arg("--json"));
    let json: Value = serde_json::from_str(&said).expect("one line of JSON");
    assert!(json["done"] == true && json["seconds"].is_number(), "{json}");
    assert_alone(&volume, &new);
    let status = volume.status();
    assert_eq!(status["blocks_dirty"], DIRTY + BUSY.end - BUSY.start, "{status}");
    assert_eq!(status["corrupt_blocks"], 0, "{status}");
    assert_warm(&volume);
    assert_holds(&volume, &rounds);
    told::assert_log_is_told(&volume.stderr());
    daemon.kill9();

    // The old one is nobody's cache any more.
    assert_refused(&volume.place, &mut volume.serve_from(&volume.cache), &["no Flashfront cache"]);
    assert_sound(&new);
    let daemon = Daemon::spawn(volume.serve_from(&new).args(FROZEN), &volume.log);
    daemon.ready();
    assert_warm_after_a_kill(&volume);
    assert_holds(&volume, &rounds);
    // And back.
    must(on_device(&volume, ["cache", "replace"], &volume.cache).arg("--force"));
    assert_alone(&volume, &volume.cache);
    assert_warm(&volume);
    daemon.kill9();
    let daemon = Daemon::spawn(&mut volume.serve(), &volume.log);
    daemon.ready();
    assert_holds(&volume, &rounds);
    volume.drain();
    daemon.stop();
    assert_sound(&volume.cache);
}

/// The daemon was started by flags, which name the old device.
#[test]
fn a_program_that_takes_over_follows_the_cache_to_its_new_device() {
    let (volume, daemon) = served(&[]);
    let new = volume.place.sparse("new.img", 48 * MIB);
    must(&mut on_device(&volume, ["cache", "replace"], &new));
    for _ in 0..2 {
        upgraded(&volume);
        assert_eq!(volume.status()["cache_path"], new.display().to_string());
    }
    volume.drain();
    daemon.stop();
    assert_sound(&new);
}

#[test]
fn a_kill_leaves_the_old_device_or_the_new_one() {
    // From the first copied block to the moment when the old device leaves.
    for copied in [0, DIRTY / 2, DIRTY + 200, DIRTY + 400, u64::MAX] {
        let (volume, daemon) = served(&SLOW);
        let new = volume.place.sparse("new.img", 40 * MIB);
        let writer = Writer::start(&volume);
        let mut command = on_device(&volume, ["cache", "replace"], &new);
        let mut replace = command.stderr(Stdio::null()).spawn().expect("the program is there");
        wait_copied(&volume, copied, &mut replace);
        daemon.kill9();
        let rounds = writer.killed();
        let _: std::process::ExitStatus = replace.wait().expect("our child");
        let mut both = volume.serve_from(&volume.cache);
        both.arg("--mirror").arg(&new);
        let ways = [volume.serve_from(&volume.cache), volume.serve_from(&new), both];
        let served = ways.into_iter().any(|mut serve| {
            let daemon = Daemon::spawn(serve.args(FROZEN), &volume.log);
            let is_ready = daemon.is_ready();
            if is_ready {
                assert_holds(&volume, &rounds);
                daemon.kill9();
            }
            is_ready
        });
        assert!(served, "no device is the whole cache: {}", volume.stderr());
    }
}

#[test]
fn the_copying_is_ended_and_begun_again() {
    let (volume, daemon) = served(&SLOWER);
    let new = volume.place.sparse("new.img", 40 * MIB);
    let writer = Writer::start(&volume);
    let mut command = on_device(&volume, ["cache", "replace"], &new);
    let mut replace = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program is there");
    wait_copied(&volume, 1, &mut replace);
    // Another order is refused meanwhile.
    let second = output(&mut on_device(&volume, ["cache", "replace"], &volume.place.sparse("third.img", 40 * MIB)));
    assert!(!second.status.success() && show(&second).contains("is being filled already"), "{}", show(&second));
    // A stop ends the waiting alone; Ctrl-C would be ignored where the tests run in the background.
    kill_process(Pid::from_child(&replace), Signal::TERM).expect("our own child can be signalled");
    let said = replace.wait_with_output().expect("our child");
    assert!(!said.status.success() && show(&said).contains("the daemon goes on"), "{}", show(&said));
    must(&mut on_device(&volume, ["mirror", "remove"], &new));
    assert_alone(&volume, &volume.cache);
    must(on_device(&volume, ["cache", "replace"], &new).arg("--force"));
    assert_alone(&volume, &new);
    assert_holds(&volume, &writer.end());
    daemon.kill9();
    assert_sound(&new);
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let (volume, daemon) = served(&FROZEN);
    let (small, other) = (volume.place.sparse("small.img", 16 * MIB), volume.place.sparse("other.img", 32 * MIB));
    let its_origin = volume.place.sparse("origin-of-other.img", 32 * MIB);
    must(flashfront().arg("format").arg("--cache").arg(&other).arg("--origin").arg(&its_origin));
    let missing: PathBuf = volume.place.file("missing.img");
    let (link, alias) = (volume.place.file("link.img"), volume.place.file("alias.img"));
    std::os::unix::fs::symlink(&volume.cache, &link).expect("the folder is ours");
    std::fs::hard_link(&volume.cache, &alias).expect("the folder is ours");
    let before = std::fs::read(&other).expect("the file is ours");
    for (device, says) in [
        (&small, "at least as large"),
        (&volume.origin, "in use by this cache"),
        (&volume.cache, "in use by this cache"),
        (&link, "in use by this cache"),
        (&alias, "in use by this cache"),
        (&other, "--force"),
        (&missing, "missing.img"),
    ] {
        let refused = output(&mut on_device(&volume, ["cache", "replace"], device));
        assert!(!refused.status.success() && show(&refused).contains(says), "{}", show(&refused));
    }
    let refused = output(&mut on_device(&volume, ["mirror", "remove"], &volume.cache));
    assert!(show(&refused).contains("there is no mirror to remove"), "{}", show(&refused));
    assert!(before == std::fs::read(&other).expect("the file is ours"), "it was written to");
    assert_alone(&volume, &volume.cache);
    assert_holds(&volume, &[]);
    daemon.kill9();
}

#[test]
fn either_device_of_two_is_removed() {
    let (volume, daemon) = served(&FROZEN);
    let mirror = volume.place.sparse("mirror.img", 32 * MIB);
    must(&mut on_device(&volume, ["mirror", "add"], &mirror));
    for (device, says) in [(&volume.origin, "is no device of this cache"), (&volume.place.file("none"), "it is on ")] {
        let refused = output(&mut on_device(&volume, ["mirror", "remove"], device));
        assert!(!refused.status.success() && show(&refused).contains(says), "{}", show(&refused));
    }
    let refused = output(&mut on_device(&volume, ["cache", "replace"], &volume.place.file("none")));
    assert!(show(&refused).contains("the cache is on two devices"), "{}", show(&refused));
    let (_, said) = beside_a_writer(&volume, &mut on_device(&volume, ["mirror", "remove"], &mirror));
    assert!(said.contains("removed: "), "{said}");
    assert_alone(&volume, &volume.cache);
    // The lead: the other one gets clean data first.
    must(on_device(&volume, ["mirror", "add"], &mirror).arg("--force"));
    let (rounds, _) = beside_a_writer(&volume, &mut on_device(&volume, ["mirror", "remove"], &volume.cache));
    assert_alone(&volume, &mirror);
    assert_warm(&volume);
    assert_survives_a_kill(&volume, daemon, &mirror, &rounds);
}

#[test]
fn the_other_device_of_two_leads_and_the_old_lead_may_go() {
    let (volume, daemon) = served(&SLOW);
    let mirror = volume.place.sparse("mirror.img", 32 * MIB);
    let refused = output(&mut on_device(&volume, ["mirror", "promote"], &mirror));
    assert!(!refused.status.success() && show(&refused).contains("the cache is on one device"), "{}", show(&refused));
    must(&mut on_device(&volume, ["mirror", "add"], &mirror));
    for (device, says) in [(&volume.origin, "is no device of this cache"), (&volume.cache, "leads already")] {
        let refused = output(&mut on_device(&volume, ["mirror", "promote"], device));
        assert!(!refused.status.success() && show(&refused).contains(says), "{}", show(&refused));
    }
    let (_, said) = beside_a_writer(&volume, on_device(&volume, ["mirror", "promote"], &mirror).arg("--json"));
    let json: Value = serde_json::from_str(&said).expect("one line of JSON");
    assert!(json["done"] == true && json["seconds"].is_number(), "{json}");
    let status = volume.status();
    assert_eq!((&status["cache_path"], &status["mirror"]), (&mirror.display().to_string().into(), &"whole".into()));
    assert_eq!(status["mirror_path"], volume.cache.display().to_string(), "{status}");
    assert_warm(&volume);
    let (rounds, _) = beside_a_writer(&volume, &mut on_device(&volume, ["mirror", "remove"], &volume.cache));
    assert_alone(&volume, &mirror);
    assert_warm(&volume);
    assert_survives_a_kill(&volume, daemon, &mirror, &rounds);
}

#[test]
fn a_kill_leaves_either_device_as_the_lead() {
    for copied in [0, 200, 390, u64::MAX] {
        let (volume, daemon) = served(&SLOW);
        let mirror = volume.place.sparse("mirror.img", 32 * MIB);
        must(&mut on_device(&volume, ["mirror", "add"], &mirror));
        let writer = Writer::start(&volume);
        let mut command = on_device(&volume, ["mirror", "promote"], &mirror);
        let mut promote = command.stderr(Stdio::null()).spawn().expect("the program is there");
        while promote.try_wait().expect("our child").is_none() {
            let status = volume.status();
            if status["promoting_path"] != Value::Null && status["mirror_copied_blocks"].as_u64() >= Some(copied) {
                break;
            }
        }
        daemon.kill9();
        let rounds = writer.killed();
        let _: std::process::ExitStatus = promote.wait().expect("our child");
        let mut both = volume.serve_from(&volume.cache);
        let daemon = Daemon::spawn(both.arg("--mirror").arg(&mirror).args(FROZEN), &volume.log);
        daemon.ready();
        assert_holds(&volume, &rounds);
        daemon.kill9();
    }
}
