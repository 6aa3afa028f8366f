// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default policy: a block is kept on evidence, and writes have a zone of their own.
//!
//! - **Writes** are appended to the zone of writes. When that zone is larger than its share, its
//!   oldest segment goes. Blocks that were seen twice more move on to the main zone. A block seen
//!   three times has a hit there: so has each block that was written while it was in the main zone.
//! - **Blocks that are written again** after the zone of writes lost them move on, too. After the
//!   main zone lost them, they begin anew: in a loop larger than the cache each block would push
//!   out the next.
//! - **The gate.** The gate works once the cache is full. A block that a read missed is admitted if
//!   it was seen more often than the gate asks, and twice at least. Else the block waits in the
//!   window, and a ghost then remembers its count.
//! - **The main zone** is a CLOCK (FIFO with reinsertion). A block is copied forward as long as it
//!   has hits, and loses one each time: so hits pay for copies. A sixteenth of each reclaimed
//!   segment becomes free in any case, except for 16 segments that may be copied whole on credit.
//!   Otherwise writes would have to wait until a whole zone of hot blocks was copied.
//! - **Adaptation.** A ghost that comes back shows what was wrong. If the zone of writes lost the
//!   block, its share grows. If the main zone lost it, the share shrinks (`share.rs`), and the gate
//!   rises: admitted blocks pushed out needed ones. If the block was declined, the gate falls. A
//!   step up is sixteen steps down: declined blocks come back all the time, and an admission costs
//!   a write of flash.
//! - **The held gate.** Models of the cache ([`crate::shadow::Duel`]) may find that an LRU does
//!   better. Then the gate is held open until the LRU no longer does. Half of what is reclaimed
//!   becomes free meanwhile, or seven eighths if all requests have changed. If all blocks have hits
//!   of earlier days, copying them forward would take the hand round the zone. New blocks would
//!   leave before they are asked for again.
//!
//! The frequency gate before flash is an idea of Flashield (NSDI 2019) and TinyLFU (ACM TOS 2017).
//! Ghosts by zone come from ARC and 2Q. The page docs/laboratory/policy.md tells what each part is
//! worth.

use alloc::boxed::Box;

use super::fifo::Fifo;
use super::ghost::{self, From, Ghost, Seen};
use super::share::Share;
use super::{Build, Capacity, HITS_MAX, Hold, Policy, Spec, Verdict, Zone};
use crate::fact::types::SegmentId;

pub(super) const SPEC: Spec<Build> = Spec {
    name: "gated",
    summary: "keeps blocks that were read several times, and lets what is read once pass by; writes have a part of their own",
    source: "own; ideas of ARC (FAST 2003), 2Q (VLDB 1994), TinyLFU (TOS 2017), S3-FIFO (SOSP 2023)",
    build: |capacity| Box::new(Gated::new(capacity)),
};

/// Ghosts per block of the cache, in quarters. They take 2.5 bytes; with the index's 8.4 and all
/// else just under 12.
const GHOST_QUARTERS: u64 = 5;
/// The gate in steps: one sighting, the steps up and down, the highest gate. (A gate of one or
/// three sightings that never moves has 0.6 and 0.4 points fewer hits on the loads that are tuned
/// on.)
const SIGHTING: u32 = 256;
const GATE_UP: u32 = 16;
const GATE_DOWN: u32 = 1;
const GATE_MAX: u32 = 5 * SIGHTING;
/// The most steps that a model's gate takes at once. A model of a sample sees fewer returns, so
/// each return moves its gate by more. With this limit a step is half a sighting at most, or the
/// gate would jump. With 1, 16 and 32 the shadow was further from a full simulation.
const PACE_MAX: u32 = 8;
/// Hits for which a block of the zone of writes is kept.
const WRITES_KEEP: u8 = 2;
/// The part of reclaimed segments that may be copied forward, in sixteenths.
const COPIED_SIXTEENTHS: u32 = 15;
/// The part while the gate is held open, and the part if all requests have changed. Copies that
/// were saved up before may be used all the same. (With 15 for both, `sim adapt`'s phases are 5
/// points under LRU over a turnover, and not 0.5.)
const COPIED_SIXTEENTHS_HELD: u32 = 8;
const COPIED_SIXTEENTHS_SHIFTED: u32 = 2;
/// How many segments' worth of copies may be saved up. (Without it: 0.5 points fewer hits.)
const COPIED_SEGMENTS_MAX: u32 = 16;
/// The count of a block of the main zone when it leaves: mostly it was admitted on the second
/// sighting.
const MAIN_COUNT: u8 = 2;
/// A bit in the count of a block in the window: the block was refused.
const REFUSED: u8 = 1 << 7;

struct Gated {
    segment_blocks: u64,
    writes: Fifo,
    main: Fifo,
    share: Share,
    gate: u32,
    ghost: Ghost,
    /// Blocks that may still be copied forward, in sixteenths.
    copies: u32,
    /// How many steps of the gate are taken at once.
    pace: u32,
    /// While the gate is held open it learns nothing, because what happens is not its own doing.
    hold: Hold,
}

impl Gated {
    fn new(capacity: Capacity) -> Self {
        let blocks = capacity.blocks();
        Self {
            segment_blocks: u64::from(capacity.segment_blocks),
            writes: Fifo::default(),
            main: Fifo::default(),
            share: Share::new(blocks),
            gate: 0,
            ghost: Ghost::new(blocks * GHOST_QUARTERS / 4),
            copies: 0,
            pace: capacity.stands_for.min(PACE_MAX),
            hold: Hold::No,
        }
    }

    fn is_held(&self) -> bool {
        self.hold != Hold::No
    }

    /// A ghost came back: the zone that the block left, or that had no room for it, was too small.
    fn learn_share(&mut self, from: From) {
        match from {
            From::Writes => self.share.misses(Zone::Writes),
            From::Main | From::Refused => self.share.misses(Zone::Main),
            From::Declined => {}
        }
    }

    /// A ghost was read: the gate was too low or too high.
    fn learn_gate(&mut self, seen: Seen) {
        match seen.from {
            From::Writes | From::Refused => {}
            From::Main => self.gate = (self.gate + self.pace * GATE_UP).min(GATE_MAX),
            From::Declined => self.gate = self.gate.saturating_sub(self.pace * GATE_DOWN),
        }
    }
}

impl Policy for Gated {
    fn missed(&mut self, key: u64, room: bool) -> Verdict {
        let seen = self.ghost.take(key);
        if let Some(seen) = seen {
            self.learn_share(seen.from);
            if !self.is_held() {
                self.learn_gate(seen);
            }
        }
        let count = seen.map_or(0, |seen| seen.count) + 1;
        let admit = room || self.is_held() || count > 1 && u32::from(count) * SIGHTING > self.gate;
        Verdict { admit, seen: count.min(ghost::COUNT_MAX) }
    }

    fn refused(&mut self, seen: u8) -> u8 {
        seen | REFUSED
    }

    fn seen_waiting(&mut self, seen: u8) -> u8 {
        (seen & !REFUSED).saturating_add(1).min(ghost::COUNT_MAX) | seen & REFUSED
    }

    fn left_window(&mut self, key: u64, seen: u8) {
        // A block that the gate did not decline says nothing about the gate when it comes back.
        let from = if seen & REFUSED == 0 { From::Declined } else { From::Refused };
        self.ghost.put(key, Seen { from, count: seen & !REFUSED });
    }

    fn takes_neighbours(&self, room: bool) -> bool {
        room || self.is_held()
    }

    fn looks_at(&self, key: u64) -> Option<&u64> {
        Some(self.ghost.looks_at(key))
    }

    fn write_missed(&mut self, key: u64) -> u8 {
        let Some(seen) = self.ghost.take(key) else { return 0 };
        self.learn_share(seen.from);
        if seen.from == From::Writes { WRITES_KEEP } else { 0 }
    }

    fn rewritten(&self, zone: Zone, hits: u8) -> u8 {
        if zone == Zone::Main { HITS_MAX } else { (hits + 1).min(HITS_MAX) }
    }

    fn hold_gate(&mut self, hold: Hold) {
        self.hold = hold;
    }

    fn sealed(&mut self, segment: SegmentId, zone: Zone) {
        match zone {
            Zone::Writes => self.writes.push(segment),
            Zone::Main => self.main.push(segment),
        }
    }

    fn victim(&mut self, evictable: &dyn Fn(SegmentId) -> bool) -> Option<SegmentId> {
        let held = self.writes.len() as u64 * self.segment_blocks;
        self.share.begin(held);
        let victim = if self.share.is_exceeded_by(held) {
            self.writes.take(evictable).or_else(|| self.main.take(evictable))
        } else {
            self.main.take(evictable).or_else(|| self.writes.take(evictable))
        };
        if victim.is_some() {
            let segment = self.segment_blocks as u32;
            let sixteenths = match self.hold {
                Hold::No => COPIED_SIXTEENTHS,
                Hold::Open => COPIED_SIXTEENTHS_HELD,
                Hold::Shifted => COPIED_SIXTEENTHS_SHIFTED,
            };
            self.copies = self.copies.min(segment * COPIED_SEGMENTS_MAX * 16) + segment * sixteenths;
        }
        victim
    }

    fn forget(&mut self, segment: SegmentId) {
        if !self.writes.take_out(segment) {
            self.main.take_out(segment);
        }
    }

    fn survives(&mut self, zone: Zone, hits: u8, _: u32, _: u32) -> Option<u8> {
        let survives = match zone {
            Zone::Writes => hits.checked_sub(WRITES_KEEP),
            Zone::Main if self.is_held() || self.gate < SIGHTING => (hits > 0).then_some(0),
            Zone::Main => hits.checked_sub(1),
        };
        let survives = survives.filter(|_| self.copies >= 16);
        self.copies -= 16 * u32::from(survives.is_some());
        survives
    }

    fn dropped(&mut self, key: u64, zone: Zone, hits: u8) {
        self.share.loses(zone);
        let seen = match zone {
            Zone::Writes => Seen { from: From::Writes, count: 1 + hits },
            // A block that is pushed out while the gate is held open says nothing about the height
            // of a gate that isn't held.
            Zone::Main => Seen { from: if self.is_held() { From::Refused } else { From::Main }, count: MAIN_COUNT },
        };
        self.ghost.put(key, seen);
    }

    fn bytes(&self) -> u64 {
        self.ghost.bytes() + self.writes.bytes() + self.main.bytes()
    }
}
