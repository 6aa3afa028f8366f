// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine: the lanes and the coordinator that splits, joins and schedules.
//!
//! `apply` is a total function: every input in every state is handled. After the input has been
//! handled, `settle` lets everything move that can, until nothing does.

mod clean;
mod life;
mod limits;
mod refusals;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use self::life::{fail_those_who_wait, live};
use self::limits::{clamp_dirty_limit, follow, without_end};
use crate::act::apart::{pays_apart, waits_for_others, work_apart};
use crate::act::flushes::{flush_devices, give_up_proofs, go_on_drained};
use crate::act::hang::answers;
use crate::act::mirror::MIRRORED;
use crate::act::persist::Told;
use crate::act::ranges::ranges_step;
use crate::act::reclaim::reclaim_step;
use crate::act::reclaim::state::watermark;
use crate::act::recover::begin_recovery;
use crate::act::request::accept;
use crate::act::sync::order;
use crate::act::sync::state::Sync;
use crate::act::volumes;
use crate::act::volumes::{give_up, volumes_step};
use crate::act::zeroes::zeroes_step;
use crate::coordinator::{Coordinator, Life};
use crate::cx::{Cx, Turn};
use crate::delta::{Delta, Purpose};
use crate::fact::canary::Canary;
use crate::fact::io::{Control, Effects, Input};
use crate::fact::memory::Memory;
use crate::fact::open_error::OpenError;
use crate::fact::options::Options;
use crate::fact::status::{Counters, OriginStatus, Status};
use crate::fact::types::{Key, Time};
use crate::facts::Facts;
use crate::format::Superblock;
use crate::lane::Lane;
use crate::lanes::Lanes;
use crate::look::Look;
use crate::organ::budget::Budget;
use crate::organ::down::Down;
use crate::organ::earlier::Earlier;
use crate::organ::flush::OriginFlush;
use crate::organ::index::Flat;
use crate::organ::members::{Aim, FailureRecord, Members};
use crate::organ::origin::{Origin, OriginDelta, Stage};
use crate::organ::router::Router;
use crate::policy::Window;
use crate::shadow::{Shadow, Shape};

/// A cache.
pub struct Engine {
    pub(crate) lanes: Lanes,
    /// Shared with lanes that work in other threads, for that time.
    pub(crate) facts: Arc<Facts>,
    pub(crate) delta: Delta,
    pub(crate) coordinator: Coordinator,
    earlier: Earlier,
}

impl Engine {
    /// A cache on the device that this superblock was read from, not yet open: apply
    /// [`Input::Timer`] to begin, and wait for [`Event::Ready`] or [`Event::OpenFailed`].
    ///
    /// The caller has raised the superblock's epoch by one and made that durable.
    ///
    /// # Errors
    /// When the origins can't be indexed.
    pub fn new(superblock: Superblock, options: Options, now: Time) -> Result<Self, OpenError> {
        let router = Router::new(superblock.lanes, superblock.stripe_blocks);
        let mut origins = Vec::new();
        let (mut next, mut keys) = (0, 0);
        let units: BTreeMap<_, _> = options.origin_block_bytes.iter().copied().collect();
        for record in &superblock.origins {
            let device = (units.get(&record.id).copied().unwrap_or(512), options.whole_flushes.contains(&record.id));
            let origin = Origin::new(record, Flat(next), device, Stage::Serving);
            keys = next + router.span_of(origin.blocks);
            next = router.next_base(next, origin.blocks);
            origins.push(origin);
        }
        let capacity = superblock.cache_blocks();
        let limit = clamp_dirty_limit(options.dirty_limit_blocks.unwrap_or(capacity / 2), capacity, options.destage);
        let members = Members::new(superblock.pairing);
        let budget = options.flash_writes_per_day_bytes.map(|bytes| Budget::new(bytes, now));
        // A daemon that was killed may have left writes in the origins' caches.
        let inherited = !options.planted(Canary::InheritedFlushed);
        let of_origins = origins.iter().map(|_| OriginDelta::new(OriginFlush::new(inherited))).collect();
        let delta = Delta::new(of_origins, members, budget);
        let mut facts = Facts {
            cache_tag: superblock.cache_tag(),
            dirty_limit: limit,
            limit_set: limit,
            limit_without_end: None,
            superblock,
            options,
            origins,
            limit_alone: 0,
            any_own_limit: false,
            any_min: false,
            any_part: false,
            weighed_blocks: 0,
            with_max: Vec::new(),
            any_max: false,
            widest_unit: 0,
            parts_number: 0,
            away: false,
            draining: false,
            stopping: false,
        };
        facts.take_limits();
        let lanes = (0..facts.superblock.lanes as usize).map(|id| Lane::new(id, keys, &facts).map(Box::new));
        let lanes = Lanes::new(lanes.collect::<Result<_, _>>()?);
        let shadow = Shadow::new(shape(&facts.superblock, &facts.options), facts.options.policy.build);
        let coordinator = Coordinator::new(facts.origins.len(), router, shadow, now);
        Ok(Self { lanes, facts: Arc::new(facts), delta, coordinator, earlier: Earlier::default() })
    }

    /// From now on messages between lanes and the coordinator are on their way for a while. The
    /// seed chooses which comes next. So a simulation of one thread does things in any order that a
    /// thread for each lane can. This is to be called before the first input.
    pub fn choose_order(&mut self, seed: u64) {
        self.lanes.choose_order(seed);
    }

    /// Whether messages are on their way: [`Engine::settle`] is to be called again, however late.
    #[must_use]
    pub fn has_mail(&self) -> bool {
        self.lanes.has_mail()
    }

    /// Takes one input at time `now`, and adds what is to be done to `out`.
    pub fn apply(&mut self, now: Time, input: Input, mem: &mut dyn Memory, out: &mut Effects) {
        self.take(now, input, mem, out);
        self.settle(now, mem, out);
    }

    /// Takes one input of several that came together; [`Engine::settle`] has to follow the last of
    /// them. What is to be done for them all is then looked for once: a third of the cost of a
    /// write (`cargo x bench engine`).
    pub fn take(&mut self, now: Time, input: Input, mem: &mut dyn Memory, out: &mut Effects) {
        self.coordinator.now = now;
        if !self.coordinator.begun {
            self.begin(now, mem, out);
        }
        let (coordinator, lanes) = (&mut self.coordinator, &mut self.lanes);
        let mut cx = Cx { now, mem, out, facts: &self.facts, delta: &mut self.delta };
        match input {
            Input::Request(request) => accept(coordinator, request, lanes, &mut cx),
            Input::IoDone { token, result } => {
                let (lane, io) = ((token.0 >> 40) as usize, (token.0 & ((1 << 40) - 1)) as usize);
                if lane == MIRRORED {
                    cx.member_done(io, result);
                } else {
                    coordinator.hand_on(lane, io, result, lanes, &mut cx);
                }
            }
            Input::Control(control) => {
                let mut turn = Turn { now, mem, out, facts: &mut self.facts, delta: &mut self.delta };
                coordinator.learn(&control, &mut turn);
                match control {
                    Control::Volume { ticket, change } => volumes::change(coordinator, ticket, *change, &mut turn),
                    control => coordinator.control(control, lanes, &mut turn.cx()),
                }
            }
            Input::Timer => {}
        }
    }

    /// Begins to open the lanes.
    fn begin(&mut self, now: Time, mem: &mut dyn Memory, out: &mut Effects) {
        self.coordinator.begun = true;
        let mut cx = Cx { now, mem, out, facts: &self.facts, delta: &mut self.delta };
        self.lanes.begin(&mut cx, begin_recovery);
    }

    /// Lets everything move that can after what was taken, or because the time of
    /// [`Engine::next_timer`] has come.
    pub fn settle(&mut self, now: Time, mem: &mut dyn Memory, out: &mut Effects) {
        // Also when nothing was taken: a timer may have been due.
        self.coordinator.now = now;
        let mut turn = Turn { now, mem, out, facts: &mut self.facts, delta: &mut self.delta };
        self.coordinator.settle(&mut self.lanes, &mut turn);
    }

    /// When [`Input::Timer`] is due, if nothing else happens before.
    #[must_use]
    pub fn next_timer(&self) -> Option<Time> {
        if !self.coordinator.is_at_work() {
            return None;
        }
        let age = self.facts.options.commit_age_max_ns;
        let commits = self.lanes.driven().filter_map(|lane| lane.log.commit_due(age));
        let destage = self.coordinator.destager.next_timer(&self.delta, self.coordinator.now);
        // What was due by the last call was done then, or waits for something else than time.
        let victims = self.lanes.driven().flat_map(|lane| lane.reclaim.timers());
        let proofs = (0..self.facts.origins.len()).filter_map(|origin| self.delta.proof_overdue_from(origin));
        let fillings = self.lanes.driven().filter_map(|lane| lane.sync.as_ref().and_then(Sync::timer));
        let all = commits.chain(destage).chain(victims).chain(proofs).chain(fillings);
        let detours = self.lanes.driven().filter_map(|lane| lane.detours.timer());
        let all = all.chain(detours).chain(self.coordinator.throttle.timers());
        all.filter(|when| *when > self.coordinator.now).min()
    }

    /// The superblock as it is now.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.facts.superblock
    }

    /// The number that a new mirror would have as a member. `None` while there are two members, or
    /// one is being left out, or reads for a mirror that is no longer filled are under way.
    /// Otherwise no I/O for that member begins.
    #[must_use]
    pub fn free_member(&self) -> Option<u8> {
        let filling = self.lanes.looks().any(Look::fills);
        self.delta.members.free().filter(|_| !filling)
    }

    /// The counters of [`Engine::status`] go on from these, and those of its origins from theirs.
    pub fn go_on_from(&mut self, counters: Counters, origins: Vec<OriginStatus>) {
        self.earlier = Earlier::new(counters, origins);
    }

    /// The counters of this engine alone.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.delta.counters
    }

    /// A snapshot of counters and gauges.
    #[must_use]
    pub fn status(&self) -> Status {
        let (facts, delta) = (&self.facts, &self.delta);
        let listed = facts.origins.iter().zip(&delta.origins).filter(|(is, _)| is.is_listed());
        let origins = listed.map(|(is, origin)| OriginStatus {
            id: is.id,
            mode: is.mode,
            size_bytes: is.size_bytes,
            blocks_dirty: origin.dirty.get(),
            blocks_cached: origin.cached.get(),
            logged_blocks: origin.logged.get(),
            evicted_blocks: origin.evicted.get(),
            evicted_below_min: origin.below_min.get(),
            evicted_at_max: origin.at_max.get(),
            unsent_flush_ns: origin.cuts.oldest_unsent().map(|since| self.coordinator.now.since_ns(since)),
            doubtful: origin.flush.is_doubtful(),
            may_be_torn: origin.cuts.may_be_torn(),
        });
        let budget = delta.budget.as_ref().map(|budget| budget.left(self.coordinator.now));
        self.earlier.added_to(Status {
            counters: delta.counters,
            origins: origins.collect(),
            blocks_cached: self.lanes.driven().map(|lane| lane.store.index().len()).sum(),
            blocks_dirty: delta.dirty(),
            dirty_limit_blocks: facts.limit_set,
            capacity_blocks: facts.superblock.cache_blocks(),
            segments_free: self.lanes.driven().map(|lane| lane.log.free_segments() as u64).sum(),
            segments: self.lanes.driven().map(|lane| lane.log.segments().len() as u64).sum(),
            draining: facts.draining,
            mirror: order::status(&self.lanes, &delta.members),
            mirror_lacks_blocks: self.lanes.driven().map(|lane| lane.trouble.only_on_lead()).sum(),
            lead_lacks_blocks: self.lanes.driven().map(|lane| lane.trouble.only_elsewhere()).sum(),
            left_in_end: self.lanes.driven().filter_map(|lane| lane.log.left_in_end()).reduce(|one, other| one + other),
            succeeding: delta.members.is_succeeding().then(|| order::copied(&self.lanes)),
            promoting: delta.members.is_promoting().then(|| order::copied(&self.lanes)),
            cache_failed: delta.members.cache_failed,
            lost: self.lost(),
            buffer_bytes: delta.bytes(Purpose::Work),
            ram_front_bytes: delta.bytes(Purpose::RamFront),
            flash_writes_per_day_bytes: budget.map(|it| it.0),
            flash_writes_left_bytes: budget.map_or(0, |it| it.1),
            window_bytes: delta.bytes(Purpose::Window),
            index_bytes: self.lanes.driven().map(|lane| lane.table_bytes()).sum(),
            shadow_bytes: self.coordinator.shadow.bytes(),
            what_if: self.coordinator.shadow.what_if(self.delta.counters.found()),
            requests_in_flight: self.coordinator.requests.len() as u64,
        })
    }

    /// The lost blocks of all lanes, in the order of their places.
    fn lost(&self) -> Vec<Key> {
        let lost: BTreeSet<Flat> = self.lanes.driven().flat_map(|lane| lane.trouble.lost()).collect();
        lost.into_iter().map(|flat| self.facts.key(flat)).collect()
    }

    /// Walks every invariant that can be seen from inside.
    ///
    /// # Panics
    /// When one is broken: a bug.
    pub fn check(&self) {
        crate::check::check(&self.lanes, &self.facts, &self.delta, &self.coordinator.destager);
    }
}

/// What the shadow must know of the cache.
fn shape(superblock: &Superblock, options: &Options) -> Shape {
    let (lanes, segments) = (superblock.lanes, superblock.segments_per_lane);
    let window = Window::new(u64::from(segments) * u64::from(superblock.segment_blocks), u64::from(lanes));
    Shape {
        segments: lanes * segments,
        segment_blocks: superblock.segment_blocks,
        free_segments: lanes * watermark(segments as usize) as u32,
        window_blocks: window.capacity() * lanes as usize,
        stands_for: 1,
        read_around_blocks: options.read_around_blocks().max(1),
    }
}

impl Coordinator {
    /// Changes the facts that a command changes.
    fn learn(&mut self, control: &Control, turn: &mut Turn<'_>) {
        match *control {
            Control::SetMode { origin: id, mode } => {
                let Some(origin) = turn.facts.place_of(id).filter(|it| turn.facts.origins[*it].is_listed()) else {
                    return;
                };
                let facts = turn.change();
                facts.origins[origin].mode = mode;
                if let Some(record) = facts.superblock.origin_mut(id) {
                    record.mode = mode;
                }
                self.persist.tell(Told::Mode(id, mode));
            }
            Control::SetDirtyLimit { blocks } => {
                let limit = clamp_dirty_limit(blocks, turn.facts.superblock.cache_blocks(), turn.facts.options.destage);
                turn.change().limit_set = limit;
            }
            Control::Vacate { keep_segments, dirty_limit_blocks } => {
                turn.change().limit_without_end =
                    keep_segments.map(|it| without_end(turn.facts, it, dirty_limit_blocks));
            }
            Control::SetSequentialBypass { bytes } => {
                let facts = turn.change();
                facts.options.sequential_bypass_bytes = bytes;
                facts.take_limits();
            }
            Control::RefuseWrites { origin } => {
                if let Some(place) = turn.facts.place_of(origin) {
                    turn.change().origins[place].read_only = true;
                }
            }
            Control::Drain(on) => turn.change().draining = on,
            Control::GoOn { drop_clean } => turn.change().options.drop_clean |= drop_clean,
            Control::Stop => give_up(self, turn),
            Control::FailureRecorded { .. }
            | Control::AddMirror
            | Control::Replace
            | Control::RemoveMember { .. }
            | Control::PromoteMember { .. }
            | Control::EndCopying
            | Control::LetClientsGo
            | Control::Answers { .. }
            | Control::Volume { .. } => {}
        }
    }

    /// Does what a command asks for, beside the facts that it changes.
    fn control(&mut self, control: Control, lanes: &mut Lanes, cx: &mut Cx<'_>) {
        match control {
            // What could not be read may be readable by now: it is tried once more. But not what is
            // being replaced right now on the origin.
            Control::Drain(true) => lanes.send_all(|| Down::TryLost, cx),
            Control::FailureRecorded { durable } => {
                let record = if durable { FailureRecord::Durable } else { FailureRecord::Impossible };
                cx.delta.members.note_failure(record);
            }
            Control::AddMirror => order::begin(&mut self.filling, Aim::Mirror, lanes, cx),
            Control::Replace => order::begin(&mut self.filling, Aim::Succeed, lanes, cx),
            Control::RemoveMember { member } => order::remove(&mut self.filling, member, lanes, cx),
            Control::PromoteMember { member } => order::promote(&mut self.filling, member, lanes, cx),
            Control::EndCopying => order::end_copying(cx),
            Control::Vacate { keep_segments, .. } => lanes.send_all(|| Down::Vacate { first: keep_segments }, cx),
            Control::LetClientsGo => self.clients_leave = true,
            Control::Answers { device } => answers(device, lanes, &mut self.destager, cx),
            Control::GoOn { .. } => lanes.send_all(|| Down::GoOn, cx),
            Control::Stop => {
                if self.serving() {
                    self.go_on_to(Life::Stopping);
                    self.destager.stop();
                }
            }
            Control::Drain(false)
            | Control::SetMode { .. }
            | Control::Volume { .. }
            | Control::SetDirtyLimit { .. }
            | Control::RefuseWrites { .. }
            | Control::SetSequentialBypass { .. } => {}
        }
    }

    /// Follows a change of the members of a mirrored cache, and hands on what both have done.
    fn follow_members(&mut self, lanes: &mut Lanes, cx: &mut Cx<'_>) {
        if cx.delta.members.take_lead_changed() {
            lanes.send_all(|| Down::LeadChanged, cx);
        }
        if cx.delta.members.has_successor() {
            cx.succeed(lanes.looks().map(Look::only_on_lead).sum());
        }
        let promoted = cx.delta.members.take_promoted();
        if (promoted || cx.delta.members.other().is_none()) && lanes.looks().any(Look::knows_copies) {
            lanes.send_all(|| Down::ForgetCopies, cx);
        }
        while cx.delta.members.has_ended() {
            for (lane, io, result) in cx.delta.members.take_ended() {
                self.hand_on(lane, io, result, lanes, cx);
            }
        }
    }

    /// Lets everything move that can. The context is made anew only where facts have changed.
    fn settle(&mut self, lanes: &mut Lanes, turn: &mut Turn<'_>) {
        let mut cx = turn.cx();
        lanes.begin_turn();
        loop {
            self.follow_members(lanes, &mut cx);
            if !waits_for_others(self, lanes, &cx) {
                if pays_apart(lanes, &cx) {
                    work_apart(self, lanes, turn);
                    cx = turn.cx();
                }
                lanes.each(&mut cx, Lane::work);
            }
            self.handle_messages(lanes, &mut cx);
            if self.is_at_work() {
                zeroes_step(self, lanes, &mut cx);
                ranges_step(self, lanes, &mut cx);
                let away = self.destager.is_any_away(&cx);
                cx = follow(turn, away);
                self.destage_step(lanes, &mut cx);
                if cx.cache_failed() {
                    self.persist.mark_failed(turn);
                    cx = turn.cx();
                    lanes.each(&mut cx, Lane::leave_cache);
                    go_on_drained(self, lanes, &mut cx);
                }
                lanes.each(&mut cx, Lane::step);
                order::end(&mut self.filling, lanes, &mut cx);
            }
            if !self.volumes.idle() || self.persist.has_ended() {
                volumes_step(self, lanes, turn);
                cx = turn.cx();
            }
            // In every state of life a member of a mirror may fail, and that has to be recorded.
            if self.persist.has_work(&cx) {
                self.persist.step(turn);
                cx = turn.cx();
            }
            flush_devices(self, lanes, &mut cx);
            if lanes.leaves_mail() {
                break;
            }
            let members = &cx.delta.members;
            let ended = !members.has_ended() && !members.has_successor() && !lanes.has_mail();
            let idle = !lanes.driven().any(Lane::has_work) || waits_for_others(self, lanes, &cx);
            if ended && cx.delta.is_silent() && idle {
                break;
            }
        }
        live(self, lanes, turn);
    }

    /// Makes room, and lets writers in as far as there is room.
    fn destage_step(&mut self, lanes: &mut Lanes, cx: &mut Cx<'_>) {
        give_up_proofs(self, lanes, cx);
        // Reclaim first: it tells destage what is urgent.
        lanes.each(cx, reclaim_step);
        self.throttle.step(lanes, &self.router, &self.destager, cx);
        if self.clients_leave {
            fail_those_who_wait(self, lanes, cx);
        }
        self.destager.step(lanes, &self.router, self.requests.len(), &self.throttle, cx);
    }
}
