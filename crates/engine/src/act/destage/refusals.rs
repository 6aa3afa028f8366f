// SPDX-License-Identifier: MIT OR Apache-2.0
//! An origin that refuses destage: when it is tried again, and how often it was tried.

use crate::fact::types::Time;

/// The first pause after a failed destage; doubled up to the last.
const PAUSE_FIRST_NS: u64 = 1_000_000_000;
const PAUSE_LAST_NS: u64 = 60_000_000_000;
/// Attempts of destage that a full or read-only origin must have refused, one a second, before
/// writers are told who wait for it. Of one that refuses only a part some other block becomes clean
/// meanwhile, and a thin pool may have grown.
pub(crate) const GIVE_UP_AFTER: u32 = 5;

/// The refusals of one origin, until a block of it becomes clean again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refusals(Option<Retry>);

#[derive(Clone, Copy, Debug)]
struct Retry {
    /// When the origin is tried again.
    when: Time,
    /// The pause before that.
    pause_ns: u64,
    /// Attempts that have failed.
    attempts: u32,
}

impl Refusals {
    /// Whether the origin refuses.
    pub(crate) const fn any(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the origin has refused so often that nobody waits for it any more.
    pub(crate) fn gives_up(&self) -> bool {
        self.0.is_some_and(|it| it.attempts >= GIVE_UP_AFTER)
    }

    /// Whether it is too soon to try again.
    pub(crate) fn rest(&self, now: Time) -> bool {
        self.0.is_some_and(|it| now < it.when)
    }

    /// When the origin is tried again.
    pub(crate) fn timer(&self) -> Option<Time> {
        self.0.map(|it| it.when)
    }

    /// A run failed: the origin is left alone for a while. Returns how many attempts have failed
    /// in a row.
    pub(crate) fn failed(&mut self, now: Time) -> u32 {
        // Runs that were in flight together fail together.
        if self.rest(now) {
            return 0;
        }
        let (pause_ns, attempts) = self
            .0
            .map_or((PAUSE_FIRST_NS, 1), |it| ((it.pause_ns * 2).min(PAUSE_LAST_NS), it.attempts.saturating_add(1)));
        self.0 = Some(Retry { when: now.plus_ns(pause_ns), pause_ns, attempts });
        attempts
    }

    /// Writers wait for room that this origin refuses to make: it is tried again soon, and they are
    /// answered by what comes of that.
    pub(crate) const fn try_soon(&mut self) {
        if let Some(retry) = &mut self.0
            && retry.pause_ns > PAUSE_FIRST_NS
        {
            retry.when.0 -= retry.pause_ns - PAUSE_FIRST_NS;
            retry.pause_ns = PAUSE_FIRST_NS;
        }
    }

    /// The origin may take writes again: nothing is held against it.
    pub(crate) const fn end(&mut self) {
        self.0 = None;
    }
}
