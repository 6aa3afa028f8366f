// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many buffers the engine has at once at most, so that whoever gives it memory
//! ([`crate::Memory::alloc`]) has room for all of them.
//!
//! Sizes are few, as an arena wants memory of its own for each. What bounds a kind stands where its
//! buffers are taken (torture asserts their sum after each step; that the daemon's arenas have
//! room: `the_engine_and_clients_have_room_for_all_they_may_ask_for`).

use crate::act::checkpoint::BATCH_BLOCKS;
use crate::act::commit::log::commits_most;
use crate::act::detour::state::{SINGLE_MAX, WIDE_BLOCKS, WIDE_MAX};
use crate::act::neighbours::IN_FLIGHT_BLOCKS_MAX;
use crate::act::reclaim::{SURVIVORS_MAX, VICTIMS_MAX};
use crate::act::sync::COPIES_MAX;
use crate::lane::MERGING_MAX;
use crate::organ::reach::{FAR_RUN_BLOCKS_MAX, FAR_RUNS_MAX, RUN_BLOCKS_MAX, RUNS_MAX};
use crate::organ::zeroes::{RAGGED_MAX, WHOLE_BLOCKS};

/// Single blocks of a lane beside survivors, merges, detours and copies to a new mirror. These are
/// headers of victims and of one segment that is compacted, and the second merge of the piece that
/// comes last.
const SINGLE_OF_LANE: u32 = VICTIMS_MAX as u32 + 2;
/// Single blocks of all: zeroes for parts of blocks, the second of the request that comes last, and
/// the superblock.
const SINGLE_OF_ALL: u32 = RAGGED_MAX + 2;

/// Blocks that are read around a miss, unless the option says more or less. Then there are fewer or
/// more such reads, of as many bytes together.
const AROUND_BLOCKS: u32 = 16;
const _: () = assert!(WIDE_BLOCKS == AROUND_BLOCKS, "detours have buffers of the same size");
const _: () = assert!(FAR_RUN_BLOCKS_MAX == AROUND_BLOCKS, "short runs have buffers of the same size");

/// Buffers of an engine of so many lanes: how large each is, in blocks, and how many there are of
/// them at most. The window and the RAM front are not among them.
#[must_use]
pub const fn buffers_most(lanes: u32) -> [(u32, u32); 5] {
    let single = SURVIVORS_MAX as u32 + MERGING_MAX + SINGLE_MAX + COPIES_MAX + SINGLE_OF_LANE;
    [
        (1, single * lanes + SINGLE_OF_ALL),
        (WHOLE_BLOCKS, 1),
        (AROUND_BLOCKS, (IN_FLIGHT_BLOCKS_MAX as u32 / AROUND_BLOCKS + WIDE_MAX) * lanes + RUNS_MAX + FAR_RUNS_MAX),
        (BATCH_BLOCKS, lanes),
        (RUN_BLOCKS_MAX, commits_most(lanes) as u32 * lanes + RUNS_MAX),
    ]
}
