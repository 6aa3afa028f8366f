// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of the handshake and the answers to them, as bytes.

use super::numbers::{OPTION_MAGIC, OPTION_REPLY_MAGIC};

/// Bytes of an option before its data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of an answer before its data.
pub const ANSWER_HEADER_BYTES: usize = 20;

/// Appends an option of a client.
///
/// # Panics
/// If `data` has 4 GiB or more, as with all functions here.
pub fn encode_option(out: &mut Vec<u8>, option: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&len_before(data));
    out.extend_from_slice(data);
}

/// Appends an answer to an option.
pub fn encode_answer(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&len_before(data));
    out.extend_from_slice(data);
}

/// The length of `data` as it is written before it.
///
/// # Panics
/// If `data` has 4 GiB or more.
#[must_use]
pub fn len_before(data: &[u8]) -> [u8; 4] {
    u32::try_from(data.len()).expect("our own messages are short").to_be_bytes()
}
