// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads of the crash sweep are short. Each is there for one path through the engine, and
//! asserts at its end that it took that path.

use flashfront_engine::{Durability, Mode, RequestOp};

use super::members::{mirror, promote, remove, replace, vacate};
use super::modes::{killed, modes, passthrough};
use super::stage::Stage;
use super::volumes::{LARGEST_PART, SHARES, WEIGHTS, grow, volumes};
use super::workload::{Workload, small};
use crate::spec::{OriginSpec, WorldSpec};

/// A block in sectors.
const B: u64 = 8;

/// All workloads, in the order in which they are swept.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "writeback",
        summary: "writes of all kinds, FLUSH, FUA, idle destage",
        world: || small(Mode::Writeback, 128),
        run: writeback,
        again: false,
    },
    Workload {
        name: "always",
        summary: "writes acknowledged when durable",
        world: || {
            let mut spec = small(Mode::Writeback, 128);
            spec.options.durability = Durability::Always;
            spec
        },
        run: writeback,
        again: false,
    },
    Workload {
        name: "writethrough",
        summary: "writes through, reads promoted before and after the origin's flush",
        world: || small(Mode::Writethrough, 128),
        run: past,
        again: false,
    },
    Workload {
        name: "writearound",
        summary: "writes around what reads have cached",
        world: || small(Mode::Writearound, 128),
        run: past,
        again: false,
    },
    Workload {
        name: "passthrough",
        summary: "a cache that is still dirty and takes nothing new",
        world: || small(Mode::Writeback, 128),
        run: passthrough,
        again: false,
    },
    Workload {
        name: "bypass",
        summary: "a sequential stream past clean and dirty blocks",
        world: || {
            let mut spec = small(Mode::Writeback, 192);
            spec.options.sequential_bypass_bytes = 64 << 10;
            spec
        },
        run: bypass,
        again: false,
    },
    Workload {
        name: "discard",
        summary: "discards of dirty, clean and missing blocks, written again",
        world: || small(Mode::Writeback, 192),
        run: discard,
        again: false,
    },
    Workload {
        name: "zeroes",
        summary: "short and long zeroes over dirty and clean blocks",
        world: || small(Mode::Writeback, 192),
        run: zeroes,
        again: false,
    },
    Workload {
        name: "modes",
        summary: "every mode after every other one, online, with writes in flight",
        world: || small(Mode::Writeback, 96),
        run: modes,
        again: false,
    },
    Workload {
        name: "volumes",
        summary: "volumes come, are renamed and go, with dirty blocks destaged or given up, beside one that stays",
        world: || small(Mode::Writeback, 128),
        run: volumes,
        again: false,
    },
    Workload {
        name: "grow",
        summary: "volumes grow, and their new parts are written at once",
        world: || small(Mode::Writeback, 96),
        run: grow,
        again: false,
    },
    Workload {
        name: "destage",
        summary: "rewrites while their blocks are being destaged",
        world: || small(Mode::Writeback, 128),
        run: destage,
        again: false,
    },
    Workload {
        name: "reclaim",
        summary: "more writes than the cache holds: destage, freed segments, checkpoints",
        world: || WorldSpec { origin_ns: 200_000, ..small(Mode::Writeback, 288) },
        run: reclaim,
        again: false,
    },
    Workload {
        name: "grown",
        summary: "as `reclaim`, in a cache that has grown: a third of its segments came then",
        world: || WorldSpec { origin_ns: 200_000, grown_segments: 8, ..small(Mode::Writeback, 288) },
        run: reclaim,
        again: false,
    },
    Workload {
        name: "survivors",
        summary: "clean blocks that are read again are copied forward, and some of them written past",
        world: || WorldSpec { origin_ns: 200_000, ..small(Mode::Writearound, 416) },
        run: survivors,
        again: false,
    },
    SHARES,
    LARGEST_PART,
    WEIGHTS,
    Workload {
        name: "neighbours",
        summary: "reads around misses of a slow origin, others that wait for them, and writes of what comes along",
        world: || WorldSpec { origin_ns: 1_000_000, ..small(Mode::Writearound, 256) },
        run: neighbours,
        again: false,
    },
    Workload {
        name: "detach",
        summary: "drain and stop: the origin alone",
        world: || small(Mode::Writeback, 128),
        run: detach,
        again: false,
    },
    Workload {
        name: "stop",
        summary: "a stop with dirty blocks: sealing and the last checkpoint",
        world: || small(Mode::Writeback, 128),
        run: stop,
        again: false,
    },
    Workload {
        name: "lanes",
        summary: "four lanes: requests and FLUSHes across them",
        world: || WorldSpec { lanes: 4, stripe_blocks: 4, ..small(Mode::Writeback, 128) },
        run: lanes,
        again: false,
    },
    Workload {
        name: "apart",
        summary: "the same with lanes that work apart",
        world: || WorldSpec { lanes: 4, stripe_blocks: 4, apart: Some(0), ..small(Mode::Writeback, 128) },
        run: lanes,
        again: false,
    },
    Workload {
        name: "mail",
        summary: "the same with messages that are on their way for a while",
        world: || WorldSpec { lanes: 4, stripe_blocks: 4, by_mail: true, ..small(Mode::Writeback, 128) },
        run: lanes,
        again: false,
    },
    Workload {
        name: "origins",
        summary: "two origins in two modes, the second with 4 KiB sectors",
        world: || {
            let mut spec = small(Mode::Writeback, 96);
            let second = OriginSpec { size_bytes: 96 << 12, logical_block_bytes: 4096, mode: Mode::Writethrough };
            spec.origins.push(second);
            spec
        },
        run: origins,
        again: false,
    },
    Workload {
        name: "mirror-lead",
        summary: "the lead of two cache devices dies and is replaced; either one may be gone after the cut",
        world: || WorldSpec { mirrored: true, ..small(Mode::Writeback, 128) },
        run: |on| mirror(on, 0),
        again: false,
    },
    Workload {
        name: "mirror-other",
        summary: "the other one dies and is replaced",
        world: || WorldSpec { mirrored: true, ..small(Mode::Writeback, 128) },
        run: |on| mirror(on, 1),
        again: false,
    },
    Workload {
        name: "replace",
        summary: "the cache moves to another device and back, warm, while it is written and read",
        world: || small(Mode::Writeback, 128),
        run: replace,
        again: false,
    },
    Workload {
        name: "replace-lanes",
        summary: "the same with four lanes whose messages are on their way for a while",
        world: || WorldSpec { lanes: 4, stripe_blocks: 4, by_mail: true, ..small(Mode::Writeback, 128) },
        run: replace,
        again: false,
    },
    Workload {
        name: "remove-lead",
        summary: "the lead of two cache devices is removed: the other one gets clean data first",
        world: || WorldSpec { mirrored: true, ..small(Mode::Writeback, 128) },
        run: |on| remove(on, 0),
        again: false,
    },
    Workload {
        name: "remove-other",
        summary: "the other one is removed",
        world: || WorldSpec { mirrored: true, ..small(Mode::Writeback, 128) },
        run: |on| remove(on, 1),
        again: false,
    },
    Workload {
        name: "promote",
        summary: "the other one of two cache devices becomes the lead, and dies in the end",
        world: || WorldSpec { mirrored: true, ..small(Mode::Writeback, 128) },
        run: promote,
        again: false,
    },
    Workload {
        name: "killed",
        summary: "a daemon is killed, and what its devices have not flushed is the next one's",
        world: || small(Mode::Writearound, 128),
        run: killed,
        again: false,
    },
    Workload {
        name: "replay",
        summary: "a second power cut at every event of each replay",
        world: || small(Mode::Writeback, 64),
        run: replay,
        again: true,
    },
    Workload {
        name: "vacate",
        summary: "the end of the cache is emptied, as before it shrinks, while clients write; and is used again",
        world: || WorldSpec { segments_per_lane: 40, ..small(Mode::Writeback, 480) },
        run: vacate,
        again: false,
    },
    super::ordered::ORDERED,
    super::ordered::ORDERED_LANES,
    super::ordered::ORDERED_MAIL,
    super::ordered::ORDERED_NOTES,
    super::ordered::ORDERED_GROUPS,
    super::ordered::ORDERED_GROUPS_LANES,
    super::ordered::ORDERED_GROUPS_NOTES,
];

fn writeback(on: &mut Stage<'_>) {
    for round in 0..3 {
        on.write(0, round * B, 4 * B, false);
        on.write(0, 40 * B + 3, 2, false);
        on.write(0, 20 * B + round, 2 * B, round == 1);
        on.wait_down_to(2);
        on.flush(0);
        on.write(0, 2 * B, 3 * B - 1, false);
        on.read(0, 0, 30 * B);
        on.wait_down_to(1);
    }
    on.write(0, 100 * B, 20 * B, true);
    on.wait_down_to(0);
    on.write(0, 60 * B, B, false);
    on.pass(400_000_000);
}

fn past(on: &mut Stage<'_>) {
    on.read(0, 0, 40 * B);
    on.wait_down_to(0);
    on.write(0, 4 * B, 8 * B, false);
    on.write(0, 20 * B + 5, 4, true);
    on.read(0, 0, 24 * B);
    on.wait_down_to(1);
    on.write(0, 6 * B, 2 * B, false);
    on.read(0, 60 * B, 10 * B);
    on.wait_down_to(0);
    on.flush(0);
    on.wait_down_to(0);
    on.write(0, 62 * B, 3 * B, false);
    on.write(0, 5 * B, B, true);
    on.read(0, 0, 70 * B);
    on.wait_down_to(0);
    on.pass(50_000_000);
}

fn bypass(on: &mut Stage<'_>) {
    on.write(0, 40 * B, 20 * B, true);
    on.read(0, 80 * B, 10 * B);
    on.wait_down_to(0);
    on.drain();
    on.write(0, 100 * B, 6 * B, true);
    on.wait_down_to(0);
    for nth in 0..20 {
        on.write(0, (30 + nth * 6) * B, 6 * B, nth % 7 == 6);
        on.wait_down_to(2);
    }
    on.flush(0);
    on.wait_down_to(0);
    on.read(0, 30 * B, 100 * B);
    on.wait_down_to(0);
    on.pass(20_000_000);
}

fn discard(on: &mut Stage<'_>) {
    on.write(0, 0, 40 * B, true);
    on.read(0, 100 * B, 20 * B);
    on.wait_down_to(0);
    on.change(RequestOp::Discard, 0, 4 * B, 8 * B, false);
    on.change(RequestOp::Discard, 0, 104 * B + 3, 40, true);
    on.write(0, 6 * B, 2 * B, false);
    on.wait_down_to(0);
    on.flush(0);
    on.wait_down_to(0);
    on.write(0, 105 * B, B, false);
    on.change(RequestOp::Discard, 0, 20 * B, 30 * B, false);
    on.write(0, 30 * B + 1, 20, true);
    on.wait_down_to(0);
    on.drain();
    on.change(RequestOp::Discard, 0, 0, 10 * B, true);
    on.write(0, 2 * B, B, true);
    on.wait_down_to(0);
}

fn zeroes(on: &mut Stage<'_>) {
    let zeroes = RequestOp::WriteZeroes { may_discard: true };
    on.write(0, 0, 60 * B, true);
    on.read(0, 100 * B, 40 * B);
    on.wait_down_to(0);
    on.change(zeroes, 0, 4 * B, 2 * B, false);
    on.change(zeroes, 0, 10 * B + 4, 20 * B, true);
    on.wait_down_to(0);
    on.change(RequestOp::WriteZeroes { may_discard: false }, 0, 95 * B, 30 * B, false);
    on.write(0, 100 * B, 4 * B, false);
    on.wait_down_to(0);
    on.flush(0);
    on.wait_down_to(0);
    on.change(zeroes, 0, 101 * B, 2 * B, true);
    on.wait_down_to(0);
    on.pass(20_000_000);
}

fn destage(on: &mut Stage<'_>) {
    for nth in 0..12 {
        on.write(0, nth * 9 * B, 4 * B, false);
    }
    on.flush(0);
    on.wait_down_to(0);
    on.control(flashfront_engine::Control::Drain(true));
    for nth in 0..6 {
        on.write(0, nth * 18 * B + B, 2 * B, nth == 3);
        on.wait_down_to(2);
    }
    on.flush(0);
    on.wait_down_to(0);
    on.control(flashfront_engine::Control::Drain(false));
    on.write(0, 0, 60 * B, false);
    on.pass(300_000_000);
    on.write(0, 9 * B, B, true);
    on.wait_down_to(0);
}

fn reclaim(on: &mut Stage<'_>) {
    for nth in 0..44 {
        on.write(0, nth * 37 % 18 * 16 * B, 15 * B, false);
        on.wait_down_to(3);
        if nth % 11 == 10 {
            on.flush(0);
        }
    }
    on.wait_down_to(0);
    on.pass(120_000_000);
    on.expect(on.evicted() > 0 && on.checkpoints() > 1, "eviction and checkpoints");
}

fn survivors(on: &mut Stage<'_>) {
    for nth in 0..36 {
        on.read(0, nth * 37 % 26 * 16 * B, 15 * B);
        on.wait_down_to(1);
        on.read(0, 37 % 26 * 16 * B, 6 * B);
        if nth % 6 == 5 {
            on.write(0, (nth * 37 % 26 * 16 + 2) * B, 2 * B, nth % 12 == 5);
        }
        on.wait_down_to(1);
    }
    on.wait_down_to(0);
    on.expect(on.evicted() > 0, "eviction");
}

fn neighbours(on: &mut Stage<'_>) {
    on.read(0, 250 * B, B);
    on.wait_down_to(0);
    for nth in 0..14 {
        let unit = nth * 16 * B;
        // A disk that is slow to say what it has read.
        on.hold_read(0, 5_000_000);
        on.read(0, unit + 4 * B, B);
        on.read(0, unit + 5 * B - 3, 6);
        on.write(0, unit + 9 * B, 2 * B, false);
        // The write is over before the reads are.
        on.wait_down_to(2);
        on.read(0, unit + 8 * B, 3 * B);
        on.wait_down_to((nth % 2) as usize);
    }
    on.wait_down_to(0);
    on.expect(on.joined() > 14, "reads that join others");
    on.flush(0);
    on.wait_down_to(0);
}

fn detach(on: &mut Stage<'_>) {
    for nth in 0..6 {
        on.write(0, nth * 20 * B, 5 * B + 1, nth == 2);
    }
    on.read(0, 0, 100 * B);
    on.wait_down_to(0);
    on.drain();
    on.stop();
}

fn stop(on: &mut Stage<'_>) {
    for nth in 0..6 {
        on.write(0, nth * 20 * B, 5 * B + 1, nth == 2);
    }
    on.read(0, 0, 100 * B);
    on.wait_down_to(0);
    on.write(0, 3 * B, 2 * B, false);
    on.write(0, 90 * B, 2 * B, false);
    on.stop();
}

fn lanes(on: &mut Stage<'_>) {
    for nth in 0..5 {
        on.write(0, nth * 7 * B + 1, 19 * B, nth == 3);
        on.write(0, (nth + 60) * B, B, false);
        on.flush(0);
        on.read(0, nth * 5 * B, 30 * B);
        on.wait_down_to(3);
    }
    on.wait_down_to(0);
    on.pass(150_000_000);
    on.change(RequestOp::WriteZeroes { may_discard: true }, 0, 10 * B, 30 * B, true);
    on.flush(0);
    on.wait_down_to(0);
}

fn origins(on: &mut Stage<'_>) {
    for nth in 0..4 {
        for origin in [0, 1] {
            on.write(origin, nth * 6 * B + 3, 9 * B, nth == 2);
            on.read(origin, nth * 10 * B, 14 * B);
        }
        on.flush(nth as usize % 2);
        on.wait_down_to(2);
    }
    on.mode(1, Mode::Writeback);
    on.write(1, 4 * B + 2, 3, false);
    on.mode(0, Mode::Writearound);
    on.write(0, 4 * B + 2, 3, false);
    on.wait_down_to(0);
    on.flush(0);
    on.flush(1);
    on.wait_down_to(0);
    on.pass(20_000_000);
}

fn replay(on: &mut Stage<'_>) {
    on.write(0, 0, 20 * B, true);
    on.read(0, 40 * B, 8 * B);
    on.wait_down_to(0);
    on.write(0, 4 * B, 2 * B, false);
    on.flush(0);
    on.write(0, 10 * B + 1, B, false);
    on.wait_down_to(0);
    on.mode(0, Mode::Writethrough);
    on.write(0, 41 * B, 2 * B, false);
    on.write(0, 5 * B, B, true);
    on.wait_down_to(0);
    on.pass(10_000_000);
}
