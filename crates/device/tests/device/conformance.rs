// SPDX-License-Identifier: MIT OR Apache-2.0
//! The promises of every device, run over all of them: a line in `devices!` is a whole suite.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use flashfront_device::Rng;
use flashfront_device::real::Prefer;
use flashfront_device::sim::{Fill, HddSpec, ModelSpec, RamDisk, RamSpec, SsdSpec};
use flashfront_device::wrap::{Delay, Faults, Inject, Patience};
use flashfront_engine::{DeviceError, Memory, Op, Span, Token};

use crate::rig::{Rig, file, folder, pattern};

const SIZE: u64 = 32 << 20;

/// Tests all promises on one device; each starts on what the last one left.
pub(crate) fn suite(mut rig: Rig) {
    assert_eq!(rig.device.geometry().size_bytes % rig.block(), 0);
    round_trips(&mut rig);
    ends_of_the_device(&mut rig);
    zero_reads_zero(&mut rig);
    discard_spares_its_neighbours(&mut rig);
    random_writes_deep(&mut rig);
    more_in_flight_than_any_queue(&mut rig);
    bugs_assert(&mut rig);
    // Idle again: nothing is going to happen.
    assert_eq!(rig.device.next_event(), None);
    assert_eq!(rig.arena.allocated_bytes(), 0);
}

fn round_trips(rig: &mut Rig) {
    let block = rig.block();
    for (version, len) in [block, 2 * block, 4096, 12288, 65536, 1 << 20].into_iter().enumerate() {
        for (offset, shift) in [(0, 0), (5 * block, block), (1 << 20, 4096)] {
            let data = pattern(offset, len, version as u64);
            rig.write(offset, &data, shift as u32).unwrap();
            assert!(rig.read(offset, len as u32, (block - shift % block) as u32).unwrap() == data);
        }
    }
    rig.flush().unwrap();
    rig.flush().unwrap();
}

fn ends_of_the_device(rig: &mut Rig) {
    let (size, block) = (rig.device.geometry().size_bytes, rig.block());
    for len in [block, 8192] {
        let data = pattern(size - len, len, 99);
        rig.write(size - len, &data, 0).unwrap();
        assert!(rig.read(size - len, len as u32, 0).unwrap() == data);
    }
}

fn zero_reads_zero(rig: &mut Rig) {
    let block = rig.block();
    rig.write(0, &pattern(0, 1 << 20, 7), 0).unwrap();
    for (offset, len) in [(3 * block, block), (65536 - block, 3 * block), (128 << 10, 256 << 10)] {
        rig.run(Op::Zero, offset, len, None).unwrap();
        assert!(rig.read(offset, len as u32, 0).unwrap().iter().all(|byte| *byte == 0));
        for neighbour in [offset - block, offset + len] {
            assert!(rig.read(neighbour, block as u32, 0).unwrap() == pattern(neighbour, block, 7));
        }
    }
    // Longer than any buffer.
    let len = 20 << 20;
    rig.write(len - 4096, &pattern(0, 4096, 8), 0).unwrap();
    rig.run(Op::Zero, 0, len, None).unwrap();
    assert!(rig.read(len - 4096, 4096, 0).unwrap().iter().all(|byte| *byte == 0));
}

fn discard_spares_its_neighbours(rig: &mut Rig) {
    rig.write(0, &pattern(0, 1 << 20, 9), 0).unwrap();
    let result = rig.run(Op::Discard, 64 << 10, 128 << 10, None);
    assert!(matches!(result, Ok(()) | Err(DeviceError::Unsupported)), "{result:?}");
    for neighbour in [60 << 10, 192 << 10] {
        assert!(rig.read(neighbour, 4096, 0).unwrap() == pattern(neighbour, 4096, 9));
    }
    // And the discarded range can be written again.
    rig.write(64 << 10, &pattern(64 << 10, 4096, 10), 0).unwrap();
    assert!(rig.read(64 << 10, 4096, 0).unwrap() == pattern(64 << 10, 4096, 10));
}

/// 64 writes in flight, each place at most once at a time; then everything is read back.
fn random_writes_deep(rig: &mut Rig) {
    const PLACES: u64 = 256;
    const PLACE: u64 = 16384;
    let mut rng = Rng::new(1);
    let mut versions = [0; PLACES as usize];
    for place in 0..PLACES {
        rig.write(place * PLACE, &pattern(place * PLACE, PLACE, 0), 0).unwrap();
    }
    let mut flying = HashMap::new();
    let mut left = 2000;
    while left > 0 || !flying.is_empty() {
        while left > 0 && flying.len() < 64 {
            let place = rng.below(PLACES);
            if flying.values().any(|(_, busy)| *busy == place) {
                continue;
            }
            left -= 1;
            versions[place as usize] += 1;
            let buf = rig.arena.alloc(PLACE as u32);
            let span = Span::new(buf, 0, PLACE as u32);
            rig.arena.bytes_mut(span).copy_from_slice(&pattern(place * PLACE, PLACE, versions[place as usize]));
            flying.insert(rig.submit(Op::Write, place * PLACE, PLACE, Some(span)), (buf, place));
        }
        for done in rig.wait() {
            done.result.unwrap();
            let (buf, _) = flying.remove(&done.token).expect("each I/O ends once");
            rig.arena.free(buf);
        }
    }
    rig.flush().unwrap();
    for (place, version) in versions.into_iter().enumerate() {
        let offset = place as u64 * PLACE;
        assert!(rig.read(offset, PLACE as u32, 0).unwrap() == pattern(offset, PLACE, version));
    }
}

fn more_in_flight_than_any_queue(rig: &mut Rig) {
    let block = rig.block();
    let buf = rig.arena.alloc(4 << 20);
    let mut flying: HashMap<Token, Span> = HashMap::new();
    for i in 0..3000 {
        let span = Span::new(buf, (i % 1024 * block) as u32, block as u32);
        flying.insert(rig.submit(Op::Read, i * block, block, Some(span)), span);
        if i % 100 == 0 {
            flying.insert(rig.submit(Op::Flush, 0, 0, None), span);
        }
    }
    while !flying.is_empty() {
        for done in rig.wait() {
            done.result.unwrap();
            flying.remove(&done.token).expect("each I/O ends once");
        }
    }
    rig.arena.free(buf);
}

fn bugs_assert(rig: &mut Rig) {
    let (size, block) = (rig.device.geometry().size_bytes, rig.block());
    let buf = rig.arena.alloc(8192);
    let span = |offset, len| Some(Span::new(buf, offset, len));
    let whole = block as u32;
    for (what, offset, len, memory) in [
        ("outside", size, block, span(0, whole)),
        ("across the end", size - block, 2 * block, span(0, 2 * whole)),
        ("overflow", u64::MAX - 511, block, span(0, whole)),
        ("empty", 0, 0, span(0, 0)),
        ("offset not aligned", 100, block, span(0, whole)),
        ("length not aligned", 0, block + 8, span(0, whole + 8)),
        ("memory not aligned", 0, block, span(8, whole)),
        ("memory of another length", 0, block, span(0, 2 * whole)),
        ("no memory", 0, block, None),
    ] {
        let refused = catch_unwind(AssertUnwindSafe(|| rig.submit(Op::Read, offset, len, memory)));
        assert!(refused.is_err(), "{what}: was accepted");
    }
    rig.arena.free(buf);
}

fn ram(logical_block_bytes: u32) -> RamDisk {
    RamDisk::new(RamSpec { size_bytes: SIZE, logical_block_bytes, ..RamSpec::default() })
}

fn real(prefer: Prefer) {
    let folder = folder();
    suite(Rig::real(&file(folder.path(), "disk", SIZE), prefer));
}

macro_rules! devices {
    ($($name:ident: $run:expr,)*) => {
        $(#[test]
        fn $name() {
            $run
        })*
    };
}

devices! {
    uring: real(Prefer::Uring),
    threads: real(Prefer::Threads),
    ramdisk: suite(Rig::new(ram(512), None)),
    ramdisk_4k: suite(Rig::new(ram(4096), None)),
    delay_hdd: suite(Rig::new(Delay::new(ram(512), ModelSpec::Hdd(HddSpec::default())), None)),
    delay_hdd_write_cache: {
        let spec = HddSpec { write_cache_bytes: 8 << 20, ..HddSpec::default() };
        suite(Rig::new(Delay::new(ram(512), ModelSpec::Hdd(spec)), None));
    },
    delay_ssd: suite(Rig::new(Delay::new(ram(4096), ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Full))), None)),
    inject_nothing: suite(Rig::new(Inject::new(ram(512), Faults::default()), None)),
    inject_stalls: {
        let stalls = "stall,p=0.05,hold=20ms".parse().unwrap();
        suite(Rig::new(Inject::new(ram(4096), stalls), None));
    },
    inject_stalls_real: {
        use flashfront_device::real::{Access, Reactor};
        let folder = folder();
        let reactor = Reactor::new(Prefer::Auto).unwrap();
        let device = reactor.open(&file(folder.path(), "disk", SIZE), Access::Exclusive).unwrap();
        let stalls = "stall,p=0.01,hold=2ms".parse().unwrap();
        suite(Rig::new(Inject::new(device, stalls), Some(reactor)));
    },
    patience: suite(Rig::new(Patience::new(ram(512), Some(1_000_000_000), 16), None)),
    patience_real: {
        use flashfront_device::real::{Access, Reactor};
        let folder = folder();
        let reactor = Reactor::new(Prefer::Auto).unwrap();
        let device = reactor.open(&file(folder.path(), "disk", SIZE), Access::Exclusive).unwrap();
        suite(Rig::new(Patience::new(device, Some(3_600_000_000_000), 16), Some(reactor)));
    },
    delay_ssd_real: {
        use flashfront_device::real::{Access, Reactor};
        let folder = folder();
        let reactor = Reactor::new(Prefer::Auto).unwrap();
        let device = reactor.open(&file(folder.path(), "disk", SIZE), Access::Exclusive).unwrap();
        suite(Rig::new(Delay::new(device, ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Full))), Some(reactor)));
    },
}
