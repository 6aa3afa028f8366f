// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells the content of a cache device to a person or a script: for bug reports and curiosity.
//!
//! It shows superblock, checkpoint and log of each lane, and what the next start would find.
//! Payload is neither shown nor verified (that is `check`).

use std::path::{Path, PathBuf};

use flashfront_device::real::{Access, DeviceFile};
use flashfront_engine::format::{Mirror, Superblock};
use flashfront_engine::{BLOCK_BYTES, Mode};
use serde::Serialize;

use super::check::CheckError;
use super::damage::Damage;
use super::reader::Reader;
use super::walk::{LaneWalk, looks};
use crate::superblock;

/// The content of a cache device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DumpReport {
    /// The cache device.
    #[serde(serialize_with = "super::shown::shown")]
    pub cache: PathBuf,
    /// Format version.
    pub version: u32,
    /// Names the cache.
    pub uuid: String,
    /// Updates of the superblock so far.
    pub update: u64,
    /// Openings so far.
    pub epoch: u64,
    /// Whether the last daemon stopped cleanly.
    pub clean_stop: bool,
    /// Whether the cache device failed in the last run.
    pub cache_failed: bool,
    /// The state of a second cache device: `none`, `whole` (both hold all dirty data) or `alone`.
    pub mirror: &'static str,
    /// The number of this member of the two.
    pub member: u8,
    /// The number of the member that holds everything; the other one lacks the data of clean
    /// blocks.
    pub lead: u8,
    /// The update that began this pairing; 0 = formatted so.
    pub paired: u64,
    /// The data of clean blocks went with the old lead; the next start forgets them.
    pub clean_lost: bool,
    /// Size of the cache.
    pub cache_bytes: u64,
    /// Segment size.
    pub segment_bytes: u64,
    /// Segments of each lane.
    pub segments_per_lane: u32,
    /// Bytes of one checkpoint area.
    pub checkpoint_bytes: u64,
    /// Bytes of a stripe.
    pub stripe_bytes: u64,
    /// First byte of lane 0.
    pub first_byte: u64,
    /// The origins.
    pub origins: Vec<OriginDump>,
    /// The lanes.
    pub lanes: Vec<LaneDump>,
    /// Damage that was seen on the way.
    pub damage: Vec<Damage>,
}

/// An origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OriginDump {
    /// The id of the origin.
    pub id: u32,
    /// The name of the volume.
    pub name: String,
    /// How writes are treated.
    pub mode: &'static str,
    /// The size of the origin.
    pub size_bytes: u64,
    /// Serial number or the like.
    pub identity: String,
    /// Hash of samples at the last clean stop, in hex.
    pub fingerprint: String,
    /// Cached blocks.
    pub blocks_cached: u64,
    /// Dirty ones among them.
    pub blocks_dirty: u64,
}

/// A lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaneDump {
    /// The number of the lane.
    pub lane: u32,
    /// The checkpoint that replay starts with.
    pub checkpoint: Option<CheckpointDump>,
    /// The commits after it.
    pub commits: Vec<CommitDump>,
    /// The number of a last commit that is not whole.
    pub torn_commit: Option<u64>,
    /// Cached blocks.
    pub blocks_cached: u64,
    /// Dirty ones among them.
    pub blocks_dirty: u64,
    /// Segments with cached blocks.
    pub segments_used: u64,
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckpointDump {
    /// First byte.
    pub offset: u64,
    /// The opening it was written in.
    pub epoch: u64,
    /// The number of the checkpoint.
    pub generation: u64,
    /// The first commit that replay reads.
    pub seq: u64,
    /// Index entries.
    pub entries: u64,
}

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommitDump {
    /// The number of the commit.
    pub seq: u64,
    /// First byte.
    pub offset: u64,
    /// Blocks of data.
    pub blocks: u32,
}

/// Reads a stopped cache. `progress` hears of segments with headers that were looked at, and of all
/// segments.
///
/// # Errors
/// [`CheckError`] if it is no cache, or in use.
pub fn dump(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<DumpReport, CheckError> {
    let device = DeviceFile::open(path, Access::ReadOnly)?;
    let superblock = superblock::read(&device)?.superblock;
    let mut reader = Reader { device: &device, superblock: &superblock, damage: Vec::new() };
    let mut origins: Vec<OriginDump> = superblock
        .origins
        .iter()
        .map(|record| OriginDump {
            id: record.id.0,
            name: record.name.clone(),
            mode: Mode::name(record.mode),
            size_bytes: record.size_bytes,
            identity: record.identity.clone(),
            fingerprint: format!("{:016x}", record.fingerprint),
            blocks_cached: 0,
            blocks_dirty: 0,
        })
        .collect();
    let mut looked = looks(&superblock, 1, progress);
    let mut lanes = Vec::new();
    for lane in 0..superblock.lanes {
        let walk = reader.lane(lane, &mut looked);
        for live in walk.live.iter() {
            if let Some(origin) = origins.iter_mut().find(|origin| origin.id == live.key.origin.0) {
                origin.blocks_cached += 1;
                origin.blocks_dirty += u64::from(live.dirty);
            }
        }
        lanes.push(lane_dump(&superblock, &walk));
    }
    Ok(DumpReport {
        cache: path.to_owned(),
        version: superblock.version(),
        uuid: crate::uuid::uuid_text(&superblock.uuid),
        update: superblock.update,
        epoch: superblock.epoch,
        clean_stop: superblock.clean,
        cache_failed: superblock.failed,
        mirror: match superblock.pairing.mirror {
            Mirror::None => "none",
            Mirror::Whole => "whole",
            Mirror::Alone => "alone",
        },
        member: superblock.pairing.member,
        lead: superblock.pairing.lead,
        paired: superblock.pairing.paired,
        clean_lost: superblock.pairing.clean_lost,
        cache_bytes: superblock.cache_bytes,
        segment_bytes: u64::from(superblock.segment_blocks) * BLOCK_BYTES,
        segments_per_lane: superblock.segments_per_lane,
        checkpoint_bytes: u64::from(superblock.checkpoint_blocks) * BLOCK_BYTES,
        stripe_bytes: u64::from(superblock.stripe_blocks) * BLOCK_BYTES,
        first_byte: superblock.checkpoint_offset(0, 0),
        origins,
        lanes,
        damage: reader.damage,
    })
}

fn lane_dump(superblock: &Superblock, walk: &LaneWalk) -> LaneDump {
    let offset = |slot| superblock.slot_offset(walk.lane, slot);
    let slots = superblock.segment_blocks;
    let used = |segment: &u32| walk.live.range(segment * slots..(segment + 1) * slots).next().is_some();
    LaneDump {
        lane: walk.lane,
        checkpoint: walk.checkpoint.map(|(area, head)| CheckpointDump {
            offset: superblock.checkpoint_offset(walk.lane, area),
            epoch: head.epoch,
            generation: head.generation,
            seq: head.seq,
            entries: head.entries,
        }),
        commits: walk
            .commits
            .iter()
            .map(|(seq, slot, blocks)| CommitDump { seq: *seq, offset: offset(*slot), blocks: *blocks })
            .collect(),
        torn_commit: walk.torn,
        blocks_cached: walk.live.len(),
        blocks_dirty: walk.live.dirty(),
        segments_used: (0..superblock.segments_per_lane).filter(used).count() as u64,
    }
}
