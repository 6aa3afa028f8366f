// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol's numbers, as doc/proto.md of github.com/NetworkBlockDevice/nbd has them.

/// First 8 bytes of a server.
pub const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Second 8 bytes of a newstyle server, and first of every option.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// First 8 bytes of every answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First 4 bytes of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First 4 bytes of a request with an extended header.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// First 4 bytes of a simple reply.
pub const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// First 4 bytes of a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// First 4 bytes of a chunk of an extended reply.
pub const EXTENDED_CHUNK_MAGIC: u32 = 0x6e8a_278c;

/// Handshake flags of both sides.
pub mod handshake_flag {
    /// Options are answered, unknown ones too.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// No 124 zeroes after the answer to EXPORT_NAME.
    pub const NO_ZEROES: u16 = 2;
}

/// Options of a client.
pub mod option {
    /// Choose an export, without an answer that could refuse it.
    pub const EXPORT_NAME: u32 = 1;
    /// End the conversation.
    pub const ABORT: u32 = 2;
    /// Name all exports.
    pub const LIST: u32 = 3;
    /// Go on inside TLS.
    pub const STARTTLS: u32 = 5;
    /// Tell of an export.
    pub const INFO: u32 = 6;
    /// Choose an export and tell of it.
    pub const GO: u32 = 7;
    /// Agree on structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Name the metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Agree on extended headers.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Kinds of answers to an option.
pub mod answer {
    /// Yes, and the last answer.
    pub const ACK: u32 = 1;
    /// An export of a list.
    pub const SERVER: u32 = 2;
    /// A piece of information.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Set in all errors.
    pub const ERROR: u32 = 1 << 31;
    /// The server does not know the option.
    pub const UNSUPPORTED: u32 = ERROR + 1;
    /// The option makes no sense here.
    pub const INVALID: u32 = ERROR + 3;
    /// The server wants TLS first.
    pub const TLS_REQUIRED: u32 = ERROR + 5;
    /// There is no such export.
    pub const UNKNOWN: u32 = ERROR + 6;
    /// The client must ask for block sizes.
    pub const BLOCK_SIZE_REQUIRED: u32 = ERROR + 8;
    /// The option is too long.
    pub const TOO_BIG: u32 = ERROR + 9;
    /// The option does not go with extended headers.
    pub const EXTENDED_HEADERS_REQUIRED: u32 = ERROR + 10;
}

/// Kinds of information about an export.
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    /// The name of the export.
    pub const NAME: u16 = 1;
    /// Words for people.
    pub const DESCRIPTION: u16 = 2;
    /// Block sizes.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export can do.
pub mod export_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH can be sent.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The flag FUA can be sent.
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM can be sent.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// The export has a head to move: what is read in order is read fast.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// WRITE_ZEROES can be sent.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The flag DF can be sent.
    pub const SEND_DF: u16 = 1 << 7;
    /// Several connections see one disk: a FLUSH of one covers the writes of all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE can be sent.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// The flag FAST_ZERO can be sent.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
    /// BLOCK_STATUS can name contexts in a payload.
    pub const BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;
}

/// Commands.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write the payload.
    pub const WRITE: u16 = 1;
    /// The client leaves; there is no reply.
    pub const DISCONNECT: u16 = 2;
    /// Make everything acknowledged durable.
    pub const FLUSH: u16 = 3;
    /// Discard.
    pub const TRIM: u16 = 4;
    /// Read into a cache.
    pub const CACHE: u16 = 5;
    /// Write zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Tell of extents.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a command.
pub mod command_flag {
    /// Durable when answered.
    pub const FUA: u16 = 1 << 0;
    /// Zeroes keep their space.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The data of a read comes in one chunk.
    pub const DF: u16 = 1 << 2;
    /// The first extent is enough.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail rather than be as slow as a write.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// The length is that of a payload.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Chunks of a structured reply.
pub mod chunk {
    /// Flag: the last chunk.
    pub const DONE: u16 = 1;
    /// Nothing but the end of a reply.
    pub const NONE: u16 = 0;
    /// Data of a read.
    pub const OFFSET_DATA: u16 = 1;
    /// A part of a read that is zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// Extents.
    pub const BLOCK_STATUS: u16 = 5;
    /// Extents with 64 bits.
    pub const BLOCK_STATUS_EXTENDED: u16 = 6;
    /// Set in all errors.
    pub const ERROR: u16 = 1 << 15;
    /// An error.
    pub const ERROR_PLAIN: u16 = ERROR + 1;
    /// An error and its place.
    pub const ERROR_OFFSET: u16 = ERROR + 2;
}

/// What `base:allocation` says of an extent.
pub mod state {
    /// The extent takes no space.
    pub const HOLE: u32 = 1 << 0;
    /// The extent reads as zeroes.
    pub const ZERO: u32 = 1 << 1;
}
