// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extents of the map: sorted lists of them, without overlaps, and their form in the store.

use crate::books::Books;
use crate::form::FRAME_BYTES_MAX;
use crate::wire::{Put, SECTOR_BYTES, Take};

/// Sectors of a page.
pub(crate) const PAGE_SECTORS: u64 = 1 << 15;
/// Bytes of an extent, in the store and in RAM.
pub(crate) const EXTENT_BYTES: usize = 24;

/// The number of no object: a change that makes its sectors zeroes.
const ZEROES: u32 = u32::MAX;
/// A part of the volume, and where its content is stored. Sectors are counted within the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    start: u16,
    /// Sectors - 1.
    last: u16,
    /// Number of the object in the table.
    pub(crate) object: u32,
    /// Where the stored extent begins in the object's payload.
    pub(crate) at: u32,
    /// Bytes of the stored extent.
    pub(crate) stored: u32,
    pub(crate) crc: u32,
    /// Sectors of the stored extent before this part.
    skip: u16,
    /// Sectors of the stored extent - 1.
    whole: u16,
}

impl Extent {
    /// An extent that is stored as a whole: its first sector in the page, its sectors, and where
    /// its bytes are.
    pub(crate) fn new(start: u64, sectors: u64, object: u32, at: u32, (stored, crc): (u32, u32)) -> Self {
        let last = narrow(sectors - 1);
        Self { start: narrow(start), last, object, at, stored, crc, skip: 0, whole: last }
    }

    /// Zeroes, as a change has them.
    pub(crate) fn zeroes(from: u64, to: u64) -> Self {
        Self::new(from, to - from, ZEROES, 0, (0, 0))
    }

    pub(crate) fn is_zeroes(&self) -> bool {
        self.object == ZEROES
    }

    pub(crate) fn from(&self) -> u64 {
        self.start.into()
    }

    pub(crate) fn end(&self) -> u64 {
        self.from() + self.sectors()
    }

    pub(crate) fn sectors(&self) -> u64 {
        u64::from(self.last) + 1
    }

    /// Sectors of the stored extent.
    pub(crate) fn whole(&self) -> u64 {
        u64::from(self.whole) + 1
    }

    pub(crate) fn skip(&self) -> u64 {
        self.skip.into()
    }

    /// The part of it that lies in this range of the page.
    pub(crate) fn cut(&self, from: u64, to: u64) -> Self {
        let (start, end) = (self.from().max(from), self.end().min(to));
        let skipped = start - self.from();
        Self { start: narrow(start), last: narrow(end - start - 1), skip: narrow(self.skip() + skipped), ..*self }
    }
}

fn narrow(value: u64) -> u16 {
    u16::try_from(value).expect("bug: a sector outside its page")
}

/// The extents that overlap a range.
pub(crate) fn over(extents: &[Extent], from: u64, to: u64) -> impl Iterator<Item = &Extent> {
    let begin = extents.partition_point(|it| it.end() <= from);
    extents[begin..].iter().take_while(move |it| it.from() < to)
}

/// The parts of a range that no extent covers.
pub(crate) fn gaps(extents: &[Extent], from: u64, to: u64) -> Vec<(u64, u64)> {
    let (mut gaps, mut at) = (Vec::new(), from);
    for it in over(extents, from, to) {
        if it.from() > at {
            gaps.push((at, it.from()));
        }
        at = it.end();
    }
    if at < to {
        gaps.push((at, to));
    }
    gaps
}

/// Puts an extent, or nothing, in place of a range.
pub(crate) fn replace(extents: &mut Vec<Extent>, from: u64, to: u64, extent: Option<Extent>, books: &mut impl Books) {
    let begin = extents.partition_point(|it| it.end() <= from);
    let len = extents[begin..].partition_point(|it| it.from() < to);
    let old = &extents[begin..begin + len];
    for it in old.iter().filter(|it| !it.is_zeroes()) {
        books.freed(it.object, it.cut(from, to).sectors());
    }
    let left = old.first().filter(|it| it.from() < from).map(|it| it.cut(0, from));
    let right = old.last().filter(|it| it.end() > to).map(|it| it.cut(to, PAGE_SECTORS));
    extents.splice(begin..begin + len, [left, extent, right].into_iter().flatten());
}

pub(crate) fn encode(extents: &[Extent]) -> Vec<u8> {
    let mut put = Put(Vec::with_capacity(extents.len() * EXTENT_BYTES));
    for it in extents {
        put.u16(it.start).u16(it.last).u32(it.object).u32(it.at).u32(it.stored).u32(it.crc);
        put.u16(it.skip).u16(it.whole);
    }
    put.0
}

pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Extent>> {
    let mut take = Take(bytes);
    let mut extents = Vec::with_capacity(bytes.len() / EXTENT_BYTES);
    let mut before = 0;
    while !take.0.is_empty() {
        let (start, last, object, at) = (take.u16()?, take.u16()?, take.u32()?, take.u32()?);
        let (stored, crc, skip, whole) = (take.u32()?, take.u32()?, take.u16()?, take.u16()?);
        let extent = Extent { start, last, object, at, stored, crc, skip, whole };
        let fits = extent.from() >= before
            && extent.end() <= PAGE_SECTORS
            && u32::from(skip) + u32::from(last) <= u32::from(whole)
            && skip <= start
            && (extent.is_zeroes()
                || (1..=(u64::from(whole) + 1) * SECTOR_BYTES + FRAME_BYTES_MAX).contains(&u64::from(stored)));
        if !fits {
            return None;
        }
        before = extent.end();
        extents.push(extent);
    }
    Some(extents)
}
