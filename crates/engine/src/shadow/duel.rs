// SPDX-License-Identifier: MIT OR Apache-2.0
//! Duels: small models of the cache say whether the policy's gate should be held open.
//!
//! When clients' requests change, the gate costs a second miss of each block. So a sample of the
//! blocks is seen by three models: an LRU, the policy with its gate, and the policy as it is run.
//! The sample has up to 4,096 blocks, and small caches have a sample, too.
//!
//! If the LRU is ahead of the gate, the gate is held open. The lead is counted over about a
//! turnover. The lead must be half a hit of a hundred, and more than chance would make of two
//! models that are equally good. The gate stays open until the lead is half of that. So a scan that
//! comes just then is cached for a turnover at most, as the LRU would cache the scan. Without a
//! look at chance, random blocks of ten times the cache were written to flash twice as often, for
//! no hit more.
//!
//! When all requests have changed ([`Shift`]), the gate is held open on trial for half a round. A
//! round is as many accesses as the cache has blocks. The gate stays open longer if the LRU is
//! ahead then. Blocks that were hot before are then hardly copied forward for four rounds. There is
//! no trial after a trial in vain, nor while the LRU is behind, as with loops.
//!
//! Measured with data of 0.8 caches that changes every six rounds: 0.0 to 1.0 points under LRU over
//! a turnover. Without the trial it was 2.3 to 6.9. A lead of nothing means little: of 4,096 blocks
//! the repetitions alone are worth 0.2 points. But such a lead was enough on all traces.
//!
//! An open gate may be in vain: a burst that an LRU likes costs blocks that were gathered over a
//! long time. Then the policy as it is run lags behind the gate, and the LRU must be ahead by twice
//! as much the next time. The lead that is asked for is halved when an open gate has paid. It is
//! also halved when the LRU has had more hits than the gate, by four times the loss of an open gate
//! in vain. Otherwise one bad day would be remembered for good (measured:
//! docs/laboratory/policy.md).

use core::ops::Range;

use super::lru::Lru;
use super::model::{Model, Shape};
use super::shift::Shift;
use super::{Access, SALT, apply, is_sampled, scaled};
use crate::policy::{self, Hold, mix};

/// The most blocks of the sample.
const SAMPLED_BLOCKS_MAX: u64 = 1 << 12;
/// The LRU's share of the cache's blocks, in eighths: about what a log holds beside free and dead
/// room. An LRU of all blocks has hits that no log of that size reaches, and had the gate held open
/// in vain. With 33/64 of the blocks that `cp_vscsi_al` touches 46.0 % were hits, with 32/64 51.8
/// %. With seven eighths they are 52.9 % and 51.2 % (docs/laboratory/loads.md).
const LRU_EIGHTHS: u64 = 7;
/// The lead that is asked of an LRU at first, and at most, in hits per access. With the largest
/// lead a change of everything is still seen.
const LEAD_FIRST: f64 = 0.005;
const LEAD_MAX: f64 = 0.3;
/// The lead that is asked for, in standard deviations of chance.
const LEAD_SIGMAS: f64 = 4.0;
/// The lead counts up to this many times what is asked for. Without hits of any model the lead
/// falls to the half in 0.9 turnovers: ln(1.25 / 0.5).
const LEAD_COUNTED: f64 = 1.25;
/// Hits, as a share of the cache. If the policy as it is run is so far ahead of the gate, or behind
/// it, the lead that is asked for changes.
const PAID: f64 = 0.05;
/// Hits that the LRU must have more than the gate before the lead that is asked for is halved, as a
/// share of the cache. Each access counts for a little of a hit: without any hits, 67 rounds are
/// enough.
const FORGONE: f64 = 4.0 * PAID;
const FORGIVEN: f64 = 0.003;
/// How long a trial is, in accesses, as a share of the cache. If the gate stays open, blocks that
/// were hot before are hardly copied forward for [`SETTLED`].
const TRIAL: f64 = 0.5;
const SETTLED: f64 = 4.0;

/// A duel: three ways to run one cache.
pub struct Duel {
    /// The sample: one block in 2^bits.
    bits: u32,
    lru: Lru,
    gated: Model,
    run: Model,
    score: Score,
}

/// The score of a duel: which model is ahead.
#[derive(Debug)]
struct Score {
    /// Blocks of the cache, as far as the sample sees them.
    blocks: f64,
    /// The lead of the LRU over the gate in hits per access: an exponential mean over a turnover.
    lead: f64,
    /// How often only one of the two has a block: likewise an exponential mean.
    differ: f64,
    /// The lead that is asked for, if chance doesn't ask for more.
    asked: f64,
    /// Hits that the policy as it is run had more than the gate, since `asked` changed.
    paid: f64,
    /// Hits that the LRU had more than the gate since then, while the gate was not held open.
    forgone: f64,
    shift: Shift,
    /// Accesses so far, and how many there had been when a trial began.
    accesses: u64,
    shifted_at: Option<u64>,
    hold: Hold,
}

impl Score {
    fn new(blocks: u64) -> Self {
        let blocks = blocks as f64;
        Self {
            blocks,
            lead: 0.0,
            differ: 0.0,
            asked: LEAD_FIRST,
            paid: 0.0,
            forgone: 0.0,
            shift: Shift::new(blocks),
            accesses: 0,
            shifted_at: None,
            hold: Hold::No,
        }
    }

    /// Notes an access before the cache is full.
    fn fill(&mut self, read: bool, hit: bool) {
        self.accesses += 1;
        if read {
            self.shift.note(hit);
        }
    }

    /// The standard deviation of the lead, if both models are equally good. That is the deviation
    /// of an exponential mean over `blocks` of a number that is 1 as often as -1.
    fn chance(&self) -> f64 {
        let variance = self.differ / (2.0 * self.blocks);
        // Without the standard library roots are of integers.
        ((variance * 1e18) as u64).isqrt() as f64 / 1e9
    }

    fn ask(&mut self, asked: f64) {
        (self.asked, self.paid, self.forgone) = (asked, 0.0, 0.0);
    }

    /// Counts an access. `read`: the access is a read. `since`: the moment since when the LRU has
    /// the block. `gated` and `run`: the other two models have the block.
    fn count(&mut self, read: bool, since: Option<u64>, gated: bool, run: bool) {
        let points = |hit: bool| f64::from(u8::from(hit));
        self.lead += (points(since.is_some()) - points(gated) - self.lead) / self.blocks;
        self.differ += (points(since.is_some() != gated) - self.differ) / self.blocks;
        self.paid += points(run) - points(gated);
        if self.hold == Hold::No {
            self.forgone = (self.forgone + points(since.is_some()) - points(gated) + FORGIVEN).max(0.0);
        }
        if self.paid > PAID * self.blocks || self.forgone > FORGONE * self.blocks {
            self.ask((self.asked / 2.0).max(LEAD_FIRST));
        } else if self.paid < -PAID * self.blocks {
            self.ask((self.asked * 2.0).min(LEAD_MAX));
        }
        let asked = self.asked.max(LEAD_SIGMAS * self.chance());
        self.lead = self.lead.min(asked * LEAD_COUNTED);
        self.accesses += 1;
        let shifted = read && self.shift.count(self.accesses, since, gated);
        let ago = self.shifted_at.map_or(f64::INFINITY, |when| (self.accesses - when) as f64 / self.blocks);
        let on_trial = ago < TRIAL;
        let begins = shifted && !on_trial && self.lead >= 0.0 && self.asked <= LEAD_FIRST;
        if begins {
            self.shifted_at = Some(self.accesses);
        }
        if begins || on_trial {
            // There is only one trial at a time.
            self.shift.end();
        }
        let ahead = self.lead > if self.hold == Hold::No { asked } else { asked / 2.0 };
        self.hold = match self.hold {
            _ if begins => Hold::Shifted,
            held if on_trial => held,
            _ if !ahead => Hold::No,
            Hold::Shifted if ago < SETTLED => Hold::Shifted,
            _ => Hold::Open,
        };
    }
}

impl Duel {
    /// The smallest cache whose gate is ever held open. With fewer blocks, hits say nothing.
    pub const BLOCKS_MIN: u64 = 1 << 10;

    /// A duel for a cache of that shape as it is run; `None` if it is too small.
    #[must_use]
    pub fn of(cache: Shape, policy: policy::Build) -> Option<Self> {
        Self::sampled(cache, policy, 0)
    }

    /// A duel with at most one block in 2^`bits_min` in the sample.
    pub(super) fn sampled(cache: Shape, policy: policy::Build, bits_min: u32) -> Option<Self> {
        let blocks = cache.blocks() + cache.window_blocks as u64;
        if blocks < Self::BLOCKS_MIN {
            return None;
        }
        let bits = blocks.div_ceil(SAMPLED_BLOCKS_MAX).next_power_of_two().trailing_zeros().max(bits_min);
        let model = || Model::new(scaled(cache, 2, bits), policy);
        let sampled = blocks >> bits;
        let lru = Lru::new((sampled * LRU_EIGHTHS / 8) as usize);
        Some(Self { bits, lru, gated: model(), run: model(), score: Score::new(sampled) })
    }

    /// Notes that a request does this to these blocks. Returns whether the gate is to be held open,
    /// if that has changed.
    pub fn note(&mut self, access: Access, keys: Range<u64>) -> Option<Hold> {
        let before = self.score.hold;
        keys.for_each(|key| self.note_hashed(access, key, mix(key ^ SALT)));
        (self.score.hold != before).then_some(self.score.hold)
    }

    /// Notes an access to one block, whose hash is known.
    pub(super) fn note_hashed(&mut self, access: Access, key: u64, hash: u64) {
        if is_sampled(hash, self.bits) {
            self.sample(access, key);
        }
    }

    /// Whether the gate is to be held open.
    pub(super) fn hold(&self) -> Hold {
        self.score.hold
    }

    /// The sample: one block in 2^bits.
    pub(super) fn bits(&self) -> u32 {
        self.bits
    }

    fn sample(&mut self, access: Access, key: u64) {
        let [gated, run] = [&mut self.gated, &mut self.run].map(|model| {
            let before = model.totals().hits;
            apply(model, access, key);
            model.totals().hits > before
        });
        match access {
            Access::Read | Access::Write | Access::WriteThrough => {
                let read = access == Access::Read;
                let since = self.lru.touch(key, self.score.accesses);
                // While there is room the gate lets everything in.
                if self.run.filled() {
                    self.score.count(read, since, gated, run);
                    self.run.hold_gate(self.score.hold);
                } else {
                    self.score.fill(read, gated);
                }
            }
            // The gate is not asked about blocks that pass the cache.
            Access::ReadPast => {}
            Access::WritePast => self.lru.forget(key),
        }
    }

    /// Memory of the duel.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lru.bytes() + self.gated.bytes() + self.run.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        segments: 256,
        segment_blocks: 8,
        free_segments: 3,
        window_blocks: 64,
        stands_for: 1,
        read_around_blocks: 1,
    };

    fn duel() -> Duel {
        Duel::of(SHAPE, policy::ALL[0].build).expect("it is large enough")
    }

    /// Reads random blocks out of `blocks` from `first` on. Returns how many reads found the gate
    /// held open.
    fn random(duel: &mut Duel, reads: u64, first: u64, blocks: u64) -> u64 {
        let read = |nth| {
            let key = first + mix(nth) % blocks;
            duel.note(Access::Read, key..key + 1);
            u64::from(duel.score.hold != Hold::No)
        };
        (0..reads).map(read).sum()
    }

    #[test]
    fn the_gate_is_held_open_when_all_that_is_asked_for_changes_and_let_go_after() {
        let mut duel = duel();
        assert_eq!(random(&mut duel, 20_000, 0, 1600), 0, "a working set that fits, from an empty cache on");
        assert!(
            (1 << 30..(1 << 30) + 1000).all(|key| duel.note(Access::Read, key..key + 1).is_none()),
            "now it is full"
        );
        random(&mut duel, 20_000, 0, 1600);
        let open = random(&mut duel, 1000, 1 << 20, 1600);
        assert!(open > 700, "{open} of 1,000 reads after the change");
        assert_eq!(duel.score.hold, Hold::Shifted);
        random(&mut duel, 20_000, 1 << 20, 1600);
        assert_eq!(duel.score.hold, Hold::No, "both hit everything");
        assert!(duel.score.asked <= LEAD_FIRST, "it has paid: {:?}", duel.score);
    }

    #[test]
    fn what_a_lru_never_hits_opens_nothing() {
        let mut duel = duel();
        random(&mut duel, 20_000, 0, 1600);
        assert!(
            (0..50_000).all(|nth| duel.note(Access::Read, (1 << 30) + nth..(1 << 30) + nth + 1).is_none()),
            "a scan"
        );
        let looped = |nth: u64| (1 << 40) + nth % 2400;
        assert!(
            (0..50_000).all(|nth| duel.note(Access::Read, looped(nth)..looped(nth) + 1).is_none()),
            "a loop of 1.1"
        );
    }

    #[test]
    fn what_was_opened_in_vain_is_opened_less_easily_until_it_pays() {
        let mut score = Score::new(1000);
        let count = |score: &mut Score, times: u32, lru: bool, gated, run| {
            let lru = lru.then_some(0);
            (0..times).for_each(|_| score.count(true, lru, gated, run));
            (score.hold == Hold::Open, score.asked)
        };
        assert_eq!(count(&mut score, 8, true, false, false), (false, 0.005), "it might be chance");
        assert_eq!(count(&mut score, 2, true, false, false), (true, 0.005));
        assert_eq!(count(&mut score, 51, false, true, false), (false, 0.01), "51 hits fewer than with the gate");
        assert_eq!(count(&mut score, 255, false, true, false), (false, 0.3), "there is a most");
        score.lead = 0.0;
        assert_eq!(count(&mut score, 190, true, false, false), (false, 0.3), "not far enough ahead");
        assert_eq!(count(&mut score, 20, true, false, false), (true, 0.15), "200 hits more would have been had");
        assert_eq!(count(&mut score, 51, true, false, true), (true, 0.075), "51 hits more than with the gate");
        count(&mut score, 500, true, false, true);
        assert_eq!(score.asked, LEAD_FIRST);
    }

    #[test]
    fn what_was_in_vain_is_forgiven() {
        let mut score = Score::new(1000);
        let mut rounds = |lead_percent: u64| {
            (score.asked, score.forgone, score.lead, score.hold) = (LEAD_MAX, 0.0, 0.0, Hold::No);
            (0..)
                .find(|nth| {
                    let gated = nth % 100 >= lead_percent;
                    score.count(true, Some(0), gated, gated);
                    score.hold == Hold::Open || score.asked <= LEAD_FIRST
                })
                .map(|nth: u64| nth / 1000)
        };
        assert_eq!(
            rounds(5),
            Some(11),
            "the LRU is ahead by five of a hundred: three times it was asked for half as much"
        );
        assert_eq!(rounds(0), Some(400), "nobody is ahead: after six times it is as ever");
    }

    #[test]
    fn a_lead_by_chance_opens_nothing() {
        // Both models hit three of ten reads, but not the same ones. The lead is often more than is
        // asked for.
        let mut score = Score::new(4096);
        let hit = |salt: u64, nth: u64| mix(nth ^ salt << 40) % 10 < 3;
        let mut most = 0.0_f64;
        let open = (0..400_000).any(|nth| {
            score.count(true, hit(1, nth).then_some(0), hit(2, nth), hit(2, nth));
            most = most.max(score.lead);
            score.hold != Hold::No
        });
        assert!(!open && most > 2.0 * LEAD_FIRST, "{open}, {most}");
    }

    /// A score sees hits, then misses, and then the same blocks again and again. The LRU is `lead`
    /// ahead, and `asked` is asked of it. Yields what the score holds after each of the last
    /// accesses.
    fn shifted(lead: f64, asked: f64) -> impl Iterator<Item = Hold> {
        let mut score = Score::new(4096);
        (0..8192).for_each(|_| score.count(true, Some(0), true, true));
        (score.lead, score.asked) = (lead, asked);
        (0..150).for_each(|_| score.count(true, None, false, false));
        (0..4096).map(move |_| {
            // Neither is ahead from here on.
            score.count(true, Some(score.accesses), true, true);
            score.hold
        })
    }

    #[test]
    fn a_trial_is_half_a_round_and_begins_only_if_it_may_be_worth_it() {
        let held: alloc::vec::Vec<Hold> = shifted(0.001, LEAD_FIRST).collect();
        let from = held.iter().position(|hold| *hold == Hold::Shifted).expect("a trial");
        assert!(from < 20, "after {from} repetitions");
        let to = from + 2048;
        assert!(
            held[from..to].iter().all(|hold| *hold == Hold::Shifted) && held[to..].iter().all(|hold| *hold == Hold::No)
        );
        assert!(shifted(-0.001, LEAD_FIRST).all(|hold| hold == Hold::No), "the LRU is behind");
        assert!(shifted(0.001, 2.0 * LEAD_FIRST).all(|hold| hold == Hold::No), "it was in vain");
    }

    #[test]
    fn what_was_hot_is_let_go_of_for_some_rounds_only() {
        let mut score = Score::new(4096);
        (score.hold, score.shifted_at) = (Hold::Shifted, Some(0));
        let mut open = || {
            score.lead = LEAD_FIRST;
            score.count(true, Some(0), true, true);
            score.hold
        };
        assert!((1..4 * 4096).all(|_| open() == Hold::Shifted));
        assert_eq!(open(), Hold::Open);
    }

    #[test]
    fn it_is_small_and_not_there_for_the_smallest_caches() {
        assert!(Duel::of(Shape { segments: 119, ..SHAPE }, policy::ALL[0].build).is_none());
        let mut large =
            Duel::of(Shape { segments: 1 << 20, segment_blocks: 256, ..SHAPE }, policy::ALL[0].build).unwrap();
        let sampled = (0_u64..).filter(|key| mix(key ^ SALT) >> (64 - large.bits) == 0);
        let keys: alloc::vec::Vec<u64> = sampled.take(12_000).collect();
        for key in keys {
            large.note(Access::Read, key..key + 1);
        }
        assert!(large.run.filled() && large.bytes() < 512 << 10, "{}", large.bytes());
    }
}
