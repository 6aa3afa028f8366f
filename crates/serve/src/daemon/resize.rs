// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache of a running daemon becomes larger or smaller: `flashfront cache grow`, and `shrink`.
//!
//! Clients are held as for an upgrade. The cache is closed as by a clean stop, with its dirty data.
//! Then the cache is changed in the way of a stopped one, and this process begins another life. A
//! kill or a power cut leaves the cache of before or the changed one (tests: end to end `resize`).
//!
//! What lies beyond the end of a smaller cache is emptied before, while clients are served. Else
//! they would wait while gigabytes are copied (ADR 0069).

use std::path::PathBuf;

use flashfront_engine::Engine;

use crate::config;
use crate::control::Response;
use crate::offline::{self, CacheGrown, CacheShrunk};
use crate::report::counted;
use crate::upgrade::Operator;

/// A cache that gets another size.
#[derive(Debug)]
pub(super) struct Resize {
    device: PathBuf,
    state: Option<PathBuf>,
    size: NewSize,
    may_be_dirty: bool,
    done: Done,
}

/// What became of the cache.
#[derive(Clone, Copy, Debug)]
struct Done {
    from_bytes: u64,
    to_bytes: u64,
    index_bytes: u64,
}

/// The new size of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewSize {
    /// All of the device, which has become larger.
    OfDevice,
    /// Fewer bytes than before.
    Bytes(u64),
}

impl Resize {
    /// `may_be_dirty`: what is dirty can stay in the cache. `state`: the folder that remembers
    /// failures of caches.
    pub(super) const fn new(device: PathBuf, state: Option<PathBuf>, size: NewSize, may_be_dirty: bool) -> Self {
        let done = Done { from_bytes: 0, to_bytes: 0, index_bytes: 0 };
        Self { device, state, size, may_be_dirty, done }
    }

    pub(super) const fn may_be_dirty(&self) -> bool {
        self.may_be_dirty
    }

    /// Changes the cache, which is closed.
    pub(super) fn carry_out(&mut self) -> Result<(), String> {
        let (device, state) = (self.device.as_path(), self.state.as_deref());
        self.done = match self.size {
            NewSize::OfDevice => {
                let it = offline::grow(device, state).map_err(|error| error.to_string())?;
                let CacheGrown { from_bytes, to_bytes, index_bytes } = it;
                Done { from_bytes, to_bytes, index_bytes }
            }
            NewSize::Bytes(bytes) => {
                let it = offline::shrink_closed(device, state, bytes).map_err(|error| error.to_string())?;
                let CacheShrunk { from_bytes, to_bytes, index_bytes, .. } = it;
                Done { from_bytes, to_bytes, index_bytes }
            }
        };
        Ok(())
    }

    /// Tells the operator that the cache has the wanted size already. Nobody waited.
    pub(super) fn is_needless(engine: &Engine, operator: Operator) {
        let bytes = engine.superblock().cache_bytes;
        operator.answer(&Response::Resized {
            from_bytes: bytes,
            to_bytes: bytes,
            index_bytes: engine.status().index_bytes,
            clients: 0,
            paused_ms: 0,
        });
    }

    /// Tells the log and the operator that clients are served with the new size.
    pub(super) fn is_done(&self, (clients, paused_ms): (u64, u64), operator: Operator) {
        let Done { from_bytes, to_bytes, index_bytes } = self.done;
        let [from, to] = [from_bytes, to_bytes].map(|bytes| config::Size(bytes).told());
        let (device, clients_told) = (self.device.display(), counted(clients, "client"));
        tracing::info!("{device}: the cache has {to} now, and had {from}; {clients_told} waited {paused_ms} ms");
        operator.answer(&Response::Resized { from_bytes, to_bytes, index_bytes, clients, paused_ms });
    }
}
