// SPDX-License-Identifier: MIT OR Apache-2.0
//! The offline tools on caches that a real daemon has filled.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use flashfront_device::real::{Access, DeviceFile};
use flashfront_engine::BLOCK_BYTES;

use super::*;
use crate::config::Size;
use crate::daemon::Hooks;
use crate::rig::{Bench, CACHE_BYTES, ORIGIN_BYTES, freezing};

mod twins;

impl Bench {
    /// Flips one bit, hands the file to `look`, and flips it back.
    fn flipped<T>(&self, offset: u64, bit: u8, look: impl FnOnce() -> T) -> T {
        let file = File::options().read(true).write(true).open(self.cache()).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ (1 << bit)], offset).unwrap();
        let seen = look();
        file.write_all_at(&byte, offset).unwrap();
        seen
    }

    fn check(&self) -> CheckReport {
        check(&self.cache(), &mut |_, _| {}).unwrap()
    }

    /// First bytes of all live blocks, by kind.
    fn live_places(&self) -> Vec<(DamageKind, u64)> {
        let device = DeviceFile::open(&self.cache(), Access::ReadOnly).unwrap();
        let superblock = crate::superblock::read(&device).unwrap().superblock;
        let mut reader = reader::Reader { device: &device, superblock: &superblock, damage: Vec::new() };
        let mut places = Vec::new();
        for offset in flashfront_engine::format::Superblock::offsets(CACHE_BYTES) {
            places.push((DamageKind::Superblock, offset));
        }
        for lane in 0..superblock.lanes {
            let walk = reader.lane(lane, &mut || {});
            let (area, head) = walk.checkpoint.unwrap();
            let blocks = 1 + 1 + head.entries.div_ceil(255);
            let start = superblock.checkpoint_offset(lane, area);
            places.extend((0..blocks).map(|nth| (DamageKind::Checkpoint, start + nth * BLOCK_BYTES)));
            let mut headers = BTreeSet::new();
            for live in walk.live.iter() {
                let kind = if live.dirty { DamageKind::DirtyData } else { DamageKind::CleanData };
                places.push((kind, superblock.slot_offset(lane, live.slot)));
                let slots = superblock.segment_blocks;
                let mut slot = live.slot / slots * slots;
                let mut header = slot;
                while slot <= live.slot {
                    header = slot;
                    slot += reader.header(lane, slot).unwrap().data_blocks() + 1;
                }
                headers.insert(header);
            }
            places.extend(headers.into_iter().map(|slot| (DamageKind::Log, superblock.slot_offset(lane, slot))));
        }
        places
    }
}

fn content(path: PathBuf) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &std::fs::read(path).unwrap())
}

/// A report is made after all is done, so that it must not be what fails.
#[test]
fn reports_have_json_of_paths_that_are_no_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let bench = Bench::new();
    let place = |name: &[u8], bytes: u64| {
        let path = bench.dir.path().join(std::ffi::OsStr::from_bytes(name));
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    };
    let (cache, origin) = (place(b"cache\xff", CACHE_BYTES), place(b"origin\xff", ORIGIN_BYTES));
    let mirror = place(b"mirror\xff", CACHE_BYTES);
    let options = FormatOptions { cache, origin, mirror: Some(mirror), ..bench.options() };
    let made = serde_json::to_string(&format(&options).unwrap()).unwrap();
    let FormatOptions { cache, origin, mirror, .. } = options;
    let checked = serde_json::to_string(&check(&cache, &mut |_, _| {}).unwrap()).unwrap();
    let dumped = serde_json::to_string(&dump(&cache, &mut |_, _| {}).unwrap()).unwrap();
    let plan = Repair::plan(&cache, None, false, &mut |_, _| {}).unwrap();
    let repaired = serde_json::to_string(plan.report()).unwrap();
    drop(plan);
    let detached =
        serde_json::to_string(&detach(&cache, mirror.as_deref(), &origin, None, false, &mut |_, _| {}).unwrap())
            .unwrap();
    for said in [&made, &checked, &dumped, &repaired, &detached] {
        assert!(said.contains("cache\u{fffd}"), "{said}");
    }
    assert!(detached.contains("mirror\u{fffd}") && detached.contains("origin\u{fffd}"), "{detached}");
}

#[test]
fn a_new_cache_is_sound_and_empty() {
    let bench = Bench::new();
    let made = format(&bench.options()).unwrap();
    assert_eq!(made.segments * made.segment_bytes / BLOCK_BYTES, made.capacity_blocks);
    let report = bench.check();
    assert!(report.ok, "{report:?}");
    assert_eq!((report.blocks_cached, report.uuid), (0, Some(made.uuid.clone())));
    let dump = dump(&bench.cache(), &mut |_, _| {}).unwrap();
    assert_eq!((dump.uuid, dump.origins[0].name.as_str()), (made.uuid, "data"));
}

#[test]
fn format_says_of_a_sparse_file_that_it_is_one() {
    let bench = Bench::new();
    let sparse = |made: &FormatReport| made.notices.iter().any(|notice| notice.contains("sparse"));
    assert!(sparse(&format(&bench.options()).unwrap()), "the rig's files are");
    std::fs::write(bench.cache(), vec![0; CACHE_BYTES as usize]).unwrap();
    assert!(!sparse(&format(&bench.options()).unwrap()));
}

#[test]
fn what_format_refuses_stays_as_it_is() {
    let bench = Bench::new();
    let file = File::options().write(true).open(bench.cache()).unwrap();
    file.write_all_at(&[0x53, 0xef], 1024 + 56).unwrap();
    std::os::unix::fs::symlink(bench.origin(), bench.path("link")).unwrap();
    std::fs::hard_link(bench.origin(), bench.path("hard")).unwrap();
    let small = File::create(bench.path("small")).unwrap();
    small.set_len(1 << 20).unwrap();
    let (cache, origin) = (content(bench.cache()), content(bench.origin()));
    let refused = |change: &dyn Fn(&mut FormatOptions)| {
        let mut options = bench.options();
        change(&mut options);
        let message = format(&options).unwrap_err().to_string();
        assert_eq!((content(bench.cache()), content(bench.origin())), (cache, origin), "{message}");
        message
    };
    assert!(refused(&|_| {}).contains("--force"));
    assert!(refused(&|it| it.cache = bench.path("nothing")).contains("nothing"));
    assert!(refused(&|it| it.origin = bench.path("nothing")).contains("nothing"));
    assert!(refused(&|it| it.cache = bench.dir.path().to_owned()).contains("regular file"));
    for same in ["origin", "link", "hard"] {
        assert!(refused(&|it| it.cache = bench.path(same)).contains("same device"), "{same}");
    }
    assert!(refused(&|it| it.cache = bench.path("small")).contains("too small"));
    assert!(refused(&|it| (it.force, it.segment) = (true, Some(Size(100_000)))).contains("power of two"));
    assert!(refused(&|it| (it.force, it.lanes) = (true, Some(0))).contains("lanes"));
    assert!(refused(&|it| (it.force, it.lanes) = (true, Some(16))).contains("too small"));
    assert!(refused(&|it| (it.force, it.name) = (true, "a/b".to_owned())).contains("a/b"));
    let _held = DeviceFile::open(&bench.origin(), Access::Exclusive).unwrap();
    assert!(refused(&|it| it.force = true).contains("busy"));
}

#[test]
fn force_destroys_what_was_there_and_names_it() {
    let bench = Bench::formatted();
    let mut options = bench.options();
    assert!(format(&options).unwrap_err().to_string().contains("Flashfront"));
    options.force = true;
    let made = format(&options).unwrap();
    assert!(!made.destroyed.is_empty());
    assert!(bench.check().ok);
}

#[test]
fn a_cache_with_dirty_data_is_not_formatted_by_accident() {
    let bench = Bench::formatted();
    let mut served = bench.serve_frozen();
    served.write(0, 10);
    served.stop();
    let message = format(&bench.options()).unwrap_err().to_string();
    assert!(message.contains("10 dirty blocks"), "{message}");
}

#[test]
fn check_agrees_with_the_daemon() {
    let bench = Bench::formatted();
    let mut served = bench.serve_frozen();
    served.write(100, 600);
    served.write(150, 20);
    let mut one = vec![0; BLOCK_BYTES as usize];
    served.nbd.read_at(5000 * BLOCK_BYTES, &mut one).unwrap();
    let status = served.status();
    served.stop();
    let report = bench.check();
    assert!(report.ok && report.clean_stop && report.torn_lanes.is_empty(), "{report:?}");
    assert_eq!((report.blocks_cached, report.blocks_dirty), (status.blocks_cached, status.blocks_dirty));
    assert_eq!(report.blocks_verified, report.blocks_cached);
    assert_eq!(report.commits_to_replay, 0);
}

#[test]
fn a_crash_is_not_damage() {
    let bench = Bench::formatted();
    let mut served = bench.serve_frozen();
    served.write(0, 300);
    served.write(300, 10);
    let status = served.status();
    served.stop_at_once();
    let report = bench.check();
    assert!(report.ok && !report.clean_stop, "{report:?}");
    assert!(report.commits_to_replay >= 2, "{report:?}");
    assert_eq!(report.blocks_dirty, status.blocks_dirty);
    let shown = dump(&bench.cache(), &mut |_, _| {}).unwrap();
    let last = shown.lanes[0].commits.last().unwrap();
    // The last commit as a power cut would tear it: nothing says that it was ever whole.
    let torn = bench.flipped(last.offset + BLOCK_BYTES, 0, || bench.check());
    assert!(torn.ok, "{torn:?}");
    assert_eq!(torn.torn_lanes, [0], "{:?} {torn:?}", shown.lanes);
    assert!(torn.blocks_dirty < report.blocks_dirty);
}

#[test]
fn a_commit_that_was_durable_is_missed() {
    let bench = Bench::formatted();
    let mut served = bench.serve_frozen();
    for nth in 0..4 {
        served.write(nth * 10, 10);
    }
    served.stop_at_once();
    let commits = dump(&bench.cache(), &mut |_, _| {}).unwrap().lanes[0].commits.clone();
    assert!(commits.len() >= 4, "{commits:?}");
    for commit in &commits[..commits.len() - 2] {
        let report = bench.flipped(commit.offset + 100, 3, || bench.check());
        assert!(report.damage.iter().any(|it| it.kind == DamageKind::Log), "{commit:?}: {report:?}");
    }
}

#[test]
fn any_flipped_bit_is_found() {
    let bench = Bench::formatted();
    let mut served = bench.serve();
    served.write(0, 40);
    served.drain();
    served.stop();
    let mut served = bench.serve_frozen();
    served.write(40, 30);
    served.stop();
    let before = bench.check();
    assert!(before.ok, "{before:?}");
    let places = bench.live_places();
    for kind in
        [DamageKind::Superblock, DamageKind::Checkpoint, DamageKind::Log, DamageKind::CleanData, DamageKind::DirtyData]
    {
        assert!(places.iter().any(|(it, _)| *it == kind), "no {kind:?} to damage");
    }
    let mut rng = flashfront_device::Rng::new(3);
    for (kind, offset) in places {
        let (byte, bit) = (rng.below(BLOCK_BYTES), rng.below(8) as u8);
        let report = bench.flipped(offset + byte, bit, || bench.check());
        let found = report.damage.iter().any(|it| it.kind == kind);
        assert!(!report.ok && found, "{kind:?} at {offset}, byte {byte} bit {bit}: {report:?}");
        if matches!(kind, DamageKind::CleanData | DamageKind::DirtyData) {
            assert_eq!(report.damage.len(), 1, "{report:?}");
            assert_eq!(report.damage[0].offset, offset);
            assert_eq!(report.damage[0].origin.as_deref(), Some("data"));
        }
    }
    assert!(bench.check().ok);
}

#[test]
fn both_superblocks_gone_is_damage_and_none_is_no_cache() {
    let bench = Bench::formatted();
    let [first, last] = flashfront_engine::format::Superblock::offsets(CACHE_BYTES);
    let report = bench.flipped(first + 200, 1, || bench.flipped(last + 200, 1, || bench.check()));
    assert!(!report.ok);
    assert_eq!(report.damage.len(), 2, "{report:?}");
    let no_cache = check(&bench.origin(), &mut |_, _| {}).unwrap_err();
    assert!(no_cache.to_string().contains("format"), "{no_cache}");
    // Scripts get the same form for all that is about content.
    let report = no_cache.report(&bench.origin()).unwrap();
    assert!(!report.ok && report.damage.len() == 2, "{report:?}");
    File::options().write(true).open(bench.cache()).unwrap().set_len(CACHE_BYTES / 2).unwrap();
    let report = check(&bench.cache(), &mut |_, _| {}).unwrap_err().report(&bench.cache()).unwrap();
    assert!(!report.ok && report.damage[0].found.contains("8 MiB"), "{report:?}");
    assert_eq!(check(&bench.path("nothing"), &mut |_, _| {}).unwrap_err().report(&bench.path("nothing")), None);
}

#[test]
fn tools_keep_off_a_running_daemon() {
    let bench = Bench::formatted();
    let served = bench.serve();
    assert!(check(&bench.cache(), &mut |_, _| {}).unwrap_err().to_string().contains("busy"));
    assert!(dump(&bench.cache(), &mut |_, _| {}).unwrap_err().to_string().contains("busy"));
    assert!(format(&bench.options()).unwrap_err().to_string().contains("busy"));
    assert!(
        detach(&bench.cache(), None, &bench.origin(), None, true, &mut |_, _| {})
            .unwrap_err()
            .to_string()
            .contains("busy")
    );
    served.stop();
}

#[test]
fn detach_refuses_dirty_data_and_other_origins() {
    let bench = Bench::formatted();
    let mut served = bench.serve_frozen();
    served.write(0, 10);
    served.stop_at_once();
    let (cache, origin) = (content(bench.cache()), content(bench.origin()));
    let other = bench.path("other");
    File::create(&other).unwrap().set_len(ORIGIN_BYTES / 2).unwrap();
    let refused =
        |origin: &std::path::Path| detach(&bench.cache(), None, origin, None, false, &mut |_, _| {}).unwrap_err();
    assert!(matches!(refused(&bench.origin()), DetachError::Dirty { dirty: 10, .. }));
    assert!(matches!(refused(&other), DetachError::OtherOrigin { .. }));
    assert_eq!((content(bench.cache()), content(bench.origin())), (cache, origin));
    let given_up = detach(&bench.cache(), None, &bench.origin(), None, true, &mut |_, _| {}).unwrap();
    assert_eq!(given_up.blocks_given_up, 10);
    assert_eq!(content(bench.origin()), origin);
}

/// A mirror has no data of clean blocks, and where the log has decayed on one device the other has
/// it.
#[test]
fn what_is_dirty_on_either_of_two_devices_counts() {
    let (bench, config) = Bench::mirrored();
    let mirror = bench.path("mirror");
    // The data that is read is not that of the mirror's blank slots.
    std::fs::write(bench.origin(), vec![0xcc; ORIGIN_BYTES as usize]).unwrap();
    let wrap_origin = Some(freezing(&std::sync::Arc::new(true.into())));
    let mut served = bench.serve_with(config, Hooks { wrap_origin, ..Hooks::default() });
    served.cache_clean_data();
    served.write(0, 10);
    served.stop_at_once();
    for device in [bench.cache(), mirror.clone()] {
        let report = check(&device, &mut |_, _| {}).unwrap();
        assert!(report.ok && report.torn_lanes.is_empty(), "{report:?}");
        assert_eq!(report.blocks_dirty, 10, "{report:?}");
    }
    let refused = |one: &PathBuf, other: &PathBuf| {
        let refusal = detach(one, Some(other), &bench.origin(), None, false, &mut |_, _| {}).unwrap_err();
        assert!(matches!(refusal, DetachError::Dirty { dirty: 10, .. }), "{refusal}");
    };
    refused(&bench.cache(), &mirror);
    refused(&mirror, &bench.cache());
    let last = dump(&bench.cache(), &mut |_, _| {}).unwrap().lanes[0].commits.last().unwrap().offset;
    bench.flipped(last + 100, 3, || refused(&bench.cache(), &mirror));
}

#[test]
fn detach_leaves_a_complete_origin_and_no_cache() {
    let bench = Bench::formatted();
    let mut served = bench.serve();
    served.write(7, 50);
    served.drain();
    served.stop();
    detach(&bench.cache(), None, &bench.origin(), None, false, &mut |_, _| {}).unwrap();
    assert!(check(&bench.cache(), &mut |_, _| {}).is_err());
    let origin = std::fs::read(bench.origin()).unwrap();
    for (block, bytes) in origin.chunks(BLOCK_BYTES as usize).enumerate() {
        let expected = if (7..57).contains(&block) { block as u8 ^ 0x5a } else { 0 };
        assert!(bytes.iter().all(|byte| *byte == expected), "block {block}");
    }
    format(&bench.options()).unwrap();
}
