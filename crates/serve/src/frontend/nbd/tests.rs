// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NBD server against a disk in RAM: the protocol without I/O, the loop with sockets, real
//! clients.

mod extended;
mod gate;
mod hostile;
mod listening;
mod protocol;
mod ram;
mod server;
mod sessions;
mod talk;
mod throughput;
#[cfg(feature = "tls")]
mod tls;
mod tools;
mod turns;
