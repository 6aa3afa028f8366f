// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that volumes which do nothing cost a daemon next to nothing: files, threads, I/O.

use std::path::Path;

use flashfront_engine::Mode;
use flashfront_engine::format::Shares;

use crate::offline::{AddOptions, Volumes};
use crate::rig::Bench;

const IDLE: usize = 12;

/// Adds volumes that nobody will use.
fn add_idle(bench: &Bench) {
    let mut volumes = Volumes::open(&bench.cache(), None, None, true).unwrap();
    for nth in 0..IDLE {
        let origin = bench.path(&format!("idle{nth}"));
        std::fs::File::create(&origin).unwrap().set_len(8 << 20).unwrap();
        let (name, mode, shares) = (format!("idle{nth}"), Mode::Writeback, Shares::default());
        volumes.add(&AddOptions { name, origin, mode, read_only: false, shares }).unwrap();
    }
}

/// How many files of the state folder have this extension.
fn files(state: &Path, extension: &str) -> usize {
    let entries = std::fs::read_dir(state).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|it| it == extension)).count()
}

#[test]
fn an_origin_is_sampled_when_it_is_written_first() {
    let bench = Bench::formatted();
    add_idle(&bench);
    let state = bench.path("state");
    let mut served = bench.serve_with(bench.config(), crate::daemon::Hooks::default());
    assert_eq!((files(&state, "samples"), files(&state, "openings")), (0, 1));
    served.write(0, 10);
    served.drain();
    assert_eq!(files(&state, "samples"), 1, "of the volume that was written");
    served.stop();
    let served = bench.serve_with(bench.config(), crate::daemon::Hooks::default());
    assert_eq!((files(&state, "samples"), files(&state, "openings")), (1, 1));
    served.stop();
}
