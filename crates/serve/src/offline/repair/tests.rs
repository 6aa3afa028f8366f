// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damage of every kind, planted in caches that a real daemon has filled; and what repair makes of
//! it.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use flashfront_device::Rng;
use flashfront_engine::BLOCK_SECTORS;
use flashfront_engine::format::{CheckpointHeader, CommitHeader, Entry, Stream};

use super::*;
use crate::config::Config;
use crate::daemon::{Hooks, ServeError};
use crate::offline::dump;
use crate::offline::dump::CommitDump;
use crate::offline::harm::{Harm, Target, harms};
use crate::rig::{Bench, freezing};
use filled::{Filled, content};

mod filled;
mod life;
mod several;

const BLOCK_LEN: usize = BLOCK_BYTES as usize;
fn blocks(range: &LostRange) -> impl Iterator<Item = u64> + use<> {
    let first = range.lba / BLOCK_SECTORS;
    first..first + range.blocks
}

const ALL: [Target; 13] = [
    Target::SuperblockFirst,
    Target::SuperblockLast,
    Target::NewestHead,
    Target::OtherHead,
    Target::Ages,
    Target::Entries,
    Target::LogHeader,
    Target::OldHeader,
    Target::CleanData,
    Target::DirtyData,
    Target::Segment,
    Target::SwappedHeaders,
    Target::SwappedData,
];

#[test]
fn check_finds_every_planted_damage() {
    let mut seen = BTreeSet::new();
    for (crash, seed) in [(false, 1), (true, 1), (true, 2), (true, 3)] {
        let filled = Filled::new(crash, seed);
        assert!(filled.check().ok);
        for harm in harms(&filled.bench.cache(), 0, seed) {
            harm.plant(&filled.bench.cache());
            let report = filled.check();
            assert_eq!(report.ok, harm.tail, "crash {crash}, {harm:?}: {report:?}", harm = harm.target);
            seen.insert(format!("{:?}", harm.target));
            filled.restore();
        }
    }
    assert_eq!(seen.len(), ALL.len(), "{seen:?}");
}

#[test]
fn repair_of_any_damage_serves_only_what_is_right() {
    for crash in [false, true] {
        let filled = Filled::new(crash, 7);
        for (nth, harm) in harms(&filled.bench.cache(), 0, 2).into_iter().enumerate() {
            let older = if nth % 2 == 0 { Older::Drop } else { Older::Keep };
            harm.plant(&filled.bench.cache());
            let what = format!("crash {crash}, harm {nth} {:?}", harm.target);
            if harm.tail {
                assert!(!filled.plan(true).report().needed, "{what}: the log ends there, as after a crash");
            } else {
                let report = filled.repaired(older, &what);
                assert!(report.needed, "{what}");
                expected(&harm, &report, crash, &what);
            }
            filled.restore();
        }
    }
}

/// What is not hit must not be lost.
fn expected(harm: &Harm, report: &RepairReport, crash: bool, what: &str) {
    let (lost, older, unknown) = (report.lost_blocks, report.older_blocks, report.unknown.len());
    match harm.target {
        Target::SuperblockFirst
        | Target::SuperblockLast
        | Target::OtherHead
        | Target::Ages
        | Target::OldHeader
        | Target::CleanData => assert_eq!((lost, older, unknown), (0, 0, 0), "{what}: {report:?}"),
        Target::DirtyData => assert_eq!((lost, older, unknown), (1, 0, 0), "{what}: {report:?}"),
        Target::SwappedData => assert_eq!((lost, older, unknown), (2, 0, 0), "{what}: {report:?}"),
        // The older checkpoint and the log since say the same.
        Target::NewestHead => assert_eq!((older, unknown), (0, 0), "{what}: {report:?}"),
        // A commit of copies takes no dirty block of a client along, and one without data none at
        // all, but may have voided some.
        Target::LogHeader if !harm.tail => {
            assert!(crash && (older > 0) == harm.commit.writes, "{what}: {report:?}");
            let known = unknown == usize::from(harm.commit.writes) || harm.commit.blocks == 0;
            assert!(known, "{what}, {:?}: {report:?}", harm.commit);
        }
        _ => {}
    }
}

#[test]
fn repair_of_several_damages_serves_only_what_is_right() {
    several::try_seeds();
}

#[test]
fn an_interrupted_repair_can_be_run_again() {
    let filled = Filled::new(true, 7);
    let mut rng = Rng::new(9);
    for harm in harms(&filled.bench.cache(), 0, 4) {
        if harm.tail
            || !matches!(harm.target, Target::LogHeader | Target::NewestHead | Target::Entries | Target::OldHeader)
        {
            continue;
        }
        harm.plant(&filled.bench.cache());
        let before = filled.bytes();
        let report = filled.plan(true).write(Some(Older::Drop)).unwrap();
        let after = filled.bytes();
        // What was written, in the order of the flushes between: bodies, a head, headers, the
        // superblocks.
        let newest = |bytes: &[u8], area| {
            let offset = filled.superblock().checkpoint_offset(0, area) as usize;
            flashfront_engine::format::CheckpointHeader::decode(&bytes[offset..][..BLOCK_LEN])
        };
        let area = (0..2).find(|area| newest(&after, *area).is_some()).unwrap();
        let head = filled.superblock().checkpoint_offset(0, area) / BLOCK_BYTES;
        let body = head..head + u64::from(filled.superblock().checkpoint_blocks);
        let [first, last] = Superblock::offsets(after.len() as u64).map(|offset| offset / BLOCK_BYTES);
        let phase = |block: u64| match block {
            _ if block == last => 4,
            _ if block == first => 5,
            _ if block == head => 2,
            _ if body.contains(&block) => 1,
            _ => 3,
        };
        let changed: Vec<u64> = (0..after.len() as u64 / BLOCK_BYTES)
            .filter(|block| {
                let at = *block as usize * BLOCK_LEN;
                before[at..][..BLOCK_LEN] != after[at..][..BLOCK_LEN]
            })
            .collect();
        for cut in 1..=5 {
            let file = File::options().write(true).open(filled.bench.cache()).unwrap();
            file.write_all_at(&before, 0).unwrap();
            filled.forget_openings();
            for block in &changed {
                if phase(*block) < cut || (phase(*block) == cut && rng.below(2) == 0) {
                    let at = *block as usize * BLOCK_LEN;
                    file.write_all_at(&after[at..][..BLOCK_LEN], at as u64).unwrap();
                }
            }
            let what = format!("{:?} cut in {cut}", harm.target);
            filled.plan(true).write(Some(Older::Drop)).unwrap();
            let checked = filled.check();
            assert!(checked.ok, "{what}: {checked:?}");
            assert_eq!(checked.blocks_dirty, report.dirty_kept, "{what}");
            filled.compare(&report, &what);
        }
        filled.restore();
    }
}

#[test]
fn an_opening_after_an_interrupted_repair_is_a_later_one() {
    let filled = Filled::new(true, 7);
    let all = harms(&filled.bench.cache(), 0, 6);
    let harm = all.iter().find(|harm| harm.target == Target::LogHeader && !harm.tail).unwrap();
    harm.plant(&filled.bench.cache());
    let mut plan = filled.plan(true);
    plan.write_lanes().unwrap();
    drop(plan);
    let mut served = filled.bench.serve_frozen();
    served.nbd.write_at(0, &content(0, 7777), true).unwrap();
    served.stop_at_once();
    // The opening's checkpoint decays: without it that write must not be missing in silence.
    let image = filled.bytes();
    let heads = (0..2).map(|area| filled.superblock().checkpoint_offset(0, area));
    let head = |at: &u64| CheckpointHeader::decode(&image[*at as usize..][..BLOCK_LEN]).map(|it| it.generation);
    let newest = heads.max_by_key(head).unwrap();
    let file = File::options().write(true).open(filled.bench.cache()).unwrap();
    file.write_all_at(&[0xee], newest + 100).unwrap();
    let refusal = filled.bench.refused(&filled.bench.config());
    assert!(matches!(refusal, ServeError::Open { .. }), "{refusal}");
}

#[test]
fn without_a_checkpoint_only_the_operator_can_tell() {
    let filled = Filled::new(true, 7);
    let dirty = filled.check().blocks_dirty;
    let file = File::options().write(true).open(filled.bench.cache()).unwrap();
    for area in 0..2 {
        file.write_all_at(&[1; BLOCK_LEN], filled.superblock().checkpoint_offset(0, area)).unwrap();
    }
    let refusal = filled.bench.refused(&filled.bench.config());
    assert!(refusal.to_string().contains("flashfront repair"), "{refusal}");
    let refusal = filled.plan(true).write(None).unwrap_err();
    assert!(matches!(refusal, RepairError::Undecided { .. }), "{refusal}");
    let report = filled.repaired(Older::Keep, "no checkpoint");
    assert_eq!((report.dirty_kept, report.clean_kept), (0, 0));
    assert!(report.older_blocks >= dirty, "all that was dirty is among them: {report:?}");
}

#[test]
fn a_damaged_log_is_refused_and_then_repaired() {
    let filled = Filled::new(true, 7);
    let all = harms(&filled.bench.cache(), 0, 6);
    let harm = all.iter().find(|harm| harm.target == Target::LogHeader && !harm.tail).unwrap();
    harm.plant(&filled.bench.cache());
    let refusal = filled.bench.refused(&filled.bench.config());
    let log_damaged = |error: &ServeError| matches!(error, ServeError::Open { .. });
    assert!(log_damaged(&refusal) && refusal.to_string().contains("flashfront repair"), "{refusal}");
    filled.repaired(Older::Drop, "damaged log");
}

/// A device that loses a write leaves the older content. Here that is a commit of an earlier use of
/// the segment, and others were written over its data.
#[test]
fn an_older_commit_in_the_place_of_one_that_is_missing_hides_nothing() {
    let filled = Filled::new(true, 7);
    let superblock = filled.superblock();
    let lane = dump(&filled.bench.cache(), &mut |_, _| {}).unwrap().lanes.remove(0);
    let slots = superblock.segment_blocks;
    let segment = |of: &CommitDump| ((of.offset - superblock.slot_offset(0, 0)) / BLOCK_BYTES) as u32 / slots;
    let header = |of: &CommitDump| CommitHeader::decode(&filled.image[of.offset as usize..][..BLOCK_LEN]).unwrap();
    // One of written blocks that begins a segment and has another one behind it there.
    let missing = lane.commits.iter().zip(&lane.commits[1..]).find(|(this, next)| {
        let begins = superblock.slot_offset(0, segment(this) * slots) == this.offset;
        begins && this.blocks > 0 && header(this).stream == Stream::Writes as u8 && segment(this) == segment(next)
    });
    let missing = missing.unwrap().0;
    let (mut header, mut block) = (header(missing), vec![0; BLOCK_LEN]);
    header.entries.truncate(1);
    header.entries.resize(slots as usize - 4, Entry::Dead);
    (header.epoch, header.durable_seq) = (header.epoch - 1, 0);
    // Long before, or one of the last of an opening whose numbers the next one gave out once more.
    for seq in [1, missing.seq + 100] {
        header.seq = seq;
        header.encode_into(&mut block);
        let file = File::options().write(true).open(filled.bench.cache()).unwrap();
        file.write_all_at(&block, missing.offset).unwrap();
        assert!(!filled.check().ok);
        let report = filled.repaired(Older::Drop, "an older commit");
        let gaps: Vec<(u64, u64)> = report.unknown.iter().map(|gap| (gap.first_commit, gap.last_commit)).collect();
        assert_eq!(gaps, [(missing.seq, missing.seq)], "only the missing one, {seq} in its place: {report:?}");
        filled.restore();
    }
}

#[test]
fn both_superblocks_gone_or_no_cache_is_one_clear_error() {
    let filled = Filled::new(false, 7);
    let file = File::options().write(true).open(filled.bench.cache()).unwrap();
    for offset in Superblock::offsets(filled.image.len() as u64) {
        file.write_all_at(&[1; 64], offset + 200).unwrap();
    }
    let plan = |path: &Path| Repair::plan(path, None, true, &mut |_, _| {}).unwrap_err().to_string();
    let said = plan(&filled.bench.cache());
    assert!(said.contains("neither copy") && said.contains("lacks what was dirty"), "{said}");
    assert!(plan(&filled.bench.origin()).contains("no Flashfront superblock"));
}

#[test]
fn a_cache_whose_device_failed_is_the_operators_decision() {
    let bench = Bench::formatted();
    let broken = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let wrap_cache = Some(freezing(&broken));
    let wrap_origin = Some(freezing(&std::sync::Arc::new(true.into())));
    let mut served = bench.serve_with(bench.config(), Hooks { wrap_cache, wrap_origin, ..Hooks::default() });
    served.write(0, 10);
    broken.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(served.nbd.write_at(40 * BLOCK_BYTES, &[7; BLOCK_LEN], true).is_err());
    served.end();
    for older in [Older::Keep, Older::Drop] {
        let image = std::fs::read(bench.cache()).unwrap();
        let plan = Repair::plan(&bench.cache(), None, true, &mut |_, _| {}).unwrap();
        let report = plan.report().clone();
        assert!(report.needed && report.cache_failed && report.older_blocks >= 10, "{report:?}");
        plan.write(Some(older)).unwrap();
        let config = Config { accept_changed_origin: false, ..bench.config() };
        let hooks = Hooks { wrap_origin: Some(freezing(&std::sync::Arc::new(true.into()))), ..Hooks::default() };
        let mut served = bench.serve_with(config, hooks);
        if older == Older::Keep {
            served.assert_holds(0, 10);
        } else {
            assert_eq!(served.status().blocks_dirty, 0);
        }
        served.stop();
        File::options().write(true).open(bench.cache()).unwrap().write_all_at(&image, 0).unwrap();
    }
}

#[test]
fn whatever_is_damaged_serve_refuses_or_serves_what_is_right() {
    for crash in [false, true] {
        let filled = Filled::new(crash, 7);
        let mut refused = BTreeSet::new();
        for harm in harms(&filled.bench.cache(), 0, 8) {
            let what = format!("crash {crash}, {:?}", harm.target);
            let log = [Target::NewestHead, Target::OtherHead, Target::Ages, Target::Entries, Target::LogHeader];
            if harm.tail || !log.contains(&harm.target) {
                continue;
            }
            harm.plant(&filled.bench.cache());
            match filled.bench.try_serve_frozen() {
                Ok(served) => {
                    served.stop_at_once();
                    filled.compare(&RepairReport::default(), &what);
                }
                Err(error) => {
                    assert!(matches!(error, ServeError::Open { .. }), "{what}: {error}");
                    assert!(error.to_string().contains("flashfront repair"), "{what}: {error}");
                    refused.insert(format!("{:?}", harm.target));
                }
            }
            filled.restore();
        }
        for target in ["Ages", "Entries"] {
            assert!(refused.contains(target), "crash {crash}: {refused:?}");
        }
        // A commit that was durable, and an opening's checkpoint with commits after it.
        assert_eq!(crash, refused.contains("LogHeader") && refused.contains("NewestHead"), "{refused:?}");
    }
}
