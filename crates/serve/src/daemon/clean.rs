// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares clean blocks of the cache with the origins, after a crash.
//!
//! That happens when the log is replayed, and before it begins anew: first the blocks at sampled
//! places, then as many as [`PATIENCE`] allows.

use std::time::{Duration, Instant};

use flashfront_device::real::sampled;
use flashfront_engine::{BLOCK_BYTES, Block, Key};

use super::Daemon;
use super::compare::how;
use super::error::{OriginsError, ServeError, failed};
use crate::report::counted;
use crate::stale::{self, How};

/// As long as that a start after a crash may read its origins: some hundred blocks of a disk, all
/// of a small cache on an SSD.
const PATIENCE: Duration = Duration::from_secs(5);
/// As many clean blocks are chosen to be compared: more take more than [`PATIENCE`] on any device.
const CHOSEN_MAX: usize = 1 << 18;
/// Neighbours are read at once, so many at most.
const RUN_BLOCKS: usize = 256;
/// The runs are read in so many sweeps over the device, so that the time that there is covers all
/// of it.
const SWEEPS: usize = 16;

impl Daemon<'_> {
    /// Compares clean blocks with the origins, and says whether clean data is to be dropped.
    pub(super) fn compare_clean(&mut self) -> Result<bool, ServeError> {
        let Some((at, block)) = self.changed_block()? else { return Ok(false) };
        let (origin, how) = (&self.origins[at], how(block.0 * BLOCK_BYTES));
        let dirty = self.pump.engine().status().blocks_dirty;
        if dirty > 0 && !self.config.accept_changed_origin {
            let (origin, cache) = (origin.path().to_owned(), self.config.cache.clone());
            return Err(OriginsError::OriginNewer { origin, how, cache, dirty, damaged: false }.into());
        }
        tracing::warn!("{} {how}: dropping all clean data of the cache", origin.path().display());
        // Cut off before that is durable, the next start might choose other blocks to compare.
        let change = stale::remember(self.config.state.as_deref(), origin, How::Seen, Vec::new());
        self.unsettled.push(change.map_err(super::changes::unremembered(origin, "may be newer than its cache"))?);
        Ok(true)
    }

    /// A clean block that its origin has not: which origin's, and where.
    fn changed_block(&self) -> Result<Option<(usize, Block)>, ServeError> {
        let (started, engine) = (Instant::now(), self.pump.engine());
        // The same ones if it is started again after a refusal.
        let chosen = engine.clean_blocks(CHOSEN_MAX);
        let mut compared = 0;
        for (at, (origin, record)) in self.origins.iter().zip(&engine.superblock().origins).enumerate() {
            let what = || failed(format!("{}: reading samples", origin.path().display()));
            let places = sampled(origin).map_err(what())?;
            let places = [places.vital, places.others].concat();
            let whole = origin.geometry().size_bytes / BLOCK_BYTES;
            let mut first: Vec<u64> =
                places.iter().flat_map(|(start, end)| start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)).collect();
            first.retain(|block| engine.is_clean(Key { origin: record.id, block: Block(*block) }));
            let mut others: Vec<u64> =
                chosen.iter().filter(|key| key.origin == record.id).map(|key| key.block.0).collect();
            for blocks in [&mut first, &mut others] {
                blocks.retain(|block| *block < whole);
                blocks.sort_unstable();
                blocks.dedup();
            }
            let (first, others) = (runs(&first), runs(&others));
            let sweeps = (0..SWEEPS).flat_map(|sweep| others.iter().skip(sweep).step_by(SWEEPS));
            let in_time = sweeps.take_while(|_| started.elapsed() < PATIENCE && !self.stop.is_asked());
            for run in first.iter().chain(in_time) {
                let mut bytes = vec![0; run.len() * BLOCK_BYTES as usize];
                // A bad sector proves nothing, and is whoever reads it to be told of.
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
}

/// Neighbours together, so many at most.
fn runs(blocks: &[u64]) -> Vec<&[u64]> {
    blocks.chunk_by(|one, next| one + 1 == *next).flat_map(|run| run.chunks(RUN_BLOCKS)).collect()
}
