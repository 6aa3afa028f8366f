// SPDX-License-Identifier: MIT OR Apache-2.0
//! A disk behind a server, as a network volume is: its connection breaks, and comes back later.
//!
//! What becomes of requests and flushes then is the rule of ADR 0046, and [`Unflushed`] keeps the
//! account for both. Requests without an answer are sent again, with the bytes that their memory
//! has then. A server that dies loses what was not flushed. One that lives may still do what it
//! was asked for, until the next connection. A server that answers twice, or answers what nobody
//! asked for, has its connection closed by the protocol: here it is a connection that breaks.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};

use flashfront_engine::{Buf, DeviceError, Memory, Op, Span, Time, Token};

use super::ramdisk::{Fate, RamDisk};
use crate::arena::Grip;
use crate::unflushed::Unflushed;
use crate::{Arena, Device, DeviceIo, Done, Geometry};

/// The time until the error of a flush that is not sent.
const ERROR_NS: u64 = 100_000;

/// A connection that is to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Break {
    /// After so many requests more, when the last of them is sent.
    pub after: u64,
    /// The server dies. Its unflushed writes and those in flight have this fate.
    ///
    /// `None`: it lives, and only the connection breaks.
    pub dies: Option<Fate>,
    /// The time without a connection.
    pub away_ns: u64,
    /// Decides what the fate leaves open.
    pub seed: u64,
}

/// A request that the server has.
#[derive(Clone, Debug)]
struct Flight {
    io: DeviceIo,
    /// The memory that it was given.
    memory: Option<Grip>,
    /// The memory that it is sent from, or comes to, if it is not the first time.
    copy: Option<Buf>,
    /// As of [`Unflushed::covers`].
    covers: u64,
}

/// A request that waits for a connection.
#[derive(Clone, Debug)]
struct Waiting {
    io: DeviceIo,
    memory: Option<Grip>,
    /// The memory may be somebody else's by now.
    again: bool,
}

/// A disk behind a connection.
#[derive(Clone, Debug)]
pub struct Link {
    disk: RamDisk,
    account: Unflushed,
    flying: BTreeMap<Token, Flight>,
    todo: VecDeque<Waiting>,
    failed: VecDeque<(Time, Token)>,
    breaks: VecDeque<Break>,
    /// There is no connection until then. The server that lived has this fate for what it had.
    away: Option<(Time, Option<u64>)>,
    lost: u64,
    /// Losses that were asked for.
    seen: u64,
    untold: bool,
    fetched: Vec<Done>,
}

impl Link {
    /// A disk whose connection never breaks unless that is ordered.
    #[must_use]
    pub const fn new(disk: RamDisk) -> Self {
        Self {
            disk,
            account: Unflushed::new(),
            flying: BTreeMap::new(),
            todo: VecDeque::new(),
            failed: VecDeque::new(),
            breaks: VecDeque::new(),
            away: None,
            lost: 0,
            seen: 0,
            untold: false,
            fetched: Vec::new(),
        }
    }

    /// Orders a break. Several are met one after the other.
    pub fn order(&mut self, wanted: Break) {
        self.breaks.push_back(wanted);
    }

    /// Takes all orders back; a server that is away is there again from the next look on.
    pub fn heal(&mut self) {
        self.breaks.clear();
        if let Some((until, _)) = &mut self.away {
            *until = Time(0);
        }
    }

    /// How often the connection was lost with something unflushed.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether the connection was lost with something unflushed since this was last asked.
    pub const fn take_loss(&mut self) -> bool {
        let seen = std::mem::replace(&mut self.seen, self.lost);
        seen < self.lost
    }

    /// When its server is there again, if it is away.
    #[must_use]
    pub fn returns(&self) -> Option<Time> {
        self.away.map(|(until, _)| until)
    }

    /// I/Os that are not answered, sent or not.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flying.len() + self.todo.len() + self.failed.len()
    }

    /// Plants a bug: no flush fails for what was lost with a connection.
    pub const fn plant_untold(&mut self) {
        self.untold = true;
    }

    fn send(&mut self, now: Time, waiting: Waiting, arena: &mut Arena) {
        let Waiting { io, memory, again } = waiting;
        if io.op == Op::Flush && self.account.must_fail() && !self.untold {
            self.fail(now, io.token);
            let todo = std::mem::take(&mut self.todo).into_iter();
            let (flushes, others): (VecDeque<Waiting>, _) = todo.partition(|it| it.io.op == Op::Flush);
            self.todo = others;
            flushes.iter().for_each(|flush| self.fail(now, flush.io.token));
            return;
        }
        let copy = memory.as_ref().filter(|_| again).map(|memory| {
            let len = memory.len() as u32;
            let copy = arena.try_alloc(len).expect("an arena of tests is large enough");
            memory.read(arena.bytes_mut(Span::new(copy, 0, len)));
            (copy, len)
        });
        let span = copy.map_or(io.span, |(copy, len)| Some(Span::new(copy, 0, len)));
        let copy = copy.map(|it| it.0);
        self.flying.insert(io.token, Flight { io, memory, copy, covers: self.account.covers() });
        self.disk.submit(now, DeviceIo { span, ..io }, arena);
        if let Some(next) = self.breaks.front_mut() {
            next.after = next.after.saturating_sub(1);
            if next.after == 0
                && let Some(met) = self.breaks.pop_front()
            {
                self.lose(now, met, arena);
            }
        }
    }

    fn fail(&mut self, now: Time, token: Token) {
        self.failed.push_back((now.plus_ns(ERROR_NS), token));
    }

    fn lose(&mut self, now: Time, met: Break, arena: &mut Arena) {
        let unflushed = self.account.lose();
        self.lost += u64::from(unflushed);
        if let Some(fate) = met.dies {
            self.disk = self.disk.crash(met.seed, fate);
        }
        let lives = met.dies.is_none().then_some(met.seed);
        self.away = Some((now.plus_ns(met.away_ns), lives));
        let mut again = VecDeque::new();
        for (token, Flight { io, memory, copy, covers }) in std::mem::take(&mut self.flying) {
            if let Some(copy) = copy {
                arena.free(copy);
            }
            if unflushed && io.op == Op::Flush && !self.untold {
                self.account.failed(covers);
                self.fail(now, token);
            } else {
                again.push_back(Waiting { io, memory, again: true });
            }
        }
        again.append(&mut self.todo);
        self.todo = again;
    }

    /// Connects again, if it is time, and sends what waits until the connection breaks once more.
    fn work(&mut self, now: Time, arena: &mut Arena) {
        if let Some((_, lives)) = self.away.take_if(|(until, _)| *until <= now)
            && let Some(seed) = lives
        {
            self.disk = self.disk.crash(seed, Fate::Killed);
        }
        while self.away.is_none()
            && let Some(waiting) = self.todo.pop_front()
        {
            self.send(now, waiting, arena);
        }
    }
}

impl Deref for Link {
    type Target = RamDisk;

    fn deref(&self) -> &RamDisk {
        &self.disk
    }
}

impl DerefMut for Link {
    fn deref_mut(&mut self) -> &mut RamDisk {
        &mut self.disk
    }
}

impl Device for Link {
    fn submit(&mut self, now: Time, io: DeviceIo, arena: &mut Arena) {
        let memory = io.span.map(|span| arena.grip(span));
        self.work(now, arena);
        // A caller may give up an I/O that waits for its server, and use the memory again.
        let again = self.away.is_some() || !self.todo.is_empty();
        self.todo.push_back(Waiting { io, memory, again });
        self.work(now, arena);
    }

    fn kick(&mut self) {}

    fn poll(&mut self, now: Time, arena: &mut Arena, done: &mut Vec<Done>) {
        self.work(now, arena);
        if self.away.is_none() {
            let mut fetched = std::mem::take(&mut self.fetched);
            self.disk.poll(now, arena, &mut fetched);
            for Done { token, result } in fetched.drain(..) {
                let Flight { io, memory, copy, covers } =
                    self.flying.remove(&token).expect("a completion belongs to a request in flight");
                match io.op {
                    Op::Flush => self.account.flushed(covers),
                    Op::Write | Op::Zero | Op::Punch | Op::Discard => self.account.changed(false),
                    Op::Read | Op::Map => {
                        if let (Some(mut memory), Some(copy)) = (memory, copy) {
                            memory.write(arena.bytes(Span::new(copy, 0, memory.len() as u32)));
                        }
                    }
                }
                if let Some(copy) = copy {
                    arena.free(copy);
                }
                done.push(Done { token, result });
            }
            self.fetched = fetched;
        }
        while self.failed.front().is_some_and(|(due, _)| *due <= now)
            && let Some((_, token)) = self.failed.pop_front()
        {
            done.push(Done { token, result: Err(DeviceError::Io) });
        }
    }

    fn next_event(&self) -> Option<Time> {
        let connection = self.away.map_or_else(|| self.disk.next_event(), |(until, _)| Some(until));
        let failed = self.failed.front().map(|(due, _)| *due);
        connection.into_iter().chain(failed).min()
    }

    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
}

#[cfg(test)]
mod tests;
