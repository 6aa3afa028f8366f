// SPDX-License-Identifier: MIT OR Apache-2.0
//! The record of an origin's samples: a file in the state folder, written again and again while a
//! daemon runs.
//!
//! The file has two halves, used in turn. The half with the higher number counts if its checksum is
//! right, so a power cut while one is written leaves the other. Its size is fixed. So one
//! `fdatasync` makes it durable, and none of the file system's own structures change. A record
//! belongs to one opening of one cache (`epoch`). It counts no more when the origin was served
//! elsewhere since, or with another state folder.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use flashfront_engine::OriginId;

use crate::state;
use crate::uuid::uuid_text;

const MAGIC: &[u8; 8] = b"FFsampl1";
/// Magic, checksum, number, epoch, UUID, bytes of the samples.
const HEAD_BYTES: usize = 8 + 8 + 8 + 8 + 16 + 8;
/// The halves begin at multiples of it.
const ALIGN: usize = 4096;

/// A place of an origin, and the CRC-64/NVME of whatever it may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) hashes: Vec<u64>,
}

impl Sample {
    /// Bytes of a sample with this many hashes.
    pub(super) const fn bytes(hashes: usize) -> usize {
        16 + 8 * hashes
    }
}

/// The opening that a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The cache.
    pub(super) uuid: [u8; 16],
    /// The number of its opening.
    pub(super) epoch: u64,
}

/// The last record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) epoch: u64,
    pub(super) samples: Vec<Sample>,
}

/// An open record.
#[derive(Debug)]
pub(super) struct RecordFile {
    file: File,
    owner: Owner,
    number: u64,
    half_bytes: usize,
}

fn name(uuid: &[u8; 16], origin: OriginId) -> String {
    format!("{}-{}.samples", uuid_text(uuid), origin.0)
}

impl RecordFile {
    /// Begins a record anew, durably; `bytes_max`: of samples that are saved later.
    ///
    /// # Errors
    /// Without a state folder, or when it can't be written.
    pub(super) fn create(
        state: Option<&Path>,
        origin: OriginId,
        owner: Owner,
        samples: &[Sample],
        bytes_max: usize,
    ) -> io::Result<Self> {
        let half_bytes = (HEAD_BYTES + bytes_max).next_multiple_of(ALIGN);
        let mut content = vec![0; 2 * half_bytes];
        let first = encode(owner, 1, samples);
        content.get_mut(..first.len()).ok_or_else(too_long)?.copy_from_slice(&first);
        let path = state::write(state, &name(&owner.uuid, origin), content)?;
        let file = File::options().write(true).open(&path)?;
        Ok(Self { file, owner, number: 1, half_bytes })
    }

    /// Makes these samples the record, durably.
    pub(super) fn save(&mut self, samples: &[Sample]) -> io::Result<()> {
        let number = self.number + 1;
        let bytes = encode(self.owner, number, samples);
        if bytes.len() > self.half_bytes {
            return Err(too_long());
        }
        let half = if number % 2 == 1 { 0 } else { self.half_bytes as u64 };
        self.file.write_all_at(&bytes, half)?;
        self.file.sync_data()?;
        self.number = number;
        Ok(())
    }
}

/// Removes the record of an origin, durably: it can't be kept right any more.
pub(super) fn remove(state: &Path, uuid: &[u8; 16], origin: OriginId) -> io::Result<()> {
    match std::fs::remove_file(state.join(name(uuid, origin))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => other?,
    }
    File::open(state)?.sync_all()
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "bug: more samples than there is room for")
}

/// Loads the last record of an origin with this cache; `None` if there is none.
///
/// # Errors
/// When the file can't be read, or neither half is whole.
pub(super) fn load(state: Option<&Path>, uuid: &[u8; 16], origin: OriginId) -> io::Result<Option<Record>> {
    let Some(state) = state else { return Ok(None) };
    let bytes = match std::fs::read(state.join(name(uuid, origin))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let (one, other) = bytes.split_at(bytes.len() / 2);
    let found = [one, other].into_iter().filter_map(|half| decode(half, uuid));
    let newest = found.max_by_key(|(number, _)| *number).map(|(_, record)| record);
    newest.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is damaged"))
}

fn encode(owner: Owner, number: u64, samples: &[Sample]) -> Vec<u8> {
    let mut body = Vec::new();
    for sample in samples {
        body.extend_from_slice(&sample.offset.to_le_bytes());
        body.extend_from_slice(&sample.len.to_le_bytes());
        body.extend_from_slice(&(sample.hashes.len() as u32).to_le_bytes());
        sample.hashes.iter().for_each(|hash| body.extend_from_slice(&hash.to_le_bytes()));
    }
    let mut checked = Vec::with_capacity(HEAD_BYTES + body.len());
    for field in [number, owner.epoch] {
        checked.extend_from_slice(&field.to_le_bytes());
    }
    checked.extend_from_slice(&owner.uuid);
    checked.extend_from_slice(&(body.len() as u64).to_le_bytes());
    checked.extend_from_slice(&body);
    [&MAGIC[..], &crc(&checked).to_le_bytes(), &checked].concat()
}

fn decode(half: &[u8], uuid: &[u8; 16]) -> Option<(u64, Record)> {
    let number = |bytes: &[u8], at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let len = usize::try_from(number(half, HEAD_BYTES - 8)?).ok()?;
    let checked = half.get(16..HEAD_BYTES.checked_add(len)?)?;
    if half[..8] != MAGIC[..] || number(half, 8)? != crc(checked) || checked[16..32] != uuid[..] {
        return None;
    }
    let (mut samples, mut rest) = (Vec::new(), half.get(HEAD_BYTES..HEAD_BYTES + len)?);
    while !rest.is_empty() {
        let (offset, sizes) = (number(rest, 0)?, number(rest, 8)?);
        let (len, count) = (sizes as u32, (sizes >> 32) as usize);
        let hashes = (0..count).map(|nth| number(rest, Sample::bytes(nth))).collect::<Option<_>>()?;
        samples.push(Sample { offset, len, hashes });
        rest = &rest[Sample::bytes(count)..];
    }
    Some((number(checked, 0)?, Record { epoch: number(checked, 8)?, samples }))
}

pub(super) fn crc(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(offset: u64, hashes: &[u64]) -> Sample {
        Sample { offset, len: 512, hashes: hashes.to_vec() }
    }

    #[test]
    fn the_last_whole_record_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (state, origin, uuid) = (Some(dir.path()), OriginId(3), [7; 16]);
        let owner = Owner { uuid, epoch: 5 };
        assert_eq!(load(state, &uuid, origin).unwrap(), None);
        assert_eq!(load(None, &uuid, origin).unwrap(), None);
        let versions =
            [vec![sample(0, &[1]), sample(512, &[])], vec![sample(0, &[1, 2])], Vec::new(), vec![sample(9, &[8])]];
        let mut file = RecordFile::create(state, origin, owner, &versions[0], 200).unwrap();
        let path = dir.path().join(name(&uuid, origin));
        for (nth, samples) in versions.iter().enumerate() {
            if nth > 0 {
                file.save(samples).unwrap();
            }
            let record = Some(Record { epoch: 5, samples: samples.clone() });
            assert_eq!(load(state, &uuid, origin).unwrap(), record);
            // Torn while the next one is written.
            let before = std::fs::read(&path).unwrap();
            let mut torn = before.clone();
            let half = if nth % 2 == 0 { torn.len() / 2 } else { 0 };
            torn[half..half + 60].fill(0xee);
            std::fs::write(&path, torn).unwrap();
            assert_eq!(load(state, &uuid, origin).unwrap(), record);
            std::fs::write(&path, before).unwrap();
        }
        assert!(load(state, &[8; 16], origin).unwrap().is_none());
        let many = sample(0, &[0; 1000]);
        assert!(file.save(&[many]).is_err());
        assert_eq!(load(state, &uuid, origin).unwrap().unwrap().samples, versions[3]);
        remove(dir.path(), &uuid, origin).unwrap();
        assert_eq!(load(state, &uuid, origin).unwrap(), None);
        std::fs::write(&path, "nonsense").unwrap();
        assert!(load(state, &uuid, origin).is_err());
        std::fs::write(&path, "").unwrap();
        assert!(load(state, &uuid, origin).is_err());
    }
}
