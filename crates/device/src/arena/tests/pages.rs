// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of who gets huge pages.

use flashfront_engine::{Memory, Span, Time};

use super::super::{Arena, CHUNK_BYTES, IDLE_LOOKS, LOOK_NS};
use super::{filled, resident_bytes, trim_until};

#[test]
fn huge_pages_are_asked_for_and_given_back() {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        eprintln!("SKIPPED: this kernel has no transparent huge pages");
        return;
    }
    let mut arena = Arena::new(64 << 20).in_huge_pages(true);
    let bufs = filled(&mut arena, 8, CHUNK_BYTES);
    for chunk in &arena.chunks {
        assert!((chunk.ptr().as_ptr() as usize).is_multiple_of(2 << 20));
        assert!(is_advised_huge(chunk.ptr().as_ptr() as usize));
    }
    bufs.into_iter().for_each(|buf| arena.free(buf));
    trim_until(&mut arena, Time(LOOK_NS * (u64::from(IDLE_LOOKS) + 2)));
    assert_eq!(resident_bytes(&arena), 0);
}

#[test]
fn large_buffers_are_in_huge_pages_and_small_ones_are_not() {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        eprintln!("SKIPPED: this kernel has no transparent huge pages");
        return;
    }
    let mut arena = Arena::new(64 << 20);
    let is_huge = |arena: &Arena, buf| is_advised_huge(arena.ptr(Span::new(buf, 0, 1)).as_ptr() as usize);
    // The former owner of a chunk doesn't matter: chunks that were given back serve the other size
    // the second time.
    for second in [false, true] {
        let sizes = if second { [4096, 1 << 20] } else { [1 << 20, 4096] };
        let bufs = sizes.map(|bytes| (filled(&mut arena, 1, bytes)[0], bytes));
        for (buf, bytes) in bufs {
            assert_eq!(is_huge(&arena, buf), bytes == 1 << 20, "{bytes}, {second}");
        }
        bufs.into_iter().for_each(|(buf, _)| arena.free(buf));
        let later = arena.look_at.plus_ns(LOOK_NS * (u64::from(IDLE_LOOKS) + 4));
        trim_until(&mut arena, later);
        assert_eq!((resident_bytes(&arena), arena.held_bytes()), (0, 0));
    }
    assert_eq!(arena.chunks.len(), 2);
}

/// Whether the kernel notes huge pages for the mapping at this address. Whether it has one to give
/// at the moment is another question.
fn is_advised_huge(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("it is there on Linux");
    let mut inside = false;
    for line in maps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        if let Some((from, to)) = range.and_then(|(from, to)| Some((number(from)?, number(to)?))) {
            inside = (from..to).contains(&address);
        } else if inside && line.starts_with("VmFlags:") {
            return line.split(' ').any(|flag| flag == "hg");
        }
    }
    panic!("{address:x} is not mapped");
}
