// SPDX-License-Identifier: MIT OR Apache-2.0
//! The headers of requests and replies, as structs and as bytes.
//!
//! Nothing is judged here but the magic numbers.

use super::fields::Fields;
use super::numbers::{
    CHUNK_MAGIC, EXTENDED_CHUNK_MAGIC, EXTENDED_REQUEST_MAGIC, REQUEST_MAGIC, SIMPLE_MAGIC, chunk, command,
    command_flag,
};

/// How requests and replies look, as agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Replies {
    /// Each reply is one header, and the data of a read.
    Simple,
    /// Reads and errors are answered in chunks.
    Structured,
    /// Everything is answered in chunks; lengths have 64 bits.
    Extended,
}

/// A request, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Flags of [`command_flag`].
    pub flags: u16,
    /// A number of [`command`].
    pub command: u16,
    /// The client's name for the request.
    pub cookie: u64,
    /// The first byte on the export.
    pub offset: u64,
    /// The length has 64 bits in an extended header, else 32.
    pub len: u64,
}

impl RequestHeader {
    /// Bytes of a header.
    #[must_use]
    pub const fn bytes(replies: Replies) -> usize {
        if matches!(replies, Replies::Extended) { 32 } else { 28 }
    }

    /// Appends the header.
    pub fn encode(&self, replies: Replies, out: &mut Vec<u8>) {
        let extended = replies == Replies::Extended;
        let magic = if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        out.extend_from_slice(&magic.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.command.to_be_bytes());
        out.extend_from_slice(&self.cookie.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
        if extended {
            out.extend_from_slice(&self.len.to_be_bytes());
        } else {
            out.extend_from_slice(&(self.len as u32).to_be_bytes());
        }
    }

    /// Takes a header off the front of bytes. `None` if the magic is wrong, or if there are fewer
    /// than [`Self::bytes`].
    #[must_use]
    pub fn decode(replies: Replies, bytes: &[u8]) -> Option<Self> {
        let extended = replies == Replies::Extended;
        let mut fields = Fields(bytes);
        if fields.u32()? != if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC } {
            return None;
        }
        Some(Self {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            len: if extended { fields.u64()? } else { fields.u32()?.into() },
        })
    }

    /// Bytes of payload that follow the header.
    ///
    /// An extended header must say that a write has a payload. qemu 8.2 to 10.0 does not, so each
    /// write has one here.
    #[must_use]
    pub const fn payload_bytes(&self, replies: Replies) -> u64 {
        let says_so = matches!(replies, Replies::Extended) && self.flags & command_flag::PAYLOAD_LEN != 0;
        if says_so || self.command == command::WRITE { self.len } else { 0 }
    }
}

/// A simple reply, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReply {
    /// An error number; 0 is success.
    pub error: u32,
    /// The request that is answered.
    pub cookie: u64,
}

impl SimpleReply {
    /// Appends the reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&SIMPLE_MAGIC.to_be_bytes());
        out.extend_from_slice(&self.error.to_be_bytes());
        out.extend_from_slice(&self.cookie.to_be_bytes());
    }
}

/// The header of a chunk, without its payload of `len` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Whether no chunk of this reply follows.
    pub done: bool,
    /// A number of [`chunk`].
    pub kind: u16,
    /// The request that is answered.
    pub cookie: u64,
    /// The place where the request begins; told in extended replies only.
    pub offset: u64,
    /// Bytes of the chunk's payload.
    pub len: u32,
}

impl ChunkHeader {
    /// Appends the header.
    pub fn encode(&self, replies: Replies, out: &mut Vec<u8>) {
        let extended = replies == Replies::Extended;
        let magic = if extended { EXTENDED_CHUNK_MAGIC } else { CHUNK_MAGIC };
        out.extend_from_slice(&magic.to_be_bytes());
        out.extend_from_slice(&if self.done { chunk::DONE } else { 0 }.to_be_bytes());
        out.extend_from_slice(&self.kind.to_be_bytes());
        out.extend_from_slice(&self.cookie.to_be_bytes());
        if extended {
            out.extend_from_slice(&self.offset.to_be_bytes());
            out.extend_from_slice(&u64::from(self.len).to_be_bytes());
        } else {
            out.extend_from_slice(&self.len.to_be_bytes());
        }
    }
}

/// The header at the front of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHeader {
    /// A simple reply.
    Simple(SimpleReply),
    /// A chunk of a structured or extended reply.
    Chunk(ChunkHeader),
}

impl ReplyHeader {
    /// Takes a header off the front of bytes, and tells its length. `None` if more bytes are
    /// needed.
    ///
    /// # Errors
    /// What is wrong with the bytes. The magic must be one that goes with `replies`.
    pub fn decode(replies: Replies, bytes: &[u8]) -> Result<Option<(Self, usize)>, &'static str> {
        let mut fields = Fields(bytes);
        let Some(magic) = fields.u32() else { return Ok(None) };
        let header = match (magic, replies) {
            (SIMPLE_MAGIC, Replies::Simple | Replies::Structured) => Self::simple(&mut fields),
            (CHUNK_MAGIC, Replies::Structured) | (EXTENDED_CHUNK_MAGIC, Replies::Extended) => {
                Self::chunk(replies, &mut fields)?
            }
            _ => return Err("a reply without a magic"),
        };
        Ok(header.map(|header| (header, bytes.len() - fields.0.len())))
    }

    fn simple(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self::Simple(SimpleReply { error: fields.u32()?, cookie: fields.u64()? }))
    }

    fn chunk(replies: Replies, fields: &mut Fields<'_>) -> Result<Option<Self>, &'static str> {
        let extended = replies == Replies::Extended;
        let (Some(flags), Some(kind), Some(cookie)) = (fields.u16(), fields.u16(), fields.u64()) else {
            return Ok(None);
        };
        let offset = if extended { fields.u64() } else { Some(0) };
        let len = if extended { fields.u64() } else { fields.u32().map(u64::from) };
        let (Some(offset), Some(len)) = (offset, len) else { return Ok(None) };
        let len = u32::try_from(len).map_err(|_| "a chunk of 4 GiB or more")?;
        Ok(Some(Self::Chunk(ChunkHeader { done: flags & chunk::DONE != 0, kind, cookie, offset, len })))
    }
}
