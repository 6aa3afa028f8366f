// SPDX-License-Identifier: MIT OR Apache-2.0
//! A batch of writes, and its form as an object.

use crate::form::FRAME_BYTES_MAX;
use crate::name::Stamp;
use crate::wire::SECTOR_BYTES;
use crate::wire::{Put, Take, crc_at, is_sealed};

/// The longest extent with payload, and the unit of reads, checksums, compression and encryption.
pub const EXTENT_SECTORS_MAX: u64 = 512;

const MAGIC: &[u8; 8] = b"FFDATA01";
const CRC_AT: usize = 52;
const FIXED_BYTES: usize = 56;
const RECORD_BYTES: usize = 24;
const ZEROES: u32 = 1;
/// Extents are stored as they are, or each in a frame that says its form.
const PLAIN: u32 = 0;
const FRAMED: u32 = 1;

/// What an object says of one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// First sector.
    pub start: u64,
    /// Sectors.
    pub sectors: u64,
    /// Where its payload begins behind the head.
    pub at: u64,
    /// Bytes of payload. None: the sectors are zeroes.
    pub stored: u32,
    /// Checksum of the payload.
    pub crc: u32,
}

/// Collects writes until they become an object.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    records: Vec<Record>,
    payload: Vec<u8>,
}

impl Batch {
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Bytes that the object would have, about.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len() + self.records.len() * RECORD_BYTES
    }

    /// Appends an extent, in the form in which it is stored.
    pub(crate) fn push(&mut self, start: u64, sectors: u64, bytes: &[u8]) -> Record {
        debug_assert!(sectors > 0 && start % EXTENT_SECTORS_MAX + sectors <= EXTENT_SECTORS_MAX);
        let at = self.payload.len() as u64;
        let record = Record { start, sectors, at, stored: bytes.len() as u32, crc: crc_at(start, bytes) };
        self.payload.extend_from_slice(bytes);
        self.records.push(record);
        record
    }

    /// Appends zeroes.
    pub(crate) fn push_zeroes(&mut self, start: u64, sectors: u64) {
        self.records.push(Record { start, sectors, at: self.payload.len() as u64, stored: 0, crc: 0 });
    }

    /// Makes the object, and the length of its head.
    pub(crate) fn seal(self, volume: &[u8; 16], stamp: Stamp, is_framed: bool) -> (Vec<u8>, u32) {
        let mut head = Put::default();
        head.bytes(MAGIC).bytes(volume).u32(stamp.epoch).count(self.records.len()).u64(stamp.sequence);
        head.u64(self.payload.len() as u64).u32(if is_framed { FRAMED } else { PLAIN }).u32(0);
        for record in &self.records {
            let flags = if record.stored == 0 { ZEROES } else { 0 };
            let sectors = u32::try_from(record.sectors).expect("bug: zeroes are cut into parts of 2^31 sectors");
            head.u64(record.start).u32(sectors).u32(record.stored).u32(record.crc).u32(flags);
        }
        let head_bytes = head.0.len() as u32;
        let mut body = head.seal(CRC_AT);
        body.extend_from_slice(&self.payload);
        (body, head_bytes)
    }
}

/// The head of an object with data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The volume that wrote it.
    pub volume: [u8; 16],
    /// Its number.
    pub stamp: Stamp,
    /// Bytes of the head.
    pub bytes: u32,
    /// Bytes behind it.
    pub payload: u64,
    /// Extents are stored in frames, which say their form.
    pub is_framed: bool,
    /// The extents, in order: later ones win.
    pub records: Vec<Record>,
}

impl Head {
    /// Reads a head, and verifies it. There may be more bytes behind it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let short = || format!("{} bytes are too few for its head", bytes.len());
        let mut take = Take(bytes);
        if take.bytes(8).ok_or_else(short)? != MAGIC {
            return Err("it does not begin as an object with data of version 1".to_owned());
        }
        let fields = |take: &mut Take<'_>| {
            let volume = take.array()?;
            let (epoch, count, sequence) = (take.u32()?, take.u32()?, take.u64()?);
            let (payload, codec, _) = (take.u64()?, take.u32()?, take.u32()?);
            Some((volume, Stamp { epoch, sequence }, count as usize, payload, codec))
        };
        let (volume, stamp, count, payload, codec) = fields(&mut take).ok_or_else(short)?;
        let len = count.saturating_mul(RECORD_BYTES).saturating_add(FIXED_BYTES);
        let head = bytes.get(..len).ok_or_else(short)?;
        if !is_sealed(head, CRC_AT) {
            return Err("the checksum of its head is wrong".to_owned());
        }
        if !matches!(codec, PLAIN | FRAMED) {
            return Err(format!("its extents have codec {codec}, which this version does not know"));
        }
        let mut records = Vec::with_capacity(count);
        let mut at = 0;
        for _ in 0..count {
            let mut one = || Some((take.u64()?, take.u32()?, take.u32()?, take.u32()?, take.u32()?));
            let (start, sectors, stored, crc, flags) = one().ok_or_else(short)?;
            let sectors = u64::from(sectors);
            let fits = match flags {
                ZEROES => stored == 0,
                0 => {
                    let (stored, plain) = (u64::from(stored), sectors * SECTOR_BYTES);
                    let may = if codec == PLAIN { plain..=plain } else { 1..=plain + FRAME_BYTES_MAX };
                    may.contains(&stored) && start % EXTENT_SECTORS_MAX + sectors <= EXTENT_SECTORS_MAX
                }
                _ => false,
            };
            if sectors == 0 || !fits {
                return Err(format!(
                    "the extent at sector {start} has {sectors} sectors, {stored} bytes, flags {flags}"
                ));
            }
            records.push(Record { start, sectors, at, stored, crc });
            at += u64::from(stored);
        }
        if at != payload {
            return Err(format!("its extents have {at} bytes, its head says {payload}"));
        }
        Ok(Self { volume, stamp, bytes: len as u32, payload, is_framed: codec == FRAMED, records })
    }

    /// Sectors of its extents with payload.
    pub(crate) fn content(&self) -> u64 {
        self.records.iter().filter(|it| it.stored > 0).map(|it| it.sectors).sum()
    }

    /// Verifies the payload of an extent within a whole object.
    #[must_use]
    pub fn payload_of<'a>(&self, record: &Record, object: &'a [u8]) -> Option<&'a [u8]> {
        let from = usize::try_from(u64::from(self.bytes) + record.at).ok()?;
        let stored = object.get(from..from + record.stored as usize)?;
        (crc_at(record.start, stored) == record.crc).then_some(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_as_it_was_written_and_any_changed_byte_is_seen() {
        let mut batch = Batch::default();
        batch.push(8, 8, &[7; 4096]);
        batch.push_zeroes(100, 50);
        batch.push(1024, 1, &[9; 512]);
        let stamp = Stamp { epoch: 3, sequence: 9 };
        let (body, head_bytes) = batch.seal(&[5; 16], stamp, false);
        let head = Head::parse(&body).unwrap();
        assert_eq!((head.volume, head.stamp, head.bytes), ([5; 16], stamp, head_bytes));
        let places: Vec<_> = head.records.iter().map(|it| (it.start, it.sectors, it.stored)).collect();
        assert_eq!(places, [(8, 8, 4096), (100, 50, 0), (1024, 1, 512)]);
        assert_eq!(head.payload_of(&head.records[2], &body), Some(&[9; 512][..]));
        for at in 0..body.len() {
            let mut harmed = body.clone();
            harmed[at] ^= 0x10;
            let seen = Head::parse(&harmed).is_err()
                || head.records.iter().any(|it| it.stored > 0 && head.payload_of(it, &harmed).is_none());
            assert!(seen, "byte {at}");
        }
        for len in 0..head_bytes as usize {
            assert!(Head::parse(&body[..len]).is_err());
        }
    }
}
