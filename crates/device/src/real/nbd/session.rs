// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread of a server: hands tasks to connections, and makes new connections when they break.
//!
//! All connections are one: when one breaks, all are closed. Nobody knows what has become of
//! requests without an answer, so they are sent again. Changes that were acknowledged, and that no
//! flush has covered, may be gone with the server. So one flush fails: whoever ordered them must
//! order them again, or tell.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flashfront_nbd_proto::Ask;
use flashfront_nbd_proto::client::ExportInfo;
use flashfront_nbd_proto::wire::export_flag;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::again::{Refused, again};
use super::connection::Connection;
use super::dial::Server;
use super::flight::{Answered, Named};
use super::{Inbox, Shared};
use crate::real::lock::Access;
use crate::real::remote::LinkNews;
use crate::real::remote::Task;
use crate::unflushed::Unflushed;
use crate::{Geometry, Rng};

/// Requests that a connection has at a time. More bring no server any more; qemu-nbd takes 16.
const FLIGHTS_MAX: usize = 64;
/// The longest payload of a request.
const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// The pause before the second try; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// What a server has for its last answers, and then for its goodbye.
const LEAVE: Duration = Duration::from_secs(2);

/// There is no connection.
struct Away {
    since: Instant,
    tries: u32,
    /// When to try again; `None` while a thread tries.
    next: Option<Instant>,
}

/// The connections that there are, or were.
#[derive(Clone, Copy)]
struct Up {
    since: Instant,
    /// They were made by so many tries.
    tries: u32,
    /// They have answered so many requests.
    answers: u64,
}

/// The thread's state.
pub(super) struct Session {
    shared: Arc<Shared>,
    server: Arc<Server>,
    /// What the device was at the start, which it must be for ever, and how it is used.
    opened: (Geometry, Access),
    /// What the server can do.
    info: ExportInfo,
    connections: Vec<Connection>,
    away: Option<Away>,
    up: Up,
    /// Tasks without a request under way, the oldest first.
    todo: VecDeque<Box<dyn Task>>,
    answered: Vec<Answered>,
    cookie: u64,
    /// What no flush has covered.
    unflushed: Unflushed,
    rng: Rng,
}

impl Session {
    pub(super) fn new(
        shared: Arc<Shared>,
        server: Arc<Server>,
        opened: (Geometry, Access),
        connections: Vec<Connection>,
    ) -> Self {
        let info = connections[0].info();
        let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |it| it.as_nanos());
        Self {
            shared,
            server,
            opened,
            info,
            connections,
            away: None,
            up: Up { since: Instant::now(), tries: 0, answers: 0 },
            todo: VecDeque::new(),
            answered: Vec::new(),
            cookie: 0,
            unflushed: Unflushed::new(),
            rng: Rng::new(seed as u64 ^ u64::from(std::process::id())),
        }
    }

    /// Works until the device is closed.
    pub(super) fn run(mut self) {
        loop {
            let Inbox { tasks, dialed, forgotten, stopping } = self.shared.take();
            for owner in forgotten {
                self.todo.retain(|task| task.owner() != owner);
                self.connections.iter_mut().for_each(|connection| connection.forget(owner));
            }
            self.todo.extend(tasks);
            if let Some(dialed) = dialed {
                self.dialed(dialed);
            }
            if stopping {
                return self.leave();
            }
            match &self.away {
                None => self.work(),
                Some(Away { next: Some(next), .. }) if *next <= Instant::now() => self.dial(),
                Some(_) => {}
            }
            self.wait();
        }
    }

    /// Hands out tasks and moves bytes, until nothing moves any more.
    fn work(&mut self) {
        loop {
            self.hand_out();
            let mut lost = None;
            for connection in &mut self.connections {
                if let Err(why) = connection.move_bytes(&mut self.answered) {
                    lost.get_or_insert(why.to_string());
                }
            }
            let is_news = !self.answered.is_empty();
            for answered in std::mem::take(&mut self.answered) {
                self.answer(answered);
            }
            if let Some(why) = lost {
                return self.lose(why);
            }
            if !is_news || self.todo.is_empty() {
                return;
            }
        }
    }

    /// Gives tasks to the connections that have the least to do.
    fn hand_out(&mut self) {
        let payload_max = u64::from(self.info.sizes.maximum.min(PAYLOAD_BYTES_MAX));
        while let Some(connection) = self.connections.iter_mut().min_by_key(|connection| connection.flights())
            && connection.flights() < FLIGHTS_MAX
            && let Some(mut task) = self.todo.pop_front()
        {
            let wish = task.next(payload_max);
            if wish.ask == Ask::Flush {
                if self.unflushed.must_fail() {
                    self.fail_flushes(task);
                    continue;
                }
                if !self.info.can(export_flag::SEND_FLUSH) {
                    // Each change was sent with FUA.
                    self.answered.push(Answered { task, outcome: Ok(0), covers: self.unflushed.covers() });
                    continue;
                }
            }
            let fua = wish.ask.changes() && !self.info.can(export_flag::SEND_FLUSH);
            self.cookie += 1;
            let named = Named { wish, fua, cookie: self.cookie, covers: self.unflushed.covers() };
            if let Err(refused) = connection.submit(task, named) {
                self.answered.push(refused);
            }
        }
    }

    /// Fails a flush, and all others that were asked for by now.
    fn fail_flushes(&mut self, first: Box<dyn Task>) {
        let mut others = VecDeque::new();
        let queued = std::mem::take(&mut self.todo);
        for mut task in std::iter::once(first).chain(queued) {
            if task.next(1).ask == Ask::Flush {
                // A flush is one request: there is no more of it.
                let _ = task.advance(Err(Errno::IO));
            } else {
                others.push_back(task);
            }
        }
        self.todo = others;
    }

    fn answer(&mut self, Answered { mut task, outcome, covers }: Answered) {
        let ask = task.next(1).ask;
        self.up.answers += 1;
        match outcome {
            // Without a flush each change was sent with FUA.
            Ok(_) if ask.changes() => self.unflushed.changed(!self.info.can(export_flag::SEND_FLUSH)),
            Ok(_) if ask == Ask::Flush => self.unflushed.flushed(covers),
            _ => {}
        }
        // More of the same task goes first, so that it ends before what came later.
        if let Some(rest) = task.advance(outcome) {
            self.todo.push_front(rest);
        }
    }

    /// Closes all connections, and takes back what they have not answered.
    fn lose(&mut self, why: String) {
        let unflushed = self.unflushed.lose();
        let mut tasks: Vec<(Box<dyn Task>, u64)> =
            self.connections.drain(..).flat_map(Connection::into_tasks).collect();
        let mut again = Vec::new();
        for (mut task, covers) in tasks.drain(..) {
            if unflushed && task.next(1).ask == Ask::Flush {
                self.unflushed.failed(covers);
                again.extend(task.advance(Err(Errno::IO)));
            } else {
                again.push(task);
            }
        }
        for task in again.into_iter().rev() {
            self.todo.push_front(task);
        }
        let now = Instant::now();
        // A server that answers nothing and hangs up again and again is asked less and less often.
        let Up { since, tries, answers } = self.up;
        let tries = if answers == 0 { tries } else { 0 };
        let next = if since.elapsed() < PAUSE_MAX { now + self.pause(tries) } else { now };
        self.away = Some(Away { since: now, tries, next: Some(next) });
        self.shared.link().away = Some((now, why.clone()));
        self.shared.tell(&LinkNews::Lost { why, unflushed });
    }

    /// The pause before a try. Half of it is random, so that many clients don't come together.
    fn pause(&mut self, tries: u32) -> Duration {
        let pause = PAUSE.saturating_mul(1 << tries.min(10)).min(PAUSE_MAX);
        let half_ms = pause.as_millis() as u64 / 2;
        Duration::from_millis(half_ms + self.rng.below(half_ms))
    }

    /// Starts a thread that connects.
    fn dial(&mut self) {
        let Some(away) = &mut self.away else { return };
        (away.next, away.tries) = (None, away.tries + 1);
        let (shared, server, opened) = (Arc::clone(&self.shared), Arc::clone(&self.server), self.opened);
        let dial = move || {
            let connections = again(shared.watch.get(), &server, opened);
            shared.give(|inbox| inbox.dialed = Some(connections));
        };
        if std::thread::Builder::new().name("nbd-dial".to_owned()).spawn(dial).is_err() {
            away.next = Some(Instant::now() + PAUSE_MAX);
        }
    }

    fn dialed(&mut self, dialed: Result<Vec<Connection>, Refused>) {
        let Some(away) = &mut self.away else { return };
        match dialed {
            Ok(connections) => {
                let after = away.since.elapsed();
                self.up = Up { since: Instant::now(), tries: away.tries, answers: 0 };
                (self.away, self.info, self.connections) = (None, connections[0].info(), connections);
                let mut link = self.shared.link();
                (link.away, link.reconnects) = (None, link.reconnects + 1);
                drop(link);
                self.shared.tell(&LinkNews::Back { after });
            }
            Err(refused) => {
                let (since, tries) = (away.since, away.tries);
                let next = Instant::now() + self.pause(tries);
                self.away = Some(Away { since, tries, next: Some(next) });
                let (why, is_judged) = match refused {
                    Refused::Dial(error) => (error.what, false),
                    Refused::Changed(why) => (why, true),
                };
                let mut link = self.shared.link();
                let is_new = link.away.as_ref().is_none_or(|(_, told)| *told != why);
                link.away = Some((since, why.clone()));
                drop(link);
                if is_judged && is_new {
                    self.shared.tell(&LinkNews::Refused { why });
                }
            }
        }
    }

    /// Sleeps until there is something to do.
    fn wait(&self) {
        let flags = |connection: &Connection| {
            if connection.has_output() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
        };
        let mut fds = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        fds.extend(
            self.connections.iter().map(|connection| PollFd::from_borrowed_fd(connection.as_fd(), flags(connection))),
        );
        let next = self.away.as_ref().and_then(|away| away.next);
        let left = next.map(|next| next.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        // An error of poll means that it is to be tried again.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
    }

    /// Ends what is under way, and says goodbye.
    fn leave(mut self) {
        let deadline = Instant::now() + LEAVE;
        let is_busy = |connections: &[Connection]| connections.iter().any(|connection| connection.flights() > 0);
        while is_busy(&self.connections)
            && self.connections.iter_mut().all(|connection| connection.move_bytes(&mut self.answered).is_ok())
            && is_busy(&self.connections)
            && Instant::now() < deadline
        {
            self.wait_until(deadline);
        }
        for Answered { task, outcome, .. } in std::mem::take(&mut self.answered) {
            drop(task.advance(outcome));
        }
        self.connections.iter_mut().for_each(Connection::say_goodbye);
        let deadline = Instant::now() + LEAVE;
        self.connections.iter_mut().for_each(|connection| connection.wait_for_end(deadline));
    }

    fn wait_until(&self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds: Vec<_> = self
            .connections
            .iter()
            .map(|connection| PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::IN))
            .collect();
        let _ = rustix::event::poll(&mut fds, Timespec::try_from(left).ok().as_ref());
    }
}
