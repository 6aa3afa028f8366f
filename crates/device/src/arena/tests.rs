// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the arena: bounds, reuse, addresses, payload.

use flashfront_engine::{Buf, Memory, Span, Time};

use super::{Arena, CHUNK_BYTES, IDLE_LOOKS, LOOK_NS, Share};
use crate::Rng;

mod pages;

/// Bytes of RAM behind the arena's addresses, as the kernel sees it.
fn resident_bytes(arena: &Arena) -> u64 {
    let pages = |chunk: &std::sync::Arc<super::Chunk>| {
        let mut pages = [0u8; CHUNK_BYTES as usize / 4096];
        // SAFETY: a mapped range, and a byte for each of its pages.
        let told = unsafe { libc::mincore(chunk.ptr().as_ptr().cast(), CHUNK_BYTES as usize, pages.as_mut_ptr()) };
        assert_eq!(told, 0);
        pages.iter().filter(|page| **page & 1 == 1).count() as u64
    };
    arena.chunks.iter().map(pages).sum::<u64>() * 4096
}

/// Bytes that a buffer has room for.
fn buffer_bytes(arena: &Arena, buf: Buf) -> u32 {
    super::class_bytes(usize::from(arena.uses[arena.place_of(buf)].class))
}

/// Trims once a second, and as often as it is due then, until this moment.
fn trim_until(arena: &mut Arena, until: Time) {
    while arena.look_at <= until && arena.held_bytes() > 0 {
        arena.trim(arena.look_at, |_, _| {});
    }
}

/// Takes buffers and writes to all of each.
fn filled(arena: &mut Arena, count: usize, bytes: u32) -> Vec<Buf> {
    let buf = |_| {
        let buf = arena.alloc(bytes);
        arena.bytes_mut(Span::new(buf, 0, bytes)).fill(1);
        buf
    };
    (0..count).map(buf).collect()
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn buffers_are_aligned_and_apart() {
    let mut arena = Arena::new(64 << 20);
    let mut ranges = Vec::new();
    for (i, bytes) in [4096, 4096, 5000, 65536, 1 << 20, CHUNK_BYTES, 8192].into_iter().enumerate() {
        let buf = arena.alloc(bytes);
        let span = Span::new(buf, 0, bytes);
        let start = arena.ptr(span).as_ptr().addr();
        assert_eq!(start % 4096, 0);
        assert!(buffer_bytes(&arena, buf) >= bytes);
        arena.bytes_mut(span).fill(i as u8);
        ranges.push((start, start + bytes as usize, span, i as u8));
    }
    for (i, a) in ranges.iter().enumerate() {
        assert!(arena.bytes(a.2).iter().all(|byte| *byte == a.3));
        for b in &ranges[i + 1..] {
            assert!(a.1 <= b.0 || b.1 <= a.0);
        }
    }
}

#[test]
fn random_use_never_overlaps_and_counts_exactly() {
    let mut arena = Arena::with_reserve(48 << 20, 16 << 20);
    let mut rng = Rng::new(7);
    let mut held: Vec<(Buf, u32, u8)> = Vec::new();
    let mut refused = 0;
    for step in 0..20_000u32 {
        let free = if step % 1000 < 500 { 2 } else { 3 };
        if rng.below(5) < free && !held.is_empty() {
            let (buf, bytes, mark) = held.swap_remove(rng.below(held.len() as u64) as usize);
            assert!(arena.bytes(Span::new(buf, 0, 64)).iter().all(|byte| *byte == mark));
            assert!(arena.bytes(Span::new(buf, bytes - 64, 64)).iter().all(|byte| *byte == mark));
            arena.free(buf);
        } else {
            let bytes = 4096 << rng.below(7);
            let Some(buf) = arena.try_alloc(bytes) else {
                refused += 1;
                continue;
            };
            arena.bytes_mut(Span::new(buf, 0, bytes)).fill(step as u8);
            held.push((buf, bytes, step as u8));
        }
        // Long pauses, so that chunks are given back between the others.
        trim_until(&mut arena, Time(u64::from(step) * SECOND / 8));
        assert_eq!(arena.allocated_bytes(), held.iter().map(|(_, bytes, _)| u64::from(*bytes)).sum::<u64>());
        assert!(arena.held_bytes() <= arena.limit_bytes());
    }
    assert!(refused > 0, "the bound was never reached");
    // The engine's reserve is still there.
    for _ in 0..4 {
        arena.alloc(CHUNK_BYTES);
    }
}

#[test]
fn emptied_chunks_change_size_and_pool() {
    let mut arena = Arena::with_reserve(16 << 20, 4 << 20);
    let small: Vec<_> = std::iter::from_fn(|| arena.try_alloc(4096)).collect();
    assert_eq!(small.len(), 3 * 1024);
    assert!(arena.try_alloc(65536).is_none());
    for buf in small {
        arena.free(buf);
    }
    assert_eq!(arena.allocated_bytes(), 0);
    assert_eq!(std::iter::from_fn(|| arena.try_alloc(65536)).count(), 3 * 64);
    assert_eq!(arena.held_bytes(), 12 << 20);
    arena.alloc(CHUNK_BYTES);
    assert_eq!(arena.held_bytes(), 16 << 20);
}

#[test]
fn a_full_share_leaves_the_others_theirs() {
    let shares = [Share::Waiting, Share::Payload, Share::Passing];
    let mut rng = Rng::new(5);
    for round in 0..20 {
        // 12 chunks for front-ends: 5, 3 and 4.
        let mut arena = Arena::with_reserve(64 << 20, 16 << 20).in_shares(20 << 20, 12 << 20);
        let all = |arena: &mut Arena, share, bytes: u32| {
            let bufs: Vec<_> = std::iter::from_fn(|| arena.try_alloc_of(share, bytes)).collect();
            assert_eq!(bufs.len() as u64 * u64::from(bytes), arena.share_bytes(share), "{share:?} round {round}");
            assert!(bufs.iter().all(|buf| arena.may_wait(*buf) == (share != Share::Passing)));
            bufs
        };
        // A share is taken whole in one size, and one buffer in each chunk is kept. The other
        // shares still have all of their buffers, in any size.
        let (hog, bytes) = (shares[round % 3], 4096 << rng.below(9));
        for (nth, buf) in all(&mut arena, hog, bytes).into_iter().enumerate() {
            if !nth.is_multiple_of((CHUNK_BYTES / bytes) as usize) {
                arena.free(buf);
            }
        }
        for share in shares.into_iter().filter(|share| *share != hog) {
            for _ in 0..3 {
                let bufs = all(&mut arena, share, 4096 << rng.below(9));
                bufs.into_iter().for_each(|buf| arena.free(buf));
            }
        }
        (0..4).for_each(|_| _ = arena.alloc(CHUNK_BYTES));
    }
}

#[test]
fn the_engine_gets_a_larger_buffer_rather_than_none() {
    let mut arena = Arena::with_reserve(4 << 20, 4 << 20);
    let large = arena.alloc(1 << 20);
    let small = arena.alloc(4096);
    assert_eq!(buffer_bytes(&arena, small), 1 << 20);
    arena.free(small);
    arena.free(large);
    assert_eq!(arena.allocated_bytes(), 0);
}

#[test]
#[should_panic(expected = "in use")]
fn beyond_the_bound_is_a_bug() {
    let mut arena = Arena::new(4 << 20);
    arena.alloc(CHUNK_BYTES);
    arena.alloc(4096);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "freed twice")]
fn double_free_is_a_bug() {
    let mut arena = Arena::new(4 << 20);
    let buf = arena.alloc(4096);
    arena.free(buf);
    arena.free(buf);
}

#[test]
#[should_panic(expected = "outside its buffer")]
fn a_range_beyond_its_buffer_is_a_bug() {
    let mut arena = Arena::new(4 << 20);
    let buf = arena.alloc(4096);
    arena.bytes(Span::new(buf, 4096, 1));
}

#[test]
fn copy_zero_checksum() {
    let mut arena = Arena::new(8 << 20);
    let (a, b) = (arena.alloc(8192), arena.alloc(8192));
    arena.bytes_mut(Span::new(a, 0, 9)).copy_from_slice(b"123456789");
    // The check value of CRC-32/ISCSI in the catalogue of parametrised CRC algorithms.
    assert_eq!(arena.checksum(Span::new(a, 0, 9)), 0xe306_9283);
    arena.copy(Span::new(a, 0, 9), b, 512);
    assert_eq!(arena.bytes(Span::new(b, 512, 9)), b"123456789");
    arena.zero(Span::new(b, 513, 3));
    assert_eq!(arena.bytes(Span::new(b, 512, 9)), b"1\x00\x00\x0056789");
}

#[test]
fn a_summed_copy_is_a_copy_and_its_sum() {
    let mut arena = Arena::new(64 << 20);
    let [from, plain, summed] = [(); 3].map(|()| arena.alloc(16 << 10));
    let all = |buf| Span::new(buf, 0, 16 << 10);
    let mut rng = Rng::new(7);
    arena.bytes_mut(all(from)).fill_with(|| rng.below(256) as u8);
    // Whole blocks as commits have them, and what no commit has: places and lengths that fit no
    // cache line.
    for (at, offset) in [(0, 0), (4096, 8192), (64, 128), (1, 64), (64, 16), (3, 7), (4095, 1)] {
        for len in [0, 1, 63, 64, 65, 127, 512, 4096, 4097, 8000] {
            arena.bytes_mut(all(plain)).fill(0xee);
            arena.bytes_mut(all(summed)).fill(0xee);
            let from = Span::new(from, at, len);
            arena.copy(from, plain, offset);
            let sum = arena.copy_summed(from, summed, offset);
            assert!(arena.bytes(all(plain)) == arena.bytes(all(summed)), "{from:?} to {offset}");
            assert_eq!(sum, arena.checksum(Span::new(summed, offset, len)), "{from:?} to {offset}");
        }
    }
}

#[test]
fn whoever_asks_for_what_was_streamed_comes_after_the_fence() {
    let asks: [fn(&mut Arena, Span); 8] = [
        |arena, span| assert_eq!(arena.ptr(span).align_offset(64), 0),
        |arena, span| assert_eq!(arena.bytes(span), [7; 64]),
        |arena, span| arena.bytes_mut(span).fill(8),
        |arena, span| assert_ne!(arena.checksum(span), 0),
        |arena, span| arena.zero(span),
        |arena, span| arena.free(span.buf()),
        |arena, span| {
            let other = arena.alloc(4096);
            arena.copy(span, other, 0);
        },
        |arena, span| {
            let other = arena.alloc(4096);
            arena.copy(Span::new(other, 0, 64), span.buf(), 0);
        },
    ];
    for ask in asks {
        let mut arena = Arena::new(64 << 20);
        let [from, to] = [(); 2].map(|()| arena.alloc(8192));
        arena.bytes_mut(Span::new(from, 0, 4096)).fill(7);
        arena.copy_summed(Span::new(from, 0, 4096), to, 0);
        arena.copy_summed(Span::new(from, 0, 64), to, 4096);
        assert!(arena.unfenced.has(to), "one buffer's copies need one fence");
        ask(&mut arena, Span::new(to, 4096, 64));
        assert!(!arena.unfenced.has(to));
    }
}

#[test]
fn of_two_streamed_copies_to_one_place_the_second_stays() {
    let mut arena = Arena::new(64 << 20);
    let [from, to, other] = [(); 3].map(|()| arena.alloc(1 << 20));
    for round in 0..200u32 {
        for (nth, buf) in [to, to, other, to].into_iter().enumerate() {
            let (span, byte) = (Span::new(from, 0, 4096), round as u8 ^ nth as u8);
            arena.bytes_mut(span).fill(byte);
            arena.copy_summed(span, buf, round * 4096);
            assert!(arena.unfenced.has(buf));
        }
        assert_eq!(arena.bytes(Span::new(to, round * 4096, 4096)), [round as u8 ^ 3; 4096]);
    }
}

#[test]
fn a_chunk_outlives_the_arena_for_its_holder() {
    let mut arena = Arena::new(4 << 20);
    let buf = arena.alloc(4096);
    arena.bytes_mut(Span::new(buf, 0, 4096)).fill(0x5a);
    let chunk = arena.chunk_of(buf).1;
    drop(arena);
    assert_eq!(std::sync::Arc::strong_count(&chunk), 1);
}

#[test]
fn what_was_idle_for_ten_seconds_is_the_kernels_again() {
    let mut arena = Arena::new(64 << 20);
    // Of a size that has small pages.
    let bufs = filled(&mut arena, 10, 512 << 10);
    assert_eq!(resident_bytes(&arena), 5 << 20);
    trim_until(&mut arena, Time(100 * SECOND));
    assert_eq!(resident_bytes(&arena), 5 << 20, "in use, however long");
    assert_eq!(arena.next_timer(), None, "nobody is woken for what is in use");
    bufs.into_iter().for_each(|buf| arena.free(buf));
    assert!(arena.next_timer().is_some());
    trim_until(&mut arena, Time(109 * SECOND));
    assert_eq!((resident_bytes(&arena), arena.held_bytes()), (5 << 20, 8 << 20), "it may be wanted again");
    trim_until(&mut arena, Time(111 * SECOND));
    assert_eq!((resident_bytes(&arena), arena.held_bytes()), (0, 0));
    assert_eq!(arena.next_timer(), None, "an idle arena wakes nobody");
}

/// A call gives back a single chunk: a request that comes meanwhile doesn't wait for all.
#[test]
fn chunks_are_given_back_one_by_one() {
    let mut arena = Arena::new(64 << 20);
    filled(&mut arena, 4, CHUNK_BYTES).into_iter().for_each(|buf| arena.free(buf));
    for look in 0..u64::from(IDLE_LOOKS) {
        arena.trim(Time(look * LOOK_NS), |_, _| panic!("too early"));
    }
    let now = Time(u64::from(IDLE_LOOKS) * LOOK_NS);
    for left in (0..4).rev() {
        assert!(arena.next_timer() <= Some(now), "there is more to do at once");
        arena.trim(now, |_, _| {});
        assert_eq!(resident_bytes(&arena), left * u64::from(CHUNK_BYTES));
    }
}

/// A load that comes again every few seconds finds its memory as it left it.
#[test]
fn pauses_of_a_load_are_outlasted() {
    let mut arena = Arena::new(64 << 20);
    for round in 0..20 {
        let bufs = filled(&mut arena, 2, CHUNK_BYTES);
        bufs.into_iter().for_each(|buf| arena.free(buf));
        trim_until(&mut arena, Time(round * 8 * SECOND));
        assert_eq!(resident_bytes(&arena), 8 << 20, "round {round}");
    }
}

/// The buffers that are left of a load with many chunks gather in one chunk, wherever they were.
#[test]
fn a_small_load_after_a_large_one_needs_little() {
    let mut arena = Arena::new(64 << 20);
    let mut bufs = filled(&mut arena, 40, 1 << 20);
    let mut rng = Rng::new(3);
    while bufs.len() > 1 {
        arena.free(bufs.swap_remove(rng.below(bufs.len() as u64) as usize));
    }
    let mut last = bufs[0];
    for i in 0..120 {
        // Two at a time, so that one is always in use.
        let next = filled(&mut arena, 1, 1 << 20)[0];
        arena.free(std::mem::replace(&mut last, next));
        trim_until(&mut arena, Time(i * SECOND / 4));
    }
    assert_eq!(arena.held_bytes(), u64::from(CHUNK_BYTES));
    assert!(resident_bytes(&arena) <= u64::from(CHUNK_BYTES));
}

#[test]
fn what_was_given_back_serves_again_within_the_bound() {
    let mut arena = Arena::with_reserve(16 << 20, 4 << 20);
    let mut now = Time(0);
    for bytes in [4096, 1 << 20, 65536] {
        let most: Vec<_> = std::iter::from_fn(|| arena.try_alloc(bytes)).collect();
        assert_eq!(most.len() as u64 * u64::from(bytes), 12 << 20, "all but the engine's reserve");
        let reserve = arena.alloc(CHUNK_BYTES);
        assert_eq!(arena.held_bytes(), 16 << 20);
        let last = *most.last().unwrap();
        arena.bytes_mut(Span::new(last, 0, bytes)).fill(bytes.trailing_zeros() as u8);
        assert_eq!(arena.bytes(Span::new(last, 0, bytes))[7], bytes.trailing_zeros() as u8);
        most.into_iter().chain([reserve]).for_each(|buf| arena.free(buf));
        now = now.plus_ns(60 * SECOND);
        trim_until(&mut arena, now);
        assert_eq!((resident_bytes(&arena), arena.held_bytes()), (0, 0));
    }
}

/// Pages that a ring holds can't be exchanged behind its back.
#[test]
fn what_the_kernel_holds_is_kept() {
    let mut arena = Arena::new(64 << 20);
    let buf = filled(&mut arena, 1, CHUNK_BYTES)[0];
    let chunk = arena.chunks[0].clone();
    let mut pins = vec![chunk.pin(), chunk.pin()];
    arena.free(buf);
    for minute in 1..=2 {
        trim_until(&mut arena, Time(minute * 60 * SECOND));
        assert_eq!(resident_bytes(&arena), u64::from(CHUNK_BYTES), "{} rings hold it", pins.len());
        pins.pop();
    }
    trim_until(&mut arena, Time(180 * SECOND));
    assert_eq!((resident_bytes(&arena), arena.held_bytes()), (0, 0));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "was freed")]
fn a_buffer_of_a_chunk_that_was_given_back_is_a_bug() {
    let mut arena = Arena::new(64 << 20);
    let buf = filled(&mut arena, 1, 4096)[0];
    arena.free(buf);
    trim_until(&mut arena, Time(60 * SECOND));
    arena.bytes(Span::new(buf, 0, 1));
}

#[test]
fn a_lent_buffer_is_the_same_memory_under_the_same_name() {
    let mut borrower = Arena::new(16 << 20);
    let (owners, loans): (Vec<_>, Vec<_>) = (0..2).map(|number| Arena::lending(number, 8 << 20)).unzip();
    loans.into_iter().for_each(|loan| borrower.borrow_from(loan));
    let own = filled(&mut borrower, 3, 4096);
    let lend = |(number, mut owner): (usize, Arena)| {
        std::thread::spawn(move || {
            // More than a chunk of them, so that the list of chunks grows.
            let buffers: Vec<Buf> = (0..1500).map(|_| owner.try_alloc(4096).unwrap()).collect();
            for (nth, buf) in buffers.iter().enumerate() {
                owner.bytes_mut(Span::new(*buf, 0, 4096)).fill((number * 100 + nth % 100) as u8);
            }
            (owner, buffers)
        })
    };
    let threads: Vec<_> = owners.into_iter().enumerate().map(lend).collect();
    let lent: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(borrower.borrowed_bytes(), 2 * 1500 * 4096);
    assert_eq!(borrower.allocated_bytes(), 3 * 4096, "what is borrowed is its owner's");
    for (number, (mut owner, buffers)) in lent.into_iter().enumerate() {
        for (nth, buf) in buffers.into_iter().enumerate() {
            let span = Span::new(buf, 0, 4096);
            assert_eq!(borrower.ptr(span), owner.ptr(span));
            assert!(borrower.bytes(span).iter().all(|byte| usize::from(*byte) == number * 100 + nth % 100));
            assert_eq!(borrower.checksum(span), owner.checksum(span));
            borrower.copy(span, own[0], 0);
            borrower.copy_summed(Span::new(own[1], 0, 4096), buf, 0);
            assert!(!borrower.unfenced.has(buf), "its owner knows nothing of it");
            borrower.zero(span);
            assert!(owner.bytes(span).iter().all(|byte| *byte == 0));
            owner.free(buf);
        }
        assert!(owner.try_alloc(CHUNK_BYTES).is_some() && owner.try_alloc(CHUNK_BYTES).is_some());
        assert!(owner.try_alloc(CHUNK_BYTES).is_none(), "the bound is the owner's own");
    }
    assert_eq!(borrower.borrowed_bytes(), 2 * (8 << 20));
}

#[test]
#[should_panic(expected = "nobody's")]
fn what_nobody_has_lent_is_a_bug() {
    let (mut owner, _) = Arena::lending(0, 8 << 20);
    let buf = owner.try_alloc(4096).unwrap();
    let _ = Arena::new(8 << 20).ptr(Span::new(buf, 0, 4096));
}

/// The span of all bytes of a buffer of 8 KiB.
fn all_of(buf: Buf) -> Span {
    Span::new(buf, 0, 8192)
}

#[test]
fn a_late_read_changes_no_buffer() {
    let mut arena = Arena::new(8 << 20);
    let buf = arena.alloc(8192);
    arena.bytes_mut(all_of(buf)).fill(1);
    let mut device = arena.grip(Span::new(buf, 4096, 4096));
    arena.quarantine(buf);
    assert_eq!(arena.bytes(all_of(buf)), [1; 8192], "what was there is there still");
    device.write(&[9; 4096]);
    assert_eq!(arena.bytes(all_of(buf)), [1; 8192]);
    arena.free(buf);
    // As many buffers as there can be: none of them is the device's.
    let others: Vec<_> = (0..1024).map(|_| arena.alloc(8192)).collect();
    others.iter().for_each(|buf| arena.bytes_mut(all_of(*buf)).fill(2));
    device.write(&[9; 4096]);
    assert!(others.iter().all(|buf| arena.bytes(all_of(*buf)) == [2; 8192]));
    arena.release(buf);
    others.into_iter().for_each(|buf| arena.free(buf));
    assert_eq!(arena.allocated_bytes(), 0);
}

#[test]
fn what_was_read_into_the_memory_of_then_is_carried_over() {
    let mut arena = Arena::new(8 << 20);
    let buf = arena.alloc(8192);
    let [first, second] = [0, 4096].map(|at| Span::new(buf, at, 4096));
    arena.bytes_mut(all_of(buf)).fill(1);
    let (own, mut device) = (arena.memory_of(buf), arena.grip(second));
    arena.quarantine(buf);
    let (stand_in, mut other_device) = (arena.memory_of(buf), arena.grip(first));
    arena.quarantine(buf);
    arena.bytes_mut(all_of(buf)).fill(2);
    device.write(&[9; 4096]);
    arena.carry_over(second, own);
    assert_eq!((arena.bytes(first), arena.bytes(second)), (&[2; 4096][..], &[9; 4096][..]), "from its own memory");
    other_device.write(&[8; 4096]);
    arena.carry_over(first, stand_in);
    assert_eq!(arena.bytes(first), [8; 4096], "from the older stand-in");
    arena.bytes_mut(all_of(buf)).fill(3);
    arena.carry_over(all_of(buf), arena.memory_of(buf));
    assert_eq!(arena.bytes(all_of(buf)), [3; 8192], "nothing to do for what was begun since");
    (0..2).for_each(|_| arena.release(buf));
    arena.free(buf);
    let again = arena.alloc(8192);
    arena.bytes_mut(all_of(again)).fill(4);
    arena.carry_over(all_of(again), own);
    assert_eq!(arena.bytes(all_of(again)), [4; 8192]);
    arena.free(again);
}

#[test]
fn a_late_write_finds_what_was_given_to_it() {
    let mut arena = Arena::new(8 << 20);
    let buf = arena.alloc(8192);
    arena.bytes_mut(all_of(buf)).fill(1);
    let device = arena.grip(all_of(buf));
    arena.quarantine(buf);
    // Its owner goes on with the buffer, and with whatever the arena gives it then.
    arena.bytes_mut(all_of(buf)).fill(2);
    arena.free(buf);
    let others: Vec<_> = (0..1024).map(|_| arena.alloc(8192)).collect();
    others.iter().for_each(|buf| arena.bytes_mut(all_of(*buf)).fill(3));
    let mut found = [0; 8192];
    device.read(&mut found);
    assert_eq!(found, [1; 8192]);
}

#[test]
fn a_buffer_in_quarantine_is_freed_with_the_last_of_its_owner_and_its_ios() {
    for owner_first in [true, false] {
        let mut arena = Arena::new(8 << 20);
        let buf = arena.alloc(8192);
        (0..2).for_each(|_| arena.quarantine(buf));
        if owner_first {
            arena.free(buf);
        }
        arena.release(buf);
        assert_eq!(arena.allocated_bytes(), 8192);
        arena.release(buf);
        if !owner_first {
            assert_eq!(arena.allocated_bytes(), 8192, "its owner has it");
            arena.free(buf);
        }
        assert_eq!(arena.allocated_bytes(), 0);
        // It is as good as new.
        let again = arena.alloc(8192);
        arena.bytes_mut(all_of(again)).fill(4);
        let mut device = arena.grip(all_of(again));
        device.write(&[5; 8192]);
        assert_eq!(arena.bytes(all_of(again)), [5; 8192], "with its own memory");
    }
}

#[test]
fn what_is_in_quarantine_does_not_count_to_the_bound() {
    let mut arena = Arena::with_reserve(8 << 20, 4 << 20);
    let chunks: Vec<_> = [arena.alloc(CHUNK_BYTES), arena.try_alloc(CHUNK_BYTES).unwrap()].into();
    assert_eq!(arena.try_alloc(4096), None);
    for &buf in &chunks {
        arena.quarantine(buf);
        arena.free(buf);
    }
    let more = [arena.alloc(CHUNK_BYTES), arena.try_alloc(CHUNK_BYTES).unwrap()];
    assert_eq!((arena.try_alloc(4096), arena.held_bytes()), (None, 16 << 20), "and no more than that");
    chunks.into_iter().for_each(|buf| arena.release(buf));
    more.into_iter().for_each(|buf| arena.free(buf));
    assert_eq!(arena.allocated_bytes(), 0);
}

#[test]
fn a_lent_buffer_is_in_quarantine_for_its_owner_too() {
    let mut borrower = Arena::new(8 << 20);
    let (mut owner, loan) = Arena::lending(0, 8 << 20);
    borrower.borrow_from(loan);
    let buf = owner.try_alloc(8192).unwrap();
    owner.bytes_mut(all_of(buf)).fill(1);
    let mut device = borrower.grip(all_of(buf));
    borrower.quarantine(buf);
    device.write(&[9; 8192]);
    borrower.bytes_mut(Span::new(buf, 0, 4096)).fill(2);
    assert_eq!(owner.bytes(Span::new(buf, 0, 4096)), [2; 4096], "both see the same");
    assert_eq!(owner.bytes(Span::new(buf, 4096, 4096)), [1; 4096]);
    owner.free(buf);
    assert_eq!(owner.allocated_bytes(), 8192);
    let others: Vec<_> = (0..512).map(|_| owner.try_alloc(8192).unwrap()).collect();
    assert!(!others.contains(&buf));
    borrower.release(buf);
    // The owner finds it when it wants memory.
    others.into_iter().for_each(|buf| owner.free(buf));
    let last = owner.try_alloc(8192).unwrap();
    owner.free(last);
    assert_eq!(owner.allocated_bytes(), 0);
}
