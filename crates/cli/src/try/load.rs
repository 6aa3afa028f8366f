// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workload: random 4 KiB reads and writes after Zipf's law, through the NBD socket.
//!
//! One connection with a fixed number of requests in flight, like a busy virtual machine. Every
//! write carries its block's number and version, and every read is compared with them. A demo of a
//! cache that returned old data would be worth nothing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use flashfront_device::Rng;
use flashfront_serve::frontend::nbd::{Ask, Client, Listen, Request, connect};
use flashfront_sim::zipf::{Scatter, Zipf};
use hdrhistogram::Histogram;

/// Bytes of a request: the block of most file systems and databases.
pub(super) const REQUEST_BYTES: u32 = 4096;
/// Requests in flight.
pub(super) const DEPTH: u64 = 16;
/// The number of reads in 100 requests.
pub(super) const READ_PERCENT: u64 = 70;
/// Exponent of Zipf's law, measured on storage of virtual machines and web servers (0.9 to 1.3).
pub(super) const SKEW: f64 = 1.2;

/// What was measured over a span of time.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) latency_ns: Histogram<u64>,
    pub(super) seconds: f64,
}

impl Tally {
    fn new() -> anyhow::Result<Self> {
        // Up to 100 s, three digits.
        let latency_ns = Histogram::new_with_bounds(1, 100_000_000_000, 3).context("latency histogram")?;
        Ok(Self { latency_ns, seconds: 0.0 })
    }

    pub(super) fn operations(&self) -> u64 {
        self.latency_ns.len()
    }

    pub(super) fn iops(&self) -> f64 {
        if self.seconds > 0.0 { self.operations() as f64 / self.seconds } else { 0.0 }
    }

    pub(super) fn quantile_ns(&self, quantile: f64) -> u64 {
        if self.latency_ns.is_empty() { 0 } else { self.latency_ns.value_at_quantile(quantile) }
    }
}

/// A request in flight.
#[derive(Debug)]
struct Pending {
    begun: Instant,
    block: u64,
    /// The version written, or for a read the oldest that it may return.
    version: u32,
    write: bool,
}

/// How often a block was written.
#[derive(Clone, Copy, Debug, Default)]
struct Versions {
    sent: u32,
    acknowledged: u32,
    writing: bool,
}

/// The client and what it knows.
pub(super) struct Load {
    client: Client,
    rng: Rng,
    zipf: Zipf,
    scatter: Scatter,
    versions: HashMap<u64, Versions>,
    pending: HashMap<u64, Pending>,
    next: u64,
    payload: Vec<u8>,
    answer: Vec<u8>,
    /// Reads that were compared.
    pub(super) verified: u64,
}

impl Load {
    /// Connects to the default export.
    pub(super) fn connect(at: &Listen) -> anyhow::Result<Self> {
        let client = connect(at, "", true).context("can't connect to the demo volume")?;
        let blocks = client.info().size_bytes / u64::from(REQUEST_BYTES);
        Ok(Self {
            client,
            rng: Rng::new(0),
            zipf: Zipf::new(blocks, SKEW),
            scatter: Scatter::new(blocks),
            versions: HashMap::new(),
            pending: HashMap::new(),
            next: 0,
            payload: vec![0; REQUEST_BYTES as usize],
            answer: Vec::new(),
            verified: 0,
        })
    }

    /// Begins the sequence of requests that has this seed.
    pub(super) fn begin(&mut self, seed: u64) {
        self.rng = Rng::new(seed);
    }

    /// Runs for `time`, or until `stop` says so; calls `look` with what each interval brought.
    pub(super) fn run(
        &mut self,
        time: Duration,
        interval: Duration,
        stop: &dyn Fn() -> bool,
        look: &mut dyn FnMut(&Tally, Duration) -> anyhow::Result<()>,
    ) -> anyhow::Result<Tally> {
        let begun = Instant::now();
        let mut whole = Tally::new()?;
        let mut part = Tally::new()?;
        let mut part_begun = begun;
        while begun.elapsed() < time && !stop() {
            while (self.pending.len() as u64) < DEPTH {
                self.submit()?;
            }
            let latency = self.receive()?;
            part.latency_ns.saturating_record(latency.as_nanos() as u64);
            if part_begun.elapsed() >= interval {
                part.seconds = part_begun.elapsed().as_secs_f64();
                look(&part, begun.elapsed())?;
                whole.latency_ns.add(&part.latency_ns).context("latency histogram")?;
                part.latency_ns.reset();
                part_begun = Instant::now();
            }
        }
        whole.latency_ns.add(&part.latency_ns).context("latency histogram")?;
        whole.seconds = begun.elapsed().as_secs_f64();
        // What is still in flight belongs to no span: its latency would count, its time not.
        while !self.pending.is_empty() {
            self.receive()?;
        }
        Ok(whole)
    }

    fn submit(&mut self) -> anyhow::Result<()> {
        let block = self.scatter.place(self.zipf.sample(&mut self.rng));
        let versions = self.versions.entry(block).or_default();
        // Two writes to one block in flight may end in any order, and then no read could be judged.
        let write = self.rng.below(100) >= READ_PERCENT && !versions.writing;
        self.next += 1;
        let offset = block * u64::from(REQUEST_BYTES);
        let version = if write {
            versions.sent += 1;
            versions.writing = true;
            stamp(&mut self.payload, block, versions.sent);
            versions.sent
        } else {
            versions.acknowledged
        };
        let (ask, payload) = if write { (Ask::Write, &self.payload[..]) } else { (Ask::READ, &[][..]) };
        self.client.submit(Request::new(self.next, ask, offset, REQUEST_BYTES.into()), payload)?;
        self.pending.insert(self.next, Pending { begun: Instant::now(), block, version, write });
        Ok(())
    }

    /// Waits for an answer and judges it; its latency.
    fn receive(&mut self) -> anyhow::Result<Duration> {
        let answer = self.client.recv(&mut self.answer)?;
        let pending = self.pending.remove(&answer.cookie).context("the server answered twice")?;
        let latency = pending.begun.elapsed();
        if let Err(errno) = answer.result {
            anyhow::bail!("the demo volume failed a request: {errno}; is the file system that holds its files full?");
        }
        let versions = self.versions.entry(pending.block).or_default();
        if pending.write {
            (versions.acknowledged, versions.writing) = (pending.version, false);
        } else {
            let found = read_stamp(&self.answer, pending.block);
            ensure!(
                found.is_some_and(|found| (pending.version..=versions.sent).contains(&found)),
                "WRONG DATA: block {} returned version {found:?}, and {} to {} were possible; please report this",
                pending.block,
                pending.version,
                versions.sent
            );
            self.verified += 1;
        }
        Ok(latency)
    }
}

/// Fills a block with its number and version.
fn stamp(payload: &mut [u8], block: u64, version: u32) {
    for part in payload.chunks_exact_mut(16) {
        part[..8].copy_from_slice(&block.to_le_bytes());
        part[8..].copy_from_slice(&u64::from(version).to_le_bytes());
    }
}

/// The version of a block; `None` if it is not whole, or another block.
fn read_stamp(payload: &[u8], block: u64) -> Option<u32> {
    let first: [u8; 16] = payload.get(..16)?.try_into().ok()?;
    if payload.chunks_exact(16).any(|part| part != first) {
        return None;
    }
    let number = u64::from_le_bytes(first[..8].try_into().ok()?);
    let version = u64::from_le_bytes(first[8..].try_into().ok()?);
    // A block that was never written is all zeroes.
    (number == block || (number == 0 && version == 0)).then_some(u32::try_from(version).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_tells_block_and_version() {
        let mut payload = vec![0; 4096];
        assert_eq!(read_stamp(&payload, 5), Some(0));
        stamp(&mut payload, 5, 3);
        assert_eq!(read_stamp(&payload, 5), Some(3));
        assert_eq!(read_stamp(&payload, 6), None);
        payload[4000] ^= 1;
        assert_eq!(read_stamp(&payload, 5), None);
        assert_eq!(read_stamp(&[], 5), None);
    }

    #[test]
    fn a_tally_of_nothing_is_zero() {
        let tally = Tally::new().unwrap();
        assert_eq!((tally.iops(), tally.quantile_ns(0.99)), (0.0, 0));
    }
}
