// SPDX-License-Identifier: MIT OR Apache-2.0
//! A solid-state disk: a cable, a controller with a write buffer, flash units, and garbage
//! collection.
//!
//! Each I/O holds the cable for a command and its bytes. A read that doesn't go on where the last
//! one ended then holds a flash unit. A write is done when it is in the buffer, which drains at the
//! speed of programming. On a full disk programming costs more: the garbage collector moves valid
//! data out of the way. How much more is taken from measurements, not from a flash translation
//! layer. The firmware of the measured disks is unknown, and a greedy collector would be five times
//! cheaper than they are (the fit: docs/laboratory/models.md).
//!
//! Calibrated against a Samsung 850 PRO and an 840 PRO (test: `calibration`). Not modelled:
//! discards (a full disk stays full), wear, temperature, units by address.

use std::collections::VecDeque;

use flashfront_engine::{Op, Time};

use super::kind::{longer, slower};
use super::model::{Model, ModelIo};

/// How an SSD's flash is filled before the first I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Erased: nothing has to be moved.
    Clean,
    /// Every place was written, in no order: what is valid and what isn't lies mixed.
    Full,
}

/// An SSD. Not `Default`: which one matters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SsdSpec {
    /// Flash units that read at the same time.
    pub units: u32,
    /// The time to sense a page and get it out of its unit.
    pub read_ns: u64,
    /// The time to program a page: a read that meets a programming unit waits for a part of it.
    pub program_ns: u64,
    /// Latency of controller and host beside that, of a read.
    pub read_command_ns: u64,
    /// Latency of controller and host beside that, of a write.
    pub write_command_ns: u64,
    /// The time for which a command holds the cable, without its bytes.
    pub link_command_ns: u64,
    /// The bytes a second that the cable carries to the host.
    pub link_read_bytes_per_s: u64,
    /// The bytes a second that the cable carries from the host.
    pub link_write_bytes_per_s: u64,
    /// The bytes a second that all flash units together program.
    pub program_bytes_per_s: u64,
    /// Writes that are answered and not yet programmed.
    pub buffer_bytes: u64,
    /// A flush beside the draining of the buffer; nearly nothing with power-loss protection.
    pub flush_ns: u64,
    /// Whether the buffer survives a power cut: then a flush waits for nothing.
    pub protected: bool,
    /// How it is filled.
    pub fill: Fill,
    /// Bytes programmed for one byte written to a random place of a full disk.
    pub random_cost: f64,
    /// Bytes programmed for one byte of a sequential write while old data lies mixed. As sequential
    /// writes replace that it falls to 1.
    pub sequential_cost: f64,
    /// Erased flash that a full disk keeps, and makes anew when idle.
    pub reserve_bytes: u64,
}

impl SsdSpec {
    /// Samsung 850 PRO 256 GB (SATA 6 Gbit/s, MLC), the cache device of the 2015 comparison.
    ///
    /// It is fitted to its sixteen raw rows, but for two values. `flush_ns` is that of a consumer
    /// SSD with 574 synchronous writes a second (Samsung 980, public fio figure). `program_ns` is
    /// usual for MLC.
    #[must_use]
    pub const fn samsung_850_pro(fill: Fill) -> Self {
        Self {
            units: 8,
            read_ns: 58_000,
            program_ns: 400_000,
            read_command_ns: 43_000,
            write_command_ns: 25_000,
            link_command_ns: 2_600,
            link_read_bytes_per_s: 550_000_000,
            link_write_bytes_per_s: 473_000_000,
            program_bytes_per_s: 450_000_000,
            buffer_bytes: 16 << 20,
            flush_ns: 1_700_000,
            protected: false,
            fill,
            random_cost: 7.55,
            sequential_cost: 6.1,
            reserve_bytes: 2_580_000_000,
        }
    }

    /// Samsung 840 PRO 256 GB on a SATA 3 Gbit/s port: like the 850 PRO but for the cable. It is
    /// the cache device of the dm-writeboost mail of 2013.
    #[must_use]
    pub const fn samsung_840_pro() -> Self {
        Self {
            link_command_ns: 5_200,
            link_read_bytes_per_s: 275_000_000,
            link_write_bytes_per_s: 269_500_000,
            ..Self::samsung_850_pro(Fill::Clean)
        }
    }

    /// Intel P4500 2 TB (NVMe, PCIe 3.0 x4, power-loss protection), after its data sheet. It reads
    /// 3.2 GB/s, 490,000 random reads/s, in 85 us. It writes 1.05 GB/s, 38,000 sustained random
    /// writes/s, in 20 us.
    #[must_use]
    pub const fn intel_p4500(fill: Fill) -> Self {
        Self {
            units: 40,
            read_ns: 75_000,
            program_ns: 600_000,
            read_command_ns: 8_500,
            write_command_ns: 18_000,
            link_command_ns: 300,
            link_read_bytes_per_s: 3_200_000_000,
            link_write_bytes_per_s: 3_200_000_000,
            program_bytes_per_s: 1_050_000_000,
            buffer_bytes: 32 << 20,
            flush_ns: 20_000,
            protected: true,
            fill,
            random_cost: 6.7,
            sequential_cost: 1.0,
            reserve_bytes: 0,
        }
    }
}

impl SsdSpec {
    /// An SSD that takes so many times as long for everything.
    #[must_use]
    pub(super) fn scaled(self, times: f64) -> Self {
        Self {
            read_ns: longer(self.read_ns, times),
            program_ns: longer(self.program_ns, times),
            read_command_ns: longer(self.read_command_ns, times),
            write_command_ns: longer(self.write_command_ns, times),
            link_command_ns: longer(self.link_command_ns, times),
            link_read_bytes_per_s: slower(self.link_read_bytes_per_s, times),
            link_write_bytes_per_s: slower(self.link_write_bytes_per_s, times),
            program_bytes_per_s: slower(self.program_bytes_per_s, times),
            flush_ns: longer(self.flush_ns, times),
            ..self
        }
    }
}

/// Ends of writes that are remembered, to see which go on: as many as bcache has open buckets.
const STREAMS: usize = 128;
/// A write of this size fills whole pages of all units: sequential by itself.
const LARGE_BYTES: u64 = 256 << 10;

#[derive(Debug)]
pub(super) struct Ssd {
    spec: SsdSpec,
    size_bytes: u64,
    link_free_at: Time,
    units: Vec<Time>,
    /// When all that is in the buffer will be programmed.
    programmed_at: Time,
    /// When the last write submitted so far is answered.
    answered_at: Time,
    /// Where the last read ended.
    read_end: u64,
    write_ends: VecDeque<u64>,
    /// The part of the flash that holds data which lies mixed.
    mixed: f64,
    reserve_bytes: f64,
    running: Vec<(Time, u64)>,
}

impl Ssd {
    pub(super) fn new(spec: SsdSpec, size_bytes: u64) -> Self {
        let full = spec.fill == Fill::Full;
        Self {
            spec,
            size_bytes,
            link_free_at: Time(0),
            units: vec![Time(0); spec.units.max(1) as usize],
            programmed_at: Time(0),
            answered_at: Time(0),
            read_end: u64::MAX,
            write_ends: VecDeque::with_capacity(STREAMS),
            mixed: if full { 1.0 } else { 0.0 },
            reserve_bytes: if full { spec.reserve_bytes as f64 } else { 0.0 },
            running: Vec::new(),
        }
    }

    /// The cable carries a command and its bytes; when it is through.
    fn link(&mut self, now: Time, len: u64, bytes_per_s: u64) -> Time {
        let ns = self.spec.link_command_ns + len.saturating_mul(1_000_000_000) / bytes_per_s;
        self.link_free_at = self.link_free_at.max(now).plus_ns(ns);
        self.link_free_at
    }

    fn read(&mut self, now: Time, io: &ModelIo) -> Time {
        let goes_on = io.offset == self.read_end;
        self.read_end = io.offset + io.len;
        let mut ready = now;
        if !goes_on {
            let unit = self.units.iter_mut().min().expect("there is at least one unit");
            let start = now.max(*unit);
            // A part of a page's programming that is the same in each run: 0 to 15 sixteenths.
            let part = (io.offset >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
            let programming = if self.programmed_at > start { self.spec.program_ns * part / 16 } else { 0 };
            *unit = start.plus_ns(self.spec.read_ns);
            ready = unit.plus_ns(programming);
            // While a unit reads it doesn't program.
            if self.programmed_at > now {
                self.programmed_at = self.programmed_at.plus_ns(self.spec.read_ns / self.units.len() as u64);
            }
        }
        self.link(ready, io.len, self.spec.link_read_bytes_per_s).plus_ns(self.spec.read_command_ns)
    }

    fn goes_on(&mut self, io: &ModelIo) -> bool {
        let known = self.write_ends.iter().position(|end| *end == io.offset);
        if let Some(at) = known {
            self.write_ends.remove(at);
        } else if self.write_ends.len() == STREAMS {
            self.write_ends.pop_back();
        }
        self.write_ends.push_front(io.offset + io.len);
        known.is_some() || io.len >= LARGE_BYTES
    }

    /// Bytes that have to be programmed for a write.
    fn cost(&mut self, now: Time, io: &ModelIo) -> f64 {
        let sequential = self.goes_on(io);
        if self.spec.fill == Fill::Clean {
            return io.len as f64;
        }
        let idle_ns = now.since_ns(self.programmed_at.min(now)) as f64;
        let made = idle_ns / 1e9 * self.spec.program_bytes_per_s as f64 / self.spec.random_cost;
        self.reserve_bytes = (self.reserve_bytes + made).min(self.spec.reserve_bytes as f64);
        let len = io.len as f64;
        let factor = if self.reserve_bytes >= len {
            self.reserve_bytes -= len;
            1.0
        } else if sequential {
            1.0 + (self.spec.sequential_cost - 1.0) * self.mixed
        } else {
            self.spec.random_cost
        };
        let share = len / self.size_bytes as f64;
        self.mixed = if sequential { (self.mixed - share).max(0.0) } else { (self.mixed + share).min(1.0) };
        len * factor
    }

    fn write(&mut self, now: Time, io: &ModelIo) -> Time {
        let arrived = self.link(now, io.len, self.spec.link_write_bytes_per_s);
        let cost = self.cost(now, io);
        let ns_per_byte = 1e9 / self.spec.program_bytes_per_s as f64;
        self.programmed_at = self.programmed_at.max(now).plus_ns((cost * ns_per_byte) as u64);
        // There is room when as much as the buffer holds is left to program, at the cost of this
        // write.
        let room_ns = self.spec.buffer_bytes as f64 * ns_per_byte * cost / io.len as f64;
        let room_at = Time(self.programmed_at.0.saturating_sub(room_ns as u64));
        let answered = arrived.max(room_at).plus_ns(self.spec.write_command_ns);
        self.answered_at = self.answered_at.max(answered);
        answered
    }
}

impl Model for Ssd {
    fn submit(&mut self, now: Time, io: ModelIo) {
        let end = match io.op {
            Op::Read => self.read(now, &io),
            Op::Write => self.write(now, &io),
            Op::Flush => {
                let drained = if self.spec.protected { now } else { self.programmed_at };
                now.max(self.answered_at).max(drained).plus_ns(self.spec.flush_ns)
            }
            // Entries in the mapping table.
            Op::Discard | Op::Zero | Op::Punch | Op::Map => now.plus_ns(self.spec.write_command_ns),
        };
        self.running.push((end, io.number));
    }

    fn next_event(&self) -> Option<Time> {
        self.running.iter().map(|(end, _)| *end).min()
    }

    fn advance(&mut self, now: Time, done: &mut Vec<(Time, u64)>) {
        done.extend(self.running.extract_if(.., |(end, _)| *end <= now));
    }
}
