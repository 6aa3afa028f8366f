// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pump: one thread that carries things between the engine, the devices and the front-ends.
//!
//! A turn waits until something happens. Then the engine takes completions and requests, the pump
//! carries out all effects, starts the I/O as one batch, and sends the replies. The pump decides
//! nothing.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use flashfront_device::{Arena, DeviceIo, Done};
use flashfront_engine::{
    Control, Counters, DeviceId, Effect, Effects, Engine, Event, Input, OriginId, OriginStatus, Request, RequestId,
    RequestOp, Time,
};
use mio::{Events, Poll, Token};

use crate::control::ControlCall;
use crate::frontend::desk::{Clock, Desk, Shortage};
use crate::frontend::ended::Ended;
use crate::frontend::{Export, Frontend, TokenRange, prefetch};
use crate::latency::{Durations, Latencies, LatencyFigures};
use crate::tap::{Tapping, Taps};

mod devices;
mod hand_over;
mod offers;

pub use devices::Devices;
pub(crate) use devices::{DeviceSet, HangNews};

/// Another thread has something to say: commands, or a stop.
pub(crate) const WAKER: Token = Token(1);
const FIRST_FRONTEND_TOKEN: usize = 16;
const EVENTS_MAX: usize = 256;
/// Completions that are handled before replies are sent and new I/O is started.
///
/// A virtio disk ends up to 32 I/Os by one interrupt. Handled as one batch, they leave the device
/// idle for that time. 4 KiB reads at queue depth 32 had 0.8 of the raw device's speed then (by
/// eights: see bench/runs).
const BATCH: usize = 8;

/// The pump.
pub struct Pump {
    engine: Engine,
    arena: Arena,
    devices: DeviceSet,
    poll: Poll,
    events: Events,
    frontends: Vec<(Box<dyn Frontend>, TokenRange)>,
    exports: Vec<Export>,
    /// The first token that no front-end has.
    next_token: usize,
    /// Front-ends that were told to stop while others go on, by their places.
    leaving: Vec<usize>,
    /// What operators want to be prefetched; none before the first one has asked.
    prefetches: Option<prefetch::Orders>,
    /// Requests, and whether each may wait for an origin.
    requests: VecDeque<(Request, bool)>,
    /// Something was taken that the engine has not settled, but reads that were foreseen to be
    /// hits.
    unsettled: bool,
    effects: Effects,
    calls: Receiver<ControlCall>,
    clock: Clock,
    now: Time,
    latencies: Latencies,
    /// Notes requests for recorders.
    tapping: Tapping,
    /// Events of the engine that the daemon has not taken yet, oldest first.
    news: VecDeque<Event>,
    freed: bool,
    shortage: Shortage,
}

impl Pump {
    /// A pump over an engine that is not open yet.
    #[must_use]
    pub fn new(engine: Engine, arena: Arena, devices: Devices, poll: Poll, calls: Receiver<ControlCall>) -> Self {
        Self {
            engine,
            arena,
            devices: DeviceSet::new(devices),
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            frontends: Vec::new(),
            exports: Vec::new(),
            next_token: FIRST_FRONTEND_TOKEN,
            leaving: Vec::new(),
            prefetches: None,
            requests: VecDeque::new(),
            unsettled: true,
            effects: Effects::default(),
            calls,
            clock: Clock::start(),
            now: Time(0),
            latencies: Latencies::default(),
            tapping: Tapping::default(),
            news: VecDeque::new(),
            freed: false,
            shortage: Shortage::default(),
        }
    }

    /// Lanes work one after the other from now on.
    pub fn end_apart(&mut self) {
        self.arena.end_apart();
    }

    /// Notes requests for these recorders from now on.
    pub(crate) fn record_for(&mut self, taps: Taps) {
        self.tapping = Tapping::new(taps);
    }

    /// Offers volumes to clients through front-ends.
    ///
    /// # Errors
    /// When the kernel refuses to watch their sockets.
    pub fn serve(&mut self, exports: Vec<Export>, frontends: Vec<Box<dyn Frontend>>) -> io::Result<()> {
        self.exports = exports;
        frontends.into_iter().try_for_each(|frontend| self.add_frontend(frontend))
    }

    /// Lets clients come by one more front-end.
    ///
    /// # Errors
    /// When the kernel refuses to watch its sockets.
    pub(crate) fn add_frontend(&mut self, mut frontend: Box<dyn Frontend>) -> io::Result<()> {
        let tokens = TokenRange { first: self.next_token, count: frontend.tokens_max() };
        self.next_token += tokens.count;
        frontend.register(self.poll.registry(), tokens)?;
        self.frontends.push((frontend, tokens));
        Ok(())
    }

    /// Forgets a volume that the engine has no more.
    pub(crate) fn forget(&mut self, origin: OriginId) {
        self.devices.remove(DeviceId::Origin(origin));
        self.latencies.forget(origin);
    }

    /// Ends the front-ends that show this volume alone.
    pub(crate) fn end_frontends_of(&mut self, origin: OriginId) {
        for at in 0..self.frontends.len() {
            if self.frontends[at].0.only() == Some(origin) {
                self.leaving.push(at);
                let (frontend, mut desk, registry) = self.desk(at);
                frontend.stop(registry, &mut desk);
            }
        }
    }

    /// Forgets front-ends that were told to stop and have nothing left to do. Their places stay, as
    /// requests name them.
    fn part_with_frontends(&mut self) {
        let frontends = &mut self.frontends;
        self.leaving.retain(|at| {
            let ended = frontends[*at].0.idle();
            if ended {
                frontends[*at].0 = Box::new(Ended);
            }
            !ended
        });
    }

    /// Whether a front-end needs turns before clients can come.
    ///
    /// # Errors
    /// One never will be ready.
    pub(crate) fn frontends_starting(&mut self) -> io::Result<bool> {
        let mut starting = false;
        for (frontend, _) in &mut self.frontends {
            starting |= frontend.starting()?;
        }
        Ok(starting)
    }

    /// The devices.
    pub(crate) const fn devices(&self) -> &DeviceSet {
        &self.devices
    }

    /// The devices, to be changed.
    pub(crate) const fn devices_mut(&mut self) -> &mut DeviceSet {
        &mut self.devices
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Bytes of buffers in use, the engine's and the clients'.
    #[must_use]
    pub fn buffer_bytes(&self) -> u64 {
        self.arena.allocated_bytes() + self.arena.borrowed_bytes()
    }

    /// The time of this turn.
    pub(crate) const fn now(&self) -> Time {
        self.now
    }

    /// The clock of the times that requests carry.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Goes on with what a daemon before this one had counted, of all and of each origin. That had
    /// served for `before_ns` when the clock of this one began.
    pub(crate) fn go_on_from(
        &mut self,
        counters: Counters,
        origins: Vec<OriginStatus>,
        latencies: LatencyFigures,
        before_ns: u64,
    ) {
        self.engine.go_on_from(counters, origins);
        self.latencies.go_on(latencies, before_ns);
    }

    /// How long requests of an origin took, in the order of [`crate::latency::Kind::ALL`].
    #[must_use]
    pub fn durations(&self, origin: OriginId) -> [Durations; 4] {
        self.latencies.of(origin, self.now)
    }

    /// How long requests of all origins took.
    pub(crate) const fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// Takes what the engine has told since the last time.
    pub fn news(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.news.drain(..)
    }

    /// Commands that wait for an answer.
    #[must_use]
    pub fn call(&self) -> Option<ControlCall> {
        self.calls.try_recv().ok()
    }

    /// Answers no commands any more, and no commands that wait.
    pub(crate) fn refuse_calls(&mut self) {
        self.calls = channel().1;
    }

    /// Takes no more from clients; what is in flight is answered.
    pub fn stop_frontends(&mut self) {
        for at in 0..self.frontends.len() {
            let (frontend, mut desk, registry) = self.desk(at);
            frontend.stop(registry, &mut desk);
        }
    }

    /// Lists the addresses of clients that may hold unwritten data, and how many clients each has.
    pub(crate) fn holders(&self) -> Vec<(String, u64)> {
        let mut all: Vec<(String, u64)> = Vec::new();
        for (frontend, _) in self.frontends.iter().filter(|(frontend, _)| frontend.holders() > 0) {
            let (place, clients) = (frontend.uri(), frontend.holders() as u64);
            match all.iter_mut().find(|(other, _)| *other == place) {
                Some((_, count)) => *count += clients,
                None => all.push((place, clients)),
            }
        }
        all
    }

    /// Leaves all clients, whatever is in flight.
    pub(crate) fn drop_frontends(&mut self) {
        self.frontends.clear();
    }

    /// Clients connected now.
    #[must_use]
    pub fn clients(&self) -> u64 {
        self.frontends.iter().map(|(frontend, _)| frontend.clients() as u64).sum()
    }

    /// Clients so far that were turned away, since all places were taken.
    #[must_use]
    pub fn clients_refused(&self) -> u64 {
        self.frontends.iter().map(|(frontend, _)| frontend.clients_refused()).sum()
    }

    /// Whether all clients are answered.
    #[must_use]
    pub fn frontends_idle(&self) -> bool {
        self.requests.is_empty() && self.frontends.iter().all(|(frontend, _)| frontend.idle())
    }

    /// A front-end, and what it is called with.
    fn desk(&mut self, at: usize) -> (&mut dyn Frontend, Desk<'_, impl FnMut(Request, bool)>, &mio::Registry) {
        let requests = &mut self.requests;
        let submit = move |request: Request, may_wait| {
            let id = RequestId(request.id.0 | (at as u64) << 32);
            requests.push_back((Request { id, ..request }, may_wait));
        };
        let (freed, shortage) = (&mut self.freed, &mut self.shortage);
        let (clock, now) = (self.clock, self.now);
        let (arena, exports, latencies) = (&mut self.arena, &self.exports, Some(&self.latencies));
        let desk = Desk { arena, exports, freed, shortage, clock, now, latencies, submit };
        (&mut *self.frontends[at].0, desk, self.poll.registry())
    }

    /// Applies one input and carries out what follows.
    pub fn apply(&mut self, input: Input) {
        self.take(input);
        self.settle();
    }

    fn take(&mut self, input: Input) {
        self.unsettled = true;
        self.engine.take(self.now, input, &mut self.arena, &mut self.effects);
    }

    /// Carries out what follows from all that was taken.
    fn settle(&mut self) {
        self.engine.settle(self.now, &mut self.arena, &mut self.effects);
        self.unsettled = false;
        let mut any_reply = false;
        for at in 0..self.effects.0.len() {
            match self.effects.0[at] {
                Effect::Io(io) => {
                    let id = io.device;
                    let io = DeviceIo { token: io.token, op: io.op, offset: io.offset, len: io.len, span: io.span };
                    self.devices.submit(self.now, id, io, &mut self.arena);
                }
                Effect::Reply { id, result, .. } => {
                    any_reply = true;
                    let frontend = (id.0 >> 32) as usize;
                    let (frontend, mut desk, _) = self.desk(frontend);
                    frontend.reply(RequestId(id.0 & 0xffff_ffff), result, &mut desk);
                }
                Effect::Event(event) => self.news.push_back(event),
            }
        }
        for at in 0..self.frontends.len() {
            let (frontend, mut desk, _) = self.desk(at);
            frontend.replied(&mut desk);
        }
        if any_reply {
            self.measure();
        }
        self.effects.0.clear();
    }

    /// Records how long the requests took that were just answered. Many come together as a rule, so
    /// the clock is read once for all of them.
    fn measure(&mut self) {
        self.tick();
        for effect in &self.effects.0 {
            if let Effect::Reply { answered, .. } = effect {
                self.latencies.record(*answered, self.now);
            }
        }
    }

    /// Takes a turn; waits at most `patience` if there is nothing to do.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn turn(&mut self, patience: Duration) -> io::Result<()> {
        let busy = self.end_turn();
        let wait = if busy { Duration::ZERO } else { self.wait(patience) };
        let sockets = self.devices.reactor().wait(Some(self.poll.as_raw_fd()), Some(wait))?;
        self.events.clear();
        if sockets {
            match self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => other?,
            }
        }
        self.tick();
        // Time has passed.
        self.unsettled = true;
        self.take_completions();
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            let at = self.frontends.iter().position(|(_, tokens)| tokens.index(event.token()).is_some());
            if let Some(at) = at {
                let (frontend, mut desk, registry) = self.desk(at);
                frontend.ready(event, registry, &mut desk);
            }
        }
        self.events = events;
        self.take_requests();
        // Even if nothing was taken: a timer may be due.
        self.settle();
        Ok(())
    }

    fn tick(&mut self) {
        self.now = self.clock.now();
    }

    fn take_requests(&mut self) {
        while let Some((request, may_wait)) = self.requests.pop_front() {
            if may_wait {
                self.tapping.note(&request);
                self.take(Input::Request(request));
            } else {
                self.take_passing(request);
            }
        }
    }

    /// Takes a request whose buffer must not wait for an origin; the front-end gets back a request
    /// that would have to.
    fn take_passing(&mut self, request: Request) {
        if self.unsettled {
            self.settle();
        }
        if !self.engine.ends_by_itself(self.now, &request, &mut self.arena) {
            let (frontend, mut desk, _) = self.desk((request.id.0 >> 32) as usize);
            return frontend.refused(RequestId(request.id.0 & 0xffff_ffff), &mut desk);
        }
        self.tapping.note(&request);
        self.take(Input::Request(request));
        // Hits change nothing that another look would see.
        self.unsettled = request.op != RequestOp::Read;
    }

    fn take_completions(&mut self) {
        for device in self.devices.fetch(self.now, &mut self.arena) {
            self.take(Input::Control(Control::Answers { device }));
        }
        for _ in 0..BATCH {
            let Some(Done { token, result }) = self.devices.take_done() else { break };
            self.take(Input::IoDone { token, result });
        }
    }

    /// Sends replies and starts I/O; says whether there is more to do at once.
    fn end_turn(&mut self) -> bool {
        self.devices.kick();
        self.shortage.turn_end();
        let idle = |frontends: &[(Box<dyn Frontend>, TokenRange)]| frontends.iter().filter(|it| it.0.idle()).count();
        let (mut busy, idle_before) = (false, idle(&self.frontends));
        if std::mem::take(&mut self.freed) {
            for at in 0..self.frontends.len() {
                let (frontend, mut desk, _) = self.desk(at);
                frontend.room(&mut desk);
            }
        }
        let now = self.now;
        for at in 0..self.frontends.len() {
            let (frontend, mut desk, registry) = self.desk(at);
            busy |= frontend.turn_end(now, registry, &mut desk);
        }
        self.part_with_frontends();
        if !self.requests.is_empty() {
            // Requests that are answered at once are told at the end of the next turn.
            busy = true;
            self.take_requests();
            self.settle();
        }
        busy |= self.tapping.hand_over();
        self.devices.kick();
        // A stop waits for the last client to be gone, so no sleep may hide that.
        busy || self.freed
            || self.shortage.is_news()
            || self.devices.fetched() > 0
            || idle(&self.frontends) != idle_before
    }

    /// How long to wait; there is nothing else to do, so memory is given back first.
    fn wait(&mut self, patience: Duration) -> Duration {
        self.tick();
        self.arena.trim(self.now, |number, chunk| self.devices.reactor().unregister_chunk(number, chunk));
        let frontends = self.frontends.iter().map(|(frontend, _)| frontend.next_timer());
        let next = frontends
            .chain([self.devices.next_event(), self.engine.next_timer(), self.arena.next_timer()])
            .flatten()
            .min();
        let until = next.map_or(Duration::MAX, |at| Duration::from_nanos(at.since_ns(self.now)));
        until.min(patience)
    }
}

#[cfg(test)]
mod tests;
