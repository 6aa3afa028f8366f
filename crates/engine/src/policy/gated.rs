// SPDX-License-Identifier: MIT OR Apache-2.0
//! Our own: reads are admitted on evidence, writes have a zone of their own, and both adapt to what comes back.
//!
//! - **Writes** are appended to the zone of writes. When it is larger than its share its oldest segment goes; blocks
//!   that were seen twice more are copied to the main zone.
//! - **The gate.** Once the cache is full a block that a read missed is admitted to the main zone if it was seen
//!   more often than the gate asks; else it waits in the window and is then remembered (as a ghost) with its count.
//! - **The main zone** is a CLOCK (FIFO with reinsertion): a block is copied forward as long as it has hits, and
//!   loses one each time; all of them past three quarters of a segment. So copies are paid for by hits. A sixteenth of what is
//!   reclaimed, dirty blocks aside, becomes free in any case, but for 16 segments that may be copied whole on credit: else writes would have to wait
//!   until a whole zone of hot blocks was copied.
//! - **What adapts.** A ghost that comes back shows what was done wrong. From the zone of writes: that share grows; from
//!   the main zone: it shrinks (`share.rs`), and the gate rises, since what was
//!   admitted pushed out what was needed. One that was declined: the gate falls. A step up is sixteen steps down, because
//!   blocks that were declined come back all the time, and an admission costs a write of flash.
//! - **The open gate.** Where the gate has fallen to nothing and the main zone is full of junk (of what it loses no more than a 24th is missed), first
//!   comers are admitted at once, if a quarter of those that are not come back, and as long as an eighth does: of
//!   new data none can come back at first. One in sixteen is never
//!   admitted at first sight, so that this is known. While the gate is at nothing hits get a block no more than one more round, too.
//! - **The held gate.** A model of the cache beside it ([`crate::shadow::Duel`]) may find that an LRU does better: the gate is held
//!   open then, until it no longer is. Half of what is reclaimed becomes free meanwhile, or seven eighths if all that is asked for has changed: where all
//!   blocks have hits of earlier days, fifteen sixteenths copied forward would take the hand round the zone before what is new has been asked for again.
//!
//! The idea of a frequency gate before flash: Flashield (NSDI 2019), TinyLFU (ACM TOS 2017); ghosts by zone: ARC, 2Q. Measured beside
//! others in docs/laboratory/policy.md. Tried with half and twice (12 traces, 4 sizes, with and without a page cache), the gate's steps and height, the first share and the
//! returns that open the gate moved mean hits by 0.1 points; a largest share of 50 % by -0.3, ghosts for 1 cache full instead of 1.5 by -0.3
//! (in a throw-away simulator, the last two of an earlier form).

use alloc::boxed::Box;

use super::fifo::Fifo;
use super::ghost::{self, From, Ghost, Seen};
use super::share::Share;
use super::{Build, Capacity, HITS_MAX, Hold, Policy, Spec, Verdict, Zone};
use crate::types::SegmentId;

pub(super) const SPEC: Spec<Build> = Spec {
    name: "gated",
    summary: "keeps blocks that were read several times, and lets what is read once pass by; writes have a part of their own",
    source: "own; ideas of ARC (FAST 2003), 2Q (VLDB 1994), TinyLFU (TOS 2017), S3-FIFO (SOSP 2023)",
    build: |capacity| Box::new(Gated::new(capacity)),
};

/// Ghosts per block of the cache, in quarters: 2.5 bytes, with the index's 8.4 and all else just under 12.
const GHOST_QUARTERS: u64 = 5;
/// The gate in steps: one sighting, the steps up and down, the highest.
const SIGHTING: u32 = 256;
const GATE_UP: u32 = 16;
const GATE_DOWN: u32 = 1;
/// Of a sample the gate sees fewer returns, so each moves it by more; but not by more than half a sighting, or it
/// jumps: with 16 and 32, and with 1, the shadow was further from a full simulation.
const PACE_MAX: u32 = 8;
const GATE_MAX: u32 = 5 * SIGHTING;
/// Hits for which a block of the zone of writes is kept. (With a hit for the main zone, too, twelve traces had 0.05 points of hits more, and 3 % more writes to flash, the one
/// of rewrites 12 %.)
const WRITES_KEEP: u8 = 2;
/// The part of reclaimed segments that may be copied forward, in sixteenths, and how many segments' worth may be saved up.
const COPIED_SIXTEENTHS: u32 = 15;
const COPIED_SEGMENTS_MAX: u32 = 16;
/// The part while the gate is held open, and if all that is asked for has changed; what was saved up before may be used all the same.
const COPIED_SIXTEENTHS_HELD: u32 = 8;
const COPIED_SIXTEENTHS_SHIFTED: u32 = 2;
/// What a block of the main zone counts for when it leaves: it was admitted on the second sighting, mostly.
const MAIN_COUNT: u8 = 2;
/// First comers that are looked back on.
const FIRSTS_WINDOW: u32 = 2048;
/// Of the count of a block in the window: it was refused.
const REFUSED: u8 = 1 << 7;
/// One first comer in so many is never admitted at once.
const CONTROL: u64 = 16;
/// The gate opens for first comers if one in so many comes back, and closes if fewer than one in so many do.
const RETURNS_PART: u32 = 4;
const RETURNS_PART_OPEN: u32 = 8;
/// They are counted also while the gate is so high that no first comer is, which nothing halves then: so far.
const RETURNED_MAX: u32 = u32::MAX / RETURNS_PART_OPEN;
/// The main zone is full of junk if no more than one in so many of what it loses are missed, but for so many; and so many of what it loses are looked back on, eight
/// segments at least, as it loses most of one at a time. (If it
/// did not matter what it loses, twelve traces had 38.78 / 19.23 % hits without / behind a page cache instead of 38.91 / 19.34, and a scan beside hot data wrote half as much again to flash. If the
/// gate never opened by itself they had about as many, but data that fits was read 1.08 to 1.27 times in the first round after junk, with caches of 16 MiB to 16 GiB.)
const JUNK_PART: u32 = 24;
const JUNK_MIN: u32 = 32;
const LOST_WINDOW: u32 = 2048;

struct Gated {
    segment_blocks: u64,
    writes: Fifo,
    main: Fifo,
    share: Share,
    gate: u32,
    ghost: Ghost,
    /// Blocks that may still be copied forward, in sixteenths.
    copies: u32,
    /// First comers that were declined, and how many of them came back; halved together.
    firsts: u32,
    returned: u32,
    /// Blocks that the main zone lost, and how many of them were missed; halved together.
    lost: u32,
    lost_missed: u32,
    /// Enough of them, when that was looked at last: where the gate is at nothing. A gate that rises meanwhile leaves it as it is, so that
    /// first comers are welcome again when it has fallen (points under LRU over a turnover of scan-and-hot: 2.3 instead of 5.5).
    welcome: bool,
    /// How many steps of the gate are taken at once.
    pace: u32,
    /// While the gate is held open what it would learn is not its own doing.
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
            firsts: 16,
            returned: 0,
            lost: 0,
            lost_missed: 0,
            welcome: false,
            pace: capacity.stands_for.min(PACE_MAX),
            hold: Hold::No,
        }
    }

    fn is_held(&self) -> bool {
        self.hold != Hold::No
    }

    /// A ghost came back: the zone that it left, or had no room for it, was too small.
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
        self.comes_back(seen == Seen { from: From::Declined, count: 1 });
    }

    /// A first comer that was declined is asked for again, if it is one.
    fn comes_back(&mut self, first: bool) {
        self.returned = (self.returned + u32::from(first)).min(RETURNED_MAX);
    }

    /// The main zone lost a block.
    fn lose(&mut self) {
        self.lost += 1;
        let window = LOST_WINDOW / self.pace;
        if self.lost >= window.max(8 * self.segment_blocks as u32) {
            (self.lost, self.lost_missed) = (self.lost / 2, self.lost_missed / 2);
        }
    }

    /// Whether next to nothing of what the main zone loses is missed.
    fn loses_junk(&self) -> bool {
        self.lost_missed * JUNK_PART <= self.lost + JUNK_MIN / self.pace
    }

    /// Whether first comers are worth their place: enough of them come back, and what they push out is junk.
    fn welcomes(&self) -> bool {
        self.welcome && self.loses_junk()
    }

    /// Whether a first comer is admitted at once, where the gate is at nothing.
    fn open_to(&mut self, key: u64) -> bool {
        let part = if self.welcome { RETURNS_PART_OPEN } else { RETURNS_PART };
        self.welcome = self.returned * part > self.firsts;
        // Bits of the mixed key that neither choose the ghost's set nor are its fingerprint.
        let control = (ghost::mix(key) >> 16).is_multiple_of(CONTROL);
        if !control && self.welcomes() {
            return true;
        }
        self.firsts += 1;
        if self.firsts >= FIRSTS_WINDOW / self.pace {
            (self.firsts, self.returned) = (self.firsts / 2, self.returned / 2);
        }
        false
    }
}

impl Policy for Gated {
    fn missed(&mut self, key: u64, room: bool) -> Verdict {
        let seen = self.ghost.take(key);
        if let Some(seen) = seen {
            self.learn_share(seen.from);
            // What leaves while the gate is held is marked as refused, and nothing else is refused then but by a budget.
            if seen.from == From::Main || self.is_held() && seen.from == From::Refused {
                self.lost_missed = (self.lost_missed + 1).min(self.lost);
            }
            if !self.is_held() {
                self.learn_gate(seen);
            }
        }
        let count = seen.map_or(0, |seen| seen.count) + 1;
        let admit = room || self.is_held() || u32::from(count) * SIGHTING > self.gate && (count > 1 || self.open_to(key));
        Verdict { admit, seen: count.min(ghost::COUNT_MAX) }
    }

    fn refused(&mut self, seen: u8) -> u8 {
        seen | REFUSED
    }

    fn seen_waiting(&mut self, seen: u8) -> u8 {
        self.comes_back(seen == 1);
        (seen & !REFUSED).saturating_add(1).min(ghost::COUNT_MAX) | seen & REFUSED
    }

    fn left_window(&mut self, key: u64, seen: u8) {
        // What the gate did not decline says nothing about it when it comes back.
        let from = if seen & REFUSED == 0 { From::Declined } else { From::Refused };
        self.ghost.put(key, Seen { from, count: seen & !REFUSED });
    }

    fn takes_neighbours(&self, room: bool) -> bool {
        match self.hold {
            _ if room => true,
            // What was hot is no longer.
            Hold::Shifted => true,
            Hold::Open => self.loses_junk(),
            Hold::No => self.welcomes() && self.gate < SIGHTING,
        }
    }

    fn looks_at(&self, key: u64) -> Option<&u64> {
        Some(self.ghost.looks_at(key))
    }

    fn write_missed(&mut self, key: u64) -> u8 {
        let Some(seen) = self.ghost.take(key) else { return 0 };
        self.learn_share(seen.from);
        if matches!(seen.from, From::Declined | From::Refused) { 0 } else { WRITES_KEEP }
    }

    fn rewritten(&self, zone: Zone, hits: u8) -> u8 {
        let hits = (hits + 1).min(HITS_MAX);
        if zone == Zone::Main { hits.max(WRITES_KEEP) } else { hits }
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

    fn survives(&mut self, zone: Zone, hits: u8, kept: u32, slots: u32) -> Option<u8> {
        let survives = match zone {
            Zone::Writes => (hits >= WRITES_KEEP).then_some(0),
            Zone::Main if self.is_held() || self.gate < SIGHTING || kept >= slots - slots / 4 => (hits > 0).then_some(0),
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
            Zone::Main => {
                self.lose();
                // What is pushed out while the gate is held open says nothing about the height of one that is not.
                Seen { from: if self.is_held() { From::Refused } else { From::Main }, count: MAIN_COUNT }
            }
        };
        self.ghost.put(key, seen);
    }

    fn bytes(&self) -> u64 {
        self.ghost.bytes() + self.writes.bytes() + self.main.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gate is high for weeks, and each block is asked for twice in a short time.
    #[test]
    fn returns_that_nothing_halves_are_counted_so_far() {
        let mut gated = Gated::new(Capacity { segments: 16, segment_blocks: 16, stands_for: 1 });
        gated.returned = RETURNED_MAX - 1;
        for _ in 0..3 {
            gated.seen_waiting(1);
        }
        assert_eq!(gated.returned, RETURNED_MAX);
        assert!((0..2).any(|key| gated.missed(key, false).admit), "who comes first is welcome");
    }
}
