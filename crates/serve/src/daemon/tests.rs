// SPDX-License-Identifier: MIT OR Apache-2.0
//! Daemons whose cache device fails, and what becomes of the cache; options that can't be kept.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flashfront_device::real::{Access, DeviceFile};
use flashfront_device::wrap::{Faults, Inject};
use flashfront_engine::format::Superblock;
use flashfront_engine::{BLOCK_BYTES, Mode};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::config::{Config, DirtyLimit, Size};
use crate::control::{self, Command};
use crate::daemon::{Ended, Hooks, OriginsError, ServeError, Wrap};
use crate::failure;
use crate::offline::{DetachError, FormatOptions, Repair, RepairError, check, detach, format};
use crate::rig::{Bench, CACHE_BYTES, ORIGIN_BYTES, Served, freezing};
use crate::superblock;

fn superblock(bench: &Bench) -> Superblock {
    let cache = DeviceFile::open(&bench.cache(), Access::ReadOnly).unwrap();
    superblock::read(&cache).unwrap().superblock
}

/// A served volume with ten dirty blocks, whose cache device has failed since. The blocks stay
/// dirty as long as `origin` is on.
fn failed_while_dirty(bench: &Bench, origin: &Arc<AtomicBool>) -> Served {
    let cache = Arc::new(AtomicBool::new(false));
    let (wrap_cache, wrap_origin) = (Some(freezing(&cache)), Some(freezing(origin)));
    let mut served = bench.serve_with(bench.config(), Hooks { wrap_cache, wrap_origin, ..Hooks::default() });
    served.write(0, 10);
    assert!(!served.status().cache_failed);
    cache.store(true, Ordering::SeqCst);
    // In the log it can't become durable.
    assert!(served.nbd.write_at(40 * BLOCK_BYTES, &[7; BLOCK_BYTES as usize], true).is_err());
    assert!(served.status().cache_failed);
    served
}

#[test]
fn a_cache_that_failed_while_dirty_is_marked_and_refused() {
    let bench = Bench::formatted();
    let mut served = failed_while_dirty(&bench, &Arc::new(true.into()));
    let dirty = served.status().blocks_dirty;
    assert!(dirty >= 10, "{dirty}");
    assert_eq!(served.end(), Ended::CacheFailed { blocks_dirty: dirty });
    let marked = superblock(&bench);
    assert_eq!((marked.failed, marked.clean, marked.dirty_blocks), (true, false, dirty));

    let refusal = bench.refused(&bench.config());
    assert!(matches!(refusal, ServeError::CacheFailed { dirty: found, .. } if found == dirty), "{refusal}");
    let said = refusal.to_string();
    for word in ["failed in the last run", &dirty.to_string(), "detach --force", "--accept-changed-origin"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(check(&bench.cache(), &mut |_, _| {}).unwrap().cache_failed);
    let occupied = format(&bench.options()).unwrap_err().to_string();
    assert!(occupied.contains("failed") && occupied.contains(&dirty.to_string()), "{occupied}");
    let refusal = detach(&bench.cache(), None, &bench.origin(), None, false, &mut |_, _| {}).unwrap_err();
    assert!(matches!(refusal, DetachError::CacheFailed { dirty: found, .. } if found == dirty), "{refusal}");
    assert_eq!(superblock(&bench), marked, "refusals change nothing");

    // The operator's decision: replay it. What had been flushed is there.
    let mut config = bench.config();
    config.accept_changed_origin = true;
    let mut served = bench.serve_with(config, Hooks::default());
    served.assert_holds(0, 10);
    served.drain();
    served.stop();
    assert!(!superblock(&bench).failed);
}

#[test]
fn a_cache_that_failed_and_was_drained_comes_off_without_force() {
    let bench = Bench::formatted();
    let origin = Arc::new(AtomicBool::new(true));
    let mut served = failed_while_dirty(&bench, &origin);
    origin.store(false, Ordering::SeqCst);
    served.drain();
    assert_eq!(served.end(), Ended::CacheFailed { blocks_dirty: 0 });
    // Replaying that log would write old blocks over new ones: not even by the operator's word.
    let accepting = Config { accept_changed_origin: true, ..bench.config() };
    for config in [bench.config(), accepting] {
        let said = bench.refused(&config).to_string();
        assert!(said.contains("nothing is lost") && said.contains("detach"), "{said}");
    }
    let report = detach(&bench.cache(), None, &bench.origin(), None, false, &mut |_, _| {}).unwrap();
    assert_eq!(report.blocks_given_up, 0);
    let file = std::fs::File::open(bench.origin()).unwrap();
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    for block in 0..10 {
        file.read_exact_at(&mut bytes, block * BLOCK_BYTES).unwrap();
        assert!(bytes.iter().all(|byte| *byte == block as u8 ^ 0x5a), "block {block}");
    }
}

#[test]
fn a_failure_that_cannot_be_read_is_not_taken_for_none() {
    let bench = Bench::formatted();
    let mut served = bench.serve_frozen();
    served.write(0, 10);
    served.stop();
    let state = bench.path("state");
    std::fs::create_dir_all(&state).unwrap();
    let record = state.join(format!("{}.failed", crate::offline::uuid_text(&superblock(&bench).uuid).replace('-', "")));
    let before = superblock(&bench);
    for (junk, accept_changed_origin) in
        [(&b"\xff\xfe"[..], false), (b"\xff\xfe", true), (b"junk", false), (b"", true), (b"1234567", true)]
    {
        std::fs::write(&record, junk).unwrap();
        let refusal = bench.refused(&Config { accept_changed_origin, ..bench.config() });
        assert!(matches!(refusal, ServeError::FailureRead(_)), "{refusal}");
        let said = refusal.to_string();
        assert!(said.contains(record.to_str().unwrap()) && said.contains("remove it"), "{said}");
    }
    // A link that leads round can't be read by any user.
    std::fs::remove_file(&record).unwrap();
    std::os::unix::fs::symlink(&record, &record).unwrap();
    assert!(matches!(bench.refused(&bench.config()), ServeError::FailureRead(_)));
    assert_eq!(superblock(&bench), before, "refusals change nothing");
    std::fs::remove_file(&record).unwrap();
    bench.serve().stop();
}

/// The device took no mark, so only the state folder knows of the failure, and that all had been
/// destaged after it. What the log calls dirty is older than the origin.
#[test]
fn a_failure_that_only_the_state_folder_knows_counts_offline_too() {
    let failed = || {
        let bench = Bench::formatted();
        let mut served = bench.serve_frozen();
        served.write(0, 10);
        served.stop();
        let state = bench.path("state");
        std::fs::create_dir_all(&state).unwrap();
        let uuid = crate::offline::uuid_text(&superblock(&bench).uuid).replace('-', "");
        let record = state.join(format!("{uuid}.failed"));
        std::fs::write(&record, "0\n").unwrap();
        assert!(matches!(bench.refused(&bench.config()), ServeError::CacheFailed { dirty: 0, .. }));
        (bench, state, record)
    };
    let (bench, state, record) = failed();
    let report = detach(&bench.cache(), None, &bench.origin(), Some(&state), false, &mut |_, _| {}).unwrap();
    assert_eq!(report.blocks_given_up, 0);
    assert!(!record.exists(), "there is nothing left that it is about");

    let (bench, state, record) = failed();
    let plan = Repair::plan(&bench.cache(), Some(&state), true, &mut |_, _| {}).unwrap();
    assert!(plan.report().needed && plan.report().cache_failed);
    let report = plan.write(None).unwrap();
    assert!(report.repaired && report.dirty_kept == 0 && !record.exists());
    let mut served = bench.serve();
    assert_eq!(served.status().blocks_dirty, 0);
    served.stop();
}

/// The cache took the mark when it failed, and not the one of the stop, by when all had been
/// destaged.
#[test]
fn the_record_of_the_stop_counts_and_not_the_mark_before_it() {
    let bench = Bench::formatted();
    let dirty = failed_while_dirty(&bench, &Arc::new(true.into())).end();
    assert!(matches!(dirty, Ended::CacheFailed { blocks_dirty: 10.. }));
    let state = bench.path("state");
    let record = failure::record(Some(&state), &superblock(&bench), 0).unwrap();
    assert!(matches!(bench.refused(&bench.config()), ServeError::CacheFailed { dirty: 0, .. }));
    let plan = Repair::plan(&bench.cache(), Some(&state), false, &mut |_, _| {}).unwrap();
    assert_eq!((plan.report().older_blocks, plan.report().dirty_kept), (0, 0), "{:?}", plan.report());
    drop(plan);
    let report = detach(&bench.cache(), None, &bench.origin(), Some(&state), false, &mut |_, _| {}).unwrap();
    assert!(report.blocks_given_up == 0 && !record.exists());
}

/// Two devices that failed, neither of which took the mark.
#[test]
fn half_of_a_failed_mirrored_cache_stays_doubted() {
    let (bench, config) = Bench::mirrored();
    let wrap_origin = Some(freezing(&Arc::new(true.into())));
    let mut served = bench.serve_with(config.clone(), Hooks { wrap_origin, ..Hooks::default() });
    served.write(0, 10);
    served.stop();
    let state = bench.path("state");
    let record = failure::record(Some(&state), &superblock(&bench), 10).unwrap();
    // Repaired by itself one would clear both, and the other be served as it was.
    for half in [bench.cache(), bench.path("mirror")] {
        let refusal = Repair::plan(&half, Some(&state), true, &mut |_, _| {}).unwrap_err();
        assert!(matches!(refusal, RepairError::BothFailed(_)), "{refusal}");
        assert!(refusal.to_string().contains("detach"), "{refusal}");
    }
    let report = detach(&bench.cache(), None, &bench.origin(), Some(&state), true, &mut |_, _| {}).unwrap();
    assert!(report.other_remains && record.exists());
    let other = Config { cache: bench.path("mirror"), mirror: None, without_mirror: true, ..config };
    let refusal = bench.refused(&other);
    assert!(matches!(refusal, ServeError::CacheFailed { dirty: 10, .. }), "{refusal}");
}

/// A start that is cut off after its first write would leave a cache that is neither marked nor
/// doubted.
#[test]
fn what_is_to_be_dropped_is_remembered_or_not_begun() {
    let bench = Bench::formatted();
    failed_while_dirty(&bench, &Arc::new(true.into())).end();
    let before = superblock(&bench);
    let accepting = Config { accept_changed_origin: true, ..bench.config() };
    let refusal = bench.refused(&Config { state: None, ..accepting.clone() });
    assert!(matches!(refusal, ServeError::Origins(OriginsError::Unremembered { .. })), "{refusal}");
    assert!(refusal.to_string().contains("--state"), "{refusal}");
    assert_eq!(superblock(&bench), before, "refusals change nothing");
    bench.serve_with(accepting, Hooks::default()).stop();
}

/// Clean blocks of a log that ended with a failure may have been written since, past the log.
#[test]
fn clean_data_of_a_failed_cache_is_dropped_by_the_operators_word() {
    let bench = Bench::formatted();
    let mut served = bench.serve();
    served.write(40, 1);
    served.drain();
    served.stop();
    let cache = Arc::new(AtomicBool::new(false));
    // Ten blocks of the origin take no writes, so that something stays dirty.
    let faults: Faults = "eio,op=write,at=0..40960".parse().unwrap();
    let wrap_origin: Wrap = Box::new(move |device| Box::new(Inject::new(device, faults.clone())));
    let (wrap_cache, wrap_origin) = (Some(freezing(&cache)), Some(wrap_origin));
    let mut served = bench.serve_with(bench.config(), Hooks { wrap_cache, wrap_origin, ..Hooks::default() });
    served.write(0, 10);
    served.assert_holds(40, 1);
    cache.store(true, Ordering::SeqCst);
    let newest = [7; BLOCK_BYTES as usize];
    // The failure is noticed by the first of them that is to become durable.
    assert!(served.nbd.write_at(50 * BLOCK_BYTES, &newest, true).is_err());
    assert!(served.status().cache_failed);
    served.nbd.write_at(40 * BLOCK_BYTES, &newest, false).unwrap();
    assert!(matches!(served.end(), Ended::CacheFailed { blocks_dirty: 10.. }));
    let accepting = Config { accept_changed_origin: true, ..bench.config() };
    let mut served = bench.serve_with(accepting, Hooks::default());
    served.assert_holds(0, 10);
    let mut bytes = [0; BLOCK_BYTES as usize];
    served.nbd.read_at(40 * BLOCK_BYTES, &mut bytes).unwrap();
    assert_eq!(bytes, newest);
    served.stop();
}

#[test]
fn a_stop_at_once_marks_a_failed_cache_too() {
    let bench = Bench::formatted();
    let served = failed_while_dirty(&bench, &Arc::new(true.into()));
    served.stop.stop_at_once();
    assert!(matches!(served.end(), Ended::CacheFailed { .. }));
    assert!(superblock(&bench).failed);
}

/// The flush of the origin at the start fails, and the next ones succeed. The first client that
/// flushes is told, else the operator that stops the daemon.
#[test]
fn a_flush_that_failed_is_told_by_the_next_flush_or_the_stop() {
    for flushes in [false, true] {
        let bench = Bench::formatted();
        let faults: Faults = "eio,op=flush,times=1".parse().unwrap();
        let wrap_origin: Wrap = Box::new(move |device| Box::new(Inject::new(device, faults.clone())));
        let mut served = bench.serve_with(bench.config(), Hooks { wrap_origin: Some(wrap_origin), ..Hooks::default() });
        if flushes {
            served.nbd.flush().unwrap_err();
            served.nbd.flush().unwrap();
            served.stop();
        } else {
            served.stop.stop();
            let told = served.thread.join().unwrap().unwrap_err();
            assert!(matches!(told, ServeError::Doubtful(_)), "{told}");
            assert!(told.to_string().contains(&*bench.origin().to_string_lossy()), "{told}");
        }
        assert!(superblock(&bench).clean);
    }
}

/// Renames a device under a running daemon, and puts another of the same size in its place.
fn replace(path: &std::path::Path, bytes: u64) -> Vec<u8> {
    std::fs::rename(path, path.with_extension("moved")).unwrap();
    let other = vec![0xee; bytes as usize];
    std::fs::write(path, &other).unwrap();
    other
}

#[test]
fn what_took_the_place_of_the_cache_is_not_written_to() {
    let bench = Bench::formatted();
    let mut served = bench.serve();
    served.write(0, 10);
    let other = replace(&bench.cache(), CACHE_BYTES);
    served.stop();
    assert!(std::fs::read(bench.cache()).unwrap() == other, "the other device was written to");
    std::fs::rename(bench.path("cache.moved"), bench.cache()).unwrap();
    assert!(superblock(&bench).clean, "the stop was a clean one all the same");

    // And where it is to be marked as failed.
    let served = failed_while_dirty(&bench, &Arc::new(true.into()));
    let other = replace(&bench.cache(), CACHE_BYTES);
    assert!(matches!(served.end(), Ended::CacheFailed { .. }));
    assert!(std::fs::read(bench.cache()).unwrap() == other, "the other device was written to");
    std::fs::rename(bench.path("cache.moved"), bench.cache()).unwrap();
    assert!(superblock(&bench).failed);
}

#[test]
fn what_took_the_place_of_the_origin_is_not_taken_for_it() {
    let bench = Bench::formatted();
    let mut served = bench.serve_frozen();
    served.write(0, 10);
    let other = replace(&bench.origin(), ORIGIN_BYTES);
    served.stop();
    let refusal = bench.refused(&bench.config());
    assert!(matches!(refusal, ServeError::Origins(OriginsError::OtherOrigin { .. })), "{refusal}");
    assert!(std::fs::read(bench.origin()).unwrap() == other);
    std::fs::rename(bench.path("origin.moved"), bench.origin()).unwrap();
    let mut served = bench.serve();
    served.assert_holds(0, 10);
    served.stop();
}

/// Both were there when the start compared the origin; by the next one it has been changed.
#[test]
fn a_start_that_one_device_refuses_does_not_blind_the_guard() {
    let bench = Bench::new();
    let sealable = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    let memory = std::fs::File::from(memfd_create("mirror", sealable).unwrap());
    memory.set_len(CACHE_BYTES).unwrap();
    let mirror = Some(std::path::PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd())));
    format(&FormatOptions { mirror: mirror.clone(), ..bench.options() }).unwrap();
    let config = Config { mirror, ..bench.config() };
    let mut served = bench.serve_with(config.clone(), Hooks::default());
    served.write(0, 10);
    served.drain();
    served.stop();
    // As an SSD that has come to the end of its life takes no more writes.
    fcntl_add_seals(&memory, SealFlags::WRITE).unwrap();
    let refusal = bench.refused(&config);
    assert!(matches!(refusal, ServeError::HalfMissing { .. }), "{refusal}");
    let newer = [7; BLOCK_BYTES as usize];
    let origin = std::fs::File::options().write(true).open(bench.origin()).unwrap();
    origin.write_all_at(&newer, 5 * BLOCK_BYTES).unwrap();
    let alone = Config { mirror: None, without_mirror: true, ..config };
    let mut served = bench.serve_with(alone, Hooks::default());
    let mut bytes = [0; BLOCK_BYTES as usize];
    served.nbd.read_at(5 * BLOCK_BYTES, &mut bytes).unwrap();
    assert_eq!(bytes, newer);
    served.stop();
}

/// A program that waits for the lock of a device gets it only when all is written.
#[test]
fn nobody_else_has_a_device_before_the_stop_has_ended() {
    let bench = Bench::formatted();
    let served = bench.serve();
    let (path, done) = (bench.origin(), Arc::new(AtomicBool::new(false)));
    let over = Arc::clone(&done);
    let thief = std::thread::spawn(move || {
        let mut held = None;
        while !over.load(Ordering::SeqCst) && held.is_none() {
            let file = std::fs::File::open(&path).unwrap();
            held = file.try_lock().is_ok().then_some(file);
            std::thread::yield_now();
        }
        while !over.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    });
    served.stop();
    done.store(true, Ordering::SeqCst);
    thief.join().unwrap();
    assert!(superblock(&bench).clean);
}

#[test]
fn a_dirty_limit_that_cannot_hold_is_refused() {
    let bench = Bench::formatted();
    let limit = |text: &str| text.parse::<DirtyLimit>().unwrap();
    let before = superblock(&bench);
    for text in ["4 KiB", "1 MiB", "1%", "100%", "1 TiB"] {
        let mut config = bench.config();
        config.policy.dirty_limit = limit(text);
        let said = bench.refused(&config).to_string();
        assert!(said.contains(text) && said.contains("257 blocks") && said.contains("1028 KiB"), "{text}: {said}");
    }
    assert_eq!(superblock(&bench), before, "refusals change nothing");

    let mut served = bench.serve();
    let before = served.status();
    let set = |text, mode| Command::Set { volume: None, mode, dirty_limit: Some(limit(text)), sequential_bypass: None };
    for text in ["4 KiB", "1 MiB", "1%", "100%", "1 TiB"] {
        let refusal = served.control.call(&set(text, Some(Mode::Writethrough))).unwrap_err();
        assert!(matches!(&refusal, control::ClientError::Refused(said) if said.contains("1028 KiB")), "{refusal}");
    }
    let after = served.status();
    assert_eq!((&after.mode, after.dirty_limit_blocks), (&before.mode, before.dirty_limit_blocks));
    served.control.call(&set("1028 KiB", None)).unwrap();
    assert_eq!(served.status().dirty_limit_blocks, 257);
    served.stop();
}

#[test]
fn buffers_larger_than_the_machine_are_refused() {
    let bench = Bench::formatted();
    let mut config = bench.config();
    config.buffer_bytes = Some(Size(1 << 50));
    let said = bench.refused(&config).to_string();
    assert!(said.contains("1 PiB") && said.contains("RAM"), "{said}");
}

#[test]
fn an_origin_that_refuses_its_dirty_data_is_told_with_the_reason() {
    let bench = Bench::formatted();
    let frozen = Arc::new(true.into());
    let hooks = Hooks { wrap_origin: Some(freezing(&frozen)), ..Hooks::default() };
    let mut served = bench.serve_with(bench.config(), hooks);
    served.write(0, 10);
    let told = |served: &mut Served| served.status().volumes[0].origin_error.clone();
    served.control.call(&Command::Drain { start: true }).unwrap();
    while told(&mut served).is_none() {
        std::thread::yield_now();
    }
    assert_eq!(told(&mut served).as_deref(), Some("I/O error (EIO)"));
    frozen.store(false, Ordering::SeqCst);
    while served.status().draining {
        std::thread::yield_now();
    }
    assert_eq!(told(&mut served), None);
    served.stop();
}

#[test]
fn every_drain_is_counted() {
    let bench = Bench::formatted();
    let mut served = bench.serve();
    for nth in 0..3 {
        assert_eq!(served.status().counters.drains, nth);
        served.write(nth * 100, 50);
        served.drain();
    }
    assert_eq!(served.status().counters.drains, 3);
    served.stop();
}
