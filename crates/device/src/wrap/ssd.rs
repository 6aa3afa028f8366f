// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pace of a flash device: many channels, one cable.
//!
//! An I/O holds the channel that is free first for the time of its kind, and shares the bandwidth
//! with all others. Not modelled: garbage collection, the SLC cache, channels by address.

use flashfront_engine::{Op, Time};

use super::delay::Pace;
use crate::DeviceIo;

/// A flash device. The default is a SATA SSD of the data-centre kind (Intel S4510, Micron 5300
/// data sheets: 540 / 520 MB/s, read 36 to 100 us, write into the protected DRAM 30 to 40 us).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SsdSpec {
    /// How many I/Os it works on at a time (32, the queue depth of SATA).
    pub channels: u32,
    /// A read (80 us: sensing a TLC page and getting it out).
    pub read_ns: u64,
    /// A write (30 us: into the device's RAM).
    pub write_ns: u64,
    /// A flush (100 us; with power-loss protection it is nearly nothing).
    pub flush_ns: u64,
    /// Bytes per second, all I/Os together (500 MB/s, what SATA carries).
    pub bytes_per_s: u64,
}

impl Default for SsdSpec {
    fn default() -> Self {
        Self { channels: 32, read_ns: 80_000, write_ns: 30_000, flush_ns: 100_000, bytes_per_s: 500_000_000 }
    }
}

#[derive(Debug)]
pub(super) struct Ssd {
    spec: SsdSpec,
    /// When each channel is free.
    channels: Vec<Time>,
    cable_free_at: Time,
    /// When the last write submitted so far ends.
    written_at: Time,
    running: Vec<(Time, u64)>,
}

impl Ssd {
    pub(super) fn new(spec: SsdSpec) -> Self {
        let channels = vec![Time(0); spec.channels.max(1) as usize];
        Self { spec, channels, cable_free_at: Time(0), written_at: Time(0), running: Vec::new() }
    }
}

impl Pace for Ssd {
    fn submit(&mut self, now: Time, number: u64, io: &DeviceIo) {
        let end = match io.op {
            Op::Flush => now.max(self.written_at).plus_ns(self.spec.flush_ns),
            // Entries in the mapping table.
            Op::Discard | Op::Zero => now.plus_ns(self.spec.write_ns),
            Op::Read | Op::Write => {
                let channel = self.channels.iter_mut().min().expect("there is at least one channel");
                let kind_ns = if io.op == Op::Read { self.spec.read_ns } else { self.spec.write_ns };
                *channel = now.max(*channel).plus_ns(kind_ns);
                let transfer_ns = io.len.saturating_mul(1_000_000_000) / self.spec.bytes_per_s;
                self.cable_free_at = now.max(self.cable_free_at).plus_ns(transfer_ns);
                let end = (*channel).max(self.cable_free_at);
                if io.op == Op::Write {
                    self.written_at = self.written_at.max(end);
                }
                end
            }
        };
        self.running.push((end, number));
    }

    fn next_event(&self) -> Option<Time> {
        self.running.iter().map(|(end, _)| *end).min()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<(Time, u64)>) {
        done.extend(self.running.extract_if(.., |(end, _)| *end <= now));
    }
}
