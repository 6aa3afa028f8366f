// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rig is what a rival stands on. It has the rival's devices, its I/O in flight and the moments
//! that it waits for, and counts all that.

use std::collections::BTreeMap;

use flashfront_device::sim::{Model, ModelIo};
use flashfront_engine::{Op, Time};
use hashbrown::HashMap;

use super::spec::Geometry;
use crate::system::{System, SystemRequest, Traffic};

/// Nanoseconds of a second.
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// The figures of a rival that no device sees.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Blocks of 4 KiB that clients read.
    pub read_blocks: u64,
    /// Blocks of those that clients read without any read of the origin.
    pub read_hit_blocks: u64,
    /// Bytes that are dirty now.
    pub dirty_bytes: u64,
    /// The most bytes that may be dirty; 0 = there is no limit.
    pub dirty_limit_bytes: u64,
}

/// A cache, as the order in which it reads and writes its devices.
pub trait Rival {
    /// What an I/O, or a moment, is for.
    type Tag;

    /// A client asks for something.
    fn submit(&mut self, request: SystemRequest, io: &mut Io<Self::Tag>);

    /// An I/O has ended, or a moment has come.
    fn done(&mut self, tag: Self::Tag, io: &mut Io<Self::Tag>);

    /// Tells the figures that no device sees.
    fn stats(&self) -> Stats;
}

/// The devices of a rival, as it uses them.
pub struct Io<T> {
    now: Time,
    cache: Box<dyn Model>,
    origin: Box<dyn Model>,
    /// The tags of I/Os in flight, by number of submission.
    flying: HashMap<u64, T>,
    next_io: u64,
    moments: BTreeMap<(Time, u64), T>,
    answered: Vec<u64>,
    traffic: Traffic,
}

impl<T> Io<T> {
    /// The time.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Reads the cache device. `tag` comes back when the read has ended.
    pub fn read_cache(&mut self, offset: u64, len: u64, tag: T) {
        self.traffic.cache_read_bytes += len;
        self.submit(true, Op::Read, offset, len, tag);
    }

    /// Writes the cache device.
    pub fn write_cache(&mut self, offset: u64, len: u64, tag: T) {
        self.traffic.cache_write_bytes += len;
        self.submit(true, Op::Write, offset, len, tag);
    }

    /// Flushes the cache device.
    pub fn flush_cache(&mut self, tag: T) {
        self.traffic.cache_flushes += 1;
        self.submit(true, Op::Flush, 0, 0, tag);
    }

    /// Reads the origin.
    pub fn read_origin(&mut self, offset: u64, len: u64, tag: T) {
        self.traffic.origin_read_bytes += len;
        self.traffic.origin_ios += 1;
        self.submit(false, Op::Read, offset, len, tag);
    }

    /// Writes the origin.
    pub fn write_origin(&mut self, offset: u64, len: u64, tag: T) {
        self.traffic.origin_write_bytes += len;
        self.traffic.origin_ios += 1;
        self.submit(false, Op::Write, offset, len, tag);
    }

    /// Flushes the origin.
    pub fn flush_origin(&mut self, tag: T) {
        self.traffic.origin_flushes += 1;
        self.submit(false, Op::Flush, 0, 0, tag);
    }

    /// Waits: `tag` comes back after `ns`.
    pub fn after(&mut self, ns: u64, tag: T) {
        self.next_io += 1;
        self.moments.insert((self.now.plus_ns(ns), self.next_io), tag);
    }

    /// Answers a request of a client.
    pub fn answer(&mut self, number: u64) {
        self.answered.push(number);
    }

    fn submit(&mut self, to_cache: bool, op: Op, offset: u64, len: u64, tag: T) {
        self.next_io += 1;
        self.flying.insert(self.next_io, tag);
        let device = if to_cache { &mut self.cache } else { &mut self.origin };
        device.submit(self.now, ModelIo { number: self.next_io, op, offset, len });
    }
}

/// A rival on its devices.
pub struct Rig<R: Rival> {
    rival: R,
    io: Io<R::Tag>,
    ended: Vec<(Time, u64)>,
}

impl<R: Rival> Rig<R> {
    /// Puts a rival on devices. `begin` may start it, by waiting for its first moment.
    pub fn new(geometry: &Geometry, mut rival: R, begin: impl FnOnce(&mut R, &mut Io<R::Tag>)) -> Self {
        let mut io = Io {
            now: Time(0),
            cache: geometry.cache.build(geometry.cache_bytes),
            origin: geometry.origin.build(geometry.origin_bytes),
            flying: HashMap::new(),
            next_io: 0,
            moments: BTreeMap::new(),
            answered: Vec::new(),
            traffic: Traffic::default(),
        };
        begin(&mut rival, &mut io);
        Self { rival, io, ended: Vec::new() }
    }
}

impl<R: Rival> System for Rig<R> {
    fn submit(&mut self, now: Time, request: SystemRequest) {
        self.io.now = now;
        self.rival.submit(request, &mut self.io);
    }

    fn next_event(&self) -> Option<Time> {
        if !self.io.answered.is_empty() {
            return Some(self.io.now);
        }
        let moment = self.io.moments.keys().next().map(|key| key.0);
        [moment, self.io.cache.next_event(), self.io.origin.next_event()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Time, answered: &mut Vec<u64>) {
        self.io.now = now;
        self.io.cache.advance(now, &mut self.ended);
        self.io.origin.advance(now, &mut self.ended);
        self.ended.sort_unstable();
        for (_, number) in self.ended.drain(..) {
            let tag = self.io.flying.remove(&number).expect("a model ends each I/O once");
            self.rival.done(tag, &mut self.io);
        }
        while let Some(entry) = self.io.moments.first_entry().filter(|entry| entry.key().0 <= now) {
            let tag = entry.remove();
            self.rival.done(tag, &mut self.io);
        }
        answered.append(&mut self.io.answered);
    }

    fn traffic(&self) -> Traffic {
        let Stats { read_blocks, read_hit_blocks, dirty_bytes, dirty_limit_bytes } = self.rival.stats();
        Traffic { read_blocks, read_hit_blocks, dirty_bytes, dirty_limit_bytes, ..self.io.traffic }
    }
}
