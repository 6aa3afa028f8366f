// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the arena: bounds, reuse, addresses, payload.

use flashfront_engine::{Buf, Memory, Span};

use super::{Arena, CHUNK_BYTES};
use crate::Rng;

#[test]
fn buffers_are_aligned_and_apart() {
    let mut arena = Arena::new(64 << 20);
    let mut ranges = Vec::new();
    for (i, bytes) in [4096, 4096, 5000, 65536, 1 << 20, CHUNK_BYTES, 8192].into_iter().enumerate() {
        let buf = arena.alloc(bytes);
        let span = Span::new(buf, 0, bytes);
        let start = arena.ptr(span).as_ptr().addr();
        assert_eq!(start % 4096, 0);
        assert!(arena.buffer_bytes(buf) >= bytes);
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
        if rng.below(5) < 2 && !held.is_empty() {
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
        assert_eq!(arena.allocated_bytes(), held.iter().map(|(_, bytes, _)| u64::from(*bytes)).sum::<u64>());
        assert!(arena.mapped_bytes() <= arena.limit_bytes());
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
    assert_eq!(arena.mapped_bytes(), 12 << 20);
    arena.alloc(CHUNK_BYTES);
    assert_eq!(arena.mapped_bytes(), 16 << 20);
}

#[test]
fn the_engine_gets_a_larger_buffer_rather_than_none() {
    let mut arena = Arena::with_reserve(4 << 20, 4 << 20);
    let large = arena.alloc(1 << 20);
    let small = arena.alloc(4096);
    assert_eq!(arena.buffer_bytes(small), 1 << 20);
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
fn a_chunk_outlives_the_arena_for_its_holder() {
    let mut arena = Arena::new(4 << 20);
    let buf = arena.alloc(4096);
    arena.bytes_mut(Span::new(buf, 0, 4096)).fill(0x5a);
    let chunk = arena.chunks()[arena.chunk_of(buf)].clone();
    drop(arena);
    assert_eq!(std::sync::Arc::strong_count(&chunk), 1);
}
