// SPDX-License-Identifier: MIT OR Apache-2.0
//! A carrier's thread: turns as the pump's are, without engine and devices.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use flashfront_device::Arena;
use flashfront_device::real::Spin;
use flashfront_engine::Time;
use mio::{Events, Poll, Token};

use super::{Asked, Order, Portable, Seen};
use crate::frontend::bell::Bell;
use crate::frontend::desk::{Clock, Desk, Shortage};
use crate::frontend::{Core, Export, TokenRange};

/// The pump has orders.
pub(super) const BELL: Token = Token(0);
const EVENTS_MAX: usize = 256;

/// A front-end, and the way to the pump.
pub(super) struct Hosted {
    frontend: Portable,
    tokens: TokenRange,
    requests: Sender<Asked>,
    bell: Arc<Bell>,
    seen: Arc<Seen>,
    /// The pump has requests that it has not been woken for.
    asked: bool,
    stopping: bool,
}

impl Hosted {
    pub(super) fn new(
        frontend: Portable,
        tokens: TokenRange,
        requests: Sender<Asked>,
        bell: Arc<Bell>,
        seen: Arc<Seen>,
    ) -> Self {
        Self { frontend, tokens, requests, bell, seen, asked: false, stopping: false }
    }

    fn wake_pump(&mut self) {
        if std::mem::take(&mut self.asked) {
            self.bell.ring();
        }
    }

    /// Lets the pump see how it is.
    fn show(&self) {
        self.seen.clients.store(self.frontend.clients(), Ordering::Relaxed);
        let held = self.seen.holds.load(Ordering::Relaxed) && self.frontend.held();
        if !self.seen.held.swap(held, Ordering::AcqRel) && held {
            self.bell.ring();
        }
        if self.stopping && self.frontend.idle() && !self.seen.ended.swap(true, Ordering::AcqRel) {
            self.bell.ring();
        }
    }
}

/// A carrier.
pub(super) struct Carrier {
    poll: Poll,
    events: Events,
    bell: Arc<Bell>,
    orders: Receiver<Order>,
    hosted: Vec<Hosted>,
    arena: Arena,
    exports: Vec<Export>,
    clock: Clock,
    /// When the turn's events were found.
    now: Time,
    freed: bool,
    shortage: Shortage,
    spin: Spin,
}

impl Carrier {
    pub(super) fn new(
        poll: Poll,
        bell: Arc<Bell>,
        orders: Receiver<Order>,
        hosted: Vec<Hosted>,
        arena: Arena,
        exports: Vec<Export>,
        clock: Clock,
    ) -> Self {
        let (events, now) = (Events::with_capacity(EVENTS_MAX), clock.now());
        let (freed, shortage, spin) = (false, Shortage::default(), Spin::default());
        Self { poll, events, bell, orders, hosted, arena, exports, clock, now, freed, shortage, spin }
    }

    /// Turns until no holder of its orders is left.
    pub(super) fn run(mut self) {
        while self.turn() {}
    }

    fn turn(&mut self) -> bool {
        let busy = self.end_turn();
        let wait = if busy { Some(Duration::ZERO) } else { self.patience() };
        self.wait(wait).expect("a poller that was made can be waited for");
        self.now = self.clock.now();
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            if let Some(at) = self.hosted.iter().position(|it| it.tokens.index(event.token()).is_some()) {
                self.with(at, |frontend, registry, desk| frontend.ready(event, registry, desk));
            }
        }
        self.events = events;
        let alive = self.take_orders();
        self.hosted.iter_mut().for_each(Hosted::wake_pump);
        alive
    }

    /// Calls a front-end with its desk.
    fn with<T>(&mut self, at: usize, call: impl FnOnce(&mut Portable, &mio::Registry, &mut dyn Core) -> T) -> T {
        let Hosted { frontend, requests, asked, .. } = &mut self.hosted[at];
        // Without a pump there are no more orders either, and the thread ends.
        let submit = |request, may_wait| *asked |= requests.send((request, may_wait)).is_ok();
        let (freed, shortage) = (&mut self.freed, &mut self.shortage);
        let (clock, now) = (self.clock, self.now);
        let (arena, exports, latencies) = (&mut self.arena, &self.exports, None);
        let mut desk = Desk { arena, exports, freed, shortage, clock, now, latencies, submit };
        call(frontend, self.poll.registry(), &mut desk)
    }

    /// False when there will be none any more.
    fn take_orders(&mut self) -> bool {
        self.bell.heard();
        let alive = self.take_all_orders();
        for at in 0..self.hosted.len() {
            self.with(at, |frontend, _, desk| frontend.replied(desk));
        }
        alive
    }

    fn take_all_orders(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Reply { at, id, result }) => {
                    self.with(at, |frontend, _, desk| frontend.reply(id, result, desk));
                }
                Ok(Order::Refused { at, id }) => self.with(at, |frontend, _, desk| frontend.refused(id, desk)),
                Ok(Order::Run { at, errand }) => self.with(at, |frontend, _, desk| errand(&mut **frontend, desk)),
                Ok(Order::Exports(exports)) => self.exports = exports,
                Ok(Order::Stop { at }) => {
                    self.with(at, |frontend, registry, desk| frontend.stop(registry, desk));
                    self.hosted[at].stopping = true;
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Sends replies; says whether there is more to do at once.
    fn end_turn(&mut self) -> bool {
        self.now = self.clock.now();
        let (now, mut busy) = (self.now, false);
        self.shortage.turn_end();
        if std::mem::take(&mut self.freed) {
            for at in 0..self.hosted.len() {
                self.with(at, |frontend, _, desk| frontend.room(desk));
            }
        }
        for at in 0..self.hosted.len() {
            busy |= self.with(at, |frontend, registry, desk| frontend.turn_end(now, registry, desk));
            self.hosted[at].wake_pump();
            self.hosted[at].show();
        }
        busy || self.freed || self.shortage.is_news()
    }

    /// How long to wait; there is nothing else to do, so memory is given back first. None = until
    /// something happens.
    fn patience(&mut self) -> Option<Duration> {
        let now = self.clock.now();
        // No ring has its chunks registered: the pump's registers none of these numbers.
        self.arena.trim(now, |_, _| {});
        let timers = self.hosted.iter().map(|hosted| hosted.frontend.next_timer());
        let next = timers.chain([self.arena.next_timer()]).flatten().min();
        next.map(|at| Duration::from_nanos(at.since_ns(now)))
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let began = Instant::now();
        let sleeps = timeout != Some(Duration::ZERO);
        let Self { poll, events, spin, .. } = self;
        let mut polled = |timeout| match poll.poll(events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            other => other.map(|()| !events.is_empty()),
        };
        let mut look = || polled(Some(Duration::ZERO)).is_ok_and(|some| some);
        if !(sleeps && spin.is_worth_it() && spin.look_out(began, &mut look)) {
            polled(timeout)?;
        }
        if sleeps {
            spin.waited(began.elapsed());
        }
        Ok(())
    }
}

impl Drop for Carrier {
    /// Wakes the pump, which has to notice if the thread died.
    fn drop(&mut self) {
        let bells: Vec<_> = self.hosted.drain(..).map(|hosted| hosted.bell).collect();
        // Only now, with the channels closed, there is something to notice.
        bells.iter().for_each(|bell| bell.ring());
    }
}
