// SPDX-License-Identifier: MIT OR Apache-2.0
//! The coordinator: what belongs to no lane. What it holds; its acts are elsewhere.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use slab::Slab;

use crate::act::destage::Destager;
use crate::act::persist::Persist;
use crate::act::sync::state::Filling;
use crate::act::throttle::Throttle;
use crate::act::volumes::state::Volumes;
use crate::fact::memory::{Buf, LaneJob};
use crate::fact::types::Time;
use crate::organ::active::{Active, Range};
use crate::organ::bypass::Sequences;
use crate::organ::down::Covered;
use crate::organ::flush::FlushWaiter;
use crate::organ::piece::PieceKind;
use crate::organ::places::Places;
use crate::organ::router::Router;
use crate::organ::zeroes::Zeroes;
use crate::shadow::Shadow;

/// The coordinator's I/O for the flush of the cache device; lower numbers are origins' flushes.
pub(crate) const CACHE_FLUSH: usize = 1 << 16;

/// The coordinator's I/Os for maps: from this number on, by request.
pub(crate) const MAP: usize = 1 << 32;
/// Pieces of discards and long zeroes at a time: half a GiB, more than any device needs to be busy.
pub(crate) const RANGE_PIECES_MAX: u32 = 512;

/// The pieces of ranges that lanes have, and what is not cut yet: (request, the rest of its range,
/// what to do, FUA).
pub(crate) type Ranges = Places<(usize, Range, PieceKind, bool)>;

/// Places for the pieces of ranges.
fn ranges(origins: usize) -> Ranges {
    Ranges::new(RANGE_PIECES_MAX, origins)
}

/// A map whose origin was asked.
pub(crate) struct Asked {
    pub(crate) request: usize,
    pub(crate) buf: Buf,
    /// Bytes that the list of dirty blocks tells of.
    pub(crate) bytes: u64,
}

/// The life of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Replaying.
    Opening,
    Serving,
    /// Finishing requests and commits.
    Stopping,
    /// Writing the last checkpoints.
    Closing,
    Stopped,
    Failed,
}

/// What belongs to no lane.
pub(crate) struct Coordinator {
    pub(crate) requests: Slab<Active>,
    pub(crate) router: Router,
    /// The recent streams of each origin.
    pub(crate) sequences: Vec<Sequences>,
    pub(crate) throttle: Throttle,
    pub(crate) zeroes: Zeroes,
    pub(crate) ranges: Ranges,
    /// Maps whose origins were asked.
    pub(crate) maps: Vec<Asked>,
    pub(crate) destager: Destager,
    pub(crate) shadow: Shadow,
    /// Lanes while they work apart.
    pub(crate) jobs: Vec<LaneJob>,
    pub(crate) persist: Persist,
    pub(crate) volumes: Volumes,
    pub(crate) filling: Filling,
    /// A flush of the cache device is in flight.
    pub(crate) cache_flushing: bool,
    /// What the flush in flight covers of each lane.
    pub(crate) covered: Vec<Covered>,
    /// The cache device failed: those who wait until all that can be destaged to an origin is.
    pub(crate) until_drained: Vec<(usize, FlushWaiter)>,
    life: Life,
    /// Clients are about to leave ([`Control::LetClientsGo`]).
    pub(crate) clients_leave: bool,
    /// Lanes that were told to close, and how much they had taken when they answered.
    pub(crate) closing: BTreeMap<usize, Option<u64>>,
    pub(crate) lanes_replayed: usize,
    pub(crate) lanes_open: usize,
    pub(crate) commits_replayed: u64,
    pub(crate) begun: bool,
    /// When the engine was last called.
    pub(crate) now: Time,
}

impl Coordinator {
    /// The coordinator of a cache that is to be opened.
    pub(crate) fn new(origins: usize, router: Router, shadow: Shadow, now: Time) -> Self {
        Self {
            requests: Slab::new(),
            router,
            sequences: (0..origins).map(|_| Sequences::new()).collect(),
            throttle: Throttle::new(origins),
            zeroes: Zeroes::new(origins),
            ranges: ranges(origins),
            maps: Vec::new(),
            destager: Destager::new(origins, now),
            shadow,
            jobs: Vec::new(),
            persist: Persist::default(),
            volumes: Volumes::default(),
            filling: Filling::default(),
            cache_flushing: false,
            covered: Vec::new(),
            until_drained: Vec::new(),
            clients_leave: false,
            life: Life::Opening,
            closing: BTreeMap::new(),
            lanes_replayed: 0,
            lanes_open: 0,
            commits_replayed: 0,
            begun: false,
            now,
        }
    }

    /// There is one origin more.
    pub(crate) fn add_origin(&mut self, now: Time) {
        self.sequences.push(Sequences::new());
        self.throttle.add_origin();
        self.zeroes.add_origin();
        self.ranges.add_origin();
        self.destager.add_origin(now);
    }

    /// How far its life is.
    pub(crate) const fn life(&self) -> Life {
        self.life
    }

    /// The next step of life begins.
    pub(crate) const fn go_on_to(&mut self, life: Life) {
        self.life = life;
    }

    /// Whether it serves, or ends what it has taken.
    pub(crate) const fn is_at_work(&self) -> bool {
        matches!(self.life, Life::Serving | Life::Stopping)
    }

    /// The lanes can't be opened. Returns whether that is news.
    pub(crate) fn fail(&mut self) -> bool {
        core::mem::replace(&mut self.life, Life::Failed) != Life::Failed
    }

    pub(crate) fn serving(&self) -> bool {
        self.life == Life::Serving
    }

    pub(crate) fn opening(&self) -> bool {
        self.life == Life::Opening
    }
}
