// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the paces in virtual time: rates as the data sheets have them, and nothing early.

use flashfront_engine::{Memory, Op, Span, Time, Token};

use super::{Delay, DelaySpec};
use crate::sim::{RamDisk, RamSpec};
use crate::wrap::{HddSpec, SsdSpec};
use crate::{Arena, Device, DeviceIo, Rng};

const SIZE: u64 = 1 << 40;

/// Runs I/Os with a queue depth; I/Os per second and their longest time.
fn rate(spec: DelaySpec, op: Op, len: u64, depth: usize, place: impl Fn(u64, &mut Rng) -> u64) -> (f64, u64) {
    const COUNT: u64 = 2000;
    let inner = RamDisk::new(RamSpec { size_bytes: SIZE, latency_ns: 0, jitter_ns: 0, ..RamSpec::default() });
    let mut device = Delay::new(inner, spec);
    let mut arena = Arena::new(64 << 20);
    let span = Span::new(arena.alloc(len as u32), 0, len as u32);
    let mut rng = Rng::new(3);
    let (mut now, mut submitted, mut ended, mut longest) = (Time(0), 0, 0, 0);
    let mut starts = std::collections::BTreeMap::new();
    let mut done = Vec::new();
    while ended < COUNT {
        while submitted < COUNT && starts.len() < depth {
            let offset = place(submitted, &mut rng) % (SIZE / len) * len;
            device.submit(now, DeviceIo { token: Token(submitted), op, offset, len, span: Some(span) }, &mut arena);
            starts.insert(submitted, now);
            submitted += 1;
        }
        device.kick();
        now = now.max(device.next_event().unwrap());
        device.poll(now, &mut arena, &mut done);
        for done in done.drain(..) {
            done.result.unwrap();
            longest = longest.max(now.since_ns(starts.remove(&done.token.0).unwrap()));
            ended += 1;
        }
    }
    (COUNT as f64 / (now.0 as f64 / 1e9), longest)
}

fn hdd(write_cache_bytes: u64) -> DelaySpec {
    DelaySpec::Hdd(HddSpec { write_cache_bytes, ..HddSpec::default() })
}

#[test]
fn an_hdd_has_the_rates_of_an_hdd() {
    let random = |_, rng: &mut Rng| rng.next_u64();
    // 7.9 ms seek + 4.17 ms: 83 I/Os per second.
    let (one, _) = rate(hdd(0), Op::Read, 4096, 1, random);
    assert!((75.0..90.0).contains(&one), "{one}");
    // With a deep queue short seeks can be chosen; half a turn remains.
    let (deep, longest) = rate(hdd(0), Op::Read, 4096, 32, random);
    assert!((1.4..2.2).contains(&(deep / one)), "{deep} to {one}");
    assert!(longest < 1_000_000_000, "starved for {longest} ns");
    // Sequential: what the platter carries.
    let (rows, _) = rate(hdd(0), Op::Read, 1 << 20, 4, |i, _| i);
    let bytes = rows * f64::from(1 << 20);
    assert!((140e6..151e6).contains(&bytes), "{bytes}");
}

#[test]
fn an_hdd_with_a_write_cache_answers_early_until_it_is_full() {
    let random = |_, rng: &mut Rng| rng.next_u64();
    let (cached, longest) = rate(hdd(1 << 30), Op::Write, 4096, 1, random);
    assert!((9_000.0..10_100.0).contains(&cached) && longest == 100_000, "{cached}, {longest}");
    // Smaller than what is written: in the long run the head decides.
    let (full, _) = rate(hdd(64 << 10), Op::Write, 4096, 1, random);
    assert!((75.0..200.0).contains(&full), "{full}");
}

#[test]
fn an_ssd_has_the_rates_of_an_ssd() {
    let random = |_, rng: &mut Rng| rng.next_u64();
    let ssd = DelaySpec::Ssd(SsdSpec::default());
    let (one, longest) = rate(ssd, Op::Read, 4096, 1, random);
    assert!((12_000.0..12_600.0).contains(&one) && longest == 80_000, "{one}, {longest}");
    let (deep, _) = rate(ssd, Op::Read, 4096, 32, random);
    assert!((115_000.0..125_000.0).contains(&deep), "{deep}: 500 MB/s is 122 k");
    let (large, _) = rate(ssd, Op::Write, 1 << 20, 4, random);
    assert!((470.0..480.0).contains(&large), "{large} MiB/s");
}

/// A flush ends after every write submitted before it, on either kind.
#[test]
fn a_flush_ends_after_the_writes_before_it() {
    for spec in [hdd(0), hdd(1 << 20), DelaySpec::Ssd(SsdSpec::default())] {
        let inner = RamDisk::new(RamSpec { latency_ns: 0, jitter_ns: 0, ..RamSpec::default() });
        let mut device = Delay::new(inner, spec);
        let mut arena = Arena::new(64 << 20);
        let span = Span::new(arena.alloc(4096), 0, 4096);
        let write = |device: &mut Delay<RamDisk>, token, arena: &mut Arena| {
            let io =
                DeviceIo { token: Token(token), op: Op::Write, offset: token * 999_424, len: 4096, span: Some(span) };
            device.submit(Time(0), io, arena);
        };
        (0..8).for_each(|token| write(&mut device, token, &mut arena));
        device.submit(Time(0), DeviceIo { token: Token(8), op: Op::Flush, offset: 0, len: 0, span: None }, &mut arena);
        (9..12).for_each(|token| write(&mut device, token, &mut arena));
        let mut done = Vec::new();
        let mut flushed_at = Time(0);
        while let Some(event) = device.next_event() {
            let before = done.len();
            device.poll(event, &mut arena, &mut done);
            if done[before..].iter().any(|done| done.token == Token(8)) {
                flushed_at = event;
            }
        }
        assert_eq!(done.len(), 12);
        let place = |token| done.iter().position(|done| done.token == Token(token)).unwrap();
        assert!((0..8).all(|token| place(token) < place(8)));
        if let DelaySpec::Hdd(_) = spec {
            // Cached or not, the head has been at eight places.
            assert!(flushed_at > Time(8 * 4_170_000), "{flushed_at:?}");
        }
    }
}

/// The slower of the two counts: a pace never makes a device faster.
#[test]
fn nothing_ends_before_the_inner_device() {
    let inner = RamDisk::new(RamSpec { latency_ns: 5_000_000, jitter_ns: 0, ..RamSpec::default() });
    let mut device = Delay::new(inner, DelaySpec::Ssd(SsdSpec::default()));
    let mut arena = Arena::new(4 << 20);
    let span = Span::new(arena.alloc(4096), 0, 4096);
    device.submit(
        Time(0),
        DeviceIo { token: Token(1), op: Op::Read, offset: 0, len: 4096, span: Some(span) },
        &mut arena,
    );
    let mut done = Vec::new();
    device.poll(Time(4_999_999), &mut arena, &mut done);
    assert!(done.is_empty());
    assert_eq!(device.next_event(), Some(Time(5_000_000)));
    device.poll(Time(5_000_000), &mut arena, &mut done);
    assert_eq!(done.len(), 1);
}
