// SPDX-License-Identifier: MIT OR Apache-2.0
//! The vhost-user-blk front-end: a volume as the disk of a virtual machine, without a socket on the
//! data's way.
//!
//! The client (QEMU, or a program with libblkio) shares its memory; requests and data are taken
//! from rings in it, eventfds tell both sides that there are new ones. `session` is what the
//! messages of the protocol set up, `attached` the files that come with them, `guest` the memory,
//! `ring` and `inflight` one queue of requests, `call` how the guest is told, `debt` what is not
//! durable, `chain` and `request` what one of them says, `jobs` and `work` what becomes of it,
//! `private` whether its memory is shared at all, `listener` the sockets, `pace` when to sleep,
//! `closing` what is closed. But for that all of it runs in the pump's thread or a carrier's:
//! `vhost-user-backend` would bring threads of its own, and its workers would have to hand every
//! request over. Sources: docs/interop/vhost-user.rst of QEMU, and the virtio 1.2 specification.
//! Split rings only: `virtio-queue` has no packed ones.
//!
//! Bounds: a client, however hostile, gets at most [`piece::PLACES_MAX`](super::piece) requests,
//! [`CONNECTION_BYTES_MAX`] of buffers and [`MEMORY_SLOTS_MAX`] mappings, and its own memory is all
//! it can reach (tests: `hostile_*`). Nor does the thread ever wait for it, whatever files it
//! sends. Memory that it takes away under our hands is replaced by zeroes (`fault`).

mod attached;
mod call;
mod chain;
mod closing;
mod debt;
mod fault;
mod guest;
mod inflight;
mod jobs;
mod listener;
mod messages;
mod pace;
mod private;
mod request;
mod ring;
mod session;
mod space;
#[cfg(test)]
mod tests;
mod work;

pub use listener::VhostUserBlk;

/// Queues of one client. QEMU makes one for each processor of its guest.
pub const QUEUES_MAX: usize = 64;
/// Requests that a queue may have.
pub const QUEUE_SIZE_MAX: u16 = 1024;
/// Clients of one socket at a time; more are hung up on, and so is one that says nothing for 30
/// seconds.
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
const _: () = assert!(super::piece::Piece::count_max(PAYLOAD_BYTES_MAX) <= super::piece::PIECES_MAX);
/// Ranges of one discard or write-zeroes.
pub const RANGES_MAX: u32 = 16;
const _: () = assert!(RANGES_MAX as usize <= super::piece::PIECES_MAX);
/// The longest range of a discard or write-zeroes: 4 GiB less a block, as with NBD.
pub const RANGE_SECTORS_MAX: u32 = (1 << 23) - 8;
