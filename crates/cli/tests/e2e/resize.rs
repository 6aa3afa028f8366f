// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache that becomes larger and smaller while clients are served. No client sees an error, and
//! all dirty data stays.
//!
//! Where a power cut can come between two writes of the change is tested in crates/serve
//! (`offline/grow.rs`, `offline/shrink/tests.rs`). Here the daemon is killed.

use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};

use flashfront_serve::frontend::nbd::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::attach::killed_at;
use crate::harness::{Daemon, MIB, Random, Volume, flashfront, must, output, show, skip_without, tool};
use crate::refusal::assert_refused;
use crate::replace::{
    FROZEN, Writer, assert_holds, assert_missed_at_most, assert_sound, fill, on_device, served, served_by,
};
use crate::told;

/// The size of the caches here, and a larger one.
const USUAL: u64 = 32;
const LARGE: u64 = 64;
/// Blocks that [`fill`] leaves dirty.
const DIRTY: u64 = 400;
/// What a client writes here, in parts: less than begins to be bypassed at once.
const PART: u64 = MIB / 2;
const PARTS: u64 = 12;
/// Where these begin: behind what others write.
const FIRST: u64 = 32 * MIB;
/// Clients that write without a pause, and what each writes at once, at random.
const FLOODS: u64 = 4;
const FLOODED: u64 = 64 << 10;
const STEPS: [&str; 3] = ["to get another size", "replayed in", "the cache has"];

fn set_device(volume: &Volume, mib: u64) {
    let device = File::options().write(true).open(&volume.cache).expect("the file is ours");
    device.set_len(mib * MIB).expect("the file is ours");
}

pub(crate) fn shrink_command(volume: &Volume, mib: u64) -> Command {
    let mut command = volume.ask_two(["cache", "shrink"]);
    command.arg(format!("{mib}MiB"));
    command
}

/// Runs a command that changes the size, and sees how many blocks the cache has before and after.
#[track_caller]
fn resized(volume: &Volume, command: &mut Command) -> (u64, u64) {
    let before = volume.gauge("capacity_blocks");
    let said = must(command.arg("--json"));
    let json: Value = serde_json::from_str(&said).expect("one line of JSON");
    assert!(json["done"] == true && json["seconds"].is_number(), "{json}");
    (before, volume.gauge("capacity_blocks"))
}

/// Makes the device larger, and the cache.
#[track_caller]
pub(crate) fn grow(volume: &Volume, mib: u64) {
    set_device(volume, mib);
    let (before, after) = resized(volume, &mut volume.ask_two(["cache", "grow"]));
    assert!(before < after && after < mib * 256, "{before} blocks, then {after} of {mib} MiB");
}

/// Makes the cache smaller, and its device.
#[track_caller]
pub(crate) fn shrink(volume: &Volume, mib: u64) {
    let (before, after) = resized(volume, &mut shrink_command(volume, mib));
    assert!(after < before && after < mib * 256, "{before} blocks, then {after} of {mib} MiB");
    set_device(volume, mib);
}

#[track_caller]
fn refuses(volume: &Volume, command: &mut Command, says: &str) {
    let refused = output(command);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains(says), "{says}: {}", show(&refused));
    assert!(told::is_told(&said), "docs/trouble/messages/ has no entry for {said}");
    assert_eq!(volume.status()["cache_failed"], false);
}

/// A volume whose origin refuses writes, so that what is dirty stays dirty.
fn frozen(threads: usize) -> (Volume, Daemon) {
    let (mut volume, daemon) = served_by(threads, &FROZEN);
    volume.options = FROZEN.to_vec();
    (volume, daemon)
}

#[test]
fn clients_stay_connected_while_the_cache_grows_and_shrinks() {
    stay_connected(1);
}

#[test]
fn clients_of_several_threads_stay_connected_while_the_cache_grows_and_shrinks() {
    stay_connected(4);
}

fn stay_connected(threads: usize) {
    let (mut volume, daemon) = frozen(threads);
    let writer = Writer::start(&volume);
    for round in 0..4 {
        grow(&volume, LARGE + 8 * round);
        shrink(&volume, 48);
        shrink(&volume, USUAL + 2 * round);
        let status = volume.status();
        assert!(status["blocks_dirty"].as_u64() >= Some(DIRTY), "{status}");
        assert_eq!((&status["volumes"][0]["clients"], &status["corrupt_blocks"]), (&1.into(), &0.into()), "{status}");
    }
    let rounds = writer.end();
    assert_holds(&volume, &rounds);
    told::assert_log_is_told(&volume.stderr());
    daemon.kill9();
    let daemon = Daemon::spawn(&mut volume.serve(), &volume.log);
    daemon.ready();
    assert_holds(&volume, &rounds);
    assert!(volume.gauge("blocks_dirty") >= DIRTY, "what is dirty is still there");
    daemon.kill9();
    // An origin that takes writes again gets everything.
    volume.options.clear();
    let daemon = Daemon::spawn(&mut volume.serve(), &volume.log);
    daemon.ready();
    volume.drain();
    assert_holds(&volume, &rounds);
    daemon.stop();
    assert_sound(&volume.cache);
}

#[test]
fn what_is_warm_stays_warm() {
    let (volume, daemon) = served(&FROZEN);
    grow(&volume, LARGE);
    assert_missed_at_most(&volume, 0);
    // All that is clean has room in half of it.
    shrink(&volume, USUAL);
    assert_missed_at_most(&volume, 0);
    assert_holds(&volume, &[]);
    daemon.kill9();
    assert_sound(&volume.cache);
}

#[test]
fn fio_verifies_while_the_cache_grows_and_shrinks() {
    verify_with_fio(1);
}

#[test]
fn fio_verifies_while_the_cache_grows_and_shrinks_with_several_threads() {
    verify_with_fio(2);
}

fn verify_with_fio(threads: usize) {
    if skip_without(&["fio"]) {
        return;
    }
    let mut volume = Volume::new(48, 64);
    volume.threads = threads;
    must(&mut volume.format());
    volume.start();
    let mut command = tool("fio");
    command.args(["--name=v", "--ioengine=nbd", "--rw=randwrite", "--iodepth=16", "--verify=crc32c"]);
    command.args(["--bssplit=512/20:4k/50:64k/20:1m/10", "--size=48m", "--loops=2", "--verify_backlog=64"]);
    command.arg(format!("--uri={}", volume.uri())).current_dir(volume.place.dir());
    let (done, mut rounds) = (AtomicBool::new(false), 0);
    let fio = thread::scope(|scope| {
        let running = scope.spawn(|| {
            let output = output(&mut command);
            done.store(true, Ordering::SeqCst);
            output
        });
        while !done.load(Ordering::SeqCst) || rounds < 2 {
            grow(&volume, 80);
            shrink(&volume, 48);
            rounds += 1;
        }
        running.join().expect("fio has ended")
    });
    assert!(fio.status.success(), "{}\n{}", show(&fio), volume.stderr());
    println!("{rounds} rounds of growth and shrinking under fio");
    volume.stop();
    volume.assert_sound();
}

/// Kills the daemon at each step of `order`, and after ever longer times until the order is carried
/// out before that. `again` is what an operator does when the cache is served again.
fn kill_at_steps(prepare: fn(&Volume), order: fn(&Volume) -> Command, again: fn(&Volume)) {
    let kill = |words, polls, threads| {
        let (volume, daemon) = frozen(threads);
        prepare(&volume);
        let before = volume.gauge("capacity_blocks");
        let (with_cache, daemon) = killed_at(&volume, daemon, order(&volume), words, polls);
        assert!(with_cache, "no start takes the cache: {}", volume.stderr());
        let status = volume.status();
        let is_changed = status["capacity_blocks"] != before;
        println!("{words:?} {polls}: has its new size: {is_changed}");
        assert!(status["blocks_dirty"].as_u64() >= Some(DIRTY), "{status}");
        again(&volume);
        assert_holds(&volume, &[]);
        assert!(volume.gauge("blocks_dirty") >= DIRTY, "what is dirty is still there");
        daemon.kill9();
        assert_sound(&volume.cache);
        is_changed
    };
    for words in STEPS {
        kill(Some(words), 0, 2);
    }
    let (mut polls, mut threads) = (10_000, 1);
    while !kill(None, polls, threads) {
        polls += polls / 4;
        threads = 3 - threads;
    }
}

#[test]
fn a_kill_at_any_step_of_a_growth_loses_nothing() {
    let order = |volume: &Volume| volume.ask_two(["cache", "grow"]);
    let again = |volume: &Volume| {
        let mut command = volume.ask_two(["cache", "grow"]);
        if volume.gauge("capacity_blocks") < USUAL * 256 {
            must(&mut command);
        } else {
            refuses(volume, &mut command, "uses all of its device");
        }
        assert!(volume.gauge("capacity_blocks") > USUAL * 256);
    };
    kill_at_steps(|volume| set_device(volume, LARGE), order, again);
}

#[test]
fn a_kill_at_any_step_of_a_shrink_loses_nothing() {
    let again = |volume: &Volume| {
        must(&mut shrink_command(volume, USUAL));
        assert!(volume.gauge("capacity_blocks") < USUAL * 256);
        set_device(volume, USUAL);
    };
    // Something dirty lies beyond the new end, which has to move.
    let prepare = |volume: &Volume| {
        grow(volume, LARGE);
        fill(volume);
    };
    kill_at_steps(prepare, |volume| shrink_command(volume, USUAL), again);
}

#[test]
fn what_is_not_possible_is_refused_and_clients_go_on() {
    let (volume, daemon) = frozen(1);
    let writer = Writer::start(&volume);
    let capacity = volume.gauge("capacity_blocks");
    let grow = || volume.ask_two(["cache", "grow"]);
    let set = |what: [&str; 2]| must(volume.ask("set").args(what));
    let share = |size: &str| must(volume.ask_two(["volume", "set"]).args(["data", "--share-min", size]));
    refuses(&volume, &mut grow(), "the cache uses all of its device, 32 MiB; make the device larger first");
    File::options().write(true).open(&volume.cache).and_then(|it| it.set_len(USUAL * MIB + 4096)).expect("it is ours");
    refuses(&volume, &mut grow(), "the device has 4 KiB more than its cache, too little");
    set_device(&volume, USUAL);
    refuses(&volume, &mut shrink_command(&volume, 40), "the cache has 32 MiB, and can't shrink to 40 MiB");
    refuses(&volume, &mut shrink_command(&volume, 4), "the smallest that it can have now is");
    share("14MiB");
    refuses(&volume, &mut shrink_command(&volume, 28), "the smallest parts of the volumes, 14 MiB, would be more");
    share("none");
    set(["--dirty-limit", "26MiB"]);
    refuses(&volume, &mut shrink_command(&volume, 28), "the dirty limit 26 MiB can't be kept");
    set(["--dirty-limit", "50%"]);
    for verb in ["grow", "shrink"] {
        let mut both = volume.ask_two(["cache", verb]);
        both.args((verb == "shrink").then_some("28MiB")).arg("--cache").arg(&volume.cache);
        refuses(&volume, &mut both, "cannot be used with");
        // The daemon has it.
        let mut stopped = flashfront();
        stopped.args(["cache", verb]).args((verb == "shrink").then_some("28MiB")).arg("--cache").arg(&volume.cache);
        refuses(&volume, &mut stopped, "in use");
    }
    let mirror = volume.place.sparse("mirror.img", USUAL * MIB);
    must(&mut on_device(&volume, ["mirror", "add"], &mirror));
    refuses(&volume, &mut grow(), "the cache is on two devices");
    refuses(&volume, &mut shrink_command(&volume, 28), "the cache is on two devices");
    must(&mut on_device(&volume, ["mirror", "remove"], &mirror));
    assert_eq!(volume.gauge("capacity_blocks"), capacity);
    assert_holds(&volume, &writer.end());
    daemon.kill9();
    assert_sound(&volume.cache);
}

#[test]
fn what_is_dirty_and_has_no_room_keeps_the_cache_as_it_is() {
    let (volume, daemon) = frozen(1);
    grow(&volume, LARGE);
    must(volume.ask("set").args(["--dirty-limit", "87%", "--sequential-bypass", "0B"]));
    let mut client = volume.connect();
    for nth in 0..30 {
        client.write_at((24 + nth) * MIB, &vec![nth as u8 + 1; MIB as usize], true).expect("the daemon runs");
    }
    let before = volume.status();
    refuses(&volume, &mut shrink_command(&volume, USUAL), "can't be kept");
    let after = volume.status();
    for key in ["capacity_blocks", "blocks_dirty"] {
        assert_eq!(before[key], after[key], "{key}");
    }
    // The client of before is still connected.
    let mut bytes = vec![0; MIB as usize];
    for nth in 0..30 {
        client.read_at((24 + nth) * MIB, &mut bytes).expect("the client stays connected");
        assert!(bytes.iter().all(|byte| *byte == nth as u8 + 1), "the MiB {nth}");
    }
    assert_holds(&volume, &[]);
    daemon.kill9();
    assert_sound(&volume.cache);
}

#[test]
fn what_the_options_of_serve_exclude_is_refused() {
    let (volume, daemon) = served(&[]);
    must(volume.ask_two(["cache", "detach"]).arg("--json"));
    let both = || [volume.ask_two(["cache", "grow"]), shrink_command(&volume, 24)];
    both().iter_mut().for_each(|command| refuses(&volume, command, "the volumes are served without a cache"));
    daemon.stop();
    let daemon = Daemon::spawn(volume.serve_from(&volume.cache).arg("--disposable-cache"), &volume.log);
    daemon.ready();
    let says = "with --disposable-cache each start makes a cache of the whole device";
    both().iter_mut().for_each(|command| refuses(&volume, command, says));
    daemon.stop();
    let daemon = Daemon::spawn(volume.serve().args(["--dirty-limit", "26MiB"]), &volume.log);
    daemon.ready();
    refuses(&volume, &mut shrink_command(&volume, 28), "the dirty limit 26 MiB can't be kept");
    daemon.stop();
    let nobody = "no daemon answers";
    both().iter_mut().for_each(|command| assert_refused(&volume.place, command, &[nobody]));
}

/// A volume with much that is clean, and something dirty. What is dirty can't be moved.
fn destaged_first(lanes: usize, options: &[&'static str]) {
    let mut volume = Volume::new(LARGE, 64);
    (volume.lanes, volume.options) = (lanes, options.to_vec());
    must(&mut volume.format());
    volume.start();
    fill(&volume);
    let writer = Writer::start(&volume);
    shrink(&volume, 56);
    assert_eq!(volume.status()["draining"], false, "what is written from now on stays in the cache");
    if lanes > 1 {
        let missed = volume.gauge("read_misses");
        volume.connect().read_at(1000 * 4096, &mut [0; 4096]).expect("the daemon runs");
        assert!(volume.gauge("read_misses") > missed, "it begins cold");
    } else {
        assert_missed_at_most(&volume, 0);
    }
    grow(&volume, LARGE + 16);
    shrink(&volume, 56);
    let rounds = writer.end();
    assert_holds(&volume, &rounds);
    volume.kill9();
    volume.assert_sound();
    volume.start();
    assert_holds(&volume, &rounds);
    assert_eq!(volume.status()["lanes"], lanes);
    volume.drain();
    volume.stop();
    volume.assert_sound();
}

#[test]
fn a_cache_of_several_lanes_is_destaged_first_and_begins_cold() {
    destaged_first(2, &[]);
}

#[test]
fn a_cache_with_ordered_destage_is_destaged_first_and_stays_warm() {
    destaged_first(1, &["--destage", "ordered"]);
}

/// A cache whose log has gone beyond the middle: what is live is there. No stream is long enough
/// to go past the cache.
pub(crate) fn used(options: &[&str]) -> (Volume, Daemon) {
    let (volume, daemon) = served(options);
    grow(&volume, 96);
    let mut client = volume.connect();
    for round in 1..=12_u8 {
        for nth in 0..PARTS {
            let at = FIRST + nth * 5 % PARTS * PART;
            client.write_at(at, &[round; PART as usize], false).expect("the daemon runs");
        }
    }
    (volume, daemon)
}

#[track_caller]
pub(crate) fn assert_used(volume: &Volume, client: &mut Client) {
    let mut bytes = vec![0; PART as usize];
    for nth in 0..PARTS {
        client.read_at(FIRST + nth * PART, &mut bytes).expect("the client stays connected");
        assert!(bytes.iter().all(|byte| *byte == 12), "part {nth}: {}", volume.stderr());
    }
}

/// What lies beyond the new end is moved before it while clients write.
#[test]
fn what_lies_beyond_the_new_end_is_moved_before_it() {
    let (volume, daemon) = used(&[]);
    let (writer, mut client) = (Writer::start(&volume), volume.connect());
    shrink(&volume, 48);
    let status = volume.status();
    assert_eq!(status["left_in_end_blocks"], Value::Null, "{status}");
    let before = volume.gauge("read_misses");
    assert_used(&volume, &mut client);
    let missed = volume.gauge("read_misses") - before;
    assert!(missed < PARTS * PART / 4096 / 10, "{missed} blocks have not moved along");
    assert_holds(&volume, &writer.end());
    daemon.stop();
    assert_sound(&volume.cache);
}

/// Clients write all the time, each as fast as it can, and faster than the origin takes it. The
/// shrink ends beside them.
#[test]
fn a_cache_shrinks_beside_writers_that_never_pause() {
    let mut volume = Volume::new(96, 64);
    volume.options = vec!["--inject", "origin:stall,op=write,hold=5ms"];
    must(&mut volume.format());
    volume.start();
    let (over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let parts = 64 * MIB / FLOODED / FLOODS;
    let flood = |nth: u64, mut client: Client| {
        let (mut random, mut rounds) = (Random::new(nth), vec![0_u8; parts as usize]);
        while !over.load(Ordering::SeqCst) {
            let part = random.below(parts);
            let round = &mut rounds[part as usize];
            *round = round.wrapping_add(1);
            let at = (nth * parts + part) * FLOODED;
            client.write_at(at, &[*round; FLOODED as usize], false).expect("no client notices");
            written.fetch_add(FLOODED, Ordering::SeqCst);
        }
        client.flush().expect("no client notices");
        rounds
    };
    let rounds: Vec<Vec<u8>> = thread::scope(|scope| {
        let start = |nth| {
            scope.spawn({
                let (flood, client) = (&flood, volume.connect());
                move || flood(nth, client)
            })
        };
        let floods: Vec<_> = (0..FLOODS).map(start).collect();
        // All of the log was in use once.
        while written.load(Ordering::SeqCst) < 128 * MIB {
            assert!(!floods.iter().any(ScopedJoinHandle::is_finished), "{}", volume.stderr());
            thread::yield_now();
        }
        shrink(&volume, 48);
        over.store(true, Ordering::SeqCst);
        floods.into_iter().map(|it| it.join().expect("no client notices")).collect()
    });
    let (mut client, mut bytes) = (volume.connect(), vec![0; FLOODED as usize]);
    for (nth, round) in rounds.concat().into_iter().enumerate() {
        client.read_at(nth as u64 * FLOODED, &mut bytes).expect("the volume can be read");
        assert!(bytes.iter().all(|byte| *byte == round), "part {nth} is not of round {round}");
    }
    volume.kill9();
    volume.assert_sound();
}

/// A signal ends the emptying: the cache keeps its size.
#[test]
fn a_signal_while_the_end_is_emptied_leaves_the_cache_as_it_was() {
    let (volume, daemon) = used(&["--inject", "cache:stall,op=read,hold=50ms"]);
    let (before, mut client) = (volume.gauge("capacity_blocks"), volume.connect());
    let mut command = shrink_command(&volume, 48);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program is there");
    while volume.status()["left_in_end_blocks"] == Value::Null {
        assert!(child.try_wait().expect("our child").is_none(), "it ended: {}", volume.stderr());
    }
    kill_process(Pid::from_child(&child), Signal::TERM).expect("our own child can be signalled");
    let ended = child.wait_with_output().expect("our child");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("the cache keeps its size"), "{}", show(&ended));
    assert!(told::is_told(&said), "{said}");
    let status = volume.status();
    assert_eq!((&status["left_in_end_blocks"], &status["capacity_blocks"]), (&Value::Null, &before.into()), "{status}");
    assert_used(&volume, &mut client);
    assert_holds(&volume, &[]);
    daemon.kill9();
}
