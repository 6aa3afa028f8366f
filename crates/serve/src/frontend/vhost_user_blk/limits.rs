// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits of one client.

use crate::frontend::piece;

/// Queues of one client. QEMU makes one for each processor of its guest.
pub const QUEUES_MAX: usize = 64;
/// Requests that a queue may have.
pub const QUEUE_SIZE_MAX: u16 = 1024;
/// Clients of one socket at a time. The server hangs up on more, and on a client that says nothing
/// for 30 seconds.
pub const CONNECTIONS_MAX: usize = 8;
/// Bytes of buffers that one client may hold.
pub const CONNECTION_BYTES_MAX: u64 = 64 << 20;
/// Memory regions of one client.
pub const MEMORY_SLOTS_MAX: usize = 128;
/// The longest segment of a request.
pub const SEGMENT_BYTES_MAX: u32 = 256 << 10;
/// Segments of a request: two of the 128 descriptors that QEMU's queues have are for header and
/// status.
pub const SEGMENTS_MAX: u32 = 126;
/// The longest read or write: what the two above allow, in blocks that a buffer budget for NBD
/// holds as well.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
const _: () = assert!(SEGMENT_BYTES_MAX * SEGMENTS_MAX <= PAYLOAD_BYTES_MAX);
const _: () = assert!(piece::Piece::count_max(PAYLOAD_BYTES_MAX) <= piece::PIECES_MAX);
/// Ranges of one discard or write-zeroes.
pub const RANGES_MAX: u32 = 16;
const _: () = assert!(RANGES_MAX as usize <= piece::PIECES_MAX);
/// The longest range of a discard or write-zeroes: 4 GiB less a block, as with NBD.
pub const RANGE_SECTORS_MAX: u32 = (1 << 23) - 8;
/// Request, flags and size, of four bytes each.
pub(super) const HEADER_BYTES: usize = 12;
