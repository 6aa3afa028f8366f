// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is drawn from the seed: when things die, and which. The moment itself is the real
//! machine's.

use std::fmt;
use std::time::Duration;

/// What dies when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    /// Everything at once, and what the disks had not flushed is lost.
    Power,
    /// The guest alone; the daemon destages on for a while, then the power is cut.
    GuestFirst,
    /// The daemon alone, whose disks live on; the guest sees errors, and dies then.
    DaemonFirst,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Power => "power cut",
            Self::GuestFirst => "guest killed, power cut later",
            Self::DaemonFirst => "daemon killed, disks live on",
        })
    }
}

/// What is drawn for one life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) journal: &'static str,
    /// The power is cut once before this, so long after the start of the daemon: in its replay,
    /// mostly.
    pub(super) replay_cut: Option<Duration>,
    /// The daemon dies after so many commits; nothing: while it mounts and checks.
    pub(super) goal: Option<u64>,
    /// And so long after that.
    pub(super) wait: Duration,
    pub(super) death: Death,
}

impl Plan {
    pub(super) fn draw(random: &mut Random, life: u64, canary: bool) -> Self {
        let first = life == 1;
        let death = match random.below(5) {
            _ if canary => Death::Power,
            0 => Death::GuestFirst,
            1 => Death::DaemonFirst,
            _ => Death::Power,
        };
        let recovering = random.below(5) == 0 && !first && !canary;
        let goal = 10 + random.below(300);
        let wait = Duration::from_micros(random.below(if recovering { 1_500_000 } else { 30_000 }));
        let replay_cut = Duration::from_micros(random.below(60_000));
        Self {
            journal: ["wal", "delete"][(life % 2) as usize],
            replay_cut: (random.below(4) == 0 && !first).then_some(replay_cut),
            goal: (!recovering).then_some(goal),
            wait,
            death,
        }
    }
}

/// SplitMix64: the same seed draws the same plans everywhere.
pub(super) struct Random(pub(super) u64);

impl Random {
    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % limit
    }
}
