// SPDX-License-Identifier: MIT OR Apache-2.0
//! The phases on a model, in virtual time.

use flashfront_engine::{Op, Time};

use super::{COUNT, PHASES, Phase, Times};
use crate::Rng;
use crate::sim::{Known, Model, ModelIo};

/// Reads of a phase, for each that is in flight: a disk makes some 300 in the time of the longest.
const READS: u64 = 200;

impl Times {
    /// The times of a device that simulations know.
    #[must_use]
    pub fn of(known: &Known) -> Self {
        let mut times = [0.0; COUNT];
        for (time, phase) in times.iter_mut().zip(&PHASES) {
            let mut model = known.model.build(known.size_bytes);
            *time = read(&mut *model, phase, known.size_bytes);
        }
        Self(times)
    }
}

/// The time of a read of that phase.
fn read(model: &mut dyn Model, phase: &Phase, device_bytes: u64) -> f64 {
    let (mut rng, mut now, mut done) = (Rng::new(1), Time(0), Vec::new());
    let reads = READS * phase.depth as u64;
    let (mut asked, mut answered) = (0, 0);
    while answered < reads {
        while asked < reads && asked - answered < phase.depth as u64 {
            let offset = phase.offset(asked, device_bytes, &mut rng);
            model.submit(now, ModelIo { number: asked, op: Op::Read, offset, len: phase.len });
            asked += 1;
        }
        let Some(next) = model.next_event() else { break };
        now = now.max(next);
        model.advance(now, &mut done);
        answered += done.drain(..).len() as u64;
    }
    now.0 as f64 / answered.max(1) as f64
}
