// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares clean blocks of the cache with the origins, after a crash.
//!
//! That happens when the log is replayed, and before it begins anew: first the blocks at sampled
//! places, then as many as [`PATIENCE`] allows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flashfront_device::real::{DeviceFile, sampled};
use flashfront_engine::{BLOCK_BYTES, Block, Engine, Key};

use super::changes::unremembered;
use super::compare::how;
use super::error::{OriginsError, ServeError, failed};
use super::stop::StopHandle;
use crate::config::Config;
use crate::report::counted;
use crate::stale::{self, Change, How};

/// A start after a crash may read its origins for this long.
///
/// In that time it reads some hundred blocks of a disk, or all blocks of a small cache on an SSD.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most clean blocks that are chosen to be compared. To read more takes longer than
/// [`PATIENCE`] on any device.
const CHOSEN_MAX: usize = 1 << 18;
/// The most neighbours that are read by one I/O.
const RUN_BLOCKS: usize = 256;
/// The number of sweeps over a device in which the runs are read.
///
/// Each sweep goes over the whole device, so that [`PATIENCE`] covers all of it.
const SWEEPS: usize = 16;

/// Compares clean blocks with the origins.
///
/// Returns the change of an origin if one differs; then clean data is to be dropped.
pub(super) fn compare(
    config: &Config,
    engine: &Engine,
    origins: &[Arc<DeviceFile>],
    stop: &StopHandle,
) -> Result<Option<Change>, ServeError> {
    let Some((at, block)) = changed_block(engine, origins, stop)? else { return Ok(None) };
    let (origin, how) = (&origins[at], how(Some(block.0 * BLOCK_BYTES)));
    let dirty = engine.status().blocks_dirty;
    if dirty > 0 && !config.accept_changed_origin {
        let (origin, cache) = (origin.path().to_owned(), config.cache.clone());
        return Err(OriginsError::OriginNewer { origin, how, cache, dirty, damaged: false }.into());
    }
    tracing::warn!("{} {how}: dropping all clean data of the cache", origin.path().display());
    // If this start is cut off, the next one might compare other blocks and find nothing.
    let change = stale::remember(config.state.as_deref(), origin, How::Seen, Vec::new());
    change.map(Some).map_err(unremembered(origin, "may be newer than its cache"))
}

/// Looks for a clean block that its origin holds other data for. Returns the position of that
/// origin and the block.
fn changed_block(
    engine: &Engine,
    origins: &[Arc<DeviceFile>],
    stop: &StopHandle,
) -> Result<Option<(usize, Block)>, ServeError> {
    let started = Instant::now();
    // A start that is repeated after a refusal compares the same blocks.
    let mut chosen = engine.clean_blocks(CHOSEN_MAX);
    chosen.sort_unstable_by_key(|key| (key.origin, key.block.0));
    // No lane had more of them.
    let is_all = chosen.len() < CHOSEN_MAX / engine.superblock().lanes.max(1) as usize;
    let mut compared = 0;
    for (at, (origin, record)) in origins.iter().zip(&engine.superblock().origins).enumerate() {
        // Its mark was compared, which says more.
        if origin.mark().is_some() {
            continue;
        }
        let place = |end: bool| chosen.partition_point(|key| key.origin < record.id || end && key.origin == record.id);
        let of_origin = &chosen[place(false)..place(true)];
        // An idle volume costs the start nothing.
        if is_all && of_origin.is_empty() {
            continue;
        }
        let what = || failed(format!("{}: reading samples", origin.path().display()));
        let places = sampled(origin).map_err(what())?;
        let places = [places.vital, places.others].concat();
        let whole = origin.geometry().size_bytes / BLOCK_BYTES;
        let mut first: Vec<u64> =
            places.iter().flat_map(|(start, end)| start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)).collect();
        first.retain(|block| engine.is_clean(Key { origin: record.id, block: Block(*block) }));
        let mut others: Vec<u64> = of_origin.iter().map(|key| key.block.0).collect();
        for blocks in [&mut first, &mut others] {
            blocks.retain(|block| *block < whole);
            blocks.sort_unstable();
            blocks.dedup();
        }
        // What is sampled is not compared, and counted, a second time.
        others.retain(|block| first.binary_search(block).is_err());
        let (first, others) = (runs(&first), runs(&others));
        let sweeps = (0..SWEEPS).flat_map(|sweep| others.iter().skip(sweep).step_by(SWEEPS));
        let in_time = sweeps.take_while(|_| started.elapsed() < PATIENCE && !stop.is_asked());
        for run in first.iter().chain(in_time) {
            let mut bytes = vec![0; run.len() * BLOCK_BYTES as usize];
            // A bad sector proves nothing. A client that reads it is told of it.
            if origin.read_at(run[0] * BLOCK_BYTES, &mut bytes).is_err() {
                continue;
            }
            for (block, held) in run.iter().zip(bytes.chunks_exact(BLOCK_BYTES as usize)) {
                let key = Key { origin: record.id, block: Block(*block) };
                let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, held) as u32;
                if engine.is_clean_content(key, crc) == Some(false) {
                    return Ok(Some((at, key.block)));
                }
                compared += 1;
            }
        }
    }
    tracing::info!("{} of the cache are what the origin holds", counted(compared, "clean block"));
    Ok(None)
}

/// Joins neighbours to runs of at most [`RUN_BLOCKS`].
fn runs(blocks: &[u64]) -> Vec<&[u64]> {
    blocks.chunk_by(|one, next| one + 1 == *next).flat_map(|run| run.chunks(RUN_BLOCKS)).collect()
}
