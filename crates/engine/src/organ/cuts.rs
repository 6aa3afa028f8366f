// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts: where one era of an origin's writes ends and the next begins, and how far the origin is.
//!
//! A cut is made when a FLUSH is acknowledged, or a durable write. What was written to the log
//! until then is one era. Nothing of a later era may be on the origin before that era is (ADR
//! 0053). In the default order there are no eras, and the oldest FLUSH alone is remembered.

use alloc::collections::VecDeque;

use crate::fact::types::Time;

/// The cuts of one origin.
#[derive(Default)]
pub(crate) struct Cuts {
    /// The era of what is written now; 0 in the default order.
    era: u64,
    /// Something was written in this era.
    written: bool,
    /// Eras that a FLUSH has ended and that are not on the origin: until when each lasted.
    unsent: VecDeque<(u64, Time)>,
    /// All eras before this one are on the origin.
    sent: u64,
    /// The oldest era that needed anything before that: after a crash it may be destaged again.
    before: u64,
    /// The log says durably that all eras before this one are on the origin.
    recorded: u64,
    /// What the log is about to say.
    noted: Option<u64>,
    /// The era that may be destaged now.
    destaging: Option<u64>,
    /// The newest era that replay found.
    newest: Option<u64>,
}

/// The era after this one. The low half is never 0, which stands for no era on the medium.
const fn after(era: u64) -> u64 {
    let next = era + 1;
    if next as u32 == 0 { next + 1 } else { next }
}

impl Cuts {
    /// A lane has replayed its log: eras up to `newest` need something, and those before `sent` are
    /// on the origin.
    pub(crate) fn replayed(&mut self, newest: Option<u64>, sent: u64) {
        (self.newest, self.sent) = (self.newest.max(newest), self.sent.max(sent));
    }

    /// The order is kept from now on, in a new era.
    pub(crate) fn open(&mut self, now: Time) {
        self.era = after(self.newest.unwrap_or(0).max(self.sent));
        if self.newest.is_none() {
            self.sent = self.era;
        }
        (self.before, self.recorded) = (self.sent, self.sent);
        if let Some(newest) = self.newest.take() {
            // When its FLUSH was is not known any more.
            self.unsent.push_back((newest, now));
        }
    }

    /// The era of what is written now.
    pub(crate) const fn era(&self) -> u64 {
        self.era
    }

    /// Something is written to the log.
    pub(crate) const fn write(&mut self) {
        self.written = true;
    }

    /// Clients may build on what was written so far: the next write belongs to another era.
    pub(crate) fn cut(&mut self, now: Time) {
        if core::mem::take(&mut self.written) && self.era > 0 {
            self.unsent.push_back((self.era, now));
            self.era = after(self.era);
        }
    }

    /// In the default order: a FLUSH was acknowledged, and not all is on the origin.
    pub(crate) fn note_flush(&mut self, now: Time) {
        if self.unsent.is_empty() {
            self.unsent.push_back((0, now));
        }
    }

    /// In the default order: nothing is dirty.
    pub(crate) fn nothing_dirty(&mut self) {
        self.unsent.clear();
    }

    /// When the oldest FLUSH was acknowledged whose data is not all on the origin.
    pub(crate) fn oldest_unsent(&self) -> Option<Time> {
        self.unsent.front().map(|it| it.1)
    }

    /// Eras before this one are on the origin, as far as is recorded.
    pub(crate) const fn recorded(&self) -> u64 {
        self.recorded
    }

    /// All eras before this one are on the origin.
    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    /// `oldest`: the oldest era that needs anything. Returns whether it is news that all before are
    /// on the origin.
    pub(crate) fn advance(&mut self, oldest: Option<u64>) -> bool {
        let sent = oldest.unwrap_or(self.era);
        if sent <= self.sent {
            return false;
        }
        self.before = self.destaging.unwrap_or(self.sent);
        self.sent = sent;
        while self.unsent.pop_front_if(|it| it.0 < sent).is_some() {}
        true
    }

    /// What the log should say next: eras before this one are on the origin.
    pub(crate) fn take_note(&mut self) -> Option<u64> {
        if self.noted.is_some() || self.recorded >= self.sent {
            return None;
        }
        self.noted = Some(self.sent);
        self.noted
    }

    /// The log says durably what was noted.
    pub(crate) fn note_recorded(&mut self) {
        self.recorded = self.noted.take().unwrap_or(self.recorded);
    }

    /// Chooses the era that may be destaged: the oldest one. After a crash all eras that are not
    /// recorded are destaged again, so only the one before it may be among them. `log_counts`: the
    /// log will be replayed.
    pub(crate) fn choose(&mut self, oldest: Option<u64>, log_counts: bool) {
        let may_begin = !log_counts || self.recorded >= self.before;
        self.destaging = oldest.filter(|_| may_begin);
    }

    /// The era that may be destaged now.
    pub(crate) const fn destaging(&self) -> Option<u64> {
        self.destaging
    }

    /// Whether an era has ended that is not on the origin.
    pub(crate) const fn is_behind(&self) -> bool {
        self.sent < self.era
    }

    /// What a lane sees that works beside others.
    pub(crate) fn show(&mut self, all: &Self) {
        (self.era, self.written) = (all.era, false);
    }

    /// Takes over what a lane has done beside others.
    pub(crate) const fn take_over(&mut self, view: &mut Self) {
        self.written |= core::mem::replace(&mut view.written, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> Cuts {
        let mut cuts = Cuts::default();
        cuts.open(Time(0));
        cuts
    }

    #[test]
    fn a_flush_that_covers_nothing_new_is_no_cut() {
        let mut cuts = opened();
        let first = cuts.era();
        cuts.cut(Time(1));
        assert_eq!((cuts.era(), cuts.oldest_unsent()), (first, None));
        cuts.write();
        cuts.cut(Time(2));
        cuts.cut(Time(3));
        assert_eq!((cuts.era(), cuts.oldest_unsent()), (first + 1, Some(Time(2))));
        assert!(cuts.advance(None) && !cuts.is_behind());
        assert_eq!(cuts.oldest_unsent(), None);
    }

    #[test]
    fn the_era_after_the_next_one_waits_for_the_log() {
        let mut cuts = opened();
        let first = cuts.era();
        for _ in 0..3 {
            cuts.write();
            cuts.cut(Time(1));
        }
        cuts.choose(Some(first), true);
        assert!(cuts.advance(Some(first + 1)));
        assert_eq!(cuts.take_note(), Some(first + 1));
        cuts.choose(Some(first + 1), true);
        assert_eq!(cuts.destaging(), Some(first + 1), "a restart would send the first era again, under this one");
        assert!(cuts.advance(Some(first + 2)));
        cuts.choose(Some(first + 2), true);
        assert_eq!(cuts.destaging(), None, "a restart would send the first era again, over this one and the next");
        cuts.choose(Some(first + 2), false);
        assert_eq!(cuts.destaging(), Some(first + 2), "a log that is not replayed brings nothing back");
        cuts.note_recorded();
        cuts.choose(Some(first + 2), true);
        assert_eq!((cuts.destaging(), cuts.recorded()), (Some(first + 2), first + 1));
    }

    #[test]
    fn the_low_half_of_an_era_is_never_zero() {
        assert_eq!(after(u64::from(u32::MAX)), (1 << 32) + 1);
    }
}
