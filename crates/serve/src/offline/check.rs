// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks a cache: reads every live structure and every cached block.
//!
//! It reads both superblocks, checkpoint heads and bodies, and the log since. Then it reads the
//! header of each commit with a live block, and the data of each live block, in the order of the
//! device. A flipped bit in any of them is found (test: `any_flipped_bit_is_found`). Nothing is
//! written.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use flashfront_device::real::{Access, DeviceFile, OpenError};
use flashfront_engine::format::{Entry, Superblock, SuperblockError};
use flashfront_engine::{BLOCK_SECTORS, Key};
use serde::Serialize;

use super::blocks::Live;
use super::damage::{Damage, DamageKind};
use super::reader::{Reader, Segment, checksum_of, lacks_clean_data};
use super::walk::{LaneWalk, looks};
use crate::config::Size;
use crate::superblock::{self, CopyError, SuperblockReadError};

/// The report of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Whether nothing is damaged.
    pub ok: bool,
    /// The cache device.
    #[serde(serialize_with = "super::shown::shown")]
    pub cache: PathBuf,
    /// Names the cache.
    pub uuid: Option<String>,
    /// Whether the last daemon stopped cleanly.
    pub clean_stop: bool,
    /// Whether the cache device failed in the last run; then `blocks_dirty` may count blocks that
    /// have reached the origin.
    pub cache_failed: bool,
    /// Blocks in the cache.
    pub blocks_cached: u64,
    /// Dirty ones among them.
    pub blocks_dirty: u64,
    /// Commits that the next start will replay.
    pub commits_to_replay: u64,
    /// Lanes whose log ends in a commit that a crash cut short. That is normal, and replay drops
    /// it.
    pub torn_lanes: Vec<u32>,
    /// Blocks with verified data.
    pub blocks_verified: u64,
    /// The damage.
    pub damage: Vec<Damage>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The device can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device is no cache that this program knows.
    #[error(transparent)]
    Superblock(#[from] SuperblockReadError),
    /// The device can't be read.
    #[error("{path}: can't be read: {source}", path = path.display())]
    Read {
        /// The cache device.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl CheckError {
    /// Returns the error as a report, if it is about the content of the device: scripts want one
    /// form for all findings. `None` if the device could not be opened at all.
    #[must_use]
    pub fn report(&self, cache: &Path) -> Option<CheckReport> {
        let damage = match self {
            Self::Open(OpenError::Size { size_bytes, .. }) => {
                vec![damage_at_0("a device of whole sectors".to_owned(), Size(*size_bytes).told())]
            }
            Self::Open(_) => return None,
            Self::Superblock(SuperblockReadError::Unusable { first, last, last_offset, .. }) => {
                [(0, first), (*last_offset, last)].map(superblock_damage).into()
            }
            Self::Superblock(SuperblockReadError::Resized { expected, found, .. }) => {
                vec![damage_at_0(format!("a device of {}", Size(*expected).told()), Size(*found).told())]
            }
            Self::Superblock(SuperblockReadError::TableDamaged { offset, .. }) => {
                let found = "one that is not whole".to_owned();
                vec![Damage { offset: *offset, ..damage_at_0("a table of volumes".to_owned(), found) }]
            }
            Self::Superblock(
                SuperblockReadError::Read { source, .. } | SuperblockReadError::TableUnreadable { source, .. },
            )
            | Self::Read { source, .. } => {
                vec![damage_at_0("a superblock".to_owned(), format!("read error: {source}"))]
            }
        };
        Some(CheckReport { cache: cache.to_owned(), damage, ..CheckReport::default() })
    }
}

/// Checks a stopped cache. `progress` hears of steps done and all steps, two for each segment.
///
/// # Errors
/// [`CheckError`] if it is no cache, or in use. Damage is no error but in the report.
pub fn check(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport, CheckError> {
    Ok(check_open(&DeviceFile::open(path, Access::ReadOnly)?, progress)?.report)
}

/// A report, and what repair needs besides.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) report: CheckReport,
    /// The segments of each lane in which the log was to go on.
    pub(super) open: Vec<Vec<u32>>,
}

/// Checks a device that is open.
pub(super) fn check_open(device: &DeviceFile, progress: &mut dyn FnMut(u64, u64)) -> Result<Checked, CheckError> {
    let path = device.path();
    let mut report = CheckReport { cache: path.to_owned(), ..CheckReport::default() };
    let stored = match superblock::read(device) {
        Ok(stored) => stored,
        // Ours once, but neither copy is whole: that is what a check is to tell.
        Err(SuperblockReadError::Unusable { first, last, last_offset, .. })
            if [&first, &last].into_iter().any(was_ours) && ![&first, &last].into_iter().any(is_newer) =>
        {
            report.damage = [(0, &first), (last_offset, &last)].map(superblock_damage).into();
            return Ok(Checked { report, open: Vec::new() });
        }
        Err(error) => return Err(error.into()),
    };
    let superblock = stored.superblock;
    let mut reader = Reader { device, superblock: &superblock, damage: Vec::new() };
    match &stored.damaged {
        Some((offset, error)) => reader.damage.push(superblock_damage((*offset, error))),
        None => older_copy(&mut reader),
    }
    report.uuid = Some(crate::uuid::uuid_text(&superblock.uuid));
    (report.clean_stop, report.cache_failed) = (superblock.clean, superblock.failed);
    let mut looked = looks(&superblock, 2, progress);
    let mut open = Vec::new();
    for lane in 0..superblock.lanes {
        let walk = reader.lane(lane, &mut looked);
        report.blocks_cached += walk.live.len();
        report.blocks_dirty += walk.live.dirty();
        report.commits_to_replay += walk.commits.len() as u64;
        report.torn_lanes.extend(walk.torn.map(|_| walk.lane));
        report.blocks_verified += verify_lane(&mut reader, &walk, &mut looked);
        open.push(walk.open);
    }
    report.damage = reader.damage;
    report.ok = report.damage.is_empty();
    Ok(Checked { report, open })
}

fn was_ours(copy: &CopyError) -> bool {
    matches!(copy, CopyError::Unusable(SuperblockError::Damaged { .. } | SuperblockError::Nonsense(_)))
}

fn is_newer(copy: &CopyError) -> bool {
    matches!(copy, CopyError::Unusable(SuperblockError::Newer { .. }))
}

fn superblock_damage((offset, error): (u64, &CopyError)) -> Damage {
    Damage { offset, ..damage_at_0("a superblock".to_owned(), error.to_string()) }
}

fn damage_at_0(expected: String, found: String) -> Damage {
    Damage { kind: DamageKind::Superblock, offset: 0, origin: None, lba: None, expected, found }
}

/// A copy that is whole but older than the other is what a crash between the two writes leaves.
/// After a clean stop both are the same.
fn older_copy(reader: &mut Reader<'_>) {
    let [first, last] = Superblock::offsets(reader.superblock.cache_bytes);
    let [first_block, last_block] = [first, last].map(|at| reader.sound_block(DamageKind::Superblock, at));
    let (Some(first_block), Some(last_block)) = (first_block, last_block) else { return };
    let whole = Superblock::decode(&first_block).is_ok() && Superblock::decode(&last_block).is_ok();
    if reader.superblock.clean && whole && first_block != last_block {
        reader.report(DamageKind::Superblock, last, "a copy of the first superblock", "another, whole superblock");
    }
}

/// Verifies headers and data of all live blocks of a lane, segment by segment, and says how many
/// they were.
fn verify_lane(reader: &mut Reader<'_>, walk: &LaneWalk, looked: &mut dyn FnMut()) -> u64 {
    for it in walk.live.displaced() {
        let offset = reader.superblock.slot_offset(walk.lane, it.slot);
        let expected = format!("one block in slot {}", it.slot);
        reader.report(DamageKind::Checkpoint, offset, &expected, &format!("{:?} as well as another", it.key));
    }
    let slots = reader.superblock.segment_blocks;
    let mut verified = 0;
    for segment in 0..reader.superblock.segments_per_lane {
        let live: Vec<Live> = walk.live.range(segment * slots..(segment + 1) * slots).collect();
        if let Some(last) = live.last() {
            let bytes = reader.segment(walk.lane, segment);
            let known = headers(reader, walk, &bytes, last.slot);
            live.iter().for_each(|live| verify_block(reader, &bytes, *live, known.get(&live.slot)));
            verified += live.len() as u64;
        }
        looked();
    }
    verified
}

/// Returns what the headers of a segment say of its slots; missing headers are damage.
fn headers(reader: &mut Reader<'_>, walk: &LaneWalk, segment: &Segment, last_live: u32) -> BTreeMap<u32, (Key, u32)> {
    let number = segment.first_slot / reader.superblock.segment_blocks;
    let last_seq = walk.last_seq.get(number as usize).copied().unwrap_or(0);
    let mut known = BTreeMap::new();
    let mut slot = segment.first_slot;
    // Behind the last live block nothing matters.
    while slot < segment.end() && slot <= last_live {
        let header = segment.block(slot).ok().and_then(|block| reader.decode(walk.lane, slot, block));
        let Some(header) = header.filter(|header| header.seq <= last_seq) else {
            let offset = reader.superblock.slot_offset(walk.lane, slot);
            // A device that was filled as a mirror has the blocks of older commits, and not their
            // headers.
            if reader.superblock.pairing.paired == 0 {
                let expected = format!("the header of a commit up to {last_seq} of lane {}", walk.lane);
                let found = segment.block(slot).err().unwrap_or("a damaged or foreign block").to_owned();
                reader.report(DamageKind::Log, offset, &expected, &found);
            }
            break;
        };
        for (at, entry) in header.placed(slot) {
            if let Entry::Dirty { key, checksum, .. } | Entry::Clean { key, checksum } = *entry {
                known.insert(at, (key, checksum));
            }
        }
        slot += header.data_blocks() + 1;
    }
    known
}

fn verify_block(reader: &mut Reader<'_>, segment: &Segment, live: Live, header: Option<&(Key, u32)>) {
    if !live.dirty && lacks_clean_data(reader.superblock) {
        return;
    }
    let Live { key, slot, .. } = live;
    // A device that was filled as a mirror may have headers of an earlier time in this cache.
    let is_earlier = |(at, checksum): &(Key, u32)| *at != key || checksum & live.checksum_mask != live.checksum;
    let filled = reader.superblock.pairing.paired != 0;
    let header = header.filter(|header| !(filled && is_earlier(header)));
    let expected = header.map_or(live.checksum, |(_, checksum)| *checksum);
    let found = match segment.block(slot) {
        Err(error) => error.to_owned(),
        Ok(block) => {
            let found = checksum_of(block, key, reader.superblock);
            // The header keeps all 32 bits; the index of a large cache fewer.
            let differs = header.is_some_and(|(at, checksum)| *at != key || *checksum != found);
            if found & live.checksum_mask == live.checksum && !differs {
                return;
            }
            format!("{found:#010x}")
        }
    };
    let name = reader.superblock.origins.iter().find(|record| record.id == key.origin);
    reader.damage.push(Damage {
        kind: if live.dirty { DamageKind::DirtyData } else { DamageKind::CleanData },
        offset: reader.superblock.slot_offset(segment.lane, slot),
        origin: name.map(|record| record.name.clone()),
        lba: Some(key.block.0 * BLOCK_SECTORS),
        expected: format!("checksum {expected:#010x}"),
        found,
    });
}
