// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chains and requests of any bytes at all, and the same request in any cut.

use std::fs::File;

use flashfront_engine::OriginId;
use proptest::prelude::*;
use rustix::fs::MemfdFlags;
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{Bytes, GuestAddress};

use super::super::super::Export;
use super::super::chain::{Chain, Segment, total};
use super::super::guest::Guest;
use super::super::request::{Ask, Status, parse};
use super::super::{PAYLOAD_BYTES_MAX, RANGES_MAX};

const GUEST_BYTES: u64 = 0x2_0000;
/// The second region, with a hole before it.
const FAR: u64 = 0x10_0000;

fn guest() -> Guest {
    let file = File::from(rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(GUEST_BYTES * 2).unwrap();
    let mut guest = Guest::default();
    for (at, offset) in [(0, 0), (FAR, GUEST_BYTES)] {
        let region = VhostUserMemoryRegion::new(at, GUEST_BYTES, 0x7000_0000 + at, offset);
        guest.add(&region, file.try_clone().unwrap()).unwrap();
    }
    guest
}

fn export(read_only: bool) -> Export {
    Export { read_only, ..Export::new("data", OriginId(0), 1 << 20) }
}

/// Numbers where things break: small, at the ends of memory, and anything.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..GUEST_BYTES,
        FAR..FAR + GUEST_BYTES,
        GUEST_BYTES - 32..GUEST_BYTES + 32,
        FAR - 32..FAR + 32,
        u64::MAX - 64..=u64::MAX,
        any::<u64>(),
    ]
}

fn descriptor() -> impl Strategy<Value = (u64, u32, u16, u16)> {
    let len = prop_oneof![Just(1), Just(16), Just(512), Just(4096), 0..20_000u32, any::<u32>()];
    let flags = prop_oneof![0..8u16, any::<u16>()];
    (address(), len, flags, prop_oneof![0..16u16, any::<u16>()])
}

proptest! {
    #[test]
    fn any_bytes_are_a_request_or_refused(
        table in prop::collection::vec(descriptor(), 16),
        header in prop::array::uniform16(any::<u8>()),
        kind in prop_oneof![0..16u32, any::<u32>()],
        sector in prop_oneof![0..2100u64, any::<u64>()],
        at in address(),
        head in 0..20u16,
        read_only in any::<bool>(),
    ) {
        let guest = guest();
        let memory = guest.memory();
        for (index, (at, len, flags, next)) in table.iter().enumerate() {
            let entry = index as u64 * 16;
            memory.write_obj(*at, GuestAddress(entry)).unwrap();
            memory.write_obj(*len, GuestAddress(entry + 8)).unwrap();
            memory.write_obj(*flags, GuestAddress(entry + 12)).unwrap();
            memory.write_obj(*next, GuestAddress(entry + 14)).unwrap();
        }
        // A header at every place that a small address may name.
        for place in (4096..GUEST_BYTES).step_by(64) {
            memory.write_slice(&header, GuestAddress(place)).unwrap();
            memory.write_obj(kind, GuestAddress(place)).unwrap();
            memory.write_obj(sector, GuestAddress(place + 8)).unwrap();
        }
        let mut chain = Chain::default();
        let mut ranges = Vec::new();
        let tables = [GuestAddress(0), GuestAddress(at)];
        for table in tables {
            if chain.follow(memory, table, 16, head).is_err() {
                continue;
            }
            let export = export(read_only);
            let Some((status, asked)) = parse(&guest, &export, &mut chain, &mut ranges) else {
                continue;
            };
            prop_assert!(guest.holds(status, 1));
            let inside = |offset: u64, len: u32| {
                offset.is_multiple_of(512) && len.is_multiple_of(512) && len > 0 && len <= PAYLOAD_BYTES_MAX
                    && offset + u64::from(len) <= export.size_bytes
            };
            let there = |segments: &[Segment]| segments.iter().all(|it| guest.holds(it.at, it.len.into()));
            match asked {
                Ok(Ask::Read { offset, len }) => {
                    prop_assert!(inside(offset, len) && total(&chain.writable) == u64::from(len));
                    prop_assert!(there(&chain.writable));
                }
                Ok(Ask::Write { offset, len }) => {
                    prop_assert!(!read_only && inside(offset, len) && total(&chain.readable) == u64::from(len));
                    prop_assert!(there(&chain.readable));
                }
                Ok(Ask::Ranges) => {
                    prop_assert!(!read_only && (1..=RANGES_MAX as usize).contains(&ranges.len()));
                    for range in &ranges {
                        prop_assert!((range.lba.0 + range.sectors) * 512 <= export.size_bytes && range.sectors > 0);
                    }
                }
                Ok(Ask::Flush | Ask::Name) | Err(_) => {}
            }
        }
    }

    #[test]
    fn how_a_request_is_cut_makes_no_difference(
        cuts in prop::collection::btree_set(1..(16 + 4096u32), 0..6),
        status_apart in any::<bool>(),
    ) {
        let guest = guest();
        let memory = guest.memory();
        memory.write_obj(0u32, GuestAddress(0x1000)).unwrap();
        memory.write_obj(40u64, GuestAddress(0x1008)).unwrap();
        // Header, then payload, of which each part is elsewhere: here by where it starts.
        let mut next = 0u16;
        let mut put = |at: u64, len: u32, flags: u16, last: bool| {
            let entry = GuestAddress(u64::from(next) * 16);
            memory.write_obj(at, entry).unwrap();
            memory.write_obj(len, GuestAddress(entry.0 + 8)).unwrap();
            memory.write_obj(flags | u16::from(!last), GuestAddress(entry.0 + 12)).unwrap();
            next += 1;
            memory.write_obj(next, GuestAddress(entry.0 + 14)).unwrap();
        };
        let header: Vec<u32> = cuts.iter().copied().filter(|cut| *cut < 16).collect();
        let mut from = 0;
        for cut in header.iter().copied().chain([16]) {
            put(0x1000 + u64::from(from), cut - from, 0, false);
            from = cut;
        }
        let payload: Vec<u32> = cuts.iter().copied().filter(|cut| *cut > 16).map(|cut| cut - 16).collect();
        let mut from = 0;
        for cut in payload.iter().copied().chain([4096]) {
            let (last, end) = (cut == 4096 && !status_apart, u32::from(cut == 4096 && !status_apart));
            put(0x2000 + u64::from(from), cut - from + end, 2, last);
            from = cut;
        }
        if status_apart {
            put(0x3000, 1, 2, true);
        }
        let mut chain = Chain::default();
        chain.follow(memory, GuestAddress(0), 64, 0).unwrap();
        let (status, asked) = parse(&guest, &export(false), &mut chain, &mut Vec::new()).unwrap();
        prop_assert_eq!(status, GuestAddress(0x3000));
        prop_assert_eq!(asked, Ok(Ask::Read { offset: 40 * 512, len: 4096 }));
        prop_assert_eq!(total(&chain.writable), 4096);
    }
}

#[test]
fn a_read_only_volume_takes_reads() {
    let guest = guest();
    let memory = guest.memory();
    let segment = |at: u64, len: u32| Segment { at: GuestAddress(at), len };
    for (kind, expected) in [(1u32, Err(Status::Failed)), (13, Err(Status::Failed)), (4, Ok(Ask::Flush))] {
        memory.write_obj(kind, GuestAddress(0x1000)).unwrap();
        let mut chain =
            Chain { readable: vec![segment(0x1000, 16), segment(0x2000, 512)], writable: vec![segment(0x3000, 1)] };
        let (_, asked) = parse(&guest, &export(true), &mut chain, &mut Vec::new()).unwrap();
        assert_eq!(asked, expected);
    }
}
