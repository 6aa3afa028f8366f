// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits of one client.

/// Requests of one connection that are accepted and whose replies are not sent completely.
pub const REQUESTS_MAX: usize = 128;
/// Bytes of buffers that one connection may hold.
pub const CONNECTION_BYTES_MAX: u64 = 64 << 20;
/// The longest read or write, as advertised (the protocol's usual figure).
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Bytes of buffers that the longest read needs.
///
/// An arena loses as much again at the two ends of a read: its chunks of 4 MiB are each for one
/// size of buffer.
pub const LONGEST_READ_BYTES: u64 = PAYLOAD_BYTES_MAX as u64 + (8 << 20);
/// The budget that [`Core::alloc`](crate::frontend::Core::alloc) needs.
///
/// The longest read waits for an origin. One chunk is for payload that comes in, and two chunks are
/// for requests that end by themselves.
pub const BUFFER_BYTES_MIN: u64 = LONGEST_READ_BYTES + (12 << 20);

/// The server carries out no further requests of a client that has this many bytes of answers
/// unread and a full socket.
pub(super) const UNREAD_BYTES_MAX: u64 = 8 << 20;
