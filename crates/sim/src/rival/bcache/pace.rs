// SPDX-License-Identifier: MIT OR Apache-2.0
//! A controller decides how fast bcache destages, and sets a limiter.
//!
//! Linux 3.13 to 4.14 have a PD controller. The rate changes every 5 s by the distance from the
//! target and by how fast that changes. Below the target it falls until it is one sector a second.
//! As no pause is longer than a second, one key a second goes even then. Nothing damps the
//! controller enough: dirty data swings around the target.
//!
//! Linux 4.15 and later have a PI controller (Michael Lyle, 2017). Its rate would bring dirty data
//! down to the target in 40 s. Each second a ten thousandth of the excess is added to the rate for
//! good. The least rate is 8 sectors a second. Since 5.12 the rate is higher when buckets are
//! fragmented. Since 4.19 it has no limit when no client has asked for anything in six turns.

use flashfront_engine::Time;

use super::buckets::BUCKET_BLOCKS;

/// `writeback_rate_update_seconds`.
pub(super) const UPDATE_S: i64 = 5;
const BUCKET_SECTORS: i64 = BUCKET_BLOCKS as i64 * 8;
/// Sectors a second at the beginning.
const RATE_FIRST: i64 = 1024;
/// The limiter looks back this far.
const BACK_NS: i64 = 2_000_000_000;
/// Pauses are whole jiffies: 250 a second, as in Debian and Ubuntu.
const JIFFY_NS: i64 = 4_000_000;
/// If a turn of the controller comes this long after the next key was due, the disk doesn't keep
/// up.
const LATE_NS: i64 = 1_000_000;

/// The dirty data that the controller is told of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dirty {
    pub(super) bytes: u64,
    /// The percentage of buckets in use, as the last collection saw it.
    pub(super) in_use_percent: u32,
    pub(super) buckets: u64,
}

/// A controller's state.
#[derive(Clone, Copy, Debug)]
pub(super) enum Controller {
    Pd(Pd),
    Pi(Pi),
}

impl Controller {
    pub(super) fn pd() -> Self {
        Self::Pd(Pd::default())
    }

    pub(super) fn pi() -> Self {
        Self::Pi(Pi::default())
    }
}

/// The PD controller of Linux 3.13 to 4.14.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pd {
    last_dirty: i64,
    slope: i64,
}

impl Pd {
    /// `writeback_rate_p_term_inverse`.
    const P_INVERSE: i64 = 6000;
    /// `writeback_rate_d_term`.
    const D_TERM: i64 = 30;
    const RATE_MAX: i64 = 1_000_000;
    const AHEAD_NS: i64 = 1_000_000_000;

    /// Returns the new rate. `rate` is the old one, `sectors` are dirty, and `beyond` is how many
    /// of them are beyond the target.
    fn rate(&mut self, rate: i64, sectors: i64, beyond: i64, late: bool) -> i64 {
        let proportional = beyond * UPDATE_S / Self::P_INVERSE;
        let weight = Self::D_TERM / UPDATE_S;
        self.slope = (self.slope * (weight - 1) + (sectors - self.last_dirty) / UPDATE_S) / weight;
        self.last_dirty = sectors;
        let change = proportional + self.slope * Self::D_TERM / Self::P_INVERSE;
        // A rate that isn't reached doesn't rise.
        if change > 0 && late { rate } else { (rate + change).clamp(1, Self::RATE_MAX) }
    }
}

/// The PI controller of Linux 4.15 and later.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pi {
    integral: i64,
    /// Turns since a client asked for something.
    idle_turns: u32,
}

impl Pi {
    /// `writeback_rate_p_term_inverse` and `writeback_rate_i_term_inverse`.
    const P_INVERSE: i64 = 40;
    const I_INVERSE: i64 = 10_000;
    const RATE_MIN: i64 = 8;
    const RATE_MAX: i64 = 1_000_000_000;
    const AHEAD_NS: i64 = 2_500_000_000;
    const IDLE_TURNS: u32 = 6;
    const RATE_IDLE: i64 = i32::MAX as i64;
    /// The cache in use in percent (`BCH_WRITEBACK_FRAGMENT_THRESHOLD_LOW` and so on), and the term
    /// above it (`writeback_rate_fp_term_low` and so on).
    const FRAGMENTED: [(i64, i64); 3] = [(64, 1000), (57, 10), (50, 1)];

    fn rate(&mut self, sectors: i64, beyond: i64, dirty: Dirty, late: bool) -> i64 {
        self.idle_turns += 1;
        if self.idle_turns >= Self::IDLE_TURNS {
            return Self::RATE_IDLE;
        }
        let mut proportional = beyond / Self::P_INVERSE;
        let in_use = i64::from(dirty.in_use_percent);
        let fragmented = Self::FRAGMENTED.iter().find(|(percent, _)| in_use > *percent);
        if let (Some((percent, term)), true) = (fragmented, sectors > 0 && dirty.buckets > 0) {
            let buckets = dirty.buckets as i64;
            if buckets * BUCKET_SECTORS / sectors > 3 {
                proportional = proportional.max(sectors / buckets * term * (in_use - percent));
            }
        }
        // The integral sinks only to nothing, and rises only while the disk keeps up.
        if (beyond < 0 && self.integral > 0) || (beyond > 0 && !late) {
            self.integral += beyond * UPDATE_S;
        }
        (proportional + self.integral / Self::I_INVERSE).clamp(Self::RATE_MIN, Self::RATE_MAX)
    }
}

#[derive(Debug)]
pub(super) struct Pace {
    controller: Controller,
    target_sectors: i64,
    rate: i64,
    /// When the next key is due, in ns.
    next_ns: i64,
}

impl Pace {
    pub(super) const fn new(target_bytes: u64, controller: Controller) -> Self {
        Self { controller, target_sectors: (target_bytes / 512) as i64, rate: RATE_FIRST, next_ns: 0 }
    }

    pub(super) const fn is_pi(&self) -> bool {
        matches!(self.controller, Controller::Pi(_))
    }

    /// A client asks for something.
    pub(super) fn asked(&mut self) {
        if let Controller::Pi(pi) = &mut self.controller
            && std::mem::take(&mut pi.idle_turns) >= Pi::IDLE_TURNS
        {
            // This rate holds until the next turn (`quit_max_writeback_rate`).
            self.rate = 1;
        }
    }

    /// Called every [`UPDATE_S`] while something is dirty.
    pub(super) fn update(&mut self, now: Time, dirty: Dirty) {
        let sectors = (dirty.bytes / 512) as i64;
        let beyond = sectors - self.target_sectors;
        let late = now.0 as i64 > self.next_ns + LATE_NS;
        self.rate = match &mut self.controller {
            Controller::Pd(pd) => pd.rate(self.rate, sectors, beyond, late),
            Controller::Pi(pi) => pi.rate(sectors, beyond, dirty, late),
        };
    }

    /// Forgets how far destage was ahead or behind.
    pub(super) const fn reset(&mut self, at: Time) {
        self.next_ns = at.0 as i64;
    }

    /// Returns how long to wait before the next key, after `bytes` were begun.
    pub(super) fn pause_ns(&mut self, now: Time, bytes: u64) -> u64 {
        let now = now.0 as i64;
        let ahead = match self.controller {
            Controller::Pd(_) => Pd::AHEAD_NS,
            Controller::Pi(_) => Pi::AHEAD_NS,
        };
        self.next_ns += (bytes / 512) as i64 * 1_000_000_000 / self.rate;
        self.next_ns = self.next_ns.clamp(now - BACK_NS, now + ahead);
        ((self.next_ns - now).max(0) / JIFFY_NS * JIFFY_NS) as u64
    }
}
