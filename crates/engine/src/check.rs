// SPDX-License-Identifier: MIT OR Apache-2.0
//! Walks every invariant that can be seen from inside. For tests and debug builds: it reads the
//! whole index.

use alloc::vec;

use crate::act::destage::Destager;
use crate::act::destage::versions::is_held;
use crate::delta::Delta;
use crate::facts::Facts;
use crate::lanes::Lanes;
use crate::organ::segment::SegmentState;

/// Panics when an invariant is broken.
pub(crate) fn check(lanes: &Lanes, facts: &Facts, delta: &Delta, destager: &Destager) {
    if !lanes.has_mail() {
        let runs = lanes.driven().map(|lane| lane.runs.len()).sum();
        assert_eq!(destager.under_way(), runs, "a lane destages without a grant, or a grant is lost");
    }
    let mut dirty = 0;
    let (mut dirty_of, mut cached_of) = (vec![0u64; facts.origins.len()], vec![0u64; facts.origins.len()]);
    for lane in lanes.driven() {
        let (mut live_of, mut dirty_in) =
            (vec![0u32; lane.log.segments().len()], vec![0u32; lane.log.segments().len()]);
        let (mut blocks, mut lane_dirty, mut held) = (0u64, 0u64, 0u64);
        lane.store.index().for_each(|flat, found| {
            let segment = (found.slot / lane.log.segment_slots()) as usize;
            assert!(segment < live_of.len(), "{flat:?} lies outside the log");
            live_of[segment] += 1;
            blocks += 1;
            cached_of[facts.origin_of(flat)] += 1;
            if found.dirty {
                dirty_in[segment] += 1;
                lane_dirty += 1;
                dirty_of[facts.origin_of(flat)] += 1;
                let is_in = lane.store.is_opening() || lane.store.is_dirty(flat);
                assert!(is_in, "{flat:?} is dirty but not in the dirty set");
            }
        });
        for (flat, _, version) in lane.eras.iter().filter(|_| !lane.store.is_opening()).flat_map(|eras| eras.all()) {
            if is_held(lane, flat, version.slot) {
                let segment = (version.slot / lane.log.segment_slots()) as usize;
                live_of[segment] += 1;
                dirty_in[segment] += 1;
                dirty_of[facts.origin_of(flat)] += 1;
                held += 1;
            }
        }
        if let Some(eras) = lane.eras.as_ref().filter(|_| !lane.store.is_opening()) {
            for (origin, it) in facts.origins.iter().zip(&delta.origins) {
                let over = it.cuts.over();
                let needing = eras.sizes(origin.id, over.start, over.end).next();
                assert_eq!(needing, None, "lane {}: an era needs blocks, and is on its origin", lane.id);
            }
            lane.store.index().for_each(|flat, found| {
                let newest = eras.newest(flat);
                let is_newest = newest.is_some_and(|(_, version)| version.slot == found.slot);
                let should = found.dirty && !lane.trouble.is_lost(flat);
                assert_eq!(is_newest, should, "{flat:?} of {found:?}, newest in the eras {newest:?}, lane {}", lane.id);
            });
        }
        assert_eq!(lane.store.index().len(), blocks, "lane {}: the index counts wrong", lane.id);
        let lane_in = if lane.store.is_opening() { 0 } else { lane_dirty };
        assert_eq!(lane.store.dirty(), lane_in, "lane {}: dirty set and index differ", lane.id);
        for (id, segment) in lane.log.segments().iter().enumerate() {
            assert_eq!(segment.live, live_of[id], "lane {} segment {id}: live blocks", lane.id);
            assert_eq!(segment.dirty, dirty_in[id], "lane {} segment {id}: dirty blocks", lane.id);
            if segment.state == SegmentState::Freeing {
                assert_eq!(segment.dirty, 0, "lane {} segment {id} is given up but holds dirty blocks", lane.id);
            }
            let waits = lane.log.is_unproven(id as u32);
            let may_wait = matches!(segment.state, SegmentState::Open | SegmentState::Unproven);
            assert!(!waits || may_wait, "lane {} segment {id} may be reclaimed but is not proven", lane.id);
            assert!(
                waits || segment.state != SegmentState::Unproven,
                "lane {} segment {id} waits for nothing",
                lane.id
            );
            if segment.state == SegmentState::Free {
                assert_eq!(segment.live, 0, "lane {} segment {id} is free but holds blocks", lane.id);
                assert_eq!(segment.pins, 0, "lane {} segment {id} is free but being read", lane.id);
            }
        }
        for (flat, slot, superseded) in lane.log.unsealed_blocks() {
            let current = lane.store.get(flat).is_some_and(|found| found.slot == slot);
            assert_eq!(superseded, !current, "lane {}: {flat:?} in slot {slot} of an open commit", lane.id);
        }
        for (first, blocks) in &lane.run_ranges {
            let end = first.0 + u64::from(*blocks);
            assert!(lane.run_ranges.range(first..).nth(1).is_none_or(|(next, _)| next.0 >= end), "runs overlap");
        }
        let twice = lane.window.flats().find(|flat| lane.store.get(*flat).is_some());
        assert_eq!(twice, None, "in the window and in the index");
        let reads = lane.ios.iter().filter(|(_, io)| io.is_shared_read()).count();
        lane.under_way.check(reads, |piece| lane.pieces.get(piece).is_some_and(|piece| piece.pending > 0));
        let reserved: u64 = lane.pieces.iter().map(|(_, piece)| u64::from(piece.reserved)).sum();
        assert!(reserved <= delta.reserved(), "more reserved than counted");
        dirty += lane_dirty + held;
    }
    assert_eq!(delta.dirty(), dirty, "dirty blocks counted wrong");
    let mut lost_of = vec![0u64; facts.origins.len()];
    for lane in lanes.driven() {
        for flat in lane.trouble.lost() {
            let is_dirty = lane.store.get(flat).is_some_and(|found| found.dirty);
            assert!(is_dirty, "a block that is not dirty can't be lost");
            lost_of[facts.origin_of(flat)] += 1;
        }
    }
    assert!(delta.origins.iter().zip(&lost_of).all(|(origin, lost)| origin.lost.get() == *lost), "lost per origin");
    assert!(
        delta.origins.iter().zip(&dirty_of).all(|(origin, dirty)| origin.dirty.get() == *dirty),
        "dirty per origin"
    );
    let cached = delta.origins.iter().zip(&cached_of).all(|(origin, cached)| origin.cached.get() == *cached);
    assert!(cached, "cached per origin");
}
