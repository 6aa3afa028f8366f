// SPDX-License-Identifier: MIT OR Apache-2.0
//! What hostile bytes must not do: the bodies of the fuzz targets.
//!
//! A target takes any bytes, and gives them to the production code as a client, an operator or a
//! cache device would. It panics if that code panics, hangs, takes memory without bound, or lies.
//! The same bodies run in three places. They run under libFuzzer (`/fuzz`, `cargo x fuzz`), with
//! random mutations where no C++ compiler is (`main`), and over the kept corpus in every `cargo
//! test` (`tests/corpus.rs`).

#![deny(unsafe_code)]

mod bytes;
mod cache;
mod config;
mod control;
mod memory;
mod nbd;
mod nbd_proto;
mod offline;
mod patch;
mod replay;
mod scratch;
mod structures;
mod superblock;
mod trace;

use std::path::PathBuf;
use std::sync::{Arc, Once};

/// A target.
#[derive(Debug)]
pub struct Target {
    /// Its name: also that of its file in `fuzz/fuzz_targets` and of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// What it attacks.
    pub summary: &'static str,
    /// Longer inputs are of no use.
    pub input_bytes_max: usize,
    /// What one input may make the heap grow by.
    heap_bytes_max: usize,
    body: fn(&[u8]),
}

/// All targets.
pub static TARGETS: [Target; 9] = [
    superblock::TARGET,
    structures::TARGET,
    replay::TARGET,
    offline::TARGET,
    nbd::TARGET,
    nbd_proto::TARGET,
    control::TARGET,
    config::TARGET,
    trace::TARGET,
];

/// Attacks with these bytes, for a file of `fuzz/fuzz_targets`.
///
/// # Panics
/// If that finds a bug, or there is no such target.
pub fn run(name: &str, data: &[u8]) {
    static PIPES: Once = Once::new();
    PIPES.call_once(|| {
        // libFuzzer has the `main`, so Rust's own has not told the kernel that nobody wants this
        // signal.
        let handled = signal_hook::flag::register(signal_hook::consts::SIGPIPE, Arc::default());
        handled.expect("a signal can be handled");
    });
    Target::named(name).expect("the target is in the list").run(data);
}

impl Target {
    /// The target of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Attacks with these bytes.
    ///
    /// # Panics
    /// If that finds a bug.
    pub fn run(&self, data: &[u8]) {
        let data = &data[..data.len().min(self.input_bytes_max)];
        let grown = memory::growth_of(|| (self.body)(data));
        let most = self.heap_bytes_max;
        assert!(grown <= most, "the heap grew by {grown} bytes, at most {most} are bearable");
    }

    /// Where its inputs are kept.
    #[must_use]
    pub fn corpus(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(self.name)
    }
}
