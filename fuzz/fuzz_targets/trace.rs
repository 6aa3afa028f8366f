// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x fuzz trace`: what it does is in crates/fuzz/src/trace.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flashfront_fuzz::run("trace", data));
