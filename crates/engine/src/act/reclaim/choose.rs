// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which segment is reclaimed next: one of which little is live, or what the policy would give up;
//! first those that needn't wait for destage.
//!
//! [`choose`] looks at a [`View`], takes a segment out of its queue, and says in its [`Choice`]
//! what follows. It changes nothing else; [`note_choice`] and reclaim do what the choice says.

use alloc::collections::BTreeSet;
use core::cell::Cell;

use super::state::CLEANING_WAIT_NS;
use super::{COMPACTED_PART, GAIN_MIN, MOVED_PART};
use crate::act::commit::log::Log;
use crate::act::reclaim::has_trouble;
use crate::cx::Cx;
use crate::fact::types::{SegmentId, Time};
use crate::lane::Lane;
use crate::organ::segment::{Segment, SegmentState};
use crate::organ::sparse::Sparse;
use crate::policy::Policy;

/// What reclaim knows when it chooses.
pub(super) struct View<'a> {
    log: &'a Log,
    /// Segments from which something had to stay, since an origin has been away.
    not_compacted: &'a [u32],
    /// Segments that are not to be evicted: most of each would have to stay.
    turned: &'a BTreeSet<u32>,
    /// Commits before this one are covered by a checkpoint.
    covered: u64,
    /// Dead room is won back by cleaning: enough of the cache is dead.
    cleans: bool,
    /// A dirty block can't be read where it should be: none is moved.
    trouble: bool,
    /// A dirty block is sound on one member of the cache only.
    reads_elsewhere: bool,
    /// An origin takes nothing at the moment.
    away: bool,
    /// Blocks had to be dropped for want of room.
    dropped: bool,
    /// A segment is being compacted already.
    compacting: bool,
    /// Since when no segment could be cleaned.
    waits_since: Option<Time>,
    now: Time,
}

/// The queues that a segment is taken from.
pub(super) struct Queues<'a> {
    sparse: &'a mut Sparse,
    policy: &'a mut dyn Policy,
}

/// Why a segment is reclaimed, and so what becomes of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Its blocks are the policy's to judge.
    Evict,
    /// All that is live in it is moved, for its dead room.
    Clean,
    /// Its few dirty blocks are moved while an origin takes nothing.
    Compact,
}

/// What reclaim does next.
#[derive(Default)]
pub(super) struct Choice {
    /// This segment is reclaimed.
    pub(super) taken: Option<(u32, Way)>,
    /// A checkpoint would make a segment ready.
    pub(super) checkpoint: bool,
    /// Whether a segment is waited for that can soon be cleaned; `None`: that was not looked for.
    pub(super) waits: Option<bool>,
    /// Whether the policy's first ones were passed over, as too much of them is dirty; `None`: the
    /// policy was not asked.
    pub(super) passed_over: Option<bool>,
}

impl Choice {
    const fn take(mut self, id: u32, way: Way) -> Self {
        self.taken = Some((id, way));
        self
    }
}

/// What there is to choose from in a lane.
pub(super) fn look<'a>(lane: &'a mut Lane, cx: &Cx<'_>) -> (View<'a>, Queues<'a>) {
    let view = View {
        covered: lane.checkpoint.covers(),
        cleans: Sparse::cleans(lane.store.index().len(), lane.log.slots_kept()),
        trouble: has_trouble(lane, cx),
        reads_elsewhere: lane.trouble.reads_elsewhere(),
        away: cx.facts.away,
        dropped: lane.reclaim.dropped,
        compacting: lane.reclaim.compacting.is_some(),
        waits_since: lane.reclaim.waits_since,
        now: cx.now,
        log: &lane.log,
        not_compacted: &lane.reclaim.not_compacted,
        turned: &lane.reclaim.turned,
    };
    (view, Queues { sparse: &mut lane.reclaim.sparse, policy: &mut *lane.policy })
}

/// Chooses the segment that is reclaimed next. None, too, while a segment that can be cleaned is
/// waited for.
pub(super) fn choose(view: &View<'_>, from: &mut Queues<'_>) -> Choice {
    let mut choice = Choice::default();
    if view.cleans
        && let Some(id) = view.sparse(true, from)
    {
        return choice.take(id, Way::Clean);
    }
    if view.waits_for_segment(from.sparse, &mut choice) {
        return choice;
    }
    if let Some(id) = view.sparse(false, from) {
        return choice.take(id, Way::Evict);
    }
    let (ready, passed_over) = view.ready(from.policy);
    choice.passed_over = Some(passed_over);
    if let Some(id) = ready {
        return choice.take(id, Way::Evict);
    }
    if let Some(id) = view.compact(from.policy) {
        return choice.take(id, Way::Compact);
    }
    if !view.compacting {
        view.dirty(from.policy, &mut choice);
    }
    choice
}

/// Does what a choice says, but for the segment that it takes.
pub(super) fn note_choice(lane: &mut Lane, choice: &Choice, now: Time) {
    let reclaim = &mut lane.reclaim;
    if let Some(waits) = choice.waits {
        reclaim.waits = waits;
        reclaim.waits_since.get_or_insert(now);
    }
    if let Some(passed_over) = choice.passed_over {
        reclaim.behind = passed_over.then_some(now);
    }
    match choice.taken {
        Some((_, Way::Clean)) => reclaim.waits_since = None,
        Some((id, Way::Compact)) => reclaim.compacting = Some(id),
        Some((_, Way::Evict)) | None => {}
    }
    if choice.checkpoint {
        lane.checkpoint.want();
    }
}

/// As [`choose`], where as many segments are under reclaim as may be: one more may be compacted.
pub(super) fn choose_to_compact(view: &View<'_>, from: &mut Queues<'_>) -> Choice {
    let choice = Choice::default();
    match view.compact(from.policy) {
        Some(id) => choice.take(id, Way::Compact),
        None => {
            let checkpoint = view.away && !view.compacting && view.checkpoint_helps(view.slots() / COMPACTED_PART);
            Choice { checkpoint, ..choice }
        }
    }
}

impl View<'_> {
    /// Slots of a segment.
    fn slots(&self) -> u32 {
        self.log.segment_slots()
    }

    fn segment(&self, id: u32) -> &Segment {
        &self.log.segments()[id as usize]
    }

    /// Whether the policy may give up a segment.
    fn is_evictable(&self, id: u32) -> bool {
        self.segment(id).is_evictable(self.covered) && !self.turned.contains(&id)
    }

    /// Whether enough of a segment is dead that there is more room when it is cleaned.
    fn gains(&self, segment: &Segment) -> bool {
        segment.live + GAIN_MIN <= self.slots()
    }

    /// How much of a segment may be dirty that is reclaimed at once.
    fn dirty_max(&self) -> u32 {
        if self.log.may_move() && !self.trouble { self.slots() / MOVED_PART } else { 0 }
    }

    /// How much may be dirty where all that is live is moved: everything.
    fn dirty_max_to_clean(&self) -> u32 {
        if self.trouble { 0 } else { self.slots() }
    }

    /// The segment of which least is live: little, or so much as is worth moving for its dead room.
    fn sparse(&self, cleans: bool, from: &mut Queues<'_>) -> Option<u32> {
        let dirty_max = if cleans { self.dirty_max_to_clean() } else { self.dirty_max() };
        let fits = |id: u32| {
            let segment = self.segment(id);
            let has_room = || !cleans || self.gains(segment) && self.log.has_room_to_clean(segment);
            let is_full = segment.state == SegmentState::Closed;
            let may = || cleans || !self.turned.contains(&id);
            is_full.then(|| segment.last_seq < self.covered && segment.is_ready(dirty_max) && has_room() && may())
        };
        let id = from.sparse.take(Sparse::most(cleans, self.dropped), fits)?;
        from.policy.forget(SegmentId(id));
        Some(id)
    }

    /// Whether a segment can soon be cleaned: it waits for a checkpoint, or for the end of what
    /// reads there. As long as nothing had to be dropped, waiting is better than what the policy
    /// would give up.
    fn waits_for_segment(&self, sparse: &Sparse, choice: &mut Choice) -> bool {
        if self.dropped || self.away || !self.cleans {
            return false;
        }
        let (most, dirty_max) = (Sparse::most(true, false), self.dirty_max_to_clean());
        let fits = |id: u32| {
            let segment = self.segment(id);
            segment.state == SegmentState::Closed && segment.dirty <= dirty_max && self.gains(segment)
        };
        let uncovered = sparse.any(most, |id| fits(id) && self.segment(id).last_seq >= self.covered);
        let waited_ns = self.waits_since.map_or(0, |since| self.now.since_ns(since));
        let waits = (uncovered || sparse.any(most, fits)) && waited_ns < CLEANING_WAIT_NS;
        choice.checkpoint = uncovered && waits;
        choice.waits = Some(waits);
        waits
    }

    /// The segment that the policy would give up first, of those that needn't wait for destage; and
    /// whether others were passed over that have to.
    fn ready(&self, policy: &mut dyn Policy) -> (Option<u32>, bool) {
        let dirty_max = self.dirty_max();
        let passed_over = Cell::new(false);
        let ready = |id: SegmentId| {
            let segment = self.segment(id.0);
            let evictable = self.is_evictable(id.0);
            let ready = segment.is_ready(dirty_max);
            passed_over.set(passed_over.get() || evictable && !ready);
            evictable && ready
        };
        let id = policy.victim(&ready).map(|id| id.0);
        (id, passed_over.get())
    }

    /// The segment that the policy would give up first. It has to wait for destage, in an order
    /// that is not the origin's: only where no other is left.
    fn dirty(&self, policy: &mut dyn Policy, choice: &mut Choice) {
        let victim = policy.victim(&|id: SegmentId| self.is_evictable(id.0));
        choice.taken = victim.map(|id| (id.0, Way::Evict));
        // A checkpoint helps only if full segments wait for one; and if destage can't be relied on,
        // with holes.
        let dirty_max = match victim {
            None => self.slots(),
            Some(_) if self.away => self.slots() / COMPACTED_PART,
            Some(_) => return,
        };
        choice.checkpoint |= self.checkpoint_helps(dirty_max);
    }

    /// Whether a full segment of which so much is dirty at most waits for a checkpoint.
    fn checkpoint_helps(&self, dirty_max: u32) -> bool {
        let helps =
            |it: &Segment| it.state == SegmentState::Closed && it.last_seq >= self.covered && it.dirty <= dirty_max;
        self.log.segments().iter().any(helps)
    }

    /// While an origin takes nothing, its dirty blocks can lie in all segments: then the holes
    /// between them are all the room there is. Chooses the segment that has the fewest of them, to
    /// move these; one at a time (tests: `a_log_full_of_scattered_dirty_blocks_has_room`,
    /// `a_power_cut_while_a_log_is_compacted`).
    fn compact(&self, policy: &mut dyn Policy) -> Option<u32> {
        if !self.away || self.compacting || self.reads_elsewhere {
            return None;
        }
        let most = (self.slots() / COMPACTED_PART).min(self.log.room_to_compact());
        let fit = |it: &Segment| it.is_evictable(self.covered) && it.pins == 0 && it.dirty <= most;
        let tried = |id: &u32| self.not_compacted.contains(id) || self.turned.contains(id);
        let segments = (0..).zip(self.log.segments()).filter(|(id, it)| fit(it) && !tried(id));
        let (id, _) = segments.min_by_key(|(_, it)| it.dirty)?;
        policy.forget(SegmentId(id));
        Some(id)
    }
}
