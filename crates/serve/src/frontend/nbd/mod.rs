// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NBD front-end serves volumes over unix sockets, TCP, and TLS.
//!
//! The crate `flashfront-nbd-proto` has the protocol. `connection` is one client's conversation
//! without I/O (bytes in, bytes out), `listen`, `stream` and `listener` are the sockets, `tls` is
//! what is around them on request, `client` the other end.
//! Bounds: a client, however hostile, gets at most [`REQUESTS_MAX`] requests and
//! [`CONNECTION_BYTES_MAX`] of buffers (tests: `hostile_*`), and inside TLS half a MiB on top; one
//! that doesn't read is not read.

mod accept;
mod client;
mod connection;
mod content;
mod gate;
mod listen;
mod listener;
mod offered;
mod outbox;
mod parked;
mod payload;
mod pending;
mod reply;
mod spare;
mod status;
mod stream;
#[cfg(test)]
mod tests;
mod tls;
mod watch;

pub use client::{Client, Socket, connect};
pub use flashfront_nbd_proto::blocking::ClientError;
pub use flashfront_nbd_proto::wire::Errno;
pub use flashfront_nbd_proto::{Ask, Request};
pub use gate::Gate;
#[cfg(feature = "fuse")]
pub(super) use listen::escape;
pub use listen::{BindError, Listen, ListenError};
pub use listener::{Nbd, NbdOptions};
pub use tls::{Tls, TlsError};

/// Requests of one connection that are accepted and whose replies are not sent completely.
pub const REQUESTS_MAX: usize = 128;
/// Bytes of buffers that one connection may hold.
pub const CONNECTION_BYTES_MAX: u64 = 64 << 20;
/// The longest read or write, as advertised (the protocol's usual figure).
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// What the longest read takes: itself, and as much again as an arena may lose to the sizes of its
/// two ends (chunks of 4 MiB, each for one size of buffer).
pub const LONGEST_READ_BYTES: u64 = PAYLOAD_BYTES_MAX as u64 + (8 << 20);
/// The budget that [`super::Core::alloc`] needs: the longest read waits for an origin, one chunk is
/// for payload that comes in, and two are for what ends by itself.
pub const BUFFER_BYTES_MIN: u64 = LONGEST_READ_BYTES + (12 << 20);
