// SPDX-License-Identifier: MIT OR Apache-2.0
//! A disk whose every sector tells which write it came from, and a record of the allowed contents
//! of a disk.
//!
//! A sector holds its own number, its version, the seed of the run, and noise made of these three.
//! Versions are 1, 2, 3, ...; 0 means never written, all zeroes. So garbage, a torn sector, or a
//! sector of another place is told from a true one. For each sector the record knows the newest
//! version *issued*, *acknowledged*, and *durable* (acknowledged before a FLUSH that was
//! acknowledged).

use crate::harness::Random;

/// Bytes of a sector.
pub(crate) const SECTOR: usize = 512;

/// The versions of a sector.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    durable: u32,
    acknowledged: u32,
    issued: u32,
    /// Versions above `durable` up to this one were taken by a crash: they must never come back.
    dead: u32,
}

impl Known {
    /// Whether a version may be there after a crash: the durable one, or any written since.
    fn may_survive(&self, version: u32) -> bool {
        version == self.durable || (version > self.durable.max(self.dead) && version <= self.issued)
    }
}

/// The record of a disk, or of a part of it that has one writer.
#[derive(Debug)]
pub(crate) struct Record {
    seed: u64,
    first: u64,
    sectors: Vec<Known>,
}

impl Record {
    /// The stamps of a disk of zeroes.
    pub(crate) fn new(seed: u64, first: u64, sectors: u64) -> Self {
        Self { seed, first, sectors: vec![Known::default(); sectors as usize] }
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn sectors(&self) -> u64 {
        self.sectors.len() as u64
    }

    /// The payload of a write of the next version of these sectors.
    pub(crate) fn issue(&mut self, sector: u64, count: u64) -> Vec<u8> {
        let mut payload = Vec::with_capacity(count as usize * SECTOR);
        for number in sector..sector + count {
            let seed = self.seed;
            let known = self.known(number);
            known.issued += 1;
            payload.extend(stamp(seed, number, known.issued));
        }
        payload
    }

    /// Notes that the write of these sectors has been answered.
    pub(crate) fn acknowledge(&mut self, sector: u64, count: u64) {
        for number in sector..sector + count {
            let known = self.known(number);
            known.acknowledged = known.issued;
        }
    }

    /// The versions that are acknowledged now. They are for [`Record::flushed`], if a FLUSH sent
    /// from now on is answered.
    pub(crate) fn acknowledged(&self) -> Vec<u32> {
        self.sectors.iter().map(|known| known.acknowledged).collect()
    }

    /// Notes that a FLUSH sent after `acknowledged` was taken has been answered.
    pub(crate) fn flushed(&mut self, acknowledged: &[u32]) {
        for (known, version) in self.sectors.iter_mut().zip(acknowledged) {
            known.durable = known.durable.max(*version);
        }
    }

    /// Tells what is wrong with these bytes as the content of `sector` and those after it, read
    /// while the disk lived. They must be exactly what was acknowledged last.
    pub(crate) fn wrong_alive(&self, sector: u64, bytes: &[u8]) -> Option<String> {
        self.wrong(sector, bytes, |known, version| version == known.acknowledged)
    }

    /// Tells what is wrong with sectors after a crash: each must be something written, no older
    /// than what was durable.
    pub(crate) fn wrong_after_crash(&self, sector: u64, bytes: &[u8]) -> Option<String> {
        self.wrong(sector, bytes, Known::may_survive)
    }

    /// Takes the disk as a crash has left it. The caller has had these versions made durable.
    pub(crate) fn adopt(&mut self, sector: u64, bytes: &[u8]) {
        for (number, bytes) in (sector..).zip(bytes.chunks(SECTOR)) {
            let found = version_of(self.seed, number, bytes).expect("judged before");
            let known = self.known(number);
            *known = Known { durable: found, acknowledged: found, issued: known.issued, dead: known.issued };
        }
    }

    fn wrong(&self, sector: u64, bytes: &[u8], allowed: impl Fn(&Known, u32) -> bool) -> Option<String> {
        for (number, bytes) in (sector..).zip(bytes.chunks(SECTOR)) {
            let known = &self.sectors[(number - self.first) as usize];
            let found = version_of(self.seed, number, bytes);
            if !found.is_some_and(|version| allowed(known, version)) {
                let head = &bytes[..24];
                return Some(format!("sector {number}: found {found:?} (starts {head:02x?}), known {known:?}"));
            }
        }
        None
    }

    fn known(&mut self, sector: u64) -> &mut Known {
        &mut self.sectors[(sector - self.first) as usize]
    }
}

fn stamp(seed: u64, sector: u64, version: u32) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    if version > 0 {
        bytes[..8].copy_from_slice(&sector.to_le_bytes());
        bytes[8..16].copy_from_slice(&u64::from(version).to_le_bytes());
        let mut noise = Random::new(seed ^ sector.rotate_left(24) ^ u64::from(version).rotate_left(48));
        bytes[16..].copy_from_slice(&noise.bytes(SECTOR - 16));
    }
    bytes
}

/// Returns which version of that sector these bytes are; none if they are no whole sector.
fn version_of(seed: u64, sector: u64, bytes: &[u8]) -> Option<u32> {
    let version = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    let version = u32::try_from(version).ok()?;
    (bytes == stamp(seed, sector, version)).then_some(version)
}

#[test]
fn a_record_tells_old_torn_and_misplaced_sectors_from_good_ones() {
    let mut record = Record::new(1, 100, 8);
    let first = record.issue(101, 2);
    assert!(record.wrong_after_crash(101, &first).is_none(), "issued");
    assert!(record.wrong_alive(101, &first).is_some(), "not acknowledged");
    record.acknowledge(101, 2);
    assert!(record.wrong_alive(101, &first).is_none(), "acknowledged");
    assert!(record.wrong_after_crash(101, &[0; 2 * SECTOR]).is_none(), "not durable");
    let before_flush = record.acknowledged();
    let second = record.issue(102, 1);
    record.acknowledge(102, 1);
    record.flushed(&before_flush);
    assert!(record.wrong_after_crash(101, &[0; SECTOR]).is_some(), "lost though flushed");
    assert!(record.wrong_after_crash(102, &first[SECTOR..]).is_none(), "older, but flushed last");
    assert!(record.wrong_after_crash(103, &second).is_some(), "another place");
    let mut torn = second.clone();
    torn[256..].fill(0);
    assert!(record.wrong_after_crash(102, &torn).is_some(), "torn");
    record.adopt(102, &first[SECTOR..]);
    assert!(record.wrong_alive(102, &first[SECTOR..]).is_none(), "adopted");
    assert!(record.wrong_alive(102, &second).is_some(), "resurrected");
    assert!(record.wrong_after_crash(102, &second).is_some(), "resurrected by a second crash");
}
