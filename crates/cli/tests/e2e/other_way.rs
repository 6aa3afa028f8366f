// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that is served can't be had by another way. Every verb that writes refuses it, names
//! both ways, and changes nothing. Verbs that read a cache refuse a living one.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{MIB, Volume, flashfront, is_root, must, output, show, skip, skip_without, tool};

/// A loop device, detached when dropped.
struct Loop(PathBuf);

impl Loop {
    #[track_caller]
    fn on(path: &Path) -> Self {
        Self(must(tool("losetup").args(["--find", "--show"]).arg(path)).trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        output(tool("losetup").arg("--detach").arg(&self.0));
    }
}

fn skipped() -> bool {
    if !is_root() || !Path::new("/dev/loop-control").exists() {
        skip("only root may attach loop devices, where there are any");
        return true;
    }
    skip_without(&["losetup", "unshare"])
}

#[track_caller]
fn refused(command: &mut Command, words: &[&str]) {
    let output = output(command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told = words.iter().all(|word| said.contains(word)) && !said.contains("panic");
    assert!(!output.status.success() && told, "{command:?} should say {words:?}: {}", show(&output));
}

fn verb(name: &str, cache: &Path, origin: Option<&Path>) -> Command {
    let mut command = flashfront();
    command.arg(name);
    match origin {
        None => command.arg(cache),
        Some(origin) => command.arg("--cache").arg(cache).arg("--origin").arg(origin),
    };
    command
}

#[test]
fn what_is_served_is_refused_by_a_loop_device() {
    if skipped() {
        return;
    }
    let volume = Volume::served(16, 32, "writeback");
    volume.connect().write_at(MIB, &[7; 4096], false).expect("the daemon serves");
    let (cache, origin) = (Loop::on(&volume.cache), Loop::on(&volume.origin));
    let blank = volume.place.sparse("blank.img", 32 * MIB);
    let (by_cache, by_origin) = (cache.0.to_str().expect("ASCII"), origin.0.to_str().expect("ASCII"));
    let (ways_of_cache, ways_of_origin) = ([by_cache, "cache.img", "process"], [by_origin, "origin.img", "process"]);
    refused(verb("format", &cache.0, Some(&blank)).arg("--force"), &ways_of_cache);
    refused(verb("format", &blank, Some(&origin.0)).arg("--force"), &ways_of_origin);
    refused(verb("detach", &cache.0, Some(&blank)).arg("--force"), &ways_of_cache);
    refused(&mut verb("check", &cache.0, None), &ways_of_cache);
    let mut second = verb("serve", &cache.0, Some(&origin.0));
    second.arg("--state").arg(volume.place.file("state")).arg("--control").arg(volume.place.socket("c2"));
    second.arg("--nbd").arg(format!("unix:{}", volume.place.socket("second").display()));
    refused(&mut second, &ways_of_cache);
    // Where the path of the file leads nowhere.
    let mut elsewhere = tool("unshare");
    elsewhere.args(["--mount", "sh", "-c", "mount -t tmpfs none \"$0\" && exec \"$@\""]).arg(volume.place.dir());
    elsewhere.arg(flashfront().get_program()).args(["repair", "--yes"]).arg(&cache.0);
    refused(&mut elsewhere, &[by_cache, "process"]);
    let mut same = flashfront();
    same.args(["mirror", "add", "--force"]).arg(&origin.0).arg("--control").arg(&volume.control);
    refused(&mut same, &["is in use by this cache", by_origin, "origin.img"]);
    drop((cache, origin));
    let mut volume = volume;
    volume.drain();
    volume.stop();
    volume.assert_sound();
}

#[test]
fn what_is_served_by_a_loop_device_is_refused_as_a_file() {
    if skipped() {
        return;
    }
    let mut volume = Volume::new(16, 32);
    let (cache_file, origin_file) = (volume.cache.clone(), volume.origin.clone());
    let (cache, origin) = (Loop::on(&cache_file), Loop::on(&origin_file));
    (volume.cache, volume.origin) = (cache.0.clone(), origin.0.clone());
    must(&mut volume.format());
    volume.start();
    let (by_cache, by_origin) = (cache.0.to_str().expect("ASCII"), origin.0.to_str().expect("ASCII"));
    refused(verb("format", &cache_file, Some(&origin_file)).arg("--force"), &["cache.img", by_cache]);
    refused(verb("repair", &cache_file, None).arg("--yes"), &["cache.img", by_cache]);
    refused(&mut verb("dump", &cache_file, None), &["cache.img", by_cache]);
    let second = Loop::on(&origin_file);
    let blank = volume.place.sparse("blank.img", 32 * MIB);
    let by_second = second.0.to_str().expect("ASCII");
    refused(verb("format", &blank, Some(&second.0)).arg("--force"), &[by_origin, by_second]);
    drop(second);
    volume.stop();
    // Two names of one device in one command.
    refused(verb("format", &cache.0, Some(&cache_file)).arg("--force"), &["same device", by_cache, "cache.img"]);
    drop((cache, origin));
}
