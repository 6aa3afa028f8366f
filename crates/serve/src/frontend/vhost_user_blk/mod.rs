// SPDX-License-Identifier: MIT OR Apache-2.0
//! The vhost-user-blk front-end: a volume as the disk of a virtual machine, without a socket on the
//! data's way.
//!
//! The client (QEMU, or a program with libblkio) shares its memory. Requests and data are taken
//! from rings in it; eventfds tell both sides that there are new ones.
//!
//! `door` is the socket, `peer` a client, `listener` gives each its turn, `pace` says when to
//! sleep, and `closing` closes files.
//! `session` is what a client has set up by `messages`; `files` come with them.
//! `guest` is its memory, `fault` guards that, and `private` finds out whether it is shared.
//! `ring` and `inflight` are one queue; `chain` and `request` read a request; `jobs` and `work`
//! carry it out; `payload` copies.
//! `call` tells the guest, and `unflushed` knows what is not durable.
//! `hold` gives the socket and the clients to another program, whose handlers `swap` makes.
//!
//! All of it but closing runs in the pump's thread or a carrier's. `vhost-user-backend` would bring
//! threads of its own, and its workers would have to hand every request over. Sources:
//! docs/interop/vhost-user.rst of QEMU, and the virtio 1.2 specification. Split rings only:
//! `virtio-queue` has no packed ones.
//!
//! Bounds: a client, however hostile, gets at most [`piece::PLACES_MAX`](super::piece) requests,
//! [`CONNECTION_BYTES_MAX`] of buffers and [`MEMORY_SLOTS_MAX`] mappings. It can reach its own
//! memory only (tests: `hostile_*`). The thread never waits for it, whatever files it sends. Memory
//! that it takes away under our hands is replaced by zeroes (`fault`).

mod broken;
mod call;
mod chain;
mod closing;
mod config_space;
mod door;
mod fault;
mod files;
mod guest;
mod hold;
mod inflight;
mod jobs;
mod limits;
mod listener;
mod messages;
mod pace;
mod payload;
mod peer;
mod private;
mod request;
mod ring;
mod session;
mod swap;
#[cfg(test)]
mod tests;
mod unflushed;
mod work;

pub(crate) use hold::deal;
pub use limits::{
    CONNECTION_BYTES_MAX, CONNECTIONS_MAX, MEMORY_SLOTS_MAX, PAYLOAD_BYTES_MAX, QUEUE_SIZE_MAX, QUEUES_MAX,
    RANGE_SECTORS_MAX, RANGES_MAX, SEGMENT_BYTES_MAX, SEGMENTS_MAX,
};
pub use listener::VhostUserBlk;
