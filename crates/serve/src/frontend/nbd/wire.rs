// SPDX-License-Identifier: MIT OR Apache-2.0
//! NBD on the wire: the protocol's numbers, and its fixed-size headers as structs.
//!
//! Encodes and decodes, judges nothing but magics. Shared by the server and the client. All
//! integers are big-endian.

use std::fmt;

/// First 8 bytes of a server.
pub(super) const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Second 8 bytes of a newstyle server, and first of every option.
pub(super) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// First 8 bytes of every answer to an option.
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First 4 bytes of a request.
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First 4 bytes of a request with an extended header.
pub(super) const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// First 4 bytes of a simple reply.
pub(super) const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// First 4 bytes of a chunk of a structured reply.
pub(super) const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// First 4 bytes of a chunk of an extended reply.
pub(super) const EXTENDED_CHUNK_MAGIC: u32 = 0x6e8a_278c;

/// How requests and replies look, as agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replies {
    /// Each reply is one header, and the data of a read.
    Simple,
    /// Reads and errors are answered in chunks.
    Structured,
    /// Everything is answered in chunks; lengths have 64 bits.
    Extended,
}

/// Handshake flags of both sides.
pub(super) mod handshake_flag {
    /// Options are answered, unknown ones too.
    pub(in super::super) const FIXED_NEWSTYLE: u16 = 1;
    /// No 124 zeroes after the answer to EXPORT_NAME.
    pub(in super::super) const NO_ZEROES: u16 = 2;
}

/// Options of a client.
pub(super) mod option {
    pub(in super::super) const EXPORT_NAME: u32 = 1;
    pub(in super::super) const ABORT: u32 = 2;
    pub(in super::super) const LIST: u32 = 3;
    pub(in super::super) const STARTTLS: u32 = 5;
    pub(in super::super) const INFO: u32 = 6;
    pub(in super::super) const GO: u32 = 7;
    pub(in super::super) const STRUCTURED_REPLY: u32 = 8;
    pub(in super::super) const LIST_META_CONTEXT: u32 = 9;
    pub(in super::super) const SET_META_CONTEXT: u32 = 10;
    pub(in super::super) const EXTENDED_HEADERS: u32 = 11;
}

/// Kinds of answers to an option.
pub(super) mod answer {
    pub(in super::super) const ACK: u32 = 1;
    pub(in super::super) const SERVER: u32 = 2;
    pub(in super::super) const INFO: u32 = 3;
    pub(in super::super) const META_CONTEXT: u32 = 4;
    /// Set in all errors.
    pub(in super::super) const ERROR: u32 = 1 << 31;
    pub(in super::super) const UNSUPPORTED: u32 = ERROR + 1;
    pub(in super::super) const INVALID: u32 = ERROR + 3;
    pub(in super::super) const TLS_REQUIRED: u32 = ERROR + 5;
    pub(in super::super) const UNKNOWN: u32 = ERROR + 6;
    pub(in super::super) const TOO_BIG: u32 = ERROR + 9;
    pub(in super::super) const EXTENDED_HEADERS_REQUIRED: u32 = ERROR + 10;
}

/// Kinds of information about an export.
pub(super) mod info {
    pub(in super::super) const EXPORT: u16 = 0;
    pub(in super::super) const NAME: u16 = 1;
    pub(in super::super) const DESCRIPTION: u16 = 2;
    pub(in super::super) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export can do.
pub(super) mod export_flag {
    pub(in super::super) const HAS_FLAGS: u16 = 1 << 0;
    pub(in super::super) const READ_ONLY: u16 = 1 << 1;
    pub(in super::super) const SEND_FLUSH: u16 = 1 << 2;
    pub(in super::super) const SEND_FUA: u16 = 1 << 3;
    pub(in super::super) const SEND_TRIM: u16 = 1 << 5;
    pub(in super::super) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(in super::super) const SEND_DF: u16 = 1 << 7;
    pub(in super::super) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(in super::super) const SEND_CACHE: u16 = 1 << 10;
    pub(in super::super) const SEND_FAST_ZERO: u16 = 1 << 11;
    pub(in super::super) const BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;
}

/// Commands.
pub(super) mod command {
    pub(in super::super) const READ: u16 = 0;
    pub(in super::super) const WRITE: u16 = 1;
    pub(in super::super) const DISCONNECT: u16 = 2;
    pub(in super::super) const FLUSH: u16 = 3;
    pub(in super::super) const TRIM: u16 = 4;
    pub(in super::super) const CACHE: u16 = 5;
    pub(in super::super) const WRITE_ZEROES: u16 = 6;
    pub(in super::super) const BLOCK_STATUS: u16 = 7;
}

/// Flags of a command.
pub(super) mod command_flag {
    pub(in super::super) const FUA: u16 = 1 << 0;
    pub(in super::super) const NO_HOLE: u16 = 1 << 1;
    pub(in super::super) const DF: u16 = 1 << 2;
    pub(in super::super) const REQ_ONE: u16 = 1 << 3;
    pub(in super::super) const FAST_ZERO: u16 = 1 << 4;
    pub(in super::super) const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Chunks of a structured reply.
pub(super) mod chunk {
    /// Flag: the last chunk.
    pub(in super::super) const DONE: u16 = 1;
    pub(in super::super) const NONE: u16 = 0;
    pub(in super::super) const OFFSET_DATA: u16 = 1;
    pub(in super::super) const OFFSET_HOLE: u16 = 2;
    pub(in super::super) const BLOCK_STATUS: u16 = 5;
    pub(in super::super) const BLOCK_STATUS_EXTENDED: u16 = 6;
    /// Set in all errors.
    pub(in super::super) const ERROR: u16 = 1 << 15;
    pub(in super::super) const ERROR_PLAIN: u16 = ERROR + 1;
    pub(in super::super) const ERROR_OFFSET: u16 = ERROR + 2;
}

/// What `base:allocation` says of an extent.
pub(super) mod state {
    pub(in super::super) const HOLE: u32 = 1 << 0;
    pub(in super::super) const ZERO: u32 = 1 << 1;
}

/// An error number of a reply (those of Linux, by the protocol).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub u32);

impl Errno {
    /// The export is read-only.
    pub const EPERM: Self = Self(1);
    /// A device failed.
    pub const EIO: Self = Self(5);
    /// The request makes no sense.
    pub const EINVAL: Self = Self(22);
    /// A write past the end.
    pub const ENOSPC: Self = Self(28);
    /// An answer in one chunk would be too long.
    pub const EOVERFLOW: Self = Self(75);
    /// Zeroing would not be faster than writing.
    pub const ENOTSUP: Self = Self(95);
    /// The server is stopping.
    pub const ESHUTDOWN: Self = Self(108);
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::EPERM => f.write_str("EPERM"),
            Self::EIO => f.write_str("EIO"),
            Self::EINVAL => f.write_str("EINVAL"),
            Self::ENOSPC => f.write_str("ENOSPC"),
            Self::EOVERFLOW => f.write_str("EOVERFLOW"),
            Self::ENOTSUP => f.write_str("ENOTSUP"),
            Self::ESHUTDOWN => f.write_str("ESHUTDOWN"),
            Self(number) => write!(f, "error {number}"),
        }
    }
}

/// Takes integers off the front of untrusted bytes.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

/// A request, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestHeader {
    pub(super) flags: u16,
    pub(super) command: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    /// Of an extended header 64 bits, else 32.
    pub(super) len: u64,
}

impl RequestHeader {
    /// Bytes of a header.
    pub(super) const fn bytes(replies: Replies) -> usize {
        if matches!(replies, Replies::Extended) { 32 } else { 28 }
    }

    pub(super) fn encode(&self, replies: Replies, out: &mut Vec<u8>) {
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

    /// `None` if the magic is wrong (or there are fewer than [`Self::bytes`]).
    pub(super) fn decode(replies: Replies, bytes: &[u8]) -> Option<Self> {
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

    /// Bytes of payload that follow the header. A write has some even where an extended header
    /// doesn't say so, as it must: qemu (8.2 to 10.0) never does.
    pub(super) const fn payload_bytes(&self, replies: Replies) -> u64 {
        let says_so = matches!(replies, Replies::Extended) && self.flags & command_flag::PAYLOAD_LEN != 0;
        if says_so || self.command == command::WRITE { self.len } else { 0 }
    }
}

/// A simple reply, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SimpleReply {
    /// 0 = success.
    pub(super) error: u32,
    pub(super) cookie: u64,
}

impl SimpleReply {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&SIMPLE_MAGIC.to_be_bytes());
        out.extend_from_slice(&self.error.to_be_bytes());
        out.extend_from_slice(&self.cookie.to_be_bytes());
    }
}

/// The header of a chunk, without its payload of `len` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkHeader {
    pub(super) done: bool,
    pub(super) kind: u16,
    pub(super) cookie: u64,
    /// Where the request begins; told in extended replies.
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl ChunkHeader {
    pub(super) fn encode(&self, replies: Replies, out: &mut Vec<u8>) {
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

/// Appends an option of a client.
pub(super) fn encode_option(out: &mut Vec<u8>, option: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&wire_len(data));
    out.extend_from_slice(data);
}

/// Appends an answer to an option.
pub(super) fn encode_answer(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&wire_len(data));
    out.extend_from_slice(data);
}

/// The length of `data` as it is written before it.
pub(super) fn wire_len(data: &[u8]) -> [u8; 4] {
    u32::try_from(data.len()).expect("our own messages are short").to_be_bytes()
}
