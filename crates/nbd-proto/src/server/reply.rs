// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replies of a server as bytes, in the form that was agreed on.
//!
//! The data of a read is not among the bytes: the caller sends it behind the header from wherever
//! it is.

use super::check::Refusal;
use super::context::ALLOCATION_ID;
use crate::wire::{ChunkHeader, Replies, SimpleReply, chunk, state};

/// The length of a chunk about a hole: its place, and its length.
const HOLE_CHUNK_BYTES: u32 = 12;

/// A part of a range: bytes that are data, or a hole that reads as zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The length.
    pub bytes: u64,
    /// Whether it is a hole.
    pub hole: bool,
}

/// A part of the data that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first byte on the export.
    pub start: u64,
    /// The length.
    pub bytes: u32,
    /// Whether no part of this read went before.
    pub first: bool,
    /// Whether no part of this read follows.
    pub last: bool,
}

/// A reply to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// How replies look: what [`Server::replies`](super::Server::replies) tells.
    pub replies: Replies,
    /// The request's name.
    pub cookie: u64,
    /// The request's first byte.
    pub offset: u64,
}

impl Reply {
    /// Appends a reply that all is well, and that there is nothing to tell.
    pub fn done(&self, out: &mut Vec<u8>) {
        match self.replies {
            Replies::Simple | Replies::Structured => SimpleReply { error: 0, cookie: self.cookie }.encode(out),
            Replies::Extended => self.chunk(true, chunk::NONE, 0, out),
        }
    }

    /// Appends a reply that the request failed; and the place, if that is known.
    ///
    /// A simple reply to a read whose first part was told can't say so: the caller must hang up
    /// there.
    pub fn failed(&self, refusal: Refusal, at: Option<u64>, out: &mut Vec<u8>) {
        let Refusal(errno, why) = refusal;
        if self.replies == Replies::Simple {
            return SimpleReply { error: errno.0, cookie: self.cookie }.encode(out);
        }
        let (kind, place_bytes) = if at.is_some() { (chunk::ERROR_OFFSET, 8) } else { (chunk::ERROR_PLAIN, 0) };
        self.chunk(true, kind, 6 + why.len() as u32 + place_bytes, out);
        out.extend_from_slice(&errno.0.to_be_bytes());
        out.extend_from_slice(&(why.len() as u16).to_be_bytes());
        out.extend_from_slice(why.as_bytes());
        at.into_iter().for_each(|at| out.extend_from_slice(&at.to_be_bytes()));
    }

    /// Appends the bytes that go before the data of a part. Simple replies need the parts in order.
    pub fn data(&self, part: Part, out: &mut Vec<u8>) {
        match self.replies {
            Replies::Simple if part.first => SimpleReply { error: 0, cookie: self.cookie }.encode(out),
            Replies::Simple => {}
            Replies::Structured | Replies::Extended => {
                self.chunk(part.last, chunk::OFFSET_DATA, part.bytes + 8, out);
                out.extend_from_slice(&part.start.to_be_bytes());
            }
        }
    }

    /// A part that is zeroes. Not in simple replies.
    pub fn hole(&self, part: Part, out: &mut Vec<u8>) {
        debug_assert_ne!(self.replies, Replies::Simple, "a hole needs chunks");
        self.chunk(part.last, chunk::OFFSET_HOLE, HOLE_CHUNK_BYTES, out);
        out.extend_from_slice(&part.start.to_be_bytes());
        out.extend_from_slice(&part.bytes.to_be_bytes());
    }

    /// The extents of a range from its first byte on; one at least. Not in simple replies.
    pub fn extents(&self, extents: &[Extent], out: &mut Vec<u8>) {
        debug_assert!(self.replies != Replies::Simple && !extents.is_empty(), "no extents to tell of");
        let extended = self.replies == Replies::Extended;
        let count = extents.len() as u32;
        let (kind, len) = if extended {
            (chunk::BLOCK_STATUS_EXTENDED, 8 + 16 * count)
        } else {
            (chunk::BLOCK_STATUS, 4 + 8 * count)
        };
        self.chunk(true, kind, len, out);
        out.extend_from_slice(&ALLOCATION_ID.to_be_bytes());
        if extended {
            out.extend_from_slice(&count.to_be_bytes());
        }
        for extent in extents {
            let state = if extent.hole { state::HOLE | state::ZERO } else { 0 };
            if extended {
                out.extend_from_slice(&extent.bytes.to_be_bytes());
                out.extend_from_slice(&u64::from(state).to_be_bytes());
            } else {
                out.extend_from_slice(&(extent.bytes as u32).to_be_bytes());
                out.extend_from_slice(&state.to_be_bytes());
            }
        }
    }

    fn chunk(&self, done: bool, kind: u16, len: u32, out: &mut Vec<u8>) {
        ChunkHeader { done, kind, cookie: self.cookie, offset: self.offset, len }.encode(self.replies, out);
    }
}
