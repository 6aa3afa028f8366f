// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dirty limit an operator asks for, against what the cache can hold.
//!
//! The engine would take the nearest limit that it can hold. An operator is told instead, so that
//! no option is changed silently (tests: here, and `a_dirty_limit_that_cannot_hold_is_refused`).

use flashfront_engine::format::Superblock;
use flashfront_engine::{BLOCK_BYTES, Engine};

use crate::config::{DirtyLimit, Policy, Size};

/// A dirty limit that this cache can't hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the dirty limit {asked} can't be kept: for this cache the least is {least} blocks of 4 KiB ({}), the most {most} blocks ({}, or 87%)",
    Size(least * BLOCK_BYTES), Size(most * BLOCK_BYTES)
)]
pub struct LimitError {
    /// The limit that was asked for.
    pub asked: DirtyLimit,
    /// The limit in blocks.
    pub blocks: u64,
    /// The least: one request of 1 MiB must fit.
    pub least: u64,
    /// The most: reclaim needs an eighth.
    pub most: u64,
}

/// The limit in blocks.
///
/// # Errors
/// [`LimitError`] if the cache can't hold it.
pub fn blocks(asked: DirtyLimit, superblock: &Superblock) -> Result<u64, LimitError> {
    let (least, most) = Engine::dirty_limits(superblock).into_inner();
    let blocks = asked.blocks(superblock.cache_blocks());
    if (least..=most).contains(&blocks) { Ok(blocks) } else { Err(LimitError { asked, blocks, least, most }) }
}

/// The limit in blocks at the start. The default is too low for the smallest caches: that is
/// raised, aloud.
pub(super) fn blocks_at_start(asked: DirtyLimit, superblock: &Superblock) -> Result<u64, LimitError> {
    match blocks(asked, superblock) {
        Err(LimitError { blocks, least, .. }) if asked == Policy::default().dirty_limit && blocks < least => {
            tracing::info!(
                "dirty_limit: {asked} of this small cache is {blocks} blocks; using the least, {least} blocks"
            );
            Ok(least)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock(segments_per_lane: u32) -> Superblock {
        Superblock {
            uuid: [1; 16],
            update: 0,
            epoch: 0,
            clean: true,
            failed: false,
            dirty_blocks: 0,
            pairing: Default::default(),
            cache_bytes: 1 << 30,
            lanes: 2,
            segment_blocks: 16,
            segments_per_lane,
            checkpoint_blocks: 64,
            stripe_blocks: 4096,
            first_block: 16,
            grown: None,
            table: None,
            origins: Vec::new(),
        }
    }

    #[test]
    fn what_fits_is_taken_as_it_is_and_nothing_else_is_taken() {
        // 3200 blocks.
        let superblock = superblock(100);
        let limit = |text: &str| blocks(text.parse().unwrap(), &superblock);
        assert_eq!(limit("50%"), Ok(1600));
        assert_eq!(limit("1028 KiB"), Ok(257));
        assert_eq!(limit("87%"), Ok(2784));
        for (text, blocks) in
            [("1 MiB", 256), ("4096B", 1), ("8%", 256), ("88%", 2816), ("100%", 3200), ("4 EiB", 3200)]
        {
            let error = limit(text).unwrap_err();
            assert_eq!((error.blocks, error.least, error.most), (blocks, 257, 2800), "{text}");
            let said = error.to_string();
            assert!(said.contains("1028 KiB") && said.contains("11200 KiB"), "{said}");
        }
    }

    #[test]
    fn only_the_default_gives_way_on_a_tiny_cache() {
        // 480 blocks, half of which is too little.
        let superblock = superblock(15);
        assert_eq!(blocks_at_start(Policy::default().dirty_limit, &superblock), Ok(257));
        assert!(blocks(Policy::default().dirty_limit, &superblock).is_err());
        for text in ["49%", "960 KiB", "100%"] {
            assert!(blocks_at_start(text.parse().unwrap(), &superblock).is_err(), "{text}");
        }
    }
}
