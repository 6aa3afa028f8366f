// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file with pages: segments of 1 MiB, filled in turn, and an index of them in RAM.
//!
//! Before each page stands its head, with a checksum of its own. A start reads the heads of each
//! segment up to the first that is wrong. Nothing is ever flushed. A page of an older round that is
//! still whole is right, too.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use flashfront_object::{StoredPage, crc};
use rustix::fs::OFlags;

/// What a file of this kind begins with, and its version.
const MAGIC: &[u8; 8] = b"FFPAGES1";
const KIND: &[u8] = b"FFPAGES";
/// The first segment begins here.
const FIRST: u64 = 4096;
/// Bytes of a segment.
pub(super) const SEGMENT: u64 = 1 << 20;
/// A head without the name.
const HEAD: usize = 52;
const HEAD_MAGIC: [u8; 4] = *b"FFPG";
/// Objects with longer names are not kept. S3 has names of at most 1,024 bytes.
const NAME_MAX: usize = 1200;

/// What tells a page from all others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PageKey {
    /// The volume's random number: one that was made anew at the same place has another.
    pub(crate) volume: [u8; 16],
    /// The object, with its bucket.
    pub(crate) name: String,
    pub(crate) page: StoredPage,
}

impl PageKey {
    /// The head of a page.
    fn head(&self, round: u64) -> Vec<u8> {
        let StoredPage { at, bytes, crc: of_page } = self.page;
        let mut head = [&HEAD_MAGIC[..], &[0; 4], &round.to_le_bytes(), &self.volume, &at.to_le_bytes()].concat();
        for number in [bytes, of_page, self.name.len() as u32] {
            head.extend(number.to_le_bytes());
        }
        head.extend(self.name.as_bytes());
        let sum = crc(&[&head[8..]]);
        head[4..8].copy_from_slice(&sum.to_le_bytes());
        head
    }

    /// The key and the round of a head, if it is whole.
    fn of_head(head: &[u8]) -> Option<(Self, u64)> {
        let number = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let (bytes, of_page, name) = (number(40)?, number(44)?, number(48)? as usize);
        let head = head.get(..HEAD.checked_add(name)?)?;
        if name > NAME_MAX || !head.starts_with(&HEAD_MAGIC) || crc(&[&head[8..]]) != number(4)? {
            return None;
        }
        let page = StoredPage { at: long(32)?, bytes, crc: of_page };
        let name = String::from_utf8(head[HEAD..].to_vec()).ok()?;
        Some((Self { volume: *head[16..].first_chunk()?, name, page }, long(8)?))
    }

    /// Bytes of the page with its head.
    fn entry_bytes(&self) -> u64 {
        (HEAD + self.name.len()) as u64 + u64::from(self.page.bytes)
    }
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error(
        "another process uses this file, so no page of a map is kept; give each daemon a file of its own with map_file"
    )]
    Busy,
    #[error(
        "it is something else than pages of maps, so it was left as it is, and no page is kept; remove it, or name \
         another file with map_file"
    )]
    Other,
    #[error("{0}; no page of a map is kept; name a file that can be written with map_file")]
    Io(#[from] io::Error),
}

/// Where a page is.
#[derive(Clone, Copy, Debug)]
struct Place {
    segment: u32,
    /// Where its head begins in the segment.
    at: u32,
    /// The length of the page.
    bytes: u32,
}

/// An open file with pages.
#[derive(Debug)]
pub(super) struct Segments {
    file: File,
    /// How many segments the file may have.
    count: u32,
    /// The segment that is being filled; how many were begun before it; and where its next page
    /// goes.
    segment: u32,
    round: u64,
    at: u64,
    /// By the hashes of keys. Two keys with one hash take the place from each other.
    places: HashMap<u64, Place>,
    /// The hashes of the pages of each segment.
    filled: Vec<Vec<u64>>,
    hasher: RandomState,
    page_bytes: u64,
}

impl Segments {
    /// Opens the file and locks it, or makes one.
    pub(super) fn open(path: &Path, size_bytes: u64) -> Result<Self, Refused> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).mode(0o600).custom_flags(flags).open(path);
        let file = match opened {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                return Err(Refused::Other);
            }
            opened => opened?,
        };
        if !file.metadata()?.is_file() {
            return Err(Refused::Other);
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Refused::Busy),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let mut start = [0; MAGIC.len()];
        let len = file.metadata()?.len();
        let read = read_up_to(&file, &mut start, 0)?;
        if len > 0 && !start[..read].starts_with(KIND) {
            return Err(Refused::Other);
        }
        if start != *MAGIC {
            file.set_len(0)?;
            file.write_all_at(MAGIC, 0)?;
            // Later this tells the file from all others.
            file.sync_all()?;
        }
        let segments = Self::of_file(file, size_bytes);
        segments.read_heads().map_err(Refused::Io)
    }

    fn of_file(file: File, size_bytes: u64) -> Self {
        let count = u32::try_from(size_bytes / SEGMENT).unwrap_or(u32::MAX).max(1);
        let filled = vec![Vec::new(); count as usize];
        let (places, hasher) = (HashMap::new(), RandomState::new());
        // The first page begins a segment.
        Self { file, count, segment: count - 1, round: 0, at: SEGMENT, places, filled, hasher, page_bytes: 0 }
    }

    /// Finds the pages that the file has.
    fn read_heads(mut self) -> io::Result<Self> {
        let len = self.file.metadata()?.len();
        let most = FIRST + u64::from(self.count) * SEGMENT;
        if len > most {
            self.file.set_len(most)?;
        }
        let used = len.saturating_sub(FIRST).div_ceil(SEGMENT).min(self.count.into());
        let mut head = vec![0; HEAD + NAME_MAX];
        for segment in 0..used as u32 {
            let mut at = 0;
            while at < SEGMENT {
                let read = read_up_to(&self.file, &mut head, offset(segment, at))?;
                let Some((key, round)) = PageKey::of_head(&head[..read]) else { break };
                let end = at + key.entry_bytes();
                if end > SEGMENT {
                    break;
                }
                self.note(&key, segment, at);
                if round >= self.round {
                    (self.round, self.segment, self.at) = (round, segment, end);
                }
                at = end;
            }
        }
        Ok(self)
    }

    fn note(&mut self, key: &PageKey, segment: u32, at: u64) {
        let hash = self.hasher.hash_one(key);
        let place = Place { segment, at: at as u32, bytes: key.page.bytes };
        self.page_bytes += u64::from(place.bytes);
        if let Some(other) = self.places.insert(hash, place) {
            self.page_bytes -= u64::from(other.bytes);
        }
        self.filled[segment as usize].push(hash);
    }

    fn forget(&mut self, hash: u64) {
        if let Some(place) = self.places.remove(&hash) {
            self.page_bytes -= u64::from(place.bytes);
        }
    }

    pub(super) fn pages(&self) -> u64 {
        self.places.len() as u64
    }

    pub(super) const fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// The content of a page, if it is there and whole. What is damaged is forgotten.
    pub(super) fn find(&mut self, key: &PageKey) -> io::Result<Option<Vec<u8>>> {
        let hash = self.hasher.hash_one(key);
        let Some(place) = self.places.get(&hash) else { return Ok(None) };
        let mut entry = vec![0; key.entry_bytes() as usize];
        let read = read_up_to(&self.file, &mut entry, offset(place.segment, place.at.into()))?;
        let found = PageKey::of_head(&entry[..read]).filter(|(found, _)| found == key);
        let mut content = entry.split_off(HEAD + key.name.len());
        content.truncate(read.saturating_sub(entry.len()));
        if found.is_some() && key.page.is(&content) {
            return Ok(Some(content));
        }
        self.forget(hash);
        Ok(None)
    }

    /// Keeps a page, unless it is there.
    pub(super) fn keep(&mut self, key: &PageKey, content: &[u8]) -> io::Result<()> {
        let bytes = key.entry_bytes();
        if self.places.contains_key(&self.hasher.hash_one(key)) || key.name.len() > NAME_MAX || bytes > SEGMENT {
            return Ok(());
        }
        if self.at + bytes > SEGMENT {
            (self.segment, self.round, self.at) = ((self.segment + 1) % self.count, self.round + 1, 0);
            for hash in std::mem::take(&mut self.filled[self.segment as usize]) {
                if self.places.get(&hash).is_some_and(|it| it.segment == self.segment) {
                    self.forget(hash);
                }
            }
        }
        let mut entry = key.head(self.round);
        entry.extend_from_slice(content);
        self.file.write_all_at(&entry, offset(self.segment, self.at))?;
        self.note(key, self.segment, self.at);
        self.at += bytes;
        Ok(())
    }

    /// Gives all room back.
    pub(super) fn empty(&self) -> io::Result<()> {
        self.file.set_len(MAGIC.len() as u64)
    }
}

fn offset(segment: u32, at: u64) -> u64 {
    FIRST + u64::from(segment) * SEGMENT + at
}

/// Reads what there is.
fn read_up_to(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match file.read_at(&mut into[read..], at + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests;
