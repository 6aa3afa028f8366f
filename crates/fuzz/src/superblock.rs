// SPDX-License-Identifier: MIT OR Apache-2.0
//! The superblock and the table of volumes: their decoders, and the choice between the two copies
//! by whatever opens a cache.

use std::ops::Range;

use flashfront_device::real::{Access, DeviceFile};
use flashfront_engine::format::{Mirror, ORIGINS_MAX, PairingError, Superblock, choose};
use flashfront_engine::{Engine, Options, Time};
use flashfront_serve::{offline, superblock};

use crate::Target;
use crate::bytes::Bytes;
use crate::cache::{BLOCK, Cache, Kind};
use crate::patch::fit_checksum;
use crate::scratch::Scratch;

pub(crate) const TARGET: Target = Target {
    name: "superblock",
    summary: "both copies of the superblock, the table of volumes, opening what they describe, and which of two members counts",
    input_bytes_max: 2 * BLOCK + 2,
    // The index of the largest layout that its device has room for is below a MiB.
    heap_bytes_max: 32 << 20,
    body,
};

/// The fixed part and one origin, or where the table is; and, behind all origins, which pairing the
/// device belongs to.
const BEGINNING: usize = 104 + 128;
/// The head of a block of the table, and two volumes.
const TABLE_BEGINNING: usize = 40 + 2 * 512;
const PAIRED: Range<usize> = 104 + ORIGINS_MAX * 128..104 + ORIGINS_MAX * 128 + 8;

thread_local! {
    static FILE: Scratch = Scratch::new();
}

fn body(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let what = bytes.u8();
    let caches = Cache::all();
    let mut device = caches[bytes.below(caches.len() as u64) as usize].bytes.clone();
    let last = device.len() - BLOCK;
    let mut sound = Vec::new();
    for (nth, at) in [0, last].into_iter().enumerate() {
        let block = &mut device[at..at + BLOCK];
        // Pairs of a place and a byte, or the bytes themselves.
        if what >> nth & 1 == 0 {
            for _ in 0..bytes.below(32) {
                let place = usize::from(bytes.u8()) % (BEGINNING + PAIRED.len());
                block[place.checked_sub(BEGINNING).map_or(place, |nth| PAIRED.start + nth)] = bytes.u8();
            }
        } else {
            let new = bytes.take(BLOCK);
            block[..new.len()].copy_from_slice(new);
        }
        if what >> (2 + nth) & 1 == 0 {
            block[..8].copy_from_slice(b"FLASHFRT");
            fit_checksum(block, Kind::Superblock);
        }
        if let Ok(superblock) = Superblock::decode(block) {
            decoded(&superblock);
            sound.push(superblock);
        }
    }
    // The table of volumes that they name.
    let tables = caches[0].of_kind(Kind::Table).iter().map(|(_, at)| *at);
    for at in tables.take(usize::from(what >> 5)) {
        let block = &mut device[at..at + BLOCK];
        for _ in 0..bytes.below(16) {
            block[usize::from(bytes.u16()) % TABLE_BEGINNING] = bytes.u8();
        }
        if bytes.u8() & 1 == 0 {
            fit_checksum(block, Kind::Table);
        }
    }
    // The same two as if each were on a device of its own.
    for alone in [false, true] {
        if let [first, second] = &sound[..] {
            chosen(first, Some(second), alone);
            chosen(second, Some(first), alone);
        }
        for superblock in &sound {
            chosen(superblock, None, alone);
        }
    }
    if what >> 4 & 1 == 1 {
        device.truncate(device.len() - usize::from(bytes.u16()) % last);
    }
    FILE.with(|file| {
        file.put(&device);
        opened(file, &device);
    });
}

/// What one copy says can be said again, and is enough for an engine.
fn decoded(superblock: &Superblock) {
    let again = Superblock::decode(&superblock.encode());
    let again = again.expect("what is decoded can be encoded");
    // Names that are no text are mended by the first decoding, perhaps to more bytes than there is
    // room for.
    let mended = superblock.origins.iter().any(|it| (it.name.clone() + &it.identity).contains('\u{fffd}'));
    let places = |it: &Superblock| Superblock { origins: Vec::new(), ..it.clone() };
    if mended {
        assert_eq!(places(&again), places(superblock));
    } else {
        assert_eq!(again, *superblock);
    }
    for lane in [0, superblock.lanes - 1] {
        let slots = superblock.segments_per_lane * superblock.segment_blocks;
        assert!(superblock.checkpoint_offset(lane, 0) >= BLOCK as u64, "the log is on the superblock");
        let end = superblock.slot_offset(lane, slots - 1) + BLOCK as u64;
        assert!(end <= superblock.cache_bytes - BLOCK as u64, "the log is beyond the device");
    }
}

/// The newest of two members counts, and no client is served by a member that may be old.
fn chosen(first: &Superblock, second: Option<&Superblock>, alone: bool) {
    let strangers = second.is_some_and(|it| it.uuid != first.uuid || it.pairing.member == first.pairing.member);
    let chosen = match choose(first, second, alone) {
        Ok(chosen) => chosen,
        Err(error) => {
            assert_eq!(strangers, error == PairingError::Strangers, "{first:?} {second:?}");
            assert!(!alone || error != PairingError::MemberMissing, "the operator has said that it won't come back");
            return;
        }
    };
    let is_one = |it: &Superblock| chosen == Superblock { pairing: chosen.pairing, ..it.clone() };
    assert!(!strangers && (is_one(first) || second.is_some_and(is_one)), "{chosen:?}");
    let newest = second.map_or(first.update, |it| it.update.max(first.update));
    assert_eq!(chosen.update, newest, "an older one was chosen");
    if chosen.pairing.mirror == Mirror::Whole {
        let other = second.expect("whole, with one device");
        assert_eq!(first.pairing.paired, other.pairing.paired, "members of two pairings");
    } else {
        assert_eq!(chosen.pairing.lead, chosen.pairing.member, "the one that is left doesn't lead");
    }
    decoded(&chosen);
}

fn opened(file: &Scratch, device: &[u8]) {
    let path = file.path();
    let found = {
        let Ok(file) = DeviceFile::open(&path, Access::ReadOnly) else { return };
        superblock::read(&file)
    };
    if let Ok(stored) = &found {
        // As large as its device, or smaller if the other member is: only then is its layout
        // believed.
        let (cache_bytes, device_bytes) = (stored.superblock.cache_bytes, device.len() as u64);
        assert!(cache_bytes <= device_bytes, "the cache is larger than its device");
        let alone = stored.superblock.pairing.mirror == Mirror::None;
        assert!(!alone || cache_bytes == device_bytes, "the device has another size than the cache was made with");
        // It may refuse, not fall over.
        let _ = Engine::new(stored.superblock.clone(), Options::default(), Time(0));
    }
    let checked = offline::check(&path, &mut |_, _| {});
    let dumped = offline::dump(&path, &mut |_, _| {});
    assert_eq!(dumped.is_ok(), found.is_ok(), "{found:?} {dumped:?}");
    assert!(found.is_err() || checked.is_ok(), "{checked:?}");
    if let Ok(plan) = offline::Repair::plan(&path, None, false, &mut |_, _| {}) {
        assert!(found.is_ok(), "{:?} {found:?}", plan.report());
    }
    assert!(file.bytes(device.len()) == device, "what only reads has written");
}
