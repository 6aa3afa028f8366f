// SPDX-License-Identifier: MIT OR Apache-2.0
//! The vhost-user-blk front-end: a volume as the disk of a virtual machine, without a socket on the
//! data's way.
//!
//! The client (QEMU, or a program with libblkio) shares its memory; requests and data are taken
//! from rings in it, eventfds tell both sides that there are new ones. `session` is what the
//! messages of the protocol set up, `files` what comes with them, `guest` the memory, `ring` and
//! `inflight` one queue of requests, `call` how the guest is told, `unflushed` what is not durable,
//! `chain` and `request` what one of them says, `jobs` and `work` what becomes of it, `private`
//! whether its memory is shared at all, `listener` the sockets, `pace` when to sleep, `closing`
//! what is closed. But for that all of it runs in the pump's thread or a carrier's:
//! `vhost-user-backend` would bring threads of its own, and its workers would have to hand every
//! request over. Sources: docs/interop/vhost-user.rst of QEMU, and the virtio 1.2 specification.
//! Split rings only: `virtio-queue` has no packed ones.
//!
//! Bounds: a client, however hostile, gets at most [`piece::PLACES_MAX`](super::piece) requests,
//! [`CONNECTION_BYTES_MAX`] of buffers and [`MEMORY_SLOTS_MAX`] mappings, and its own memory is all
//! it can reach (tests: `hostile_*`). Nor does the thread ever wait for it, whatever files it
//! sends. Memory that it takes away under our hands is replaced by zeroes (`fault`).

mod broken;
mod call;
mod chain;
mod closing;
mod config_space;
mod fault;
mod files;
mod guest;
mod inflight;
mod jobs;
mod limits;
mod listener;
mod messages;
mod pace;
mod private;
mod request;
mod ring;
mod session;
#[cfg(test)]
mod tests;
mod unflushed;
mod work;

pub use limits::{
    CONNECTION_BYTES_MAX, CONNECTIONS_MAX, MEMORY_SLOTS_MAX, PAYLOAD_BYTES_MAX, QUEUE_SIZE_MAX, QUEUES_MAX,
    RANGE_SECTORS_MAX, RANGES_MAX, SEGMENT_BYTES_MAX, SEGMENTS_MAX,
};
pub use listener::VhostUserBlk;
