// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recognises sequential streams, of which the cache keeps out.
//!
//! The ends of the last 64 streams are remembered, as bcache remembers 128; a request that starts
//! where one ended continues it. A stream longer than the threshold is bypassed.

use alloc::collections::VecDeque;

const STREAMS: usize = 64;

struct Stream {
    end_sector: u64,
    sectors: u64,
}

/// The recent streams of one origin.
pub(crate) struct Streams {
    recent: VecDeque<Stream>,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self { recent: VecDeque::with_capacity(STREAMS) }
    }

    /// Notes a request and returns the length in bytes of the stream that it ends.
    pub(crate) fn note(&mut self, sector: u64, sectors: u64) -> u64 {
        let continued = self.recent.iter().position(|stream| stream.end_sector == sector);
        let before = continued.and_then(|at| self.recent.remove(at)).map_or(0, |stream| stream.sectors);
        if self.recent.len() == STREAMS {
            self.recent.pop_back();
        }
        let stream = Stream { end_sector: sector + sectors, sectors: before + sectors };
        let bytes = stream.sectors * crate::types::SECTOR_BYTES;
        self.recent.push_front(stream);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Streams;

    #[test]
    fn interleaved_streams_are_told_apart() {
        let mut streams = Streams::new();
        for step in 0..100 {
            for stream in 0..32u64 {
                let bytes = streams.note(stream * 1_000_000 + step * 8, 8);
                assert_eq!(bytes, (step + 1) * 4096);
            }
        }
    }

    #[test]
    fn random_requests_are_no_stream() {
        let mut streams = Streams::new();
        assert!((0..1000u64).all(|n| streams.note(n * 7919 % 1_000_003 * 16, 8) == 4096));
    }
}
