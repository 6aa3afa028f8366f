// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long streams go past the cache. While the cache device is slow, shorter ones do, too.
//!
//! All clients are one task here, since requests don't name their client. A task that mostly asks
//! for long streams is bypassed from the first bytes of the next.

use std::collections::VecDeque;

use flashfront_device::Rng;
use flashfront_engine::Time;

/// Ends of I/Os that are remembered, and for how long.
const STREAMS: usize = 128;
const STREAM_NS: u64 = 5_000_000_000;
/// The latest stream counts for one in this many in the mean over a task's streams.
const MEAN_OF: u64 = 8;
/// `congested_read_threshold_us` and `congested_write_threshold_us`.
const SLOW_READ_NS: u64 = 2_000_000;
const SLOW_WRITE_NS: u64 = 20_000_000;
const CONGESTED_MAX: i64 = 1024;

#[derive(Clone, Copy, Debug)]
struct Stream {
    end: u64,
    bytes: u64,
    until: Time,
}

#[derive(Debug)]
pub(super) struct Bypass {
    /// The length from which streams are bypassed; 0 = no stream is bypassed for being sequential.
    cutoff_bytes: u64,
    streams: VecDeque<Stream>,
    /// The length of the stream that the task is in, and the mean of its streams.
    stream_bytes: u64,
    mean_bytes: u64,
    /// The slowness of the device, in units of 1,024 us; below 0 if it was slow.
    congested: i64,
    slow_at: Time,
    rng: Rng,
}

impl Bypass {
    pub(super) fn new(cutoff_bytes: u64) -> Self {
        let streams = VecDeque::with_capacity(STREAMS);
        let rng = Rng::new(1);
        Self { cutoff_bytes, streams, stream_bytes: 0, mean_bytes: 0, congested: 0, slow_at: Time(0), rng }
    }

    /// An I/O of the cache device for a client has ended.
    pub(super) fn note(&mut self, now: Time, since: Time, read: bool) {
        let ns = now.since_ns(since);
        if ns > if read { SLOW_READ_NS } else { SLOW_WRITE_NS } {
            self.slow_at = now;
            self.congested -= ((ns / 1_024_000) as i64).min(CONGESTED_MAX + self.congested).max(0);
        } else if self.congested < 0 {
            self.congested += 1;
        }
    }

    /// Returns 0 if the device isn't slow, else the length in sectors from which streams are
    /// bypassed.
    ///
    /// Slowness is forgotten by 1 a millisecond. The rest counts exponentially, less a random
    /// number, so that not all streams change over together.
    fn congested_sectors(&mut self, now: Time) -> u64 {
        let left = (now.since_ns(self.slow_at) / 1_024_000) as i64 + self.congested;
        if left >= 0 {
            return 0;
        }
        let left = left + CONGESTED_MAX;
        let sectors = if left > 0 { (64 + (left & 63)) << (left >> 6) >> 6 } else { 0 };
        (sectors - i64::from((self.rng.next_u64() as u32).count_ones())).max(1) as u64
    }

    /// Whether a request goes past the cache. A synchronous write never does for being sequential.
    pub(super) fn skips(&mut self, now: Time, offset: u64, len: u64, synchronous_write: bool) -> bool {
        let congested = self.congested_sectors(now);
        if congested == 0 && (self.cutoff_bytes == 0 || synchronous_write) {
            return false;
        }
        let known = self.streams.iter().position(|stream| stream.end == offset && stream.until > now);
        let bytes = if let Some(stream) = known.and_then(|at| self.streams.remove(at)) {
            self.stream_bytes = stream.bytes + len;
            self.stream_bytes
        } else {
            self.mean_bytes = (self.mean_bytes * (MEAN_OF - 1) + self.stream_bytes) / MEAN_OF;
            self.stream_bytes = len;
            if self.streams.len() == STREAMS {
                self.streams.pop_back();
            }
            len
        };
        self.streams.push_front(Stream { end: offset + len, bytes, until: now.plus_ns(STREAM_NS) });
        let bytes = bytes.max(self.mean_bytes);
        (self.cutoff_bytes > 0 && bytes >= self.cutoff_bytes) || (congested > 0 && bytes / 512 >= congested)
    }
}
