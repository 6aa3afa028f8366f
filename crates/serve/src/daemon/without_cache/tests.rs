// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flashfront_engine::{BLOCK_BYTES, Mode};

use crate::config::{Config, ConfigError};
use crate::control::{ClientError, Command};
use crate::daemon::{self, DevicesError, Ended, Hooks, OriginsError, ServeError};
use crate::mixup::Mixup;
use crate::offline::{FormatOptions, check, dump, format};
use crate::rig::{Bench, Served, freezing};

/// Data that is written without the cache.
const NEWER: [u8; BLOCK_BYTES as usize] = [0xaa; BLOCK_BYTES as usize];

impl Bench {
    fn alone(&self) -> Config {
        Config { without_cache: true, accept_missing_dirty_data: true, ..self.config() }
    }

    /// Serves without the cache device, which is away meanwhile, and writes block 5 anew; ends as
    /// by a crash.
    fn change_alone(&self) {
        let away = self.path("away");
        std::fs::rename(self.cache(), &away).unwrap();
        let mut served = self.serve_with(self.alone(), Hooks::default());
        served.nbd.write_at(5 * BLOCK_BYTES, &NEWER, true).unwrap();
        served.stop_at_once();
        std::fs::rename(&away, self.cache()).unwrap();
    }

    /// Ten clean blocks in a cache that was not stopped cleanly: no samples of the origin tell its
    /// age.
    fn crashed_clean(&self) {
        let mut served = self.serve();
        served.write(0, 10);
        served.drain();
        served.stop();
        // The opening's checkpoint says that they are clean; a log that is cut off could lack that.
        let mut served = self.serve();
        assert!(served.status().blocks_cached >= 10);
        served.stop_at_once();
    }

    /// Ten dirty blocks in one.
    fn crashed_dirty(&self) {
        let mut served = self.serve_frozen();
        served.write(0, 10);
        served.stop_at_once();
    }

    fn origin_block(&self, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        File::open(self.origin()).unwrap().read_exact_at(&mut bytes, block * BLOCK_BYTES).unwrap();
        bytes
    }
}

fn block(served: &mut Served, nth: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_BYTES as usize];
    served.nbd.read_at(nth * BLOCK_BYTES, &mut bytes).unwrap();
    bytes
}

#[test]
fn the_origin_is_served_by_itself_and_nothing_becomes_dirty() {
    let bench = Bench::new();
    std::fs::remove_file(bench.cache()).unwrap();
    let mut config = bench.alone();
    // As in a file that was written for the cache.
    config.volumes[0].mode = Some(Mode::Writeback);
    config.policy.dirty_limit = "10 GiB".parse().unwrap();
    let mut served = bench.serve_with(config, Hooks::default());
    served.write(0, 20);
    served.nbd.write_at(7 * BLOCK_BYTES + 512, &[1; 512], true).unwrap();
    served.assert_holds(8, 12);
    assert_eq!(bench.origin_block(7)[512..1024], [1; 512]);
    let status = served.status();
    assert!(status.without_cache && !status.cache_failed);
    assert_eq!((status.mode.as_str(), status.blocks_cached, status.blocks_dirty), ("passthrough", 0, 0));
    assert_eq!((status.capacity_blocks, status.counters.cache_writes_bytes), (0, 0));
    assert!(status.counters.origin_writes_bytes >= 20 * BLOCK_BYTES + 512);
    let set = Command::Set { volume: None, mode: Some(Mode::Writeback), dirty_limit: None, sequential_bypass: None };
    for command in [set, Command::Drain { start: true }] {
        let refusal = served.control.call(&command).unwrap_err();
        assert!(matches!(&refusal, ClientError::Refused(said) if said.contains("without its cache")), "{refusal}");
    }
    assert_eq!(served.status().mode, "passthrough");
    assert_eq!(served.end(), Ended::WithoutCache { detached: false });
    for nth in 8..20 {
        assert_eq!(bench.origin_block(nth)[0], nth as u8 ^ 0x5a);
    }
}

#[test]
fn it_takes_the_operators_word_and_a_state_folder() {
    let bench = Bench::formatted();
    let unconfirmed = Config { accept_missing_dirty_data: false, ..bench.alone() };
    let refusal = bench.refused(&unconfirmed);
    assert!(matches!(refusal, ServeError::Config(ConfigError::MissingDirtyData)), "{refusal}");
    let file = bench.path("file");
    File::create(&file).unwrap();
    for state in [None, Some(file.join("state"))] {
        let refusal = bench.refused(&Config { state, ..bench.alone() });
        assert!(matches!(refusal, ServeError::Origins(OriginsError::Unremembered { .. })), "{refusal}");
        assert!(refusal.to_string().contains("--state"), "{refusal}");
    }
}

#[test]
fn a_cache_is_served_as_no_origin() {
    let bench = Bench::formatted();
    let mut alone = bench.alone();
    alone.volumes[0].origin = bench.cache();
    let mut swapped = Config { cache: bench.origin(), ..bench.config() };
    swapped.volumes[0].origin = bench.cache();
    for config in [alone, swapped] {
        let refusal = bench.refused(&config);
        assert!(
            matches!(&refusal, ServeError::Devices(DevicesError::Mixup(Mixup::OriginIsCache(path))) if *path == bench.cache()),
            "{refusal}"
        );
    }
}

#[test]
fn a_missing_or_wiped_cache_device_points_to_it() {
    let bench = Bench::formatted();
    File::options().write(true).open(bench.cache()).unwrap().write_all_at(&[0; 8192], 0).unwrap();
    let size = std::fs::metadata(bench.cache()).unwrap().len();
    let file = File::options().write(true).open(bench.cache()).unwrap();
    file.write_all_at(&[0; 4096], size - 4096).unwrap();
    let wiped = bench.refused(&bench.config()).to_string();
    std::fs::remove_file(bench.cache()).unwrap();
    let missing = bench.refused(&bench.config()).to_string();
    for said in [wiped, missing] {
        assert!(said.contains("--without-cache"), "{said}");
    }
}

#[test]
fn clean_data_is_dropped_once_though_no_sample_tells() {
    let bench = Bench::formatted();
    bench.crashed_clean();
    bench.change_alone();
    // Cut off after the first write and before anything is dropped: that changes nothing.
    for _ in 0..2 {
        assert_eq!(cut_off(&bench.config()), Ended::AtOnce);
    }
    let mut served = bench.serve();
    assert_eq!(served.status().blocks_cached, 0);
    assert_eq!(block(&mut served, 5), NEWER);
    served.write(20, 10);
    served.drain();
    served.stop();
    // Data that came later is not dropped.
    let mut served = bench.serve();
    assert!(served.status().blocks_cached >= 10);
    assert_eq!(block(&mut served, 5), NEWER);
    served.stop();
}

#[test]
fn dirty_data_is_refused_and_kept_by_the_operators_word() {
    let bench = Bench::formatted();
    bench.crashed_dirty();
    bench.change_alone();
    let before = std::fs::read(bench.cache()).unwrap();
    for _ in 0..2 {
        let refusal = bench.refused(&bench.config());
        assert!(
            matches!(refusal, ServeError::Origins(OriginsError::OriginNewer { dirty: 10, damaged: false, .. })),
            "{refusal}"
        );
    }
    let refusal = daemon::destage(&bench.config(), &Hooks::default(), &mut |_, _| {}).unwrap_err();
    let said = refusal.to_string();
    for word in ["without its cache", "10 dirty blocks", "--accept-changed-origin", "detach --force"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(std::fs::read(bench.cache()).unwrap() == before, "refusals change nothing");
    assert_eq!(bench.origin_block(5), NEWER);
    let accepting = Config { accept_changed_origin: true, ..bench.config() };
    let report = daemon::destage(&accepting, &Hooks::default(), &mut |_, _| {}).unwrap();
    assert!(report.complete && report.blocks_written == 10, "{report:?}");
    assert_eq!(bench.origin_block(5)[0], 5 ^ 0x5a);
    // The word was for once, and it is settled.
    bench.serve().stop();
}

/// A start that drops clean data replays what comes behind a commit of which only such data is
/// torn.
#[test]
fn dirty_data_behind_torn_clean_data_is_refused_too() {
    let bench = Bench::formatted();
    let mut served = bench.serve_frozen();
    served.cache_clean_data();
    served.write(0, 10);
    served.stop_at_once();
    let commits = dump(&bench.cache(), &mut |_, _| {}).unwrap().lanes[0].commits.clone();
    let clean = commits.iter().find(|commit| commit.blocks > 10).unwrap();
    let cache = File::options().write(true).open(bench.cache()).unwrap();
    cache.write_all_at(&[0xee], clean.offset + 7 * BLOCK_BYTES).unwrap();
    let torn = check(&bench.cache(), &mut |_, _| {}).unwrap();
    assert!(torn.ok && torn.torn_lanes == [0] && torn.blocks_dirty == 0, "{torn:?}");
    bench.change_alone();
    let refusal = bench.refused(&bench.config());
    assert!(matches!(refusal, ServeError::Origins(OriginsError::OriginNewer { dirty: 10, .. })), "{refusal}");
    assert_eq!(bench.origin_block(5), NEWER);
}

#[test]
fn a_copy_of_the_origin_is_known_and_a_new_cache_is_not_bothered() {
    let bench = Bench::formatted();
    bench.crashed_clean();
    bench.serve().stop();
    bench.change_alone();
    // Another inode: block 5 is in the first MiB, so the samples would tell, but the record does
    // first.
    let copy = bench.path("copy");
    std::fs::copy(bench.origin(), &copy).unwrap();
    std::fs::rename(&copy, bench.origin()).unwrap();
    let config = Config { accept_changed_origin: true, ..bench.config() };
    let mut served = bench.serve_with(config, Hooks::default());
    assert_eq!((served.status().blocks_cached, block(&mut served, 5)), (0, NEWER.to_vec()));
    served.stop();

    let second = FormatOptions { cache: bench.path("second"), ..bench.options() };
    File::create(&second.cache).unwrap().set_len(crate::rig::CACHE_BYTES).unwrap();
    format(&second).unwrap();
    let config = Config { cache: second.cache, ..bench.config() };
    for cached in [false, true] {
        let mut served = bench.serve_with(config.clone(), Hooks::default());
        assert_eq!(served.status().blocks_cached > 0, cached, "nothing is dropped");
        served.write(0, 10);
        served.drain();
        served.stop();
    }
}

/// A second cache of the same origin, and a config for it.
fn second(bench: &Bench) -> Config {
    let options = FormatOptions { cache: bench.path("second"), ..bench.options() };
    File::create(&options.cache).unwrap().set_len(crate::rig::CACHE_BYTES).unwrap();
    format(&options).unwrap();
    Config { cache: options.cache, ..bench.config() }
}

#[test]
fn what_another_cache_has_served_since_is_not_overwritten() {
    let bench = Bench::formatted();
    bench.crashed_dirty();
    let second = second(&bench);
    for nth in 0..2 {
        let mut served = bench.serve_with(second.clone(), Hooks::default());
        assert_eq!(served.status().blocks_cached > 0, nth > 0, "its own data is not dropped");
        served.nbd.write_at(5 * BLOCK_BYTES, &NEWER, true).unwrap();
        served.drain();
        served.stop();
    }
    let before = std::fs::read(bench.cache()).unwrap();
    for _ in 0..2 {
        let refusal = bench.refused(&bench.config());
        assert!(matches!(refusal, ServeError::Origins(OriginsError::OriginNewer { dirty: 10, .. })), "{refusal}");
        assert!(refusal.to_string().contains("was served with another cache"), "{refusal}");
    }
    assert!(std::fs::read(bench.cache()).unwrap() == before, "refusals change nothing");
    assert_eq!(bench.origin_block(5), NEWER);
    // By the operator's word it takes over, and then the second one is the older one.
    let accepting = Config { accept_changed_origin: true, ..bench.config() };
    for config in [accepting, bench.config()] {
        let mut served = bench.serve_with(config, Hooks::default());
        served.assert_holds(0, 10);
        served.stop_at_once();
    }
    let mut served = bench.serve_with(second, Hooks::default());
    assert_eq!(served.status().blocks_cached, 0);
    served.stop();
}

#[test]
fn clean_data_from_before_another_cache_served_is_dropped() {
    let bench = Bench::formatted();
    bench.crashed_clean();
    let second = second(&bench);
    let mut served = bench.serve_with(second, Hooks::default());
    served.nbd.write_at(5 * BLOCK_BYTES, &NEWER, true).unwrap();
    served.drain();
    served.stop();
    let mut served = bench.serve();
    assert_eq!((served.status().blocks_cached, block(&mut served, 5)), (0, NEWER.to_vec()));
    served.stop();
}

/// The cache is served on after a copy was made of it; the config for the copy.
fn copied(bench: &Bench) -> Config {
    std::fs::copy(bench.cache(), bench.path("copy")).unwrap();
    let mut served = bench.serve();
    served.nbd.write_at(5 * BLOCK_BYTES, &NEWER, true).unwrap();
    served.drain();
    served.stop_at_once();
    Config { cache: bench.path("copy"), ..bench.config() }
}

#[test]
fn an_older_copy_of_a_cache_is_not_believed() {
    let bench = Bench::formatted();
    bench.crashed_dirty();
    let copy = copied(&bench);
    let before = std::fs::read(&copy.cache).unwrap();
    for _ in 0..2 {
        let refusal = bench.refused(&copy);
        assert!(matches!(refusal, ServeError::Origins(OriginsError::OriginNewer { dirty: 10, .. })), "{refusal}");
        assert!(refusal.to_string().contains("was served with a newer copy of this cache"), "{refusal}");
    }
    assert!(std::fs::read(&copy.cache).unwrap() == before, "refusals change nothing");
    assert_eq!(bench.origin_block(5), NEWER);
    // By the operator's word it takes over, and then the other one is the older one.
    let accepting = Config { accept_changed_origin: true, ..copy.clone() };
    for config in [accepting, copy] {
        let mut served = bench.serve_with(config, Hooks::default());
        served.assert_holds(0, 10);
        served.stop_at_once();
    }
    let dirty_or_dropped = bench.try_serve_frozen().map(|mut served| {
        served.assert_holds(0, 10);
        (served.status().blocks_cached, served.stop_at_once()).0
    });
    assert!(
        matches!(dirty_or_dropped, Ok(0) | Err(ServeError::Origins(OriginsError::OriginNewer { .. }))),
        "{dirty_or_dropped:?}"
    );
}

/// A snapshot of the cache device, of the time while it was served. Both have the same epoch.
#[test]
fn a_copy_of_a_served_cache_is_not_believed() {
    let bench = Bench::formatted();
    let frozen = Arc::new(AtomicBool::new(true));
    let hooks = Hooks { wrap_origin: Some(freezing(&frozen)), ..Hooks::default() };
    let mut served = bench.serve_with(bench.config(), hooks);
    served.write(5, 1);
    std::fs::copy(bench.cache(), bench.path("copy")).unwrap();
    frozen.store(false, Ordering::SeqCst);
    served.nbd.write_at(5 * BLOCK_BYTES, &NEWER, true).unwrap();
    served.drain();
    served.stop();
    let refusal = bench.refused(&Config { cache: bench.path("copy"), ..bench.config() });
    assert!(refusal.to_string().contains("was served with a newer copy of this cache"), "{refusal}");
    assert_eq!(bench.origin_block(5), NEWER);
    // The cache itself is not taken for a copy, after a clean stop or a crash.
    let mut served = bench.serve();
    assert_eq!(block(&mut served, 5), NEWER);
    served.stop();
    bench.crashed_dirty();
    let mut served = bench.serve();
    served.assert_holds(0, 10);
    served.stop();
}

#[test]
fn clean_data_of_an_older_copy_is_dropped() {
    let bench = Bench::formatted();
    bench.crashed_clean();
    let copy = copied(&bench);
    for first in [true, false] {
        let mut served = bench.serve_with(copy.clone(), Hooks::default());
        assert_eq!((block(&mut served, 5), first && served.status().blocks_cached > 1), (NEWER.to_vec(), false));
        served.stop_at_once();
    }
}

/// A start that is asked to stop after its first write, and before it is ready.
fn cut_off(config: &Config) -> Ended {
    let hooks = Hooks::default();
    let stop = hooks.stop.clone();
    let wrap_cache: daemon::Wrap = Box::new(move |device| {
        stop.stop();
        device
    });
    daemon::run(config, Hooks { wrap_cache: Some(wrap_cache), ..hooks }).unwrap()
}

#[test]
fn a_start_that_was_cut_off_does_not_blind_the_guard() {
    let bench = Bench::formatted();
    let mut served = bench.serve();
    served.write(0, 10);
    served.drain();
    served.stop();
    assert_eq!(cut_off(&bench.config()), Ended::AtOnce);
    let mut served = bench.serve();
    assert!(served.status().blocks_cached >= 10, "nothing was changed, nothing is dropped");
    served.stop();

    assert_eq!(cut_off(&bench.config()), Ended::AtOnce);
    let origin = File::options().write(true).open(bench.origin()).unwrap();
    origin.write_all_at(&NEWER, 5 * BLOCK_BYTES).unwrap();
    // The first of these sees it, and is cut off; without the state folder the second has to see it
    // by itself.
    assert_eq!(cut_off(&bench.config()), Ended::AtOnce);
    let config = Config { state: Some(bench.path("other-state")), ..bench.config() };
    let mut served = bench.serve_with(config, Hooks::default());
    assert_eq!((served.status().blocks_cached, block(&mut served, 5)), (0, NEWER.to_vec()));
    served.stop();

    // Dirty data, which would be written over it.
    let mut served = bench.serve_frozen();
    served.write(0, 10);
    served.stop();
    assert_eq!(cut_off(&bench.config()), Ended::AtOnce);
    origin.write_all_at(&NEWER, 6 * BLOCK_BYTES).unwrap();
    let refusal = bench.refused(&bench.config());
    assert!(matches!(refusal, ServeError::Origins(OriginsError::OriginChanged { dirty: 10, .. })), "{refusal}");
}

#[test]
fn a_start_that_saw_a_change_and_was_cut_off_is_remembered() {
    let bench = Bench::formatted();
    bench.crashed_clean();
    bench.serve().stop();
    let origin = File::options().write(true).open(bench.origin()).unwrap();
    origin.write_all_at(&NEWER, 5 * BLOCK_BYTES).unwrap();
    assert_eq!(cut_off(&bench.config()), Ended::AtOnce);
    let mut served = bench.serve();
    assert_eq!((served.status().blocks_cached, block(&mut served, 5)), (0, NEWER.to_vec()));
    served.stop();
}

#[test]
fn two_volumes_are_served_and_remembered() {
    let bench = Bench::new();
    let other = bench.path("other");
    File::create(&other).unwrap().set_len(1 << 20).unwrap();
    let mut config = bench.alone();
    config.volumes.push(crate::config::Volume::new("other", other.clone()));
    let hooks = Hooks::default();
    let stop = hooks.stop.clone();
    let ready: daemon::Ready = Box::new(move |_| stop.stop());
    assert_eq!(
        daemon::run(&config, Hooks { ready: Some(ready), ..hooks }).unwrap(),
        Ended::WithoutCache { detached: false }
    );
    let files = std::fs::read_dir(config.state.clone().unwrap()).unwrap().count();
    assert_eq!(files, 2);
    let many = |nth: usize| crate::config::Volume::new(&nth.to_string(), bench.path(&nth.to_string()));
    config.volumes = (0..17).map(many).collect();
    assert!(matches!(bench.refused(&config), ServeError::Origins(OriginsError::Volumes { given: 17 })));
}
