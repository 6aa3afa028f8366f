// SPDX-License-Identifier: MIT OR Apache-2.0
//! vhost-user-blk under `kill -9` and `upgrade`: a guest's driver in this process, whose requests
//! the next daemon finishes.
//!
//! With durability "always" the guest must not notice anything. Whole virtual machines do the same
//! in `cargo x vm reconnect`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use vhost::vhost_user::VhostUserFrontend;

use crate::harness::{Daemon, MIB, Random, Volume, must, output};
use crate::resize::{grow, shrink};
use crate::upgrade::{killed_after, refused, script, upgraded};

#[expect(dead_code, clippy::unwrap_used, reason = "shared with the tests of the front-end, which use all of it")]
#[path = "../../../serve/src/frontend/vhost_user_blk/tests/driver.rs"]
mod driver;

use driver::{DATA, FLUSH, Machine, PENDING, READ, STORE, Wire, usual};

const KILLS: u64 = 12;
const UPGRADES: u64 = 6;
/// Requests in flight; each head has a part of the disk and of the memory for itself.
const HEADS: u16 = 32;
const PART_SECTORS: u64 = 2 * MIB / 512;
const PART_BYTES: u32 = 256 << 10;
const STATUS_DONE: u8 = 0;

/// What one head does.
#[derive(Clone, Copy, Default)]
struct Part {
    /// Sectors that its writes so far cover, and the content of the last: all of it is that byte.
    sectors: u64,
    byte: u8,
    in_flight: bool,
}

fn serve(volume: &Volume, options: &[&str]) -> Daemon {
    let mut serve = volume.serve();
    let place = format!("unix:{}", volume.place.socket("guest").display());
    serve.args(["--vhost-user-blk", &place]).args(options);
    let daemon = Daemon::spawn(&mut serve, &volume.log);
    let uris = daemon.ready();
    assert!(uris.contains("vhost-user-blk:"), "{uris}");
    daemon
}

/// Notes what came back by both queues; how many.
fn collect(machine: &mut Machine, parts: &mut [Part]) -> usize {
    let mut count = 0;
    for queue in 0..2 {
        for (head, written) in machine.collect(queue) {
            assert_eq!((machine.status(queue, head), written), (STATUS_DONE, 1), "head {head}");
            assert!(std::mem::take(&mut parts[usize::from(head)].in_flight), "head {head} came back twice");
            count += 1;
        }
    }
    count
}

#[test]
fn a_guest_notices_no_kill_9() {
    let seed = seed();
    let mut random = Random::new(seed);
    let mut volume = Volume::new(32, 64);
    must(&mut volume.format());
    let socket = volume.place.socket("guest");
    let mut machine = Machine::new();
    let mut parts = [Part::default(); HEADS as usize];
    for kill in 0..KILLS {
        // What one thread has left another must find.
        volume.threads = 1 + kill as usize % 2;
        let daemon = serve(&volume, &["--durability", "always"]);
        let wire = machine.connect(&socket, usual());
        finish(&mut machine, &mut parts);
        verify(&mut machine, &wire, &parts, &format!("seed {seed}, kill {kill}"));
        let goal = 1 + random.below(400) as usize;
        let mut answered = 0;
        while answered < goal {
            answered += keep_busy(&mut machine, &wire, &mut parts, &mut random);
        }
        daemon.kill9();
    }
    let daemon = serve(&volume, &["--durability", "always"]);
    let wire = machine.connect(&socket, usual());
    finish(&mut machine, &mut parts);
    verify(&mut machine, &wire, &parts, "at the end");
    volume.drain();
    daemon.stop();
    verify_origin(&volume, &parts);
}

/// Writes before `act`, and beside it.
fn writes_beside<T>(guest: &mut Guest, act: impl FnOnce() -> T) -> T {
    let Guest { machine, wire, parts, random } = guest;
    let goal = 1 + random.below(400) as usize;
    let mut answered = 0;
    while answered < goal {
        answered += keep_busy(machine, wire, parts, random);
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                keep_busy(machine, wire, parts, random);
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        over.store(true, Ordering::SeqCst);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Writes beside `act`. All of it is then read back by the same connection, where nothing was lost.
fn stays(guest: &mut Guest, when: &str, act: impl FnOnce()) {
    writes_beside(guest, act);
    let Guest { machine, wire, parts, .. } = guest;
    finish(machine, parts);
    verify(machine, wire, parts, when);
    machine.ask(0, 0, FLUSH, 0, 0, 0);
    assert_eq!(machine.run(wire, 0, 0), STATUS_DONE, "{when}: a FLUSH owes nothing to the program before");
    // Also what the program has kept of the negotiation is there: the client is acknowledged.
    let enabled = wire.frontend.set_vring_enable(0, true);
    assert!(enabled.is_ok(), "{when}: {enabled:?}");
}

/// A guest with its connection, which is never made again.
struct Guest {
    machine: Machine,
    wire: Wire,
    parts: [Part; HEADS as usize],
    random: Random,
}

impl Guest {
    fn connect(volume: &Volume, seed: u64) -> Self {
        let mut machine = Machine::new();
        let wire = machine.connect(&volume.place.socket("guest"), usual());
        Self { machine, wire, parts: [Part::default(); HEADS as usize], random: Random::new(seed) }
    }
}

#[test]
fn a_guest_stays_connected_over_upgrades_and_failed_ones() {
    stays_over_upgrades(1);
}

#[test]
fn a_guest_of_another_thread_stays_connected_over_upgrades_and_failed_ones() {
    stays_over_upgrades(2);
}

fn stays_over_upgrades(threads: usize) {
    let seed = seed();
    let mut volume = Volume::new(32, 64);
    volume.threads = threads;
    must(&mut volume.format());
    let daemon = serve(&volume, &[]);
    let mut guest = Guest::connect(&volume, seed);
    let dies = script(&volume, "dies", "head -n 1 >/dev/null; kill -9 $$");
    // This program gets everything, and can't open the cache.
    let fails = script(&volume, "fails", "exec \"$FLASHFRONT\" \"$@\" --mirror /nowhere");
    for upgrade in 0..UPGRADES {
        let when = format!("seed {seed}, upgrade {upgrade}");
        stays(&mut guest, &when, || {
            let report = upgraded(&volume);
            assert_eq!(report["clients"], 1, "{when}: {report}");
        });
        let program = if upgrade % 2 == 0 { &fails } else { &dies };
        stays(&mut guest, &format!("{when}, failed"), || {
            let said = refused(&volume, program);
            assert!(said.contains("nothing was changed"), "{when}: {said}");
        });
    }
    volume.drain();
    daemon.stop();
    verify_origin(&volume, &guest.parts);
}

#[test]
fn a_guest_stays_connected_while_its_cache_changes() {
    stays_while_its_cache_changes(1);
}

#[test]
fn a_guest_of_another_thread_stays_connected_while_its_cache_changes() {
    stays_while_its_cache_changes(3);
}

fn stays_while_its_cache_changes(threads: usize) {
    let seed = seed();
    let mut volume = Volume::new(32, 64);
    volume.threads = threads;
    must(&mut volume.format());
    let daemon = serve(&volume, &[]);
    let mut guest = Guest::connect(&volume, seed);
    let when = |what: &str| format!("seed {seed}, {what}");
    for _ in 0..2 {
        stays(&mut guest, &when("grow"), || grow(&volume, 64));
        stays(&mut guest, &when("shrink"), || shrink(&volume, 32));
        stays(&mut guest, &when("detach"), || drop(must(&mut volume.ask_two(["cache", "detach"]))));
        stays(&mut guest, &when("attach"), || {
            must(volume.ask_two(["cache", "attach"]).arg(&volume.cache));
        });
    }
    volume.drain();
    daemon.stop();
    verify_origin(&volume, &guest.parts);
}

/// A program that is killed before it was told to serve costs the guest nothing. If it was killed
/// later, the guest finds its requests at the next daemon.
#[test]
fn a_guest_loses_nothing_by_a_new_program_that_is_killed() {
    let seed = seed();
    let mut volume = Volume::new(32, 64);
    must(&mut volume.format());
    let options = ["--durability", "always"];
    let mut daemon = serve(&volume, &options);
    let mut guest = Guest::connect(&volume, seed);
    let usual_ms = 1 + upgraded(&volume)["paused_ms"].as_u64().expect("it says how long");
    let (mut kept, mut lost) = (0, 0);
    for round in 0..KILLS {
        let wait = guest.random.below(usual_ms * 3);
        let when = format!("seed {seed}, round {round}, {wait} ms");
        let killed = killed_after(&volume, wait);
        let told = writes_beside(&mut guest, || output(volume.ask("upgrade").arg("--program").arg(&killed)));
        let Guest { machine, wire, parts, .. } = &mut guest;
        if !told.status.success() && String::from_utf8_lossy(&told.stderr).contains("nothing was changed") {
            kept += 1;
        } else {
            lost += 1;
            daemon.ended();
            volume.threads = 3 - volume.threads;
            daemon = serve(&volume, &options);
            *wire = machine.connect(&volume.place.socket("guest"), usual());
        }
        finish(machine, parts);
        verify(machine, wire, parts, &when);
    }
    println!("the old daemon kept its guest {kept} times; {lost} times it had been handed over");
    volume.drain();
    daemon.stop();
    verify_origin(&volume, &guest.parts);
}

/// A volume may be made writable while a guest believes that its disk is read-only.
#[test]
fn a_guest_that_took_its_disk_for_read_only_stays_connected() {
    const READ_ONLY: u64 = 1 << 5;
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let daemon = serve(&volume, &[]);
    must(volume.ask_two(["volume", "set"]).args(["data", "--read-only"]));
    let mut machine = Machine::new();
    let wire = machine.connect(&volume.place.socket("guest"), usual() | READ_ONLY);
    must(volume.ask_two(["volume", "set"]).args(["data", "--writable"]));
    assert_eq!(upgraded(&volume)["clients"], 1);
    machine.ask(0, 0, READ, 0, DATA, 4096);
    assert_eq!(machine.run(&wire, 0, 0), STATUS_DONE);
    machine.ask(0, 1, STORE, 0, DATA, 4096);
    assert_ne!(machine.run(&wire, 0, 1), STATUS_DONE, "its disk is what it was told");
    daemon.stop();
}

/// A volume may become read-only while a guest has its disk writable.
#[test]
fn a_guest_of_a_volume_that_became_read_only_gets_errors() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let daemon = serve(&volume, &[]);
    let mut machine = Machine::new();
    let wire = machine.connect(&volume.place.socket("guest"), usual());
    let mut done = |op, head| {
        machine.ask(0, head, op, 0, DATA, 4096);
        machine.run(&wire, 0, head) == STATUS_DONE
    };
    assert!(done(STORE, 0), "it is writable");
    must(volume.ask_two(["volume", "set"]).args(["data", "--read-only"]));
    assert_eq!(upgraded(&volume)["clients"], 1);
    assert!(!done(STORE, 1), "a write after the hand-over");
    assert!(done(READ, 2), "a read after the hand-over");
    must(volume.ask_two(["volume", "set"]).args(["data", "--writable"]));
    assert_eq!(upgraded(&volume)["clients"], 1);
    assert!(done(STORE, 3), "it is writable again");
    daemon.stop();
}

/// Each socket of a volume that was renamed stays with its own guests.
#[test]
fn two_sockets_of_one_volume_stay_over_a_renaming_and_an_upgrade() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let mut command = volume.serve();
    for name in ["{volume}.one", "{volume}.other"] {
        command.arg(format!("--vhost-user-blk=unix:{}", volume.place.socket(name).display()));
    }
    let daemon = Daemon::spawn(&mut command, &volume.log);
    daemon.ready();
    let guests = ["data.one", "data.other"].map(|name| {
        let mut machine = Machine::new();
        let wire = machine.connect(&volume.place.socket(name), usual());
        (machine, wire)
    });
    must(volume.ask_two(["volume", "rename"]).args(["data", "disk"]));
    assert_eq!(upgraded(&volume)["clients"], 2);
    for (nth, (mut machine, wire)) in guests.into_iter().enumerate() {
        machine.ask(0, 0, READ, 0, DATA, 4096);
        assert_eq!(machine.run(&wire, 0, 0), STATUS_DONE, "guest {nth}");
    }
    daemon.stop();
    volume.assert_sound();
}

/// The socket of a volume that is gone keeps no upgrade off, and the others stay.
#[test]
fn sockets_of_several_volumes_stay_over_an_upgrade() {
    let volume = Volume::new(64, 64);
    must(&mut volume.format());
    let mut command = volume.serve();
    command.arg(format!("--vhost-user-blk=unix:{}", volume.place.socket("{volume}.guest").display()));
    let daemon = Daemon::spawn(&mut command, &volume.log);
    daemon.ready();
    for name in ["home", "gone"] {
        let origin = volume.place.sparse(&format!("{name}.img"), 64 * MIB);
        must(volume.ask_two(["volume", "add"]).args(["--name", name, "--origin"]).arg(origin));
    }
    must(volume.ask_two(["volume", "remove"]).arg("gone"));
    // Guests know the socket by the name that the volume had when the daemon was started.
    must(volume.ask_two(["volume", "rename"]).args(["home", "house"]));
    must(&mut volume.ask("upgrade"));
    for name in ["data", "home"] {
        let mut machine = Machine::new();
        let wire = machine.connect(&volume.place.socket(&format!("{name}.guest")), usual());
        machine.ask(0, 0, READ, 0, DATA, 4096);
        assert_eq!(machine.run(&wire, 0, 0), STATUS_DONE, "{name}");
    }
    daemon.stop();
    volume.assert_sound();
}

/// The seed of a run, which says itself.
fn seed() -> u64 {
    let seed = std::env::var("FLASHFRONT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed: FLASHFRONT_SEED={seed}");
    seed
}

/// Asks for a write by each head that has none in flight. Returns how many came back meanwhile.
fn keep_busy(machine: &mut Machine, wire: &Wire, parts: &mut [Part], random: &mut Random) -> usize {
    for (head, part) in parts.iter_mut().enumerate().filter(|(_, part)| !part.in_flight) {
        let head = head as u16;
        // Never less than before, so that all of it is of the last write.
        part.sectors = part.sectors.max(1 + random.below(u64::from(PART_BYTES) / 512));
        part.byte = part.byte.wrapping_add(1);
        part.in_flight = true;
        let (at, len) = (DATA + u64::from(head) * u64::from(PART_BYTES), part.sectors as u32 * 512);
        machine.fill(at, len, part.byte);
        machine.ask(usize::from(head % 2), head, STORE, u64::from(head) * PART_SECTORS + 3, at, len);
    }
    wire.kick(0);
    wire.kick(1);
    collect(machine, parts)
}

/// What the last daemon left comes back without a word from us.
fn finish(machine: &mut Machine, parts: &mut [Part]) {
    while parts.iter().any(|part| part.in_flight) {
        if collect(machine, parts) == 0 {
            std::thread::yield_now();
        }
    }
}

/// The origin alone holds each part's last write.
fn verify_origin(volume: &Volume, parts: &[Part]) {
    volume.assert_sound();
    let origin = std::fs::read(&volume.origin).expect("the origin can be read");
    for (head, part) in parts.iter().enumerate() {
        let from = (head as u64 * PART_SECTORS + 3) as usize * 512;
        let bytes = &origin[from..from + part.sectors as usize * 512];
        assert!(bytes.iter().all(|byte| *byte == part.byte), "the origin alone, head {head}");
    }
}

/// Each part must hold its last write.
fn verify(machine: &mut Machine, wire: &Wire, parts: &[Part], when: &str) {
    for (head, part) in parts.iter().enumerate().filter(|(_, part)| part.sectors > 0) {
        let head = head as u16;
        let (at, len) = (DATA + u64::from(head) * u64::from(PART_BYTES), part.sectors as u32 * 512);
        machine.fill(at, len, !part.byte);
        machine.ask(0, head, READ, u64::from(head) * PART_SECTORS + 3, at, len);
        assert_eq!(machine.status(0, head), PENDING);
        assert_eq!(machine.run(wire, 0, head), STATUS_DONE, "{when}");
        let found = machine.content(at, len);
        let wrong = found.iter().position(|byte| *byte != part.byte);
        assert_eq!(wrong, None, "{when}: head {head}: {:#x} instead of {:#x}", found[wrong.unwrap_or(0)], part.byte);
    }
}
