// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one client may have.

/// Requests of one connection that are accepted and whose replies are not sent completely.
pub const REQUESTS_MAX: usize = 128;
/// Bytes of buffers that one connection may hold.
pub const CONNECTION_BYTES_MAX: u64 = 64 << 20;
/// The longest read or write, as advertised (the protocol's usual figure).
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// What the longest read takes: itself, and as much again as an arena may lose to the sizes of its
/// two ends (chunks of 4 MiB, each for one size of buffer).
pub const LONGEST_READ_BYTES: u64 = PAYLOAD_BYTES_MAX as u64 + (8 << 20);
/// The budget that [`Core::alloc`](crate::frontend::Core::alloc) needs: the longest read waits for
/// an origin, one chunk is for payload that comes in, and two are for what ends by itself.
pub const BUFFER_BYTES_MIN: u64 = LONGEST_READ_BYTES + (12 << 20);
