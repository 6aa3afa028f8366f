// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU time of the engine for one 4 KiB request, payload included, devices that do nothing:
//! `cargo test --release -p flashfront-sim --test throughput -- --ignored --nocapture`.
//! A figure to look at, never a condition.

use flashfront_device::{Arena, Rng};
use flashfront_engine::{
    BLOCK_BYTES, Effect, Effects, Engine, Input, Lba, Memory, Op, OriginId, Request, RequestId, RequestOp, Time,
};
use flashfront_sim::{OriginSpec, WorldSpec};

struct Bench {
    engine: Engine,
    arena: Arena,
    now: u64,
    answered: u64,
}

impl Bench {
    /// Applies an input and all that follows from it; every I/O succeeds at once, and reads leave the buffer alone.
    fn apply(&mut self, input: Input) {
        let (mut inputs, mut effects) = (vec![input], Effects::default());
        while let Some(input) = inputs.pop() {
            self.now += 100;
            self.engine.apply(Time(self.now), input, &mut self.arena, &mut effects);
            for effect in effects.0.drain(..) {
                match effect {
                    Effect::Io(io) => {
                        // The commit headers that reclaim reads are not there: a zeroed one sends it to the index.
                        if let (Op::Read, Some(span)) = (io.op, io.span) {
                            self.arena.zero(span);
                        }
                        inputs.push(Input::IoDone { token: io.token, result: Ok(()) });
                    }
                    Effect::Reply { result, .. } => {
                        assert_eq!(result, Ok(()));
                        self.answered += 1;
                    }
                    Effect::Event(_) => {}
                }
            }
        }
    }
}

/// Time that this thread has been on a CPU: a busy machine doesn't count.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

#[test]
#[ignore = "prints a time, proves nothing"]
fn requests_per_second_of_cpu() {
    let spec = WorldSpec {
        segment_blocks: 256,
        segments_per_lane: 4096,
        stripe_blocks: 1024,
        origins: vec![OriginSpec { size_bytes: 16 << 30, ..WorldSpec::default().origins[0] }],
        ..WorldSpec::default()
    };
    let mut superblock = spec.superblock();
    superblock.epoch = 1;
    let mut options = spec.engine_options();
    options.dirty_limit_blocks = Some(u64::MAX);
    let engine = Engine::new(superblock.clone(), options, Time(0)).expect("indexable");
    let mut bench = Bench { engine, arena: Arena::new(256 << 20), now: 0, answered: 0 };
    // The checkpoints of a fresh cache must be read: serve these two by hand.
    let mut effects = Effects::default();
    bench.engine.apply(Time(0), Input::Timer, &mut bench.arena, &mut effects);
    for area in 0..2 {
        let Some(Effect::Io(io)) = effects.0.pop() else { panic!("one read at a time") };
        let block = superblock.empty_checkpoints().swap_remove(area).1;
        bench.arena.bytes_mut(io.span.expect("a read")).copy_from_slice(&block);
        let done = Input::IoDone { token: io.token, result: Ok(()) };
        if area == 0 {
            bench.engine.apply(Time(0), done, &mut bench.arena, &mut effects);
        } else {
            bench.apply(done);
        }
    }
    let buf = bench.arena.try_alloc(BLOCK_BYTES as u32).expect("a buffer");
    let mut rng = Rng::new(1);
    let blocks = (16 << 30) / BLOCK_BYTES;
    for (name, op, count) in [("write", RequestOp::Write, 600_000u64), ("rewrite", RequestOp::Write, 200_000)] {
        let begun = cpu_ns();
        for id in 0..count {
            let lba = Lba(rng.below(if name == "write" { blocks } else { 1000 }) * 8);
            let (id, origin, buf) = (RequestId(id), OriginId(0), Some(buf));
            bench.apply(Input::Request(Request { id, origin, op, lba, sectors: 8, buf, fua: false }));
        }
        let ns = (cpu_ns() - begun) / count;
        println!("{name}: {ns} ns a request, {} requests per second", 1_000_000_000 / ns.max(1));
    }
    assert_eq!(bench.answered, 800_000);
}
