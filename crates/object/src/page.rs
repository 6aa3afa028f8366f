// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page of the map: 16 MiB of the volume, and the unit of checkpoints.
//!
//! A page has a base, as a checkpoint stored it, and the changes that came after it. The base may
//! be in the store alone: changes don't need it. They are put into the base when somebody has it.
//! The changes of a base that is damaged are stored beside it (ADR 0080).

use crate::canary::{Canary, planted};
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
    fn zeroes(from: u64, to: u64) -> Self {
        Self::new(from, to - from, ZEROES, 0, (0, 0))
    }

    fn is_zeroes(&self) -> bool {
        self.object == ZEROES
    }

    pub(crate) fn from(&self) -> u64 {
        self.start.into()
    }

    fn end(&self) -> u64 {
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
    fn cut(&self, from: u64, to: u64) -> Self {
        let (start, end) = (self.from().max(from), self.end().min(to));
        let skipped = start - self.from();
        Self { start: narrow(start), last: narrow(end - start - 1), skip: narrow(self.skip() + skipped), ..*self }
    }
}

fn narrow(value: u64) -> u16 {
    u16::try_from(value).expect("bug: a sector outside its page")
}

/// Where a page was stored last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PagePlace {
    pub(crate) object: u32,
    pub(crate) at: u64,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}

/// What a change has freed.
pub(crate) trait Freed {
    /// Tells that some sectors of an object with data are not in use any more.
    fn sectors(&mut self, object: u32, sectors: u64);
    /// Tells that a page in a checkpoint is not in use any more.
    fn page(&mut self, place: PagePlace);
}

/// For callers that count nothing.
impl Freed for () {
    fn sectors(&mut self, _: u32, _: u64) {}
    fn page(&mut self, _: PagePlace) {}
}

/// A page.
#[derive(Debug)]
pub(crate) struct Page {
    /// Where the base is stored as it is. Without a place the base is here alone.
    place: Option<PagePlace>,
    /// Sorted, without overlaps; `None`: it is in the store alone.
    base: Option<Vec<Extent>>,
    /// Sorted, without overlaps. They lie over the base.
    changes: Vec<Extent>,
    /// Where the changes are stored as they are.
    changes_place: Option<PagePlace>,
    /// When somebody needed it last.
    used: u64,
}

/// How many extents of a page are in RAM, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Extents of the base, which the store has, too.
    pub(crate) stored: usize,
    /// Extents that are here alone.
    pub(crate) unstored: usize,
}

impl Weight {
    /// This sum, after one of its parts has changed.
    pub(crate) const fn changed(self, before: Self, after: Self) -> Self {
        Self {
            stored: self.stored + after.stored - before.stored,
            unstored: self.unstored + after.unstored - before.unstored,
        }
    }
}

impl Page {
    /// A page of which nothing is stored.
    pub(crate) const fn new() -> Self {
        Self { place: None, base: Some(Vec::new()), changes: Vec::new(), changes_place: None, used: 0 }
    }

    /// A page that is in the store alone.
    pub(crate) const fn stored(place: PagePlace) -> Self {
        Self { place: Some(place), base: None, changes: Vec::new(), changes_place: None, used: 0 }
    }

    pub(crate) const fn place(&self) -> Option<PagePlace> {
        self.place
    }

    pub(crate) const fn is_loaded(&self) -> bool {
        self.base.is_some()
    }

    /// Where its changes are stored, if they are.
    pub(crate) const fn changes_place(&self) -> Option<PagePlace> {
        self.changes_place
    }

    /// Whether the store has it as it is. Changes of a base that is here belong into that.
    pub(crate) const fn is_stored(&self) -> bool {
        let has_changes = self.changes_place.is_some() && self.base.is_none();
        self.place.is_some() && (self.changes.is_empty() || has_changes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.base.as_ref().is_some_and(Vec::is_empty)
    }

    pub(crate) fn weight(&self) -> Weight {
        let (base, changes) = (self.base.as_ref().map_or(0, Vec::len), self.changes.len());
        match (self.place, self.changes_place) {
            (Some(_), None) => Weight { stored: base, unstored: changes },
            (Some(_), Some(_)) => Weight { stored: base + changes, unstored: 0 },
            (None, _) => Weight { stored: 0, unstored: base + changes },
        }
    }

    /// Bytes that it will have in the store, about.
    pub(crate) fn bytes(&self) -> u64 {
        let base = self.base.as_ref().map_or(0, |base| base.len() * EXTENT_BYTES);
        let stored = self.place.filter(|_| self.base.is_none()).map_or(0, |place| place.bytes as usize);
        (base + stored + self.changes.len() * EXTENT_BYTES) as u64
    }

    pub(crate) const fn used(&self) -> u64 {
        self.used
    }

    pub(crate) const fn use_at(&mut self, now: u64) {
        self.used = now;
    }

    /// Puts an extent, or zeroes, in place of a range: into the base if it is here and `at_once`.
    pub(crate) fn put(&mut self, from: u64, to: u64, extent: Option<Extent>, at_once: bool, freed: &mut impl Freed) {
        if at_once && self.is_loaded() {
            self.merge(freed);
            self.put_into_base(from, to, extent, freed);
        } else {
            self.free_changes_place(freed);
            replace(&mut self.changes, from, to, Some(extent.unwrap_or(Extent::zeroes(from, to))), freed);
        }
    }

    fn free_changes_place(&mut self, freed: &mut impl Freed) {
        if let Some(place) = self.changes_place.take() {
            freed.page(place);
        }
    }

    /// Puts the changes into the base, which must be here.
    pub(crate) fn merge(&mut self, freed: &mut impl Freed) {
        self.free_changes_place(freed);
        for change in std::mem::take(&mut self.changes) {
            self.put_into_base(change.from(), change.end(), Some(change).filter(|it| !it.is_zeroes()), freed);
        }
    }

    fn put_into_base(&mut self, from: u64, to: u64, extent: Option<Extent>, freed: &mut impl Freed) {
        let base = self.base.as_mut().expect("bug: a page that is changed is here");
        if replace(base, from, to, extent, freed)
            && let Some(place) = self.place.take()
        {
            freed.page(place);
        }
    }

    /// Whether the extents of this range are known without the store.
    pub(crate) fn knows(&self, from: u64, to: u64) -> bool {
        let mut at = from;
        for change in over(&self.changes, from, to).take_while(|_| !self.is_loaded()) {
            if change.from() > at {
                break;
            }
            at = change.end();
        }
        self.is_loaded() || at >= to
    }

    /// The extents of a range, cut to it.
    pub(crate) fn extents(&self, from: u64, to: u64) -> Vec<Extent> {
        debug_assert!(self.knows(from, to), "bug: a page is asked that is in the store alone");
        let base = self.base.as_deref().unwrap_or_default();
        let mut found: Vec<Extent> = over(base, from, to).map(|it| it.cut(from, to)).collect();
        for change in over(&self.changes, from, to) {
            let change = change.cut(from, to);
            replace(&mut found, change.from(), change.end(), Some(change), &mut ());
        }
        found.retain(|it| !it.is_zeroes());
        found
    }

    /// All extents of a base that is here and has no changes.
    pub(crate) fn all(&self) -> &[Extent] {
        debug_assert!(self.changes.is_empty(), "bug: the page was not merged");
        self.base.as_deref().expect("bug: the page is in the store alone")
    }

    /// Notes where it is stored now.
    pub(crate) fn store(&mut self, store: impl FnOnce(Vec<u8>) -> PagePlace) {
        self.place = Some(store(encode(self.all())));
    }

    /// Stores the changes beside a base that can't be had.
    pub(crate) fn store_changes(&mut self, freed: &mut impl Freed, store: impl FnOnce(Vec<u8>) -> PagePlace) {
        self.free_changes_place(freed);
        self.changes_place = Some(store(encode(&self.changes)));
    }

    /// Lets a base be forgotten that can't be had, if the changes cover all of it.
    pub(crate) fn replace_base(&mut self, freed: &mut impl Freed) {
        if !self.is_loaded() && self.knows(0, PAGE_SECTORS) {
            self.base = Some(Vec::new());
            self.merge(freed);
        }
    }

    /// Takes the changes as they were stored. Tells which sectors of which objects they use.
    pub(crate) fn load_changes(
        &mut self,
        place: PagePlace,
        bytes: &[u8],
        used: impl FnMut(u32, u64) -> bool,
    ) -> Result<(), String> {
        let changes = decode(bytes).ok_or("changes of a page of the map are not sorted, or cut short")?;
        are_known(changes.iter().filter(|it| !it.is_zeroes()), used)?;
        (self.changes, self.changes_place) = (changes, Some(place));
        Ok(())
    }

    /// Takes the base as it was stored at this place. Tells which sectors of which objects it uses.
    pub(crate) fn load(
        &mut self,
        place: PagePlace,
        bytes: &[u8],
        used: impl FnMut(u32, u64) -> bool,
    ) -> Result<(), String> {
        if self.place != Some(place) || self.is_loaded() {
            return Ok(());
        }
        let base = decode(bytes).ok_or("a page of the map is not sorted, or cut short")?;
        are_known(base.iter(), used)?;
        self.base = Some(base);
        if planted(Canary::ChangesLost) {
            self.changes.clear();
        }
        Ok(())
    }

    /// Leaves the base to the store, if that has it.
    pub(crate) fn unload(&mut self) {
        if self.place.is_some() {
            self.base = None;
        }
    }
}

/// The extents that overlap a range.
fn over(extents: &[Extent], from: u64, to: u64) -> impl Iterator<Item = &Extent> {
    let begin = extents.partition_point(|it| it.end() <= from);
    extents[begin..].iter().take_while(move |it| it.from() < to)
}

/// Puts an extent, or nothing, in place of a range; tells whether that has changed something.
fn replace(extents: &mut Vec<Extent>, from: u64, to: u64, extent: Option<Extent>, freed: &mut impl Freed) -> bool {
    let begin = extents.partition_point(|it| it.end() <= from);
    let len = extents[begin..].partition_point(|it| it.from() < to);
    let old = &extents[begin..begin + len];
    if old.is_empty() && extent.is_none() {
        return false;
    }
    for it in old.iter().filter(|it| !it.is_zeroes()) {
        freed.sectors(it.object, it.cut(from, to).sectors());
    }
    let left = old.first().filter(|it| it.from() < from).map(|it| it.cut(0, from));
    let right = old.last().filter(|it| it.end() > to).map(|it| it.cut(to, PAGE_SECTORS));
    extents.splice(begin..begin + len, [left, extent, right].into_iter().flatten());
    true
}

/// Tells which sectors of which objects are used. The root must have all of these.
fn are_known<'a>(
    mut extents: impl Iterator<Item = &'a Extent>,
    mut used: impl FnMut(u32, u64) -> bool,
) -> Result<(), String> {
    match extents.find(|it| !used(it.object, it.sectors())) {
        Some(it) => Err(format!("a page of the map uses object {}, which the root does not have", it.object)),
        None => Ok(()),
    }
}

fn encode(extents: &[Extent]) -> Vec<u8> {
    let mut put = Put(Vec::with_capacity(extents.len() * EXTENT_BYTES));
    for it in extents {
        put.u16(it.start).u16(it.last).u32(it.object).u32(it.at).u32(it.stored).u32(it.crc);
        put.u16(it.skip).u16(it.whole);
    }
    put.0
}

fn decode(bytes: &[u8]) -> Option<Vec<Extent>> {
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
