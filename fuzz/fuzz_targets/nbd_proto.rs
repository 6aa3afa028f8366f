// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x fuzz nbd_proto`: what it does is in crates/fuzz/src/nbd_proto.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flashfront_fuzz::run("nbd_proto", data));
