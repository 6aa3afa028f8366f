// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every policy must do, and what `gated` promises.

use alloc::vec::Vec;

use super::{ALL, Capacity, Hold, Policy, Window, Zone, by_name};
use crate::fact::types::SegmentId;

const CAPACITY: Capacity = Capacity { segments: 64, segment_blocks: 16, stands_for: 1 };

fn gated() -> alloc::boxed::Box<dyn Policy> {
    (by_name("gated").unwrap().build)(CAPACITY)
}

/// A read miss of a full cache, of a block that nothing in the window waits for.
fn missed(policy: &mut dyn Policy, key: u64) -> bool {
    let verdict = policy.missed(key, false);
    if !verdict.admit {
        policy.left_window(key, verdict.seen);
    }
    verdict.admit
}

#[test]
fn every_policy_admits_while_there_is_room_and_what_keeps_missing() {
    for spec in ALL {
        let mut policy = (spec.build)(CAPACITY);
        assert!((0..1000).all(|key| policy.missed(key, true).admit), "{}", spec.name);
        let admitted = (0..16).any(|_| missed(&mut *policy, 77_777));
        assert!(admitted, "{}: a block that misses again and again never gets in", spec.name);
        assert!(policy.bytes() <= 3 * CAPACITY.blocks(), "{}: more than 3 bytes a block", spec.name);
        assert!(by_name(spec.name).is_some());
    }
    assert!(by_name("nonsense").is_none());
}

#[test]
fn every_policy_offers_each_sealed_segment_once_and_respects_evictability() {
    for spec in ALL {
        let mut policy = (spec.build)(CAPACITY);
        assert_eq!(policy.victim(&|_| true), None, "{}: nothing is sealed yet", spec.name);
        for n in 0..64 {
            policy.sealed(SegmentId(n), if n % 3 == 0 { Zone::Main } else { Zone::Writes });
        }
        assert_eq!(policy.victim(&|_| false), None, "{}", spec.name);
        assert_eq!(policy.victim(&|segment| segment.0 == 40), Some(SegmentId(40)), "{}", spec.name);
        let mut rest: Vec<u32> = core::iter::from_fn(|| policy.victim(&|_| true)).map(|segment| segment.0).collect();
        rest.sort_unstable();
        assert_eq!(rest, (0..64).filter(|n| *n != 40).collect::<Vec<u32>>(), "{}", spec.name);
    }
}

#[test]
fn every_policy_lets_go_of_a_block_that_nobody_asks_for() {
    for spec in ALL {
        let mut policy = (spec.build)(CAPACITY);
        policy.sealed(SegmentId(0), Zone::Main);
        policy.victim(&|_| true);
        for zone in [Zone::Writes, Zone::Main] {
            assert_eq!(policy.survives(zone, 0, 0, 16), None, "{}: keeps a block nobody asked for", spec.name);
            let mut hits = Some(super::HITS_MAX);
            for _ in 0..=super::HITS_MAX {
                hits = hits.and_then(|hits| policy.survives(zone, hits, 0, 16));
            }
            assert_eq!(hits, None, "{}: copies a block forward for ever", spec.name);
        }
    }
}

#[test]
fn every_policy_frees_a_sixteenth_of_what_it_reclaims_however_hot_it_is() {
    for spec in ALL {
        let mut policy = (spec.build)(CAPACITY);
        let mut kept_blocks = 0;
        for nth in 0..1000 {
            let zone = if nth % 2 == 0 { Zone::Main } else { Zone::Writes };
            policy.sealed(SegmentId(0), zone);
            policy.victim(&|_| true);
            let mut kept = 0;
            for _ in 0..16 {
                kept += u32::from(policy.survives(zone, super::HITS_MAX, kept, 16).is_some());
            }
            kept_blocks += kept;
        }
        assert!(kept_blocks <= (1000 * 15 / 16 + 16) * 16, "{}: {kept_blocks} of 16,000 blocks kept", spec.name);
    }
}

#[test]
fn gated_keeps_a_scan_out_and_admits_at_the_second_sight() {
    let mut policy = gated();
    let admitted = (0..100_000).filter(|&key| missed(&mut *policy, key)).count();
    assert!(admitted < 1000, "{admitted} blocks of a scan were admitted: more than ghosts taken for others");
    assert!(!missed(&mut *policy, 1 << 40));
    assert!(missed(&mut *policy, 1 << 40));
}

#[test]
fn gated_raises_its_gate_when_what_it_pushed_out_is_missed_and_lowers_it_when_what_it_declined_is() {
    let mut policy = gated();
    // Each sighting of what the main zone lost: 80 of these are five sightings' worth.
    for key in 0..80 {
        policy.dropped(key, Zone::Main, 0);
        policy.missed(key, false);
    }
    let seen_until_admitted =
        |policy: &mut dyn Policy, key: u64| 1 + (0..16).take_while(|_| !missed(policy, key)).count();
    assert_eq!(seen_until_admitted(&mut *policy, 1000), 5, "the gate is at its highest, and falls a step each time");
    let mut key = 2000;
    while seen_until_admitted(&mut *policy, key) > 2 {
        key += 1;
        assert!(key < 4000, "what is declined comes back and the gate stays high");
    }
}

#[test]
fn gated_does_not_lower_its_gate_for_what_was_refused_for_other_reasons() {
    let mut policy = gated();
    for key in 0..80 {
        policy.dropped(key, Zone::Main, 0);
        policy.missed(key, false);
    }
    for key in 2000..6000 {
        let refused = policy.refused(1);
        policy.left_window(key, refused);
        policy.missed(key, false);
    }
    let seen = 1 + (0..16).take_while(|_| !missed(&mut *policy, 1000)).count();
    assert_eq!(seen, 5, "the gate is as high as it was");
}

#[test]
fn gated_takes_neighbours_where_there_is_room_and_while_its_gate_is_held_open() {
    let mut policy = gated();
    assert_eq!([true, false].map(|room| policy.takes_neighbours(room)), [true, false]);
    policy.hold_gate(Hold::Open);
    assert!(policy.takes_neighbours(false), "what was hot is no longer");
    policy.hold_gate(Hold::No);
    assert!(!policy.takes_neighbours(false));
}

#[test]
fn gated_copies_less_forward_while_its_gate_is_held_open() {
    let mut policy = gated();
    // Of each segment all that may be, as all were hit.
    let copied = |policy: &mut dyn Policy, segments: u32| {
        let mut copied = 0;
        for _ in 0..segments {
            policy.sealed(SegmentId(0), Zone::Main);
            policy.victim(&|_| true);
            copied += (0..16).filter(|kept| policy.survives(Zone::Main, 3, *kept, 16).is_some()).count();
        }
        copied
    };
    assert_eq!(copied(&mut *policy, 64), 64 * 15);
    for (hold, part) in [(Hold::Open, 8), (Hold::Shifted, 2), (Hold::No, 15)] {
        policy.hold_gate(hold);
        assert_eq!(copied(&mut *policy, 64), 64 * part, "{hold:?}");
    }
}

#[test]
fn gated_admits_all_while_its_gate_is_held_open_and_learns_nothing_from_it() {
    let mut policy = gated();
    for key in 0..80 {
        policy.dropped(key, Zone::Main, 0);
        policy.missed(key, false);
    }
    assert_eq!(policy.survives(Zone::Main, 3, 0, 16), None, "nothing may be copied before something is reclaimed");
    policy.sealed(SegmentId(0), Zone::Main);
    policy.victim(&|_| true);
    assert_eq!(policy.survives(Zone::Main, 3, 0, 16), Some(2));
    policy.hold_gate(Hold::Open);
    assert_eq!(policy.survives(Zone::Main, 3, 0, 16), Some(0), "what was hot before gets one more round");
    for key in 2000..6000 {
        policy.left_window(key, 1);
        assert!(missed(&mut *policy, key) && missed(&mut *policy, 10_000 + key));
    }
    policy.hold_gate(Hold::No);
    let seen = 1 + (0..16).take_while(|_| !missed(&mut *policy, 1000)).count();
    assert_eq!(seen, 5, "the gate is as high as it was");
}

#[test]
fn gated_does_not_raise_its_gate_for_what_was_pushed_out_while_it_was_held_open() {
    let mut policy = gated();
    policy.hold_gate(Hold::Open);
    (0..80).for_each(|key| policy.dropped(key, Zone::Main, 0));
    policy.hold_gate(Hold::No);
    assert!((0..80).all(|key| missed(&mut *policy, key)), "each is seen for the third time at least");
    assert_eq!([1000; 2].map(|key| missed(&mut *policy, key)), [false, true], "the gate is as low as it was");
}

#[test]
fn gated_reclaims_the_zone_that_is_larger_than_its_share() {
    let mut policy = gated();
    (0..16).for_each(|n| policy.sealed(SegmentId(n), Zone::Writes));
    (16..60).for_each(|n| policy.sealed(SegmentId(n), Zone::Main));
    assert_eq!(policy.victim(&|_| true), Some(SegmentId(16)), "a quarter of the cache is for writes at first");
    policy.sealed(SegmentId(60), Zone::Writes);
    assert_eq!(policy.victim(&|_| true), Some(SegmentId(0)));
    // Sixteen blocks that left the zone of writes and are missed: it may have one segment more.
    policy.sealed(SegmentId(61), Zone::Writes);
    for key in 0..16 {
        policy.dropped(key, Zone::Writes, 0);
        policy.missed(key, false);
    }
    assert_eq!(policy.victim(&|_| true), Some(SegmentId(17)));
}

#[test]
fn the_window_is_a_fifo_that_forgets_what_it_is_told_to() {
    let mut window = Window::new(3 * 32, 1);
    assert_eq!(window.capacity(), 3);
    for key in [10, 11, 12] {
        assert!(matches!(window.put(key, 1), Some((_, None))));
    }
    window.stays(window.find(10).unwrap(), 5);
    assert_eq!(window.put(13, 1).unwrap().1, Some((10, 5)), "the oldest leaves, with its count");
    assert_eq!(window.find(10), None);
    window.forget(11..13);
    assert_eq!(window.keys().collect::<Vec<_>>(), [13]);
    assert_eq!(window.put(14, 1).unwrap().1, None, "the place of what was forgotten is free");
    window.forget(14..1 << 60);
    assert_eq!(window.keys().collect::<Vec<_>>(), [13], "of a range that is longer than the window, too");
    window.forget(0..u64::MAX);
    assert_eq!(window.keys().count(), 0);
    window.forget(0..u64::MAX);
    assert!(Window::new(31, 1).put(1, 1).is_none());
    assert_eq!(Window::new(1 << 40, 4).capacity(), 1024, "16 MiB, shared by the lanes");
}

/// A block is written `times` more before its segment is reclaimed. Returns with how many hits it
/// moves on to the main zone, if it does.
fn written(policy: &mut dyn Policy, key: u64, times: u32) -> Option<u8> {
    let hits = (0..times).fold(policy.write_missed(key), |hits, _| policy.rewritten(Zone::Writes, hits));
    policy.sealed(SegmentId(0), Zone::Writes);
    policy.victim(&|_| true);
    policy.survives(Zone::Writes, hits, 0, 16)
}

#[test]
fn gated_keeps_what_is_written_again_and_again_and_begins_anew_what_its_main_zone_lost() {
    let mut policy = gated();
    for (times, moves_on) in [(0, None), (1, None), (2, Some(0)), (3, Some(1)), (9, Some(1))] {
        assert_eq!(written(&mut *policy, 1, times), moves_on, "written {times} times more");
    }
    policy.dropped(2, Zone::Writes, 0);
    assert_eq!(written(&mut *policy, 2, 0), Some(0), "the zone of writes lost it too early");
    policy.dropped(3, Zone::Main, 0);
    assert_eq!(written(&mut *policy, 3, 0), None, "in a loop it would push out the next");
    let hits = policy.rewritten(Zone::Main, 0);
    assert_eq!(policy.survives(Zone::Writes, hits, 0, 16), Some(1), "it was a hit in the main zone");
}
