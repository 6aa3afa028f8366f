// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damage of every kind, planted in caches that a real daemon has filled; and what repair makes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

use flashfront_device::Rng;
use flashfront_engine::BLOCK_SECTORS;
use flashfront_engine::format::{CheckpointHeader, CommitHeader, Entry, Stream};

use super::*;
use crate::config::Config;
use crate::daemon::{Hooks, ServeError};
use crate::offline::dump::CommitDump;
use crate::offline::harm::{Harm, Target, harms};
use crate::offline::{CheckReport, check, dump};
use crate::rig::{Bench, Served, freezing};

const BLOCK_LEN: usize = BLOCK_BYTES as usize;
/// Blocks of the volume that the tests write.
const BLOCKS: u64 = 2000;

/// A filled cache, and the newest version of each block.
struct Filled {
    bench: Bench,
    image: Vec<u8>,
    newest: BTreeMap<u64, u64>,
}

fn content(block: u64, version: u64) -> Vec<u8> {
    [block.to_le_bytes(), version.to_le_bytes()].concat().repeat(BLOCK_LEN / 16)
}

impl Filled {
    /// Three runs: one that fills, evicts and destages; one that leaves dirty blocks at a clean stop; one
    /// that adds more, and ends as asked.
    fn new(crash: bool) -> Self {
        let bench = Bench::formatted();
        let mut it = Self { bench, image: Vec::new(), newest: BTreeMap::new() };
        let mut rng = Rng::new(7);
        let mut served = it.bench.serve();
        for _ in 0..300 {
            it.write(&mut served, rng.below(BLOCKS), 1 + rng.below(40));
        }
        served.nbd.flush().unwrap();
        served.drain();
        // Read again, so that clean blocks of an origin are in the log too.
        let mut bytes = vec![0; BLOCK_LEN];
        (0..200).for_each(|nth| served.nbd.read_at((BLOCKS + nth * 3) * BLOCK_BYTES, &mut bytes).unwrap());
        served.stop();
        let mut served = it.bench.serve_frozen();
        for _ in 0..20 {
            it.write(&mut served, rng.below(BLOCKS), 1 + rng.below(30));
        }
        served.nbd.flush().unwrap();
        served.stop();
        let mut served = it.bench.serve_frozen();
        for _ in 0..20 {
            it.write(&mut served, rng.below(BLOCKS), 1 + rng.below(20));
            served.nbd.flush().unwrap();
        }
        if crash {
            served.stop_at_once()
        } else {
            served.stop()
        }
        it.image = std::fs::read(it.bench.cache()).unwrap();
        it
    }

    fn write(&mut self, served: &mut Served, first: u64, blocks: u64) {
        for block in first..(first + blocks).min(BLOCKS) {
            let version = self.newest.get(&block).map_or(1, |version| version + 1);
            served.nbd.write_at(block * BLOCK_BYTES, &content(block, version), false).unwrap();
            self.newest.insert(block, version);
        }
    }

    fn restore(&self) {
        let cache = File::options().write(true).open(self.bench.cache()).unwrap();
        cache.write_all_at(&self.image, 0).unwrap();
        self.forget_openings();
    }

    /// An older image is refused where it is known that the cache was served on.
    fn forget_openings(&self) {
        match std::fs::remove_dir_all(self.bench.path("state")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => other.unwrap(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.bench.cache()).unwrap()
    }

    fn check(&self) -> CheckReport {
        check(&self.bench.cache(), &mut |_, _| {}).unwrap()
    }

    fn plan(&self, writable: bool) -> Repair {
        Repair::plan(&self.bench.cache(), None, writable, &mut |_, _| {}).unwrap()
    }

    /// Repairs, and compares the whole volume with what was written.
    fn repaired(&self, older: Older, what: &str) -> RepairReport {
        let planned = self.plan(false);
        let before = self.bytes();
        let report = planned.report().clone();
        drop(planned);
        assert_eq!(report, *self.plan(false).report(), "{what}");
        assert!(self.bytes() == before, "{what}: a plan changes nothing");
        let done = self.plan(true).write(Some(older)).unwrap();
        assert_eq!((done.needed, done.repaired), (report.needed, report.needed), "{what}");
        let checked = self.check();
        assert!(checked.ok, "{what}: {:?}\n{:?}", checked.damage, report);
        let again = self.plan(true);
        assert!(!again.report().needed, "{what}: {:?}", again.report());
        let again = again.write(None).unwrap();
        assert!(!again.repaired, "{what}");
        let kept = if older == Older::Keep { done.older_blocks } else { 0 };
        if done.needed {
            assert_eq!(checked.blocks_dirty, done.dirty_kept + kept, "{what}: {done:?}");
            assert_eq!(checked.blocks_cached, checked.blocks_dirty + done.clean_kept, "{what}");
        }
        self.compare(&done, what);
        done
    }

    /// What a client reads is the newest version, or it was listed, or it may be in a commit that was
    /// named as lost.
    fn compare(&self, report: &RepairReport, what: &str) {
        let listed: BTreeSet<u64> = report.lost.iter().chain(&report.older).flat_map(blocks).collect();
        let unknown: u64 = report.unknown.iter().map(|gap| gap.blocks_at_most).sum();
        let mut served = self.bench.serve_frozen();
        let mut silent = Vec::new();
        for (block, version) in self.read(&mut served) {
            let newest = self.newest.get(&block).copied().unwrap_or(0);
            assert!(version <= newest, "{what}: block {block} has version {version}");
            if version < newest && !listed.contains(&block) {
                silent.push(block);
            }
        }
        assert!(silent.len() as u64 <= unknown, "{what}: {silent:?} are older, of {unknown} unknown: {report:?}");
        // It goes on as any cache does: new data, a crash, and that again.
        served.nbd.write_at(0, &content(0, 77), true).unwrap();
        served.stop_at_once();
        let mut served = self.bench.serve_frozen();
        assert_eq!(self.read(&mut served)[0], (0, 77), "{what}");
        served.stop();
        assert!(self.check().ok, "{what}: {:?}", self.check());
    }

    fn read(&self, served: &mut Served) -> Vec<(u64, u64)> {
        const AT_ONCE: u64 = 200;
        let mut found = Vec::new();
        for first in (0..BLOCKS).step_by(AT_ONCE as usize) {
            let mut bytes = vec![0; AT_ONCE as usize * BLOCK_LEN];
            served.nbd.read_at(first * BLOCK_BYTES, &mut bytes).unwrap();
            for (block, bytes) in (first..).zip(bytes.chunks(BLOCK_LEN)) {
                let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
                let whole = if version == 0 { vec![0; BLOCK_LEN] } else { content(block, version) };
                assert!(bytes == whole, "block {block} holds something else");
                found.push((block, version));
            }
        }
        found
    }
}

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
        let filled = Filled::new(crash);
        assert!(filled.check().ok);
        for harm in harms(&filled.bench.cache(), seed) {
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
        let filled = Filled::new(crash);
        for (nth, harm) in harms(&filled.bench.cache(), 2).into_iter().enumerate() {
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
        // A commit of copies takes no dirty block of a client along, and one without data none at all, but
        // may have voided some.
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
    let filled = Filled::new(true);
    let mut rng = Rng::new(5);
    let all = harms(&filled.bench.cache(), 3);
    for nth in 0..24 {
        let chosen: Vec<&Harm> = (0..2 + nth % 3).map(|_| &all[rng.below(all.len() as u64) as usize]).collect();
        let targets: Vec<Target> = chosen.iter().map(|harm| harm.target).collect();
        let superblocks = [Target::SuperblockFirst, Target::SuperblockLast];
        if superblocks.iter().all(|it| targets.contains(it)) {
            continue;
        }
        chosen.iter().for_each(|harm| harm.plant(&filled.bench.cache()));
        // A torn tail hides whatever else is damaged at the end: that harm loses what a power cut would.
        if !chosen.iter().any(|harm| harm.tail) {
            filled.repaired(if nth % 2 == 0 { Older::Drop } else { Older::Keep }, &format!("{nth} {targets:?}"));
        }
        filled.restore();
    }
}

#[test]
fn an_interrupted_repair_can_be_run_again() {
    let filled = Filled::new(true);
    let mut rng = Rng::new(9);
    for harm in harms(&filled.bench.cache(), 4) {
        if harm.tail
            || !matches!(harm.target, Target::LogHeader | Target::NewestHead | Target::Entries | Target::OldHeader)
        {
            continue;
        }
        harm.plant(&filled.bench.cache());
        let before = filled.bytes();
        let report = filled.plan(true).write(Some(Older::Drop)).unwrap();
        let after = filled.bytes();
        // What was written, in the order of the flushes between: bodies, a head, headers, the superblocks.
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
    let filled = Filled::new(true);
    let all = harms(&filled.bench.cache(), 6);
    let harm = all.iter().find(|harm| harm.target == Target::LogHeader && !harm.tail).unwrap();
    harm.plant(&filled.bench.cache());
    let mut plan = filled.plan(true);
    plan.write_lanes().unwrap();
    drop(plan);
    let mut served = filled.bench.serve_frozen();
    served.nbd.write_at(0, &content(0, 77), true).unwrap();
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

impl Filled {
    fn superblock(&self) -> Superblock {
        Superblock::decode(&self.image[..BLOCK_LEN]).unwrap()
    }
}

#[test]
fn without_a_checkpoint_only_the_operator_can_tell() {
    let filled = Filled::new(true);
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
    let filled = Filled::new(true);
    let all = harms(&filled.bench.cache(), 6);
    let harm = all.iter().find(|harm| harm.target == Target::LogHeader && !harm.tail).unwrap();
    harm.plant(&filled.bench.cache());
    let refusal = filled.bench.refused(&filled.bench.config());
    let log_damaged = |error: &ServeError| matches!(error, ServeError::Open { .. });
    assert!(log_damaged(&refusal) && refusal.to_string().contains("flashfront repair"), "{refusal}");
    filled.repaired(Older::Drop, "damaged log");
}

/// A device that loses a write leaves what was there before: a commit of an earlier use of the segment, over whose data others were written.
#[test]
fn an_older_commit_in_the_place_of_one_that_is_missing_hides_nothing() {
    let filled = Filled::new(true);
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
    let filled = Filled::new(false);
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
        let filled = Filled::new(crash);
        let mut refused = BTreeSet::new();
        for harm in harms(&filled.bench.cache(), 8) {
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
