// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a virtual disk, stored sparsely: pages never written read as zeroes.

use std::collections::BTreeMap;
use std::sync::Arc;

const PAGE_BYTES: usize = 4096;

/// Content to be written: bytes, or one byte many times (a discard of a TiB takes no RAM).
#[derive(Clone, Debug)]
pub(super) enum Content {
    Bytes(Box<[u8]>),
    Fill { byte: u8, len: u64 },
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Fill { len, .. } => *len,
        }
    }

    /// Keeps the first `to` bytes.
    pub(super) fn truncate(&mut self, to: u64) {
        match self {
            Self::Bytes(bytes) => *bytes = bytes[..to as usize].into(),
            Self::Fill { len, .. } => *len = to,
        }
    }
}

/// A disk's bytes. A sorted map: equal histories give equal images, byte for byte. A clone shares
/// the pages until one of the two writes them, so that a crash sweep can clone at every event.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    pages: BTreeMap<u64, Arc<[u8; PAGE_BYTES]>>,
}

impl Image {
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) {
        for (page, at, range) in pieces(offset, out.len() as u64) {
            let range = range.start as usize..range.end as usize;
            match self.pages.get(&page) {
                Some(bytes) => out[range.clone()].copy_from_slice(&bytes[at..at + range.len()]),
                None => out[range].fill(0),
            }
        }
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        for (page, at, range) in pieces(offset, data.len() as u64) {
            let range = range.start as usize..range.end as usize;
            let bytes = Arc::make_mut(self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES])));
            bytes[at..at + range.len()].copy_from_slice(&data[range]);
        }
    }

    fn fill(&mut self, offset: u64, len: u64, byte: u8) {
        if byte == 0 {
            // Whole pages are forgotten, the two ends overwritten.
            let (first, last) = (offset.div_ceil(PAGE_BYTES as u64), (offset + len) / PAGE_BYTES as u64);
            let inside: Vec<_> =
                if first < last { self.pages.range(first..last).map(|(page, _)| *page).collect() } else { Vec::new() };
            for page in inside {
                self.pages.remove(&page);
            }
        }
        for (page, at, range) in pieces(offset, len) {
            let part = (range.end - range.start) as usize;
            if byte == 0 && !self.pages.contains_key(&page) {
                continue;
            }
            let bytes = Arc::make_mut(self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES])));
            bytes[at..at + part].fill(byte);
        }
    }

    /// Writes `content[from..to]` where it belongs when the whole of it starts at `offset`.
    pub(super) fn apply(&mut self, offset: u64, content: &Content, from: u64, to: u64) {
        match content {
            Content::Bytes(bytes) => self.write(offset + from, &bytes[from as usize..to as usize]),
            Content::Fill { byte, .. } => self.fill(offset + from, to - from, *byte),
        }
    }
}

/// Cuts a range at page borders: page, first byte within it, range within the whole.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, std::ops::Range<u64>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = (offset + done) % PAGE_BYTES as u64;
        let part = (PAGE_BYTES as u64 - at).min(len - done);
        let piece = ((offset + done) / PAGE_BYTES as u64, at as usize, done..done + part);
        done += part;
        Some(piece)
    })
}
