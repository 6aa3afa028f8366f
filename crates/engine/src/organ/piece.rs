// SPDX-License-Identifier: MIT OR Apache-2.0
//! A piece: what a request asks of one lane, and how far it is.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::fact::io::{Op, RequestError};
use crate::fact::memory::Buf;
use crate::organ::index::Flat;
use crate::organ::locks::LockId;

/// The most blocks of a piece: what a request's 1 MiB can touch.
pub(crate) const PIECE_BLOCKS_MAX: u64 = 257;

/// What a piece does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceKind {
    Read,
    /// A write into the cache.
    Write,
    /// A write to the origin, past or through the cache.
    Direct,
    Discard,
    /// Zeroes whose space on the origin stays taken.
    Zero,
    /// Zeroes whose space the origin may give back.
    Punch,
}

impl PieceKind {
    /// Whether it has to do with its lane alone.
    pub(crate) const fn is_of_one_lane(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    /// What the origin is asked for by it.
    pub(crate) const fn op(self) -> Op {
        match self {
            Self::Read => Op::Read,
            Self::Write | Self::Direct => Op::Write,
            Self::Discard => Op::Discard,
            Self::Zero => Op::Zero,
            Self::Punch => Op::Punch,
        }
    }

    /// Whether it changes a range of the origin without payload.
    pub(crate) const fn is_range(self) -> bool {
        matches!(self, Self::Discard | Self::Zero | Self::Punch)
    }
}

/// What room a read may use that brings its blocks into the cache for nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warm {
    /// Free room alone.
    IntoFreeRoom,
    /// Any: the policy says which blocks leave.
    Replacing,
}

/// When a direct write goes into the log instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instead {
    /// The origin has to have it.
    Never,
    /// A long stream passes the cache by, unless its origin is away.
    IfAway,
    /// The log took no more: as soon as it does, or if the origin refuses the write.
    IfBetter,
}

/// The part of a request that falls into one stripe, in whole blocks.
///
/// It is moved some times, which costs the more the longer it is: a twentieth of a hit when it had
/// 128 bytes.
pub(crate) struct Piece {
    pub(crate) kind: PieceKind,
    /// The coordinator's request that it is part of.
    pub(crate) request: usize,
    pub(crate) first: Flat,
    pub(crate) blocks: u32,
    /// The request's buffer, and the block of it where this piece starts.
    pub(crate) buf: Option<Buf>,
    pub(crate) buf_block: u32,
    /// Bytes of the first block before the payload, and of the last block behind it.
    pub(crate) around: (u16, u16),
    /// The two blocks are completed from their old content: the payload is whole blocks now.
    pub(crate) completed: bool,
    /// Reply only when durable.
    pub(crate) durable: bool,
    /// What is read or written is not put into the cache.
    pub(crate) bypass: bool,
    /// Whether a direct write may go into the log instead.
    pub(crate) instead: Instead,
    /// A read that brings what is missing into the cache, for nobody.
    pub(crate) warm: Option<Warm>,
    pub(crate) lock: Option<LockId>,
    /// I/Os in flight.
    pub(crate) pending: u32,
    pub(crate) error: Option<RequestError>,
    /// A read that needed the origin for some of its blocks.
    pub(crate) from_origin: bool,
    /// Blocks done: appended to the log.
    pub(crate) next: u32,
    /// Blocks of the dirty limit that it holds.
    pub(crate) reserved: u32,
    /// The first range (first block, blocks) that was read from the origin; no blocks: none.
    pub(crate) missed: (u32, u32),
    pub(crate) rare: Option<Box<Rare>>,
}

const _: () = assert!(size_of::<Piece>() <= 80);

/// What few pieces have: reads the one, direct writes the other.
#[derive(Default)]
pub(crate) struct Rare {
    /// More ranges that were read from the origin.
    missed: Vec<(u32, u32)>,
    /// Blocks that were in the cache until this direct write, and the hits that they go on with.
    pub(crate) were_cached: Vec<(u32, u8)>,
    /// Eras before this one have to be on the origin before this direct write.
    pub(crate) after_era: Option<u64>,
}

impl Piece {
    /// The piece can't end before this is released: an I/O of it begins, or it joins another one's.
    pub(crate) const fn hold(&mut self) {
        self.pending += 1;
    }

    /// What the piece was held for is over.
    pub(crate) const fn release(&mut self) {
        self.pending -= 1;
    }

    /// The piece ends with this error.
    pub(crate) const fn fail(&mut self, error: RequestError) {
        self.error = Some(error);
    }

    /// Bytes of the first block that are not there yet.
    pub(crate) const fn head(&self) -> u32 {
        if self.completed { 0 } else { self.around.0 as u32 }
    }

    /// Bytes of the last block that are not there yet.
    pub(crate) const fn tail(&self) -> u32 {
        if self.completed { 0 } else { self.around.1 as u32 }
    }

    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// A read needs the origin for some of its blocks.
    pub(crate) const fn needs_origin(&mut self) {
        self.from_origin = true;
    }

    /// A range is read from the origin.
    pub(crate) fn add_missed(&mut self, run: (u32, u32)) {
        self.needs_origin();
        if self.missed.1 == 0 {
            self.missed = run;
        } else {
            self.rare().missed.push(run);
        }
    }

    /// The ranges that were.
    pub(crate) fn take_missed(&mut self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let first = core::mem::take(&mut self.missed);
        let others = self.rare.take().map_or_else(Vec::new, |rare| rare.missed);
        Some(first).filter(|run| run.1 > 0).into_iter().chain(others)
    }

    pub(crate) fn end(&self) -> Flat {
        self.first + self.blocks
    }
}
