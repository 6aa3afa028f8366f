// SPDX-License-Identifier: MIT OR Apache-2.0
//! What speaks against a new volume, or a new name.

use super::{Volumes, keys_with};
use crate::coordinator::Coordinator;
use crate::fact::options::READ_AROUND_BLOCKS_MAX;
use crate::fact::types::{BLOCK_BYTES, OriginId, SECTOR_BYTES};
use crate::fact::volume::{NewVolume, VolumeError};
use crate::facts::{Facts, parts_max_blocks};
use crate::format::{IDS_END, Shares, Superblock};
use crate::lanes::Lanes;
use crate::organ::piece::PIECE_BLOCKS_MAX;

/// Numbers of flushes of origins are below [`crate::coordinator::CACHE_FLUSH`].
const PLACES_MAX: usize = 1 << 16;

pub(super) fn check_name(
    volumes: &Volumes,
    name: &str,
    own: Option<OriginId>,
    facts: &Facts,
) -> Result<(), VolumeError> {
    let superblock = &facts.superblock;
    if name.is_empty() || name.len() > superblock.name_bytes_max() {
        return Err(VolumeError::BadName);
    }
    let others = superblock.origins.iter().filter(|record| Some(record.id) != own);
    if let Some(other) = others.into_iter().find(|record| record.name == name) {
        return Err(VolumeError::NameTaken(other.id));
    }
    if volumes.coming.iter().any(|(_, volume)| volume.name == name) {
        return Err(VolumeError::Busy);
    }
    Ok(())
}

/// Says what speaks against limits of a volume's own.
pub(crate) fn check_shares(shares: Shares, own: Option<OriginId>, superblock: &Superblock) -> Result<(), VolumeError> {
    let least_bytes = PIECE_BLOCKS_MAX * BLOCK_BYTES;
    if shares.dirty_limit_bytes > 0 && shares.dirty_limit_bytes < least_bytes {
        return Err(VolumeError::DirtyLimitTooLow { least_bytes });
    }
    let around = u64::from(shares.read_around_bytes.unwrap_or(0));
    let around_max_bytes = READ_AROUND_BLOCKS_MAX * BLOCK_BYTES;
    if !around.is_multiple_of(BLOCK_BYTES) || around > around_max_bytes {
        return Err(VolumeError::BadReadAround { bytes: around, most_bytes: around_max_bytes });
    }
    let Shares { min_bytes, max_bytes, .. } = shares;
    if max_bytes > 0 && max_bytes < least_bytes {
        return Err(VolumeError::LargestPartTooSmall { least_bytes });
    }
    if max_bytes > 0 && min_bytes > max_bytes {
        return Err(VolumeError::PartsCrossed { min_bytes, max_bytes });
    }
    let others = superblock.origins.iter().filter(|record| Some(record.id) != own);
    let others_bytes: u64 = others.map(|record| record.shares.min_bytes).sum();
    let most_bytes = parts_max_blocks(superblock) * BLOCK_BYTES;
    if min_bytes > 0 && min_bytes.saturating_add(others_bytes) > most_bytes {
        return Err(VolumeError::PartsTooLarge { min_bytes, others_bytes, most_bytes });
    }
    Ok(())
}

/// Says what speaks against a new volume at this moment, also whether the index ever has its place.
pub(crate) fn check_whole(
    coordinator: &Coordinator,
    volume: &NewVolume,
    facts: &Facts,
    lanes: &Lanes,
) -> Result<(), VolumeError> {
    check_new(&coordinator.volumes, volume, facts)?;
    let (_, keys) = keys_with(coordinator, volume, facts);
    let never = lanes.looks().any(|look| look.lane().store.has_room(keys).is_err());
    if never { Err(VolumeError::NoPlace) } else { Ok(()) }
}

pub(super) fn check_new(volumes: &Volumes, volume: &NewVolume, facts: &Facts) -> Result<(), VolumeError> {
    check_name(volumes, &volume.name, None, facts)?;
    check_shares(volume.shares, None, &facts.superblock)?;
    if volume.size_bytes == 0 || !volume.size_bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(VolumeError::BadSize);
    }
    let (superblock, coming) = (&facts.superblock, volumes.coming.len());
    let most = superblock.volumes_max();
    if superblock.origins.len() + coming >= most {
        return Err(VolumeError::TooMany { most });
    }
    if superblock.next_id().is_none_or(|id| id.0 as usize + coming >= IDS_END as usize) {
        return Err(VolumeError::IdsUsedUp);
    }
    if facts.origins.len() + coming >= PLACES_MAX {
        return Err(VolumeError::NoPlace);
    }
    Ok(())
}
