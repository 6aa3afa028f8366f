// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x fuzz nbd`: what it does is in crates/fuzz/src/nbd.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flashfront_fuzz::run("nbd", data));
