// SPDX-License-Identifier: MIT OR Apache-2.0
//! The vhost-user-blk server in real daemons: by `driver`, a guest's half in this process that can
//! do anything wrong, and by libblkio's own. The parser and the inflight memory alone.

mod alone;
mod blkio;
mod driver;
mod files;
mod hostile;
mod inflight;
mod order;
mod parser;
mod patience;
mod reconnect;
mod requests;
#[cfg(feature = "fuse")]
mod silent;
mod turns;
