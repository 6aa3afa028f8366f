// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stage is where a workload plays: a client whose every event is shown to a watcher, who cuts
//! the power.

use std::ops::ControlFlow;

use flashfront_device::Device;
use flashfront_device::sim::Fate;
use flashfront_device::wrap::{Fault, Rule};
use flashfront_engine::{
    Block, Control, DeviceError, DeviceId, DirtyOnRemove, Event, Key, Mode, Op, OriginId, RequestOp, VolumeChange,
};

use crate::client::Client;
use crate::spec::OriginSpec;

/// Is shown the world after each event, with the event's number.
pub(super) type Watch<'a> = dyn FnMut(&Client, u64) -> ControlFlow<()> + 'a;

/// A client that is watched.
pub struct Stage<'a> {
    client: Client,
    watch: &'a mut Watch<'a>,
    event: u64,
    /// Nobody watches any more: the rest is skipped.
    over: bool,
    /// The end of the cache was emptied, and stays empty.
    is_empty_end: bool,
}

impl<'a> Stage<'a> {
    /// A stage with a client, whose first state is shown at once.
    pub(super) fn new(client: Client, watch: &'a mut Watch<'a>) -> Self {
        let mut stage = Self { client, watch, event: 0, over: false, is_empty_end: false };
        stage.shown();
        stage
    }

    fn shown(&mut self) {
        if !self.over {
            self.client.judge();
            self.over = (self.watch)(&self.client, self.event).is_break();
            self.event += 1;
        }
    }

    fn step(&mut self) -> bool {
        let more = !self.over && self.client.world.step();
        if more {
            self.shown();
            assert!(
                !self.is_empty_end || self.left_in_end() == Some(0),
                "the end of the cache has been emptied, and fills up again"
            );
        }
        more
    }

    /// Begins a write.
    pub fn write(&mut self, origin: usize, sector: u64, sectors: u64, fua: bool) {
        if !self.over {
            self.client.write(origin, sector, sectors, fua);
            self.shown();
        }
    }

    /// Begins a read.
    pub fn read(&mut self, origin: usize, sector: u64, sectors: u64) {
        if !self.over {
            self.client.read(origin, sector, sectors);
            self.shown();
        }
    }

    /// Begins a discard or write-zeroes.
    pub fn change(&mut self, op: RequestOp, origin: usize, sector: u64, sectors: u64, fua: bool) {
        if !self.over {
            self.client.change(op, origin, sector, sectors, fua);
            self.shown();
        }
    }

    /// Begins a FLUSH.
    pub fn flush(&mut self, origin: usize) {
        if !self.over {
            self.client.flush(origin);
            self.shown();
        }
    }

    /// Gives an order.
    pub fn control(&mut self, control: Control) {
        if !self.over {
            self.client.world.control(control);
            self.shown();
        }
    }

    /// A member of a mirrored cache takes no writes from now on.
    pub fn fail_member(&mut self, member: u8) {
        let disk = self.client.world.member_mut(member).expect("a mirrored world");
        disk.faults.fail_range(0..u64::MAX, Some(Op::Write), DeviceError::Io);
    }

    /// The next read of an origin is done, but it says so only after that time.
    pub fn hold_read(&mut self, origin: usize, hold_ns: u64) {
        self.client.hold_read(origin, hold_ns);
    }

    /// Writes to the cache device take that long, until the daemon is killed.
    pub fn hold_log(&mut self, hold_ns: u64) {
        let late = Rule { op: Some(Op::Write), ..Rule::always(Fault::Hang { hold_ns }) };
        self.client.world.cache.faults.order(late);
    }

    /// Kills the daemon, whatever is in flight, and starts the next one.
    pub fn kill(&mut self) {
        if !self.over {
            self.client.world.cache.faults.heal();
            self.client.crash(self.event, Fate::Killed, Fate::Killed);
            self.client.world.begin_open();
            self.shown();
        }
        while !self.over && !self.client.world.serving() && self.step() {}
    }

    /// Puts another device in its place and waits until that holds all that is dirty.
    pub fn replace_member(&mut self, member: u8) {
        if !self.over {
            self.client.world.take_away(member);
            self.control(Control::AddMirror);
            self.until(Event::MirrorWhole { lacking: 0 });
        }
    }

    /// Puts an empty device beside a cache that has one.
    pub fn put_beside(&mut self) {
        if !self.over {
            self.client.world.put_beside();
        }
    }

    /// Waits until a member is out, by order, and nothing is in flight to it.
    pub fn until_left(&mut self, member: u8) {
        let device = if member == 0 { DeviceId::Cache } else { DeviceId::Mirror };
        self.until(Event::MemberLeft { device });
        let busy = |client: &mut Client| client.world.member_mut(member).is_some_and(|it| it.next_event().is_some());
        while !self.over && busy(&mut self.client) && self.step() {}
    }

    /// Waits until the other member of two leads, by order.
    pub fn until_leads(&mut self, member: u8) {
        let device = if member == 0 { DeviceId::Cache } else { DeviceId::Mirror };
        self.until(Event::MemberLeads { device });
    }

    /// Empties the end of the cache, and waits until that is done. Each lane keeps so many
    /// segments. From then on the end has to stay empty.
    pub fn vacate(&mut self, keep_segments: u32) {
        self.control(Control::Vacate { keep_segments: Some(keep_segments), dirty_limit_blocks: None });
        while !self.over && self.left_in_end() != Some(0) && self.step() {}
        self.is_empty_end = !self.over;
    }

    /// The end of the cache may be used again.
    pub fn use_end(&mut self) {
        self.is_empty_end = false;
        self.control(Control::Vacate { keep_segments: None, dirty_limit_blocks: None });
    }

    fn left_in_end(&self) -> Option<u64> {
        self.client.world.engine().status().left_in_end
    }

    /// Takes a device away that is out.
    pub fn take_away(&mut self, member: u8) {
        if !self.over {
            self.client.world.take_away(member);
        }
    }

    /// Asserts that these blocks of the first volume are in the cache.
    pub fn expect_warm(&self, blocks: &[u64]) {
        if self.over {
            return;
        }
        let engine = self.client.world.engine();
        for block in blocks {
            let key = Key { origin: OriginId(0), block: Block(*block) };
            assert!(engine.is_clean(key), "block {block} has not moved along");
        }
        assert_eq!(engine.status().counters.corrupt_blocks, 0);
    }

    /// Adds a volume, and waits until it is there. Returns its number.
    pub fn add_volume(&mut self, spec: OriginSpec) -> usize {
        if self.over {
            return 0;
        }
        let ticket = self.client.ask_add(spec);
        self.shown();
        let origin = self.await_volume(ticket);
        if !self.over {
            self.client.volume_came(origin, spec);
        }
        origin
    }

    /// Changes the volumes, and waits until that is done.
    pub fn change_volume(&mut self, change: VolumeChange) {
        if !self.over {
            let ticket = self.client.ask_volume(change);
            self.shown();
            self.await_volume(ticket);
        }
    }

    /// Grows a volume, and waits until its clients may use the new part.
    pub fn grow_volume(&mut self, origin: usize, size_bytes: u64) {
        if !self.over {
            let ticket = self.client.ask_grow(origin, size_bytes);
            self.shown();
            self.await_volume(ticket);
        }
    }

    /// Removes a volume, and waits until it is gone.
    pub fn remove_volume(&mut self, origin: usize, dirty: DirtyOnRemove) {
        if !self.over {
            let ticket = self.client.ask_remove(origin, dirty);
            self.shown();
            self.await_volume(ticket);
        }
    }

    /// Asserts that these are the volumes of the cache.
    pub(super) fn expect_volumes(&self, volumes: &[usize]) {
        assert!(self.over || self.client.volumes() == volumes, "the volumes are {:?}", self.client.volumes());
    }

    fn await_volume(&mut self, ticket: u64) -> usize {
        loop {
            match self.client.volume_answer(ticket) {
                Some(answer) => return answer.expect("the workload asks for what is possible"),
                None if !self.step() => return 0,
                None => {}
            }
        }
    }

    /// Switches an origin's mode.
    pub fn mode(&mut self, origin: u32, mode: Mode) {
        self.control(Control::SetMode { origin: OriginId(origin), mode });
    }

    /// Waits until at most so many requests are in flight.
    pub fn wait_down_to(&mut self, in_flight: usize) {
        while self.client.world.engine.is_some() && self.client.world.in_flight() > in_flight && self.step() {}
    }

    /// Lets time pass.
    pub fn pass(&mut self, ns: u64) {
        let end = self.client.world.now.plus_ns(ns);
        while self.client.world.next_event().is_some_and(|next| next <= end) && self.step() {}
        if !self.over {
            self.client.world.pass(end.since_ns(self.client.world.now));
        }
    }

    /// Waits for an event of the engine.
    fn until(&mut self, event: Event) {
        self.client.take_events();
        while !self.over && !self.client.take_events().contains(&event) && self.step() {}
    }

    /// Drains: everything dirty goes to the origins.
    pub fn drain(&mut self) {
        self.control(Control::Drain(true));
        self.until(Event::Drained);
    }

    /// Stops cleanly; nothing can be asked for any more.
    pub fn stop(&mut self) {
        self.wait_down_to(0);
        self.control(Control::Stop);
        self.until(Event::Stopped);
        if !self.over {
            self.client.world.engine = None;
            self.client.oracle.stop();
            self.shown();
        }
    }

    /// Blocks so far that somebody else's read brought.
    pub fn joined(&self) -> u64 {
        self.client.world.counters().joined_blocks
    }

    /// Blocks evicted so far: what reclaim has done.
    pub fn evicted(&self) -> u64 {
        self.client.world.counters().evicted_blocks
    }

    /// Blocks that the cache has of a volume.
    pub fn cached(&self, origin: u32) -> u64 {
        let origins = self.client.world.engine().status().origins;
        origins.iter().find(|it| it.id.0 == origin).map_or(0, |it| it.blocks_cached)
    }

    /// Reads of origins so far.
    pub fn origin_reads(&self) -> u64 {
        self.client.world.counters().origin_reads
    }

    /// Checkpoints finished so far.
    pub fn checkpoints(&self) -> u64 {
        self.client.world.counters().checkpoints
    }

    /// Asserts that the workload does what it is there for; if it is played to its end.
    ///
    /// # Panics
    /// If it doesn't.
    pub fn expect(&self, holds: bool, what: &str) {
        assert!(self.over || holds, "this workload is there to see {what}, and does not");
    }
}
