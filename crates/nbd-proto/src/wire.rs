// SPDX-License-Identifier: MIT OR Apache-2.0
//! NBD on the wire: numbers and headers, for both ends and for tests that forge bytes.
//!
//! All integers are big-endian.

mod errno;
mod fields;
mod header;
mod numbers;
mod options;

pub use errno::Errno;
pub use fields::Fields;
pub use header::{ChunkHeader, Replies, ReplyHeader, RequestHeader, SimpleReply};
pub use numbers::{
    CHUNK_MAGIC, EXTENDED_CHUNK_MAGIC, EXTENDED_REQUEST_MAGIC, MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, REQUEST_MAGIC,
    SIMPLE_MAGIC, answer, chunk, command, command_flag, export_flag, handshake_flag, info, option, state,
};
pub use options::{ANSWER_HEADER_BYTES, OPTION_HEADER_BYTES, encode_answer, encode_option, len_before};
