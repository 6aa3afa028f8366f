// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront upgrade`: another program takes a daemon's place under clients that write, and no
//! client sees an error. Programs that refuse, fail, or are killed cost nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flashfront_serve::frontend::nbd::{Client, Listen, connect};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Daemon, MIB, Random, Volume, flashfront, must, output, show, skip_without, tool};
use crate::kill::verify_after_crash;
use crate::stamps::{Record, SECTOR};
use crate::writers::{Answered, lock, write_until_over};

pub(crate) const WRITERS: u64 = 3;
/// Each writer's part of the disk. All parts together are more than the cache holds.
const PART_SECTORS: u64 = 16 * MIB / SECTOR as u64;
pub(crate) const CACHE_MIB: u64 = 32;
pub(crate) const ORIGIN_MIB: u64 = 64;
/// Requests between two upgrades.
const BETWEEN: u64 = 300;

pub(crate) fn records(seed: u64) -> Vec<Mutex<Record>> {
    (0..WRITERS).map(|nth| Mutex::new(Record::new(seed, nth * PART_SECTORS, PART_SECTORS))).collect()
}

/// Upgrades, which must succeed; what it says.
#[track_caller]
pub(crate) fn upgraded(volume: &Volume) -> Value {
    let text = must(volume.ask("upgrade").arg("--json"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("upgrade says no JSON, {error}: {text}"))
}

/// Upgrades to a program that can't take over; the message.
#[track_caller]
pub(crate) fn refused(volume: &Volume, program: &Path) -> String {
    let output = output(volume.ask("upgrade").arg("--program").arg(program));
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A program: a script that may start the real one, as `$FLASHFRONT`.
pub(crate) fn script(volume: &Volume, name: &str, text: &str) -> PathBuf {
    let path = volume.place.file(name);
    let real = flashfront().get_program().to_owned();
    fs::write(&path, format!("#!/bin/bash\nFLASHFRONT={real:?}\n{text}\n")).expect("a file can be written here");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    path
}

/// A program that is killed so many milliseconds after it said that it can take over. From then on
/// it is handed the clients.
pub(crate) fn killed_after(volume: &Volume, wait_ms: u64) -> PathBuf {
    let (seconds, ms) = (wait_ms / 1000, wait_ms % 1000);
    let told = format!("told() {{ grep -c 'is ready to take over' {:?}; }}\nbefore=$(told)", volume.log);
    let start = "exec 3<&0\n\"$FLASHFRONT\" \"$@\" <&3 & pid=$!\nexec 3<&- 0<&-";
    let until = "while [ \"$(told)\" = \"$before\" ] && kill -0 $pid; do :; done";
    // pacing: a random moment of the hand-over
    let text = format!("{told}\n{start}\n{until}\nsleep {seconds}.{ms:03}\nkill -9 $pid\nwait $pid 2>/dev/null");
    script(volume, "killed", &text)
}

/// Reads small pieces of what nobody writes until it is over; the longest that a read took.
fn longest_read(client: &mut Client, over: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !over.load(Ordering::SeqCst) {
        let began = Instant::now();
        client.read_at((ORIGIN_MIB - 1) * MIB, &mut [0; 4096]).expect("a client sees no error");
        longest = longest.max(began.elapsed());
    }
    longest
}

#[test]
fn clients_stay_connected_over_upgrades_and_failed_ones() {
    stay_connected(1);
}

#[test]
fn clients_of_several_threads_stay_connected_over_upgrades_and_failed_ones() {
    stay_connected(2);
}

fn stay_connected(threads: usize) {
    let seed = u64::from(std::process::id());
    let mut volume = Volume::new(CACHE_MIB, ORIGIN_MIB);
    volume.threads = threads;
    must(&mut volume.format());
    volume.start();
    let fails = script(&volume, "fails", "exit 3");
    let dies = script(&volume, "dies", "head -n 1 >/dev/null; kill -9 $$");
    let (records, answered, over) = (records(seed), Answered::default(), AtomicBool::new(false));
    let clients: Vec<Client> = records.iter().map(|_| volume.connect()).collect();
    let mut prober = volume.connect();
    let mut paused = Vec::new();
    let longest = thread::scope(|scope| {
        let probing = scope.spawn(|| longest_read(&mut prober, &over));
        for (nth, mut client) in clients.into_iter().enumerate() {
            let (answered, records) = (&answered, &records);
            let mut random = Random::new(seed ^ nth as u64);
            scope.spawn(move || {
                let written = write_until_over(&mut client, records, nth, &mut random, answered);
                answered.gone();
                written.expect("a client sees no error");
            });
        }
        for nth in 1..=6 {
            answered.wait_for(nth * BETWEEN);
            let report = upgraded(&volume);
            assert_eq!(report["clients"], WRITERS + 1, "{report}");
            paused.push(report["paused_ms"].as_u64().expect("it says how long"));
            assert_eq!(volume.gauge("pid"), report["pid"].as_u64().expect("a process"), "{report}");
            let said = refused(&volume, if nth % 2 == 0 { &fails } else { &dies });
            assert!(said.contains("nothing was changed"), "{said}");
        }
        answered.end();
        over.store(true, Ordering::SeqCst);
        probing.join().expect("no client has panicked")
    });
    println!("paused by upgrades, as they say: {paused:?} ms; the longest read: {} ms", longest.as_millis());
    // The first process is still what its starter knows.
    volume.drain();
    volume.stop();
    volume.assert_sound();
    assert_origin_holds(&volume, &records, seed);
}

/// Clients that come in the middle of an upgrade are greeted by one of both programs.
#[test]
fn clients_that_come_during_upgrades_are_served() {
    for threads in [1, 3] {
        let mut volume = Volume::new(CACHE_MIB, ORIGIN_MIB);
        volume.threads = threads;
        must(&mut volume.format());
        volume.start();
        let (over, place) = (AtomicBool::new(false), Listen::Unix(volume.socket.clone()));
        let come_and_go = || {
            let mut visits = 0;
            while !over.load(Ordering::SeqCst) {
                let mut client = connect(&place, "", true).expect("a client sees no error");
                client.read_at(0, &mut [0; 4096]).expect("a client sees no error");
                client.disconnect().expect("a client sees no error");
                visits += 1;
            }
            visits
        };
        let visits: u64 = thread::scope(|scope| {
            let visitors: Vec<_> = (0..4).map(|_| scope.spawn(come_and_go)).collect();
            let handed: u64 = (0..8).map(|_| upgraded(&volume)["clients"].as_u64().expect("it says how many")).sum();
            println!("{threads} threads: {handed} clients were handed over in 8 upgrades");
            over.store(true, Ordering::SeqCst);
            visitors.into_iter().map(|visitor| visitor.join().expect("no client has panicked")).sum()
        });
        assert!(visits >= 4, "{visits}");
        volume.stop();
        volume.assert_sound();
    }
}

/// The origin alone has all that was acknowledged.
#[track_caller]
pub(crate) fn assert_origin_holds(volume: &Volume, records: &[Mutex<Record>], seed: u64) {
    let origin = fs::read(&volume.origin).expect("the origin can be read");
    for record in records {
        let record = lock(record);
        let from = record.first() as usize * SECTOR;
        let wrong = record.wrong_alive(record.first(), &origin[from..from + record.sectors() as usize * SECTOR]);
        assert!(wrong.is_none(), "seed {seed}, the origin alone: {wrong:?}");
    }
}

#[test]
fn fio_verifies_over_upgrades() {
    verify_with_fio(1);
}

#[test]
fn fio_verifies_over_upgrades_with_several_threads() {
    verify_with_fio(2);
}

fn verify_with_fio(threads: usize) {
    if skip_without(&["fio"]) {
        return;
    }
    let mut volume = Volume::new(CACHE_MIB, ORIGIN_MIB);
    volume.threads = threads;
    must(&mut volume.format());
    volume.start();
    let mut command = tool("fio");
    command.args([
        "--name=v",
        "--ioengine=nbd",
        "--rw=randwrite",
        "--iodepth=16",
        "--verify=crc32c",
        "--output-format=json",
    ]);
    command.args(["--bssplit=512/20:4k/50:64k/20:1m/10", "--size=48m", "--loops=4", "--verify_backlog=64"]);
    command.arg(format!("--uri={}", volume.uri())).current_dir(volume.place.dir());
    let done = AtomicBool::new(false);
    let (fio, mut paused) = thread::scope(|scope| {
        let running = scope.spawn(|| {
            let output = output(&mut command);
            done.store(true, Ordering::SeqCst);
            output
        });
        let mut paused = Vec::new();
        while !done.load(Ordering::SeqCst) || paused.len() < 3 {
            paused.push(upgraded(&volume)["paused_ms"].as_u64().expect("it says how long"));
        }
        (running.join().expect("fio has ended"), paused)
    });
    assert!(fio.status.success(), "{}\n{}", show(&fio), volume.stderr());
    paused.sort_unstable();
    let (middle, most) = (paused[paused.len() / 2], paused[paused.len() - 1]);
    println!("{} upgrades under fio; paused, as they say: median {middle} ms, at most {most} ms", paused.len());
    volume.stop();
    volume.assert_sound();
}

#[test]
fn fio_verifies_over_upgrades_by_tcp() {
    verify_with_fio_by_tcp("--threads=1");
}

#[test]
fn fio_verifies_over_upgrades_by_tcp_with_several_threads() {
    verify_with_fio_by_tcp("--threads=4");
}

fn verify_with_fio_by_tcp(threads: &str) {
    if skip_without(&["fio"]) {
        return;
    }
    let volume = Volume::new(CACHE_MIB, ORIGIN_MIB);
    must(&mut volume.format());
    let daemon = Daemon::spawn(volume.serve_nowhere().args(["--nbd", "tcp:127.0.0.1:0", threads]), &volume.log);
    let uri = daemon.ready();
    let mut command = tool("fio");
    command.args(["--name=v", "--ioengine=nbd", "--rw=randwrite", "--bs=16k", "--iodepth=16", "--verify=crc32c"]);
    command.args(["--size=48m", "--loops=3", "--verify_backlog=64"]).arg(format!("--uri={uri}"));
    command.current_dir(volume.place.dir());
    let done = AtomicBool::new(false);
    let (fio, stayed) = thread::scope(|scope| {
        let running = scope.spawn(|| {
            let output = output(&mut command);
            done.store(true, Ordering::SeqCst);
            output
        });
        let mut stayed = 0;
        while !done.load(Ordering::SeqCst) {
            stayed += upgraded(&volume)["clients"].as_u64().expect("it says how many");
        }
        (running.join().expect("fio has ended"), stayed)
    });
    assert!(fio.status.success() && stayed > 0, "{stayed} clients stayed; {}\n{}", show(&fio), volume.stderr());
    daemon.stop();
    volume.assert_sound();
}

/// Writes a file of configuration: where clients connect, and a line more.
fn configure(volume: &Volume, socket: &Path, line: &str) -> PathBuf {
    let file = volume.place.file("flashfront.toml");
    let text = format!(
        "cache = {:?}\ncontrol = {:?}\nstate = {:?}\n{line}\n[[volume]]\norigin = {:?}\n[[listen]]\nnbd = \"unix:{}\"\n",
        volume.cache,
        volume.control,
        volume.place.file("state"),
        volume.origin,
        socket.display(),
    );
    fs::write(&file, text).expect("a file can be written here");
    file
}

/// Clients go from one thread to several, and back.
#[test]
fn the_new_program_may_have_another_number_of_threads() {
    let seed = u64::from(std::process::id());
    let volume = Volume::new(CACHE_MIB, ORIGIN_MIB);
    must(&mut volume.format());
    let threads = |count: u64| configure(&volume, &volume.socket, &format!("threads = {count}"));
    let daemon = Daemon::spawn(flashfront().args(["serve", "--config"]).arg(threads(1)), &volume.log);
    daemon.ready();
    let records = records(seed);
    upgrade_under_writers(&volume, &records, seed, || {
        for count in [3, 2, 5, 1, 2, 1] {
            threads(count);
            let report = upgraded(&volume);
            assert_eq!((report["clients"].as_u64(), volume.gauge("threads")), (Some(WRITERS), count), "{report}");
        }
        true
    });
    volume.drain();
    daemon.stop();
    volume.assert_sound();
    assert_origin_holds(&volume, &records, seed);
}

#[test]
fn what_can_not_be_handed_over_is_said_and_nothing_is_changed() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    // A file that names other places would lose the clients of these.
    let write = |socket: &Path, rest: &str| configure(&volume, socket, rest);
    let file = write(&volume.socket, "");
    let daemon = Daemon::spawn(flashfront().args(["serve", "--config"]).arg(&file), &volume.log);
    daemon.ready();
    let mut client = volume.connect();
    let program = flashfront().get_program().to_owned();
    for (socket, rest, words) in [
        (volume.place.socket("other"), "", "clients would be lost: [[listen]]"),
        (volume.socket.clone(), "thread = 2", "unknown field `thread`"),
        (volume.socket.clone(), "mirror = \"/nowhere\"", "this cache has no mirror"),
    ] {
        write(&socket, rest);
        let said = refused(&volume, Path::new(&program));
        assert!(said.contains(words) && said.contains("nothing was changed"), "{words}: {said}");
        client.read_at(0, &mut [0; 4096]).expect("nobody was disconnected");
    }
    write(&volume.socket, "");
    upgraded(&volume);
    // The first process passes it on.
    daemon.signal(Signal::HUP);
    daemon.says("reload: taken over");
    client.read_at(0, &mut [0; 4096]).expect("nobody was disconnected");
    daemon.stop();
}

/// How long a hand-over takes on this machine, now.
fn usual_pause_ms(volume: &mut Volume) -> u64 {
    volume.start();
    let paused = upgraded(volume)["paused_ms"].as_u64().expect("it says how long");
    volume.stop();
    paused.max(1)
}

/// How long an upgrade takes on this machine, now.
fn usual_ms(volume: &mut Volume) -> u64 {
    volume.start();
    let began = Instant::now();
    upgraded(volume);
    let usual = began.elapsed().as_millis() as u64;
    volume.stop();
    usual.max(1)
}

/// Lets writers write meanwhile. `upgrade` says whether clients were kept; then none may see an
/// error.
fn upgrade_under_writers(volume: &Volume, records: &[Mutex<Record>], seed: u64, upgrade: impl FnOnce() -> bool) {
    let answered = Answered::default();
    let clients: Vec<Client> = records.iter().map(|_| volume.connect()).collect();
    thread::scope(|scope| {
        let writers: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(nth, mut client)| {
                let answered = &answered;
                let mut random = Random::new(seed ^ nth as u64);
                scope.spawn(move || {
                    let written = write_until_over(&mut client, records, nth, &mut random, answered);
                    answered.gone();
                    written
                })
            })
            .collect();
        answered.wait_for(1 + seed % 200);
        let serves = upgrade();
        answered.end();
        for writer in writers {
            let written = writer.join().expect("no client has panicked");
            assert!(
                !serves || written.is_ok(),
                "seed {seed}: a client sees an error: {written:?}\n{}",
                volume.stderr()
            );
        }
    });
}

#[test]
fn a_new_program_that_is_killed_loses_nothing() {
    let seed = u64::from(std::process::id());
    let mut random = Random::new(seed);
    let mut volume = Volume::new(CACHE_MIB, ORIGIN_MIB);
    must(&mut volume.format());
    let records = records(seed);
    let (mut kept, mut lost) = (0, 0);
    let usual = usual_pause_ms(&mut volume);
    for round in 0..24 {
        volume.threads = 1 + round % 2;
        volume.start();
        // Beside writers a hand-over takes longer.
        let wait = random.below(usual * 3);
        let killed = killed_after(&volume, wait);
        let mut serves = false;
        upgrade_under_writers(&volume, &records, random.next(), || {
            let told = output(volume.ask("upgrade").arg("--program").arg(&killed));
            // After a success the new program is killed a moment later.
            serves = !told.status.success() && String::from_utf8_lossy(&told.stderr).contains("nothing was changed");
            serves
        });
        if serves {
            kept += 1;
            volume.kill9();
        } else {
            lost += 1;
            volume.exit();
        }
        volume.start();
        for record in &records {
            verify_after_crash(&volume, &mut lock(record), &format!("seed {seed}, round {round}, {wait} ms"));
        }
        volume.stop();
        volume.assert_sound();
    }
    println!("the old daemon kept its clients {kept} times; {lost} times they had been handed over");
}

#[test]
fn a_daemon_that_is_killed_while_it_hands_over_loses_nothing() {
    let seed = u64::from(std::process::id());
    let mut random = Random::new(seed);
    let mut volume = Volume::new(CACHE_MIB, ORIGIN_MIB);
    must(&mut volume.format());
    let records = records(seed);
    let (mut kept, mut lost) = (0, 0);
    let usual = usual_ms(&mut volume);
    for round in 0..24 {
        volume.threads = 1 + round % 2;
        volume.start();
        let old = volume.gauge("pid");
        let wait = Duration::from_micros(random.below(usual * 1500));
        let mut serves = None;
        upgrade_under_writers(&volume, &records, random.next(), || {
            let mut asking = spawn(volume.ask("upgrade"));
            thread::sleep(wait); // pacing: a random moment of the upgrade
            kill(old);
            asking.wait().expect("our own child can be waited for");
            // The successor answers, if it has the socket. It may not be there yet.
            serves = pid(&output(volume.ask("status").arg("--json")));
            serves.is_some()
        });
        match serves {
            Some(pid) => {
                kept += 1;
                kill(pid);
                // A dead process has no program.
                while fs::read_link(format!("/proc/{pid}/exe")).is_ok() {
                    thread::sleep(Duration::from_millis(1)); // pacing: it is nobody's child whom we know
                }
            }
            None => lost += 1,
        }
        // The daemon is dead already: this waits for its process.
        volume.kill9();
        volume.start();
        for record in &records {
            verify_after_crash(&volume, &mut lock(record), &format!("seed {seed}, round {round}, {wait:?}"));
        }
        volume.stop();
        volume.assert_sound();
    }
    println!("the successor served {kept} times; {lost} times it had nothing yet");
}

fn spawn(mut command: std::process::Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("flashfront can be started")
}

fn kill(pid: u64) {
    let pid = Pid::from_raw(pid as i32).expect("a process");
    kill_process(pid, Signal::KILL).expect("our own child can be killed");
}

/// The process that a status tells.
fn pid(status: &Output) -> Option<u64> {
    serde_json::from_slice::<Value>(&status.stdout).ok()?["pid"].as_u64()
}
