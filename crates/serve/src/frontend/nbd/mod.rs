// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NBD front-end serves volumes over unix sockets, TCP, and TLS.
//!
//! The crate `flashfront-nbd-proto` has the protocol. `connection` is one client's conversation
//! without I/O: bytes in, bytes out. `listen`, `stream` and `listener` are the sockets, and `peer`
//! is a client. `tls` encrypts on request, and `client` is the other end.
//!
//! Bounds: a client, however hostile, gets at most [`REQUESTS_MAX`] requests and
//! [`CONNECTION_BYTES_MAX`] of buffers (tests: `hostile_*`). Inside TLS it gets half a MiB on top.
//! A client that doesn't read is not read.

mod accept;
mod again;
mod asked;
mod client;
mod connection;
mod content;
mod ended;
mod gate;
mod hold;
mod holdings;
mod input;
mod limits;
mod listen;
mod listener;
mod offered;
mod options;
mod outbox;
mod parked;
mod parks;
mod payload;
mod peer;
mod pending;
mod range;
mod read;
mod reply;
mod requests;
mod segments;
mod send;
mod spare;
mod status;
mod stream;
#[cfg(test)]
mod tests;
mod tls;
mod wait;
mod watch;
mod way;
mod write;
mod zeroes;

pub use crate::address::{Listen, ListenError};
pub use client::{Client, Socket, connect};
pub use flashfront_nbd_proto::blocking::ClientError;
pub use flashfront_nbd_proto::wire::Errno;
pub use flashfront_nbd_proto::{Ask, Request};
pub use gate::Gate;
pub use limits::{BUFFER_BYTES_MIN, CONNECTION_BYTES_MAX, LONGEST_READ_BYTES, PAYLOAD_BYTES_MAX, REQUESTS_MAX};
pub use listen::BindError;
pub use listener::Nbd;
pub use options::NbdOptions;
pub use tls::{Tls, TlsError};
