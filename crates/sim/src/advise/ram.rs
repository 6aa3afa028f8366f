// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plays a trace with RAM in the place of the cache device, to see the effect of RAM alone.
//!
//! The RAM is a page cache that reads around misses. Writes go to the disk, and nothing is lost
//! with the RAM. Without reading around, it is the page cache alone. A trace of a block device has
//! the requests that the page cache of its machine let through. So this RAM would be given beside
//! that page cache.

use flashfront_device::sim::{Fill, ModelSpec, SsdSpec};

/// The model of RAM as a cache device. It takes a microsecond for a request and carries 10 GB/s.
/// That is little enough not to count beside a disk. The processor's work is not counted either.
pub(super) fn model() -> ModelSpec {
    ModelSpec::Ssd(SsdSpec {
        units: 64,
        read_ns: 0,
        program_ns: 0,
        read_command_ns: 1_000,
        write_command_ns: 1_000,
        link_command_ns: 0,
        link_read_bytes_per_s: 10_000_000_000,
        link_write_bytes_per_s: 10_000_000_000,
        program_bytes_per_s: 10_000_000_000,
        buffer_bytes: 64 << 20,
        flush_ns: 0,
        protected: true,
        fill: Fill::Clean,
        random_cost: 1.0,
        sequential_cost: 1.0,
        reserve_bytes: 0,
    })
}
