// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts: where one era of an origin's writes ends and the next begins, and how far the origin is.
//!
//! A cut is made when a FLUSH is acknowledged, or a durable write. What was written to the log
//! until then is one era. Nothing of a later era may be on the origin before that era is (ADR
//! 0053). In the default order there are no eras, and the oldest FLUSH alone is remembered.
//!
//! An origin that takes what was written between two flushes as a whole gets *groups* of eras
//! (ADR 0066). A group is on the origin or it is not. After a crash the first group must not end
//! before the one that may be there. So the log says where a group ends before it begins.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::fact::types::Time;
use crate::organ::eras::Wanted;

/// Between the beginnings of two groups, if nobody waits for the next one: each costs a request
/// more than its data.
const GROUP_EVERY_NS: u64 = 1_000_000_000;

/// What the log is to say of an origin's eras. Those before `sent` are on it. A group up to `group`
/// may be (0: none).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ErasNote {
    pub(crate) sent: u64,
    pub(crate) group: u64,
}

/// What a choice of eras rests on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// The oldest era that needs anything.
    pub(crate) oldest: Option<u64>,
    /// The log will be replayed.
    pub(crate) log_counts: bool,
    /// Nothing of the origin is under way.
    pub(crate) idle: bool,
    /// Destage may go on now.
    pub(crate) may_begin: bool,
    /// Somebody waits.
    pub(crate) hurry: bool,
    /// A group has so many blocks at most, if it has two eras.
    pub(crate) blocks_max: u64,
    pub(crate) now: Time,
}

/// Whether the origin may be flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hold {
    #[default]
    No,
    /// A part of a group is there, and the rest is on its way.
    Yes,
    /// A part of a group is there, and the rest does not come: a flush fails.
    Fails,
}

/// The cuts of one origin.
#[derive(Default)]
pub(crate) struct Cuts {
    /// The era of what is written now; 0 in the default order.
    era: u64,
    /// Blocks that were written in this era.
    written: u64,
    /// Eras that a FLUSH has ended and that are not on the origin: until when each lasted, and how
    /// many blocks were written in it.
    unsent: VecDeque<(u64, Time, u64)>,
    /// Blocks that were written in those.
    ended: u64,
    /// All eras before this one are on the origin.
    sent: u64,
    /// Eras from this one on need nothing when they are sent. Of those before it replay may have
    /// found something; also of others, when a lost block was found again.
    sure_from: u64,
    /// The oldest era that needed anything before that: after a crash it may be destaged again.
    before: u64,
    /// The log says durably that all eras before this one are on the origin.
    recorded: u64,
    /// What the log is about to say.
    noted: Option<ErasNote>,
    /// The era that may be destaged now.
    destaging: Option<u64>,
    /// The newest era that replay found.
    newest: Option<u64>,
    /// The last era of the group under way.
    group: Option<u64>,
    /// The log says, or is to say, that a group up to this era may be on the origin.
    bordered: u64,
    /// The log says so durably up to this era.
    bordered_durably: u64,
    /// No group begins before, if nobody waits.
    next_group: Time,
    hold: Hold,
}

/// The era after this one. The low half is never 0, which stands for no era on the medium.
const fn after(era: u64) -> u64 {
    let next = era + 1;
    if next as u32 == 0 { next + 1 } else { next }
}

impl Cuts {
    /// A lane has replayed its log. Eras up to `newest` need something. Those before `sent` are on
    /// the origin, and those up to `group` may be.
    pub(crate) fn replayed(&mut self, newest: Option<u64>, sent: u64, group: u64) {
        (self.newest, self.sent) = (self.newest.max(newest), self.sent.max(sent));
        self.bordered = self.bordered.max(group);
        (self.bordered_durably, self.sure_from) = (self.bordered, self.sent);
    }

    /// The order is kept from now on, in a new era.
    pub(crate) fn open(&mut self, now: Time) {
        self.era = after(self.newest.unwrap_or(0).max(self.sent).max(self.bordered));
        if self.newest.is_none() {
            self.sent = self.era;
        }
        (self.before, self.recorded, self.sure_from) = (self.sent, self.sent, self.sent);
        if let Some(newest) = self.newest.take() {
            // When its FLUSH was is not known any more.
            self.unsent.push_back((newest, now, 0));
        }
    }

    /// A lost block was found again, and may be in an era that was sent long ago.
    pub(crate) const fn found_again(&mut self) {
        self.sure_from = u64::MAX;
    }

    /// The eras that need nothing any more, since they are on the origin.
    pub(crate) fn over(&self) -> Range<u64> {
        self.sure_from.min(self.sent)..self.sent
    }

    /// The era of what is written now.
    pub(crate) const fn era(&self) -> u64 {
        self.era
    }

    /// A block is written to the log.
    pub(crate) const fn write(&mut self) {
        self.written += 1;
    }

    /// Clients may build on what was written so far: the next write belongs to another era.
    pub(crate) fn cut(&mut self, now: Time) {
        let written = core::mem::take(&mut self.written);
        if written > 0 && self.era > 0 {
            self.unsent.push_back((self.era, now, written));
            self.ended += written;
            self.era = after(self.era);
        }
    }

    /// In the default order: a FLUSH was acknowledged, and not all is on the origin.
    pub(crate) fn note_flush(&mut self, now: Time) {
        if self.unsent.is_empty() {
            self.unsent.push_back((0, now, 0));
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
        // What of a group is left is in its last era, and nothing of it is on the origin for sure.
        if self.group.is_some_and(|last| sent <= last) {
            return false;
        }
        // A block of which replay knew no era is in one that was sent long ago. Then the end of its
        // group is no news, but an end.
        self.group = None;
        if sent <= self.sent {
            return false;
        }
        self.before = self.destaging.unwrap_or(self.sent);
        self.sent = sent;
        while let Some((.., written)) = self.unsent.pop_front_if(|it| it.0 < sent) {
            self.ended -= written;
        }
        true
    }

    /// What the log should say next.
    pub(crate) fn take_note(&mut self) -> Option<ErasNote> {
        if self.noted.is_some() || self.recorded >= self.sent && self.bordered_durably >= self.bordered {
            return None;
        }
        self.noted = Some(ErasNote { sent: self.sent, group: self.bordered });
        self.noted
    }

    /// The log says durably what was noted.
    pub(crate) fn note_recorded(&mut self) {
        if let Some(note) = self.noted.take() {
            (self.recorded, self.bordered_durably) = (note.sent, note.group);
        }
    }

    /// A group up to this era may be on the origin, by what the log says or is about to say.
    pub(crate) const fn group_noted(&self) -> u64 {
        self.bordered
    }

    /// Chooses the era that may be destaged: the oldest one. After a crash all eras that are not
    /// recorded are destaged again, so only the one before it may be among them. `log_counts`: the
    /// log will be replayed.
    pub(crate) fn choose(&mut self, oldest: Option<u64>, log_counts: bool) {
        let may_begin = !log_counts || self.recorded >= self.before;
        self.destaging = oldest.filter(|_| may_begin);
    }

    /// Chooses the eras that may be destaged, for an origin that takes a group as a whole. That is
    /// one era, or a group of those that have ended. `last_of` tells where a group ends that begins
    /// with an era. Returns the last era of a group that may begin now, for lanes to put together.
    pub(crate) fn choose_group(&mut self, view: &View, last_of: impl FnOnce(u64) -> u64) -> Option<u64> {
        let may_begin = |it: &Self, last| view.idle && (!view.log_counts || it.bordered_durably >= last);
        if let Some(last) = self.group {
            let begins = self.destaging.is_none() && may_begin(self, last);
            self.destaging = self.destaging.or(begins.then_some(last));
            return begins.then_some(last);
        }
        // An era alone goes on until nothing of it is left.
        if self.destaging.is_some() && self.destaging == view.oldest {
            return None;
        }
        self.destaging = None;
        let oldest = view.oldest?;
        let recorded = !view.log_counts || self.recorded >= self.sent;
        let due = view.hurry || view.now >= self.next_group || self.ended >= view.blocks_max;
        if !view.idle || !view.may_begin || !recorded || !due {
            return None;
        }
        self.next_group = view.now.plus_ns(GROUP_EVERY_NS);
        let last = if oldest < self.era { last_of(oldest).max(oldest) } else { oldest };
        if last == oldest && oldest > self.bordered {
            self.destaging = Some(oldest);
            return None;
        }
        // After a crash a longer group than this may be there.
        self.bordered = self.bordered.max(last);
        self.group = Some(self.bordered);
        self.destaging = may_begin(self, self.bordered).then_some(self.bordered);
        self.destaging
    }

    /// Whether eras wait only since the group before began a moment ago: until when.
    pub(crate) fn group_waits_until(&self) -> Option<Time> {
        (self.group.is_none() && self.destaging.is_none()).then_some(self.next_group)
    }

    /// Whether a group of eras is under way, of which nothing or all is to be on the origin.
    pub(crate) const fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// Whether the origin may have a part of a group.
    pub(crate) const fn may_be_torn(&self) -> bool {
        self.group.is_some() && self.destaging.is_some()
    }

    /// Whether the origin may be flushed.
    pub(crate) const fn hold(&self) -> Hold {
        self.hold
    }

    /// A flush failed that destage waited for. The origin may have dropped any part of a group, and
    /// lanes may not know that yet. Another flush would make the rest durable alone (torture by
    /// mail, seed 1796070994900).
    pub(crate) fn flush_failed(&mut self) {
        if self.may_be_torn() {
            self.hold = Hold::Yes;
        }
    }

    /// From now on the origin may be flushed, or not.
    pub(crate) const fn set_hold(&mut self, hold: Hold) {
        self.hold = hold;
    }

    /// The eras that may be destaged now.
    pub(crate) fn destaging(&self) -> Option<Wanted> {
        self.destaging.map(|last| Wanted { last, is_group: self.group.is_some() })
    }

    /// Whether an era has ended that is not on the origin.
    pub(crate) const fn is_behind(&self) -> bool {
        self.sent < self.era
    }

    /// What a lane sees that works beside others.
    pub(crate) fn show(&mut self, all: &Self) {
        (self.era, self.written) = (all.era, 0);
    }

    /// Takes over what a lane has done beside others.
    pub(crate) fn take_over(&mut self, view: &mut Self) {
        self.written += core::mem::take(&mut view.written);
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

    fn alone(cuts: &Cuts) -> Option<u64> {
        cuts.destaging().filter(|it| !it.is_group).map(|it| it.last)
    }

    fn ended(eras: u64) -> (Cuts, u64) {
        let mut cuts = opened();
        let first = cuts.era();
        for _ in 0..eras {
            cuts.write();
            cuts.cut(Time(1));
        }
        (cuts, first)
    }

    fn view(oldest: u64, now: u64) -> View {
        let (log_counts, idle, may_begin) = (true, true, true);
        let now = Time(GROUP_EVERY_NS * 10 + now);
        View { oldest: Some(oldest), log_counts, idle, may_begin, hurry: false, blocks_max: 100, now }
    }

    fn group(last: u64) -> Option<Wanted> {
        Some(Wanted { last, is_group: true })
    }

    #[test]
    fn a_group_begins_when_the_log_says_where_it_ends_and_is_sent_when_nothing_of_it_is_left() {
        let (mut cuts, first) = ended(3);
        let last = first + 2;
        assert_eq!(cuts.choose_group(&view(first, 0), |_| last), None);
        assert_eq!((cuts.destaging(), cuts.group_noted()), (None, last));
        assert_eq!(cuts.take_note(), Some(ErasNote { sent: first, group: last }));
        assert_eq!(cuts.choose_group(&view(first, 1), |_| unreachable!()), None, "the note is not durable");
        cuts.note_recorded();
        assert_eq!(cuts.choose_group(&view(first, 2), |_| unreachable!()), Some(last), "lanes put it together");
        assert_eq!(cuts.destaging(), group(last));
        assert!(!cuts.advance(Some(last)), "what is left is in its last era");
        assert_eq!((cuts.sent(), cuts.oldest_unsent()), (first, Some(Time(1))));
        assert_eq!(cuts.choose_group(&view(last, 3), |_| unreachable!()), None, "they have done so");
        assert!(cuts.advance(None) && !cuts.has_group());
        assert_eq!((cuts.sent(), cuts.oldest_unsent()), (last + 1, None));
    }

    #[test]
    fn the_next_group_waits_for_the_note_and_a_while_if_nobody_hurries() {
        let (mut cuts, first) = ended(1);
        assert_eq!(cuts.choose_group(&view(first, 0), |era| era), None);
        assert_eq!((alone(&cuts), cuts.group_noted()), (Some(first), 0), "one era needs no border");
        cuts.write();
        cuts.cut(Time(2));
        assert_eq!(cuts.choose_group(&view(first, 1), |_| unreachable!()), None);
        assert_eq!(alone(&cuts), Some(first), "it goes on");
        assert!(cuts.advance(Some(first + 1)));
        let soon = View { hurry: true, ..view(first + 1, 2) };
        assert_eq!((cuts.choose_group(&soon, |era| era), alone(&cuts)), (None, None), "not recorded");
        cuts.take_note();
        cuts.note_recorded();
        assert_eq!((cuts.choose_group(&view(first + 1, 3), |era| era), alone(&cuts)), (None, None), "too soon");
        assert_eq!(cuts.group_waits_until(), Some(view(0, GROUP_EVERY_NS).now));
        assert_eq!((cuts.choose_group(&soon, |era| era), alone(&cuts)), (None, Some(first + 1)));
    }

    #[test]
    fn a_group_whose_flush_failed_is_not_flushed_before_it_is_looked_at_again() {
        let (mut cuts, first) = ended(3);
        cuts.flush_failed();
        assert_eq!(cuts.hold(), Hold::No, "there is no group");
        assert_eq!(cuts.choose_group(&view(first, 0), |_| first + 2), None);
        cuts.take_note();
        cuts.note_recorded();
        assert_eq!(cuts.choose_group(&view(first, 1), |_| unreachable!()), Some(first + 2));
        assert_eq!(cuts.hold(), Hold::No);
        cuts.flush_failed();
        assert_eq!(cuts.hold(), Hold::Yes);
    }

    #[test]
    fn after_a_crash_the_first_group_is_no_shorter_than_the_one_that_may_be_there() {
        let mut cuts = Cuts::default();
        cuts.replayed(Some(9), 4, 7);
        cuts.open(Time(0));
        assert_eq!(cuts.era(), 10);
        assert_eq!(cuts.choose_group(&view(5, 0), |_| 6), Some(7));
        assert_eq!(cuts.destaging(), group(7));
        let mut alone = Cuts::default();
        alone.replayed(Some(7), 4, 7);
        alone.open(Time(0));
        assert_eq!(alone.choose_group(&view(7, 0), |_| 7), Some(7), "other eras may have been put into it");
        assert_eq!(alone.destaging(), group(7));
        let mut empty = Cuts::default();
        empty.replayed(None, 4, 7);
        empty.open(Time(0));
        assert_eq!(empty.era(), 8, "no new era is one of the group");
    }

    #[test]
    fn a_group_of_eras_that_were_sent_long_ago_ends() {
        let mut cuts = Cuts::default();
        cuts.replayed(Some(8), 8, 3);
        cuts.open(Time(0));
        assert_eq!((cuts.choose_group(&view(0, 0), |era| era), cuts.destaging()), (Some(3), group(3)));
        assert!(!cuts.advance(Some(3)) && cuts.has_group());
        assert!(!cuts.advance(Some(8)), "it is known already that all before are there");
        assert!(!cuts.has_group());
        let later = view(8, GROUP_EVERY_NS);
        assert_eq!((cuts.choose_group(&later, |era| era), alone(&cuts)), (None, Some(8)));
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
        assert_eq!(cuts.take_note(), Some(ErasNote { sent: first + 1, group: 0 }));
        cuts.choose(Some(first + 1), true);
        assert_eq!(alone(&cuts), Some(first + 1), "a restart would send the first era again, under this one");
        assert!(cuts.advance(Some(first + 2)));
        cuts.choose(Some(first + 2), true);
        assert_eq!(alone(&cuts), None, "a restart would send the first era again, over this one and the next");
        cuts.choose(Some(first + 2), false);
        assert_eq!(alone(&cuts), Some(first + 2), "a log that is not replayed brings nothing back");
        cuts.note_recorded();
        cuts.choose(Some(first + 2), true);
        assert_eq!((alone(&cuts), cuts.recorded()), (Some(first + 2), first + 1));
    }

    #[test]
    fn the_low_half_of_an_era_is_never_zero() {
        assert_eq!(after(u64::from(u32::MAX)), (1 << 32) + 1);
    }
}
