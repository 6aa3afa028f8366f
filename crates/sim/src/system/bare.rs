// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bare device is what its users would have without a cache.

use flashfront_device::sim::{Model, ModelIo, ModelSpec};
use flashfront_engine::{Op, Time};

use super::asked::{Ask, System, SystemRequest, Traffic};

/// A device and nothing else.
pub struct Bare {
    model: Box<dyn Model>,
    traffic: Traffic,
    done: Vec<(Time, u64)>,
}

impl Bare {
    /// A device of this kind and size.
    #[must_use]
    pub fn new(spec: ModelSpec, size_bytes: u64) -> Self {
        Self { model: spec.build(size_bytes), traffic: Traffic::default(), done: Vec::new() }
    }
}

impl System for Bare {
    fn submit(&mut self, now: Time, request: SystemRequest) {
        let SystemRequest { number, ask, offset, len } = request;
        let traffic = &mut self.traffic;
        traffic.origin_ios += u64::from(ask != Ask::Flush);
        let op = match ask {
            Ask::Read => {
                traffic.origin_read_bytes += len;
                traffic.read_blocks += len.div_ceil(4096);
                Op::Read
            }
            Ask::Write => {
                traffic.origin_write_bytes += len;
                Op::Write
            }
            Ask::Flush => {
                traffic.origin_flushes += 1;
                Op::Flush
            }
        };
        self.model.submit(now, ModelIo { number, op, offset, len });
    }

    fn next_event(&self) -> Option<Time> {
        self.model.next_event()
    }

    fn advance(&mut self, now: Time, answered: &mut Vec<u64>) {
        self.model.advance(now, &mut self.done);
        answered.extend(self.done.drain(..).map(|(_, number)| number));
    }

    fn takes_sectors(&self) -> bool {
        true
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }
}
