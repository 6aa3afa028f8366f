// SPDX-License-Identifier: MIT OR Apache-2.0
//! The front-end alone, in a pump of the test's that answers when the test says so, with a clock of
//! the test's.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use flashfront_device::Arena;
use flashfront_engine::{Buf, Memory, OriginId, Request, Time};
use mio::{Events, Poll};

use super::super::VhostUserBlk;
use crate::frontend::{Core, Export, Frontend, TokenRange};

/// A volume that is only named.
pub(super) fn export(size_bytes: u64) -> Export {
    Export::new("data", OriginId(0), size_bytes)
}

/// A pump that answers nothing by itself.
pub(super) struct Slow {
    exports: Vec<Export>,
    pub(super) arena: Arena,
    /// Requests that are not answered.
    pub(super) queue: VecDeque<Request>,
}

impl Slow {
    pub(super) fn new(export: Export) -> Self {
        Self { exports: vec![export], arena: Arena::with_reserve(512 << 20, 4 << 20), queue: VecDeque::new() }
    }
}

impl Core for Slow {
    fn exports(&self) -> &[Export] {
        &self.exports
    }

    fn memory(&mut self) -> &mut dyn Memory {
        &mut self.arena
    }

    fn alloc(&mut self, bytes: u32, _origin: OriginId) -> Option<Buf> {
        self.arena.try_alloc(bytes)
    }

    fn free(&mut self, buf: Buf) {
        self.arena.free(buf);
    }

    fn submit(&mut self, request: Request) {
        self.queue.push_back(request);
    }
}

/// The front-end and its pump.
pub(super) struct Alone {
    pub(super) front: VhostUserBlk,
    pub(super) core: Slow,
    poll: Poll,
    /// The path of the socket.
    pub(super) path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Alone {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("guest");
        let mut front = VhostUserBlk::bind(&path, OriginId(0), false).unwrap();
        let poll = Poll::new().unwrap();
        let tokens = TokenRange { first: 0, count: front.tokens_max() };
        front.register(poll.registry(), tokens).unwrap();
        Self { front, core: Slow::new(export(1 << 20)), poll, path, _dir: dir }
    }

    /// Handles all that is ready, and ends the turn. Returns whether there is more to do at once.
    pub(super) fn turn(&mut self, now: u64) -> bool {
        let mut events = Events::with_capacity(64);
        self.poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        for event in &events {
            self.front.ready(event, self.poll.registry(), &mut self.core);
        }
        self.front.turn_end(Time(now), self.poll.registry(), &mut self.core)
    }

    /// Turns until a guest, which waits for answers, has done this.
    pub(super) fn serve<T: Send>(&mut self, guest: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let guest = scope.spawn(guest);
            while !guest.is_finished() {
                self.turn(0);
                std::thread::yield_now();
            }
            guest.join().unwrap()
        })
    }

    /// Answers the oldest request, and tells its client.
    pub(super) fn answer(&mut self) {
        let request = self.core.queue.pop_front().expect("something was asked for");
        self.front.reply(request.id, Ok(()), &mut self.core);
        self.front.replied(&mut self.core);
        self.turn(0);
    }
}
