// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the paces in virtual time: rates as the data sheets have them, and nothing early.

use flashfront_engine::{Memory, Op, Span, Time, Token};

use super::Delay;
use crate::sim::{Fill, HddSpec, ModelSpec, RamDisk, RamSpec, SsdSpec};
use crate::{Arena, Device, DeviceIo, Rng};

const SIZE: u64 = 1 << 40;

/// Runs I/Os with a queue depth; I/Os per second and their longest time.
fn rate(spec: ModelSpec, op: Op, len: u64, depth: usize, place: impl Fn(u64, &mut Rng) -> u64) -> (f64, u64) {
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

fn hdd(write_cache_bytes: u64) -> ModelSpec {
    ModelSpec::Hdd(HddSpec { write_cache_bytes, ..HddSpec::default() })
}

fn ssd() -> ModelSpec {
    ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Clean))
}

#[test]
fn an_hdd_has_the_rates_of_an_hdd() {
    let random = |_, rng: &mut Rng| rng.next_u64();
    // 8.6 ms seek + 4.17 ms: 78 I/Os per second over the whole disk.
    let (one, _) = rate(hdd(0), Op::Read, 4096, 1, random);
    assert!((72.0..85.0).contains(&one), "{one}");
    // With a deep queue what can be reached first is chosen.
    let (deep, longest) = rate(hdd(0), Op::Read, 4096, 32, random);
    assert!((1.7..2.6).contains(&(deep / one)), "{deep} to {one}");
    // The oldest I/O is passed over 128 times, and by some that came with it before.
    let passed = longest as f64 / 1e9 * deep;
    assert!((32.0..128.0 + 64.0).contains(&passed), "the longest wait is that for {passed} others");
    // Sequential: what the platter carries, outside and inside.
    let (rows, _) = rate(hdd(0), Op::Read, 1 << 20, 4, |i, _| i);
    let outer = rows * f64::from(1 << 20);
    assert!((174e6..179e6).contains(&outer), "{outer}");
    let (rows, _) = rate(hdd(0), Op::Read, 1 << 20, 4, |i, _| (SIZE >> 20) - 2000 + i);
    let inner = rows * f64::from(1 << 20) / outer;
    assert!((0.48..0.52).contains(&inner), "{inner}");
}

/// Gaps between sorted writes cost no more than the platter needs to turn past them; destage lives
/// on that.
#[test]
fn sorted_writes_with_gaps_are_faster_than_scattered_ones_on_an_hdd() {
    let (scattered, _) = rate(hdd(0), Op::Write, 4096, 16, |_, rng: &mut Rng| rng.below(1 << 22));
    let (sorted, _) = rate(hdd(0), Op::Write, 4096, 16, |i, _| i * 16);
    // A gap of 64 KiB passes in 0.37 ms.
    assert!((2_000.0..2_900.0).contains(&sorted) && sorted > 4.0 * scattered, "{sorted}, scattered {scattered}");
}

#[test]
fn an_hdd_with_a_write_cache_answers_early_until_it_is_full() {
    let random = |_, rng: &mut Rng| rng.next_u64();
    let (cached, longest) = rate(hdd(1 << 30), Op::Write, 4096, 1, random);
    // 0.1 ms for the command, and the cable.
    assert!((9_000.0..9_400.0).contains(&cached) && longest < 110_000, "{cached}, {longest}");
    // Smaller than what is written: in the long run the head decides.
    let (full, _) = rate(hdd(64 << 10), Op::Write, 4096, 1, random);
    assert!((75.0..250.0).contains(&full), "{full}");
}

#[test]
fn an_ssd_has_the_rates_of_an_ssd() {
    let random = |_, rng: &mut Rng| rng.next_u64();
    let (one, longest) = rate(ssd(), Op::Read, 4096, 1, random);
    assert!((8_800.0..9_200.0).contains(&one) && longest < 120_000, "{one}, {longest}");
    let (deep, _) = rate(ssd(), Op::Read, 4096, 32, random);
    assert!((90_000.0..101_000.0).contains(&deep), "{deep}");
    let (large, _) = rate(ssd(), Op::Write, 1 << 20, 4, random);
    assert!((420.0..455.0).contains(&large), "{large} MiB/s");
}

/// A full SSD writes at random at a fraction of its erased speed, once its reserve is gone.
#[test]
fn a_full_ssd_pays_for_its_garbage() {
    let spec = SsdSpec { reserve_bytes: 0, ..SsdSpec::samsung_850_pro(Fill::Full) };
    let random = |_, rng: &mut Rng| rng.next_u64();
    // The buffer takes the first of it.
    let (full, _) = rate(ModelSpec::Ssd(SsdSpec { buffer_bytes: 0, ..spec }), Op::Write, 4096, 32, random);
    let (clean, _) = rate(ssd(), Op::Write, 4096, 32, random);
    assert!((13_000.0..16_000.0).contains(&full) && clean > 5.0 * full, "{full}, clean {clean}");
}

/// A flush ends after every write submitted before it, on either kind.
#[test]
fn a_flush_ends_after_the_writes_before_it() {
    for spec in [hdd(0), hdd(1 << 20), ssd()] {
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
        if let ModelSpec::Hdd(_) = spec {
            // Cached or not, the head has been at eight places.
            assert!(flushed_at > Time(8 * 1_250_000), "{flushed_at:?}");
        }
    }
}

/// The slower of the two counts: a pace never makes a device faster.
#[test]
fn nothing_ends_before_the_inner_device() {
    let inner = RamDisk::new(RamSpec { latency_ns: 5_000_000, jitter_ns: 0, ..RamSpec::default() });
    let mut device = Delay::new(inner, ssd());
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
