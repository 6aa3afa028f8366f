// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hooks that `serve` gives to the daemon, in virtual time: the devices behind have no latency
//! of their own.

use flashfront_device::sim::{ModelIo, RamDisk, RamSpec};
use flashfront_device::{Arena, DeviceIo};
use flashfront_engine::{Memory, Op, Span, Time, Token};

use super::*;

const FILE: u64 = 1 << 30;

fn by_name(name: &str) -> Known {
    known().into_iter().find(|known| known.name == name).unwrap()
}

/// Places of 4 KiB, all over the file.
fn place(nth: u64) -> u64 {
    nth.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (FILE / 4096) * 4096
}

/// When each of 200 random reads ends, one after the other, behind a hook.
fn served(wrap: &Wrap) -> Vec<u64> {
    let spec = RamSpec { size_bytes: FILE, latency_ns: 0, jitter_ns: 0, ..RamSpec::default() };
    let mut device = wrap(Box::new(RamDisk::new(spec)));
    let mut arena = Arena::new(1 << 20);
    let span = Some(Span::new(arena.alloc(4096), 0, 4096));
    let (mut now, mut done) = (Time(0), Vec::new());
    let read = |nth| {
        device.submit(
            now,
            DeviceIo { token: Token(nth), op: Op::Read, offset: place(nth), len: 4096, span },
            &mut arena,
        );
        device.kick();
        while done.is_empty() {
            now = now.max(device.next_event().unwrap());
            device.poll(now, &mut arena, &mut done);
        }
        done.drain(..).for_each(|done| done.result.unwrap());
        now.0
    };
    (0..200).map(read).collect()
}

/// The times of the whole device, without a file.
fn expected(known: Known) -> Vec<u64> {
    let mut model = known.model.build(known.size_bytes);
    let (mut now, mut done) = (Time(0), Vec::new());
    let read = |number| {
        model.submit(now, ModelIo { number, op: Op::Read, offset: place(number), len: 4096 });
        while done.is_empty() {
            now = now.max(model.next_event().unwrap());
            model.advance(now, &mut done);
        }
        done.clear();
        now.0
    };
    (0..200).map(read).collect()
}

#[test]
fn the_daemons_devices_have_the_pace_of_the_whole_device_that_the_file_begins() {
    let (ssd, hdd) = (by_name("samsung-850-pro"), by_name("wd-re-4tb"));
    let mut hooks = Hooks::default();
    arm(Some(ssd), Some(hdd), &mut hooks);
    assert_eq!(served(&hooks.wrap_origin.unwrap()), expected(hdd));
    assert_eq!(served(&hooks.wrap_cache.unwrap()), expected(ssd));
    assert_eq!(served(&hooks.wrap_mirror.unwrap()), expected(ssd));
    // Half a turn and the settling, hardly any way. A disk of this size would be no slower; the
    // whole of a large one takes 12.7 ms.
    let mean_ms = expected(hdd)[199] / 200 / 1_000_000;
    assert!((4..8).contains(&mean_ms), "{mean_ms}");
}

#[test]
fn what_is_not_emulated_is_left_alone() {
    let mut hooks = Hooks::default();
    arm(None, Some(by_name("wd-re-4tb")), &mut hooks);
    assert!(hooks.wrap_cache.is_none() && hooks.wrap_mirror.is_none());
    arm(Some(by_name("intel-p4500")), None, &mut hooks);
    assert_eq!(served(&hooks.wrap_origin.unwrap()), expected(by_name("wd-re-4tb")));
}
