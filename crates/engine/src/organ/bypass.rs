// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recognises sequential streams, of which the cache keeps out.
//!
//! The ends of the last 64 streams are remembered, as bcache remembers 128; a request that starts
//! where one ended continues it. A stream longer than the threshold is bypassed.

use crate::fact::types::SECTOR_BYTES;

const STREAMS: usize = 64;

#[derive(Clone, Copy, Default)]
struct Sequence {
    end_sector: u64,
    sectors: u64,
}

/// The recent streams of one origin.
pub(crate) struct Sequences {
    streams: [Sequence; STREAMS],
    /// A part of each one's end: most requests continue none, and see it by these.
    tags: [u16; STREAMS],
    /// Their places, the latest first.
    recent: [u8; STREAMS],
    len: usize,
}

const fn tag(sector: u64) -> u16 {
    (sector.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16
}

impl Sequences {
    pub(crate) fn new() -> Self {
        Self {
            streams: [Sequence::default(); STREAMS],
            tags: [0; STREAMS],
            recent: core::array::from_fn(|nth| nth as u8),
            len: 0,
        }
    }

    /// Returns the length in bytes of the stream that a request would end, without noting the
    /// request.
    pub(crate) fn length_with(&self, sector: u64, sectors: u64) -> u64 {
        let ends_here = |stream: &&u8| self.streams[usize::from(**stream)].end_sector == sector;
        let continued = self.recent[..self.len].iter().find(ends_here);
        let before = continued.map_or(0, |stream| self.streams[usize::from(*stream)].sectors);
        (before + sectors) * SECTOR_BYTES
    }

    /// Notes a request and returns the length in bytes of the stream that it ends.
    pub(crate) fn note(&mut self, sector: u64, sectors: u64) -> u64 {
        let wanted = tag(sector);
        // Without a branch for each the compiler compares eight at once.
        let possible = self.tags.iter().fold(false, |found, tag| found | (*tag == wanted));
        let ends_here = |stream: &u8| self.streams[usize::from(*stream)].end_sector == sector;
        let continued = if possible { self.recent[..self.len].iter().position(ends_here) } else { None };
        self.len += usize::from(continued.is_none() && self.len < STREAMS);
        let nth = continued.unwrap_or(self.len - 1);
        let stream = self.recent[nth];
        self.recent.copy_within(..nth, 1);
        self.recent[0] = stream;
        let it = &mut self.streams[usize::from(stream)];
        let before = if continued.is_some() { it.sectors } else { 0 };
        *it = Sequence { end_sector: sector + sectors, sectors: before + sectors };
        self.tags[usize::from(stream)] = tag(sector + sectors);
        it.sectors * SECTOR_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::Sequences;

    #[test]
    fn interleaved_streams_are_told_apart() {
        let mut streams = Sequences::new();
        for step in 0..100 {
            for stream in 0..32u64 {
                let bytes = streams.note(stream * 1_000_000 + step * 8, 8);
                assert_eq!(bytes, (step + 1) * 4096);
            }
        }
    }

    #[test]
    fn random_requests_are_no_stream() {
        let mut streams = Sequences::new();
        assert!((0..1000u64).all(|n| streams.note(n * 7919 % 1_000_003 * 16, 8) == 4096));
    }
}
