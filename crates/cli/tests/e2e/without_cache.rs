// SPDX-License-Identifier: MIT OR Apache-2.0
//! An origin whose cache device is missing. It is refused, served alone by the operator's word, and
//! never stale or overwritten in silence when the cache is back.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use crate::harness::{Daemon, MIB, Random, Volume, assert_same, flashfront, must, output, show, skip_without, tool};
use crate::refusal::assert_refused;
use crate::told;

const ORIGIN_MIB: u64 = 64;
/// Where the tests write without the cache: past the first MiB, so that not every sample of the
/// stale guard would see it.
const WRITTEN: [u64; 3] = [4 * MIB + 512, 20 * MIB, 41 * MIB + 4096];

/// A formatted volume over noise.
fn formatted() -> Volume {
    let volume = Volume::new(32, ORIGIN_MIB);
    fs::write(&volume.origin, Random::new(3).bytes((ORIGIN_MIB * MIB) as usize)).expect("the file is ours");
    must(&mut volume.format());
    volume
}

/// `serve` without the cache, and with the word that it takes.
fn alone(volume: &Volume) -> Command {
    let mut command = unconfirmed(volume);
    command.arg("--accept-missing-dirty-data");
    command
}

fn unconfirmed(volume: &Volume) -> Command {
    let mut command = flashfront();
    command.arg("serve").arg("--without-cache").arg("--origin").arg(&volume.origin);
    command.arg("--nbd").arg(format!("unix:{}", volume.socket.display()));
    command.arg("--control").arg(&volume.control).arg("--state").arg(volume.place.file("state"));
    command
}

fn destage(volume: &Volume) -> Command {
    let mut command = flashfront();
    command.arg("destage").arg("--cache").arg(&volume.cache).arg("--origin").arg(&volume.origin);
    command.arg("--state").arg(volume.place.file("state"));
    command
}

/// Takes the cache device away, or brings it back.
fn cache_away(volume: &Volume, away: bool) {
    let elsewhere = volume.place.file("elsewhere.img");
    let (from, to) = if away { (&volume.cache, &elsewhere) } else { (&elsewhere, &volume.cache) };
    fs::rename(from, to).expect("the file is ours");
}

/// Serves without the cache, writes, and ends as asked; a copy of what the origin holds then.
fn served_alone(volume: &Volume, kill: bool) -> PathBuf {
    cache_away(volume, true);
    let copy = volume.place.file("copy.img");
    fs::copy(&volume.origin, &copy).expect("the copy can be made");
    let daemon = Daemon::spawn(&mut alone(volume), &volume.log);
    daemon.ready();
    volume.assert_serves(&copy);
    let file = File::options().write(true).open(&copy).expect("the file is ours");
    let mut client = volume.connect();
    for (nth, offset) in WRITTEN.into_iter().enumerate() {
        let bytes = Random::new(nth as u64).bytes(3 * 512);
        client.write_at(offset, &bytes, nth == 1).expect("the volume can be written");
        file.write_all_at(&bytes, offset).expect("the file is ours");
    }
    client.flush().expect("the volume can be flushed");
    drop(client);
    volume.assert_serves(&copy);
    if kill {
        daemon.kill9()
    } else {
        daemon.stop()
    }
    assert_same(&volume.origin, &copy);
    cache_away(volume, false);
    copy
}

#[test]
fn a_missing_cache_is_refused_with_the_way_out() {
    let volume = formatted();
    cache_away(&volume, true);
    assert_refused(&volume.place, &mut volume.serve(), &["cache.img", "--without-cache"]);
    let words = ["--accept-missing-dirty-data", "lacks the newest writes", "bring it back"];
    assert_refused(&volume.place, &mut unconfirmed(&volume), &words);
    // A device that is there, with nothing on it that could be read.
    volume.place.sparse("cache.img", 32 * MIB);
    assert_refused(&volume.place, &mut volume.serve(), &["cache.img", "--without-cache"]);
    // Nor is it begun if it could not be remembered.
    let mut nowhere = flashfront();
    nowhere.args(["serve", "--without-cache", "--accept-missing-dirty-data", "--state", "/proc/nowhere", "--origin"]);
    nowhere.arg(&volume.origin).arg("--control").arg(&volume.control);
    nowhere.arg("--nbd").arg(format!("unix:{}", volume.socket.display()));
    assert_refused(&volume.place, &mut nowhere, &["origin.img", "--state"]);
}

#[test]
fn without_its_cache_an_origin_is_served_to_qemu_and_says_so() {
    if skip_without(&["qemu-io", "qemu-img"]) {
        return;
    }
    let volume = formatted();
    cache_away(&volume, true);
    let plain = volume.place.file("plain.img");
    fs::copy(&volume.origin, &plain).expect("the copy can be made");
    // With the config file of better days, whose cache is left alone.
    let config = volume.place.file("config.toml");
    let text = format!(
        "cache = {:?}\ncontrol = {:?}\nstate = {:?}\n[[volume]]\nname = \"v\"\norigin = {:?}\nmode = \"writeback\"\n[[listen]]\nnbd = \"unix:{}\"\n",
        volume.cache,
        volume.control,
        volume.place.file("state"),
        volume.origin,
        volume.socket.display()
    );
    fs::write(&config, text).expect("the file is ours");
    let mut serve = flashfront();
    serve.args(["serve", "--without-cache", "--accept-missing-dirty-data", "--config"]).arg(&config);
    let daemon = Daemon::spawn(&mut serve, &volume.log);
    daemon.ready();
    let commands = [
        "write -P 17 0 64k",
        "write -f -P 18 32k 4k",
        "write -z 1M 512k",
        "write -z -u 2M 1M",
        "write -P 19 5000192 3584",
        "flush",
        "read -P 18 32k 4k",
    ];
    for target in [volume.uri(), plain.display().to_string()] {
        let mut io = tool("qemu-io");
        io.args(["-f", "raw", "-d", "unmap"]).arg(&target);
        commands.iter().for_each(|command| {
            io.arg("-c").arg(command);
        });
        let said = must(&mut io);
        assert!(!said.contains("failed"), "{said}");
    }
    must(tool("qemu-img").args(["compare", "-f", "raw", "-F", "raw"]).arg(volume.uri()).arg(&plain));
    let status = volume.status();
    assert_eq!((&status["without_cache"], &status["mode"]), (&true.into(), &"passthrough".into()), "{status}");
    for key in ["blocks_dirty", "blocks_cached", "capacity_blocks", "cache_writes_bytes"] {
        assert_eq!(status[key], 0, "{key}: {status}");
    }
    assert!(must(&mut volume.ask("status")).contains("NO CACHE"));
    let refusal = output(volume.ask("set").args(["--mode", "writeback"]));
    assert!(!refusal.status.success() && show(&refusal).contains("without its cache"), "{}", show(&refusal));
    let refusal = output(&mut volume.ask("drain"));
    assert!(!refusal.status.success() && show(&refusal).contains("nothing to drain"), "{}", show(&refusal));
    daemon.stop();
    let said = volume.stderr();
    told::assert_log_is_told(&said);
    assert!(
        said.contains("SERVED WITHOUT ITS CACHE") && said.contains("stopped; the origin was served without"),
        "{said}"
    );
    assert_same(&volume.origin, &plain);
}

#[test]
fn clean_data_of_a_cache_that_comes_back_is_dropped() {
    for (cache_killed, alone_killed) in [(true, true), (true, false), (false, true)] {
        let mut volume = formatted();
        let before = volume.place.file("before.img");
        volume.start();
        fs::copy(&volume.origin, &before).expect("the copy can be made");
        (0..2).for_each(|_| volume.assert_serves(&before));
        let mut client = volume.connect();
        for offset in WRITTEN {
            client.write_at(offset / 4096 * 4096, &[5; 4096], false).expect("the volume can be written");
        }
        drop(client);
        volume.drain();
        assert!(volume.gauge("blocks_cached") > 0);
        volume.stop();
        if cache_killed {
            // The opening's checkpoint says what is clean; the end of a log that is cut off could
            // lack it.
            volume.start();
            volume.kill9();
        }
        let newest = served_alone(&volume, alone_killed);
        volume.start();
        let said = volume.stderr();
        assert!(said.contains("was served without its cache") && said.contains("dropping all clean data"), "{said}");
        volume.assert_serves(&newest);
        let mut client = volume.connect();
        client.write_at(0, &[6; 4096], true).expect("the volume can be written");
        drop(client);
        volume.drain();
        volume.kill9();
        // Once is enough: what was cached since is kept.
        volume.start();
        assert!(volume.gauge("blocks_cached") > 0);
        assert_eq!(volume.stderr().matches("dropping all clean data").count(), 1, "{}", volume.stderr());
        volume.stop();
        volume.assert_sound();
    }
}

#[test]
fn dirty_data_of_a_cache_that_comes_back_is_refused() {
    for alone_killed in [true, false] {
        let volume = formatted();
        // An origin that takes no writes, so that all of it stays dirty.
        let daemon = Daemon::spawn(volume.serve().args(["--inject", "origin:eio,op=write"]), &volume.log);
        daemon.ready();
        let mut client = volume.connect();
        let dirty = [WRITTEN[1], 50 * MIB];
        for offset in dirty {
            client.write_at(offset, &[0x77; 8192], true).expect("the volume can be written");
        }
        drop(client);
        daemon.kill9();
        let newest = served_alone(&volume, alone_killed);
        let words = ["origin.img", "without its cache", "4 dirty blocks", "--accept-changed-origin", "detach --force"];
        assert_refused(&volume.place, &mut volume.serve(), &words);
        assert_refused(&volume.place, &mut destage(&volume), &words);
        assert_same(&volume.origin, &newest);
        // The word: the dirty data is written over, what else was written stays.
        must(destage(&volume).arg("--accept-changed-origin"));
        let file = File::options().write(true).open(&newest).expect("the file is ours");
        for offset in dirty {
            file.write_all_at(&[0x77; 8192], offset).expect("the file is ours");
        }
        assert_same(&volume.origin, &newest);
        volume.assert_sound();
    }
}
