// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast bcache destages: the PD controller of Linux 3.13 to 4.14, and the limiter that it sets.
//!
//! The rate changes every 5 s by the distance from the target and by how fast that changes; below the target it falls until it is one sector a
//! second. As no pause is longer than a second, one key a second goes even then. Nothing damps it enough: dirty data swings around the target.

use flashfront_engine::Time;

/// `writeback_rate_update_seconds`.
pub(super) const UPDATE_S: i64 = 5;
/// `writeback_rate_p_term_inverse`.
const P_INVERSE: i64 = 6000;
/// `writeback_rate_d_term`.
const D_TERM: i64 = 30;
/// Sectors a second at the beginning.
const RATE_FIRST: i64 = 1024;
const RATE_MAX: i64 = 1_000_000;
/// The limiter looks so far ahead and back.
const AHEAD_NS: i64 = 1_000_000_000;
const BACK_NS: i64 = 2_000_000_000;
/// Pauses are whole jiffies, of Ubuntu's 250 a second.
const JIFFY_NS: i64 = 4_000_000;

#[derive(Debug)]
pub(super) struct Pace {
    target_sectors: i64,
    rate: i64,
    /// When the next key is due, in ns.
    next_ns: i64,
    last_dirty: i64,
    slope: i64,
}

impl Pace {
    pub(super) const fn new(target_bytes: u64) -> Self {
        let target_sectors = (target_bytes / 512) as i64;
        Self { target_sectors, rate: RATE_FIRST, next_ns: 0, last_dirty: 0, slope: 0 }
    }

    /// Called every [`UPDATE_S`] while something is dirty.
    pub(super) fn update(&mut self, now: Time, dirty_bytes: u64) {
        let dirty = (dirty_bytes / 512) as i64;
        let proportional = (dirty - self.target_sectors) * UPDATE_S / P_INVERSE;
        let weight = D_TERM / UPDATE_S;
        self.slope = (self.slope * (weight - 1) + (dirty - self.last_dirty) / UPDATE_S) / weight;
        self.last_dirty = dirty;
        let change = proportional + self.slope * D_TERM / P_INVERSE;
        // Not faster if it isn't as fast as it may be.
        let late = now.0 as i64 > self.next_ns + 1_000_000;
        if change <= 0 || !late {
            self.rate = (self.rate + change).clamp(1, RATE_MAX);
        }
    }

    /// A new round of keys begins.
    pub(super) const fn reset(&mut self, now: Time) {
        self.next_ns = now.0 as i64;
    }

    /// So much was begun: how long to wait before the next.
    pub(super) fn pause_ns(&mut self, now: Time, bytes: u64) -> u64 {
        let now = now.0 as i64;
        self.next_ns += (bytes / 512) as i64 * 1_000_000_000 / self.rate;
        self.next_ns = self.next_ns.clamp(now - BACK_NS, now + AHEAD_NS);
        ((self.next_ns - now).max(0) / JIFFY_NS * JIFFY_NS) as u64
    }
}
