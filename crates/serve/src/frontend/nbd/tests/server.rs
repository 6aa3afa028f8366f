// SPDX-License-Identifier: MIT OR Apache-2.0
//! A smallest pump: serves a disk in RAM in a thread of its own, with the real front-end, poller
//! and sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flashfront_engine::Time;
use mio::{Events, Poll, Token, Waker};
use tempfile::TempDir;

use super::super::super::{Frontend, TokenRange};
use super::super::{Listen, Nbd, NbdOptions};
use super::ram::Ram;

/// How requests are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Requests are answered as they came, at the end of their turn.
    Fifo,
    /// Each turn's last first, and half of them a turn later.
    Shuffled,
}

/// A running server.
pub(super) struct Server {
    pub(super) at: Listen,
    pub(super) uri: String,
    waker: Waker,
    stop: Arc<AtomicBool>,
    /// Nanoseconds that the server's clock is ahead.
    ahead_ns: Arc<AtomicU64>,
    /// Clients that were turned away, as of the last turn.
    pub(super) refused: Arc<AtomicU64>,
    thread: Option<JoinHandle<Ram>>,
    _dir: TempDir,
}

impl Server {
    /// Serves at a unix socket.
    pub(super) fn start(ram: Ram, order: Order) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = Listen::Unix(dir.path().join("socket"));
        Self::start_at(ram, order, &at, NbdOptions::default(), dir)
    }

    pub(super) fn start_at(ram: Ram, order: Order, at: &Listen, options: NbdOptions, dir: TempDir) -> Self {
        let mut nbd = Nbd::bind(at, options).unwrap();
        let poll = Poll::new().unwrap();
        let tokens = TokenRange { first: 1, count: nbd.tokens_max() };
        nbd.register(poll.registry(), tokens).unwrap();
        let (at, uri) = (nbd.address().clone(), nbd.uri());
        let waker = Waker::new(poll.registry(), Token(0)).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (ahead_ns, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let thread = std::thread::spawn({
            let (stop, ahead_ns, refused) = (Arc::clone(&stop), Arc::clone(&ahead_ns), Arc::clone(&refused));
            move || serve(ram, order, nbd, poll, [&ahead_ns, &refused], &stop)
        });
        Self { at, uri, waker, stop, ahead_ns, refused, thread: Some(thread), _dir: dir }
    }

    /// Lets time pass for the server.
    pub(super) fn pass(&self, time: Duration) {
        self.ahead_ns.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
        self.waker.wake().unwrap();
    }

    /// Stops cleanly; all buffers must have come back.
    pub(super) fn stop(self) -> Ram {
        self.stop.store(true, Ordering::SeqCst);
        self.waker.wake().unwrap();
        self.join()
    }

    /// Stops, and lets time pass until it has.
    pub(super) fn stop_impatiently(self) -> Ram {
        self.stop.store(true, Ordering::SeqCst);
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            self.pass(Duration::from_secs(1));
            std::thread::yield_now();
        }
        self.join()
    }

    fn join(mut self) -> Ram {
        let ram = self.thread.take().unwrap().join().unwrap();
        assert_eq!(ram.buffers.held_bytes + ram.buffers.passing_bytes, 0, "buffers leaked");
        ram
    }
}

fn serve(
    mut ram: Ram,
    order: Order,
    mut nbd: Nbd,
    mut poll: Poll,
    [ahead_ns, refused]: [&AtomicU64; 2],
    stop: &AtomicBool,
) -> Ram {
    let begin = Instant::now();
    let mut events = Events::with_capacity(256);
    let mut more = false;
    let mut stopping = false;
    loop {
        let now = || Time(begin.elapsed().as_nanos() as u64 + ahead_ns.load(Ordering::SeqCst));
        let timer = nbd.next_timer().map(|timer| Duration::from_nanos(timer.since_ns(now())));
        let busy = more || !ram.queue.is_empty();
        let timeout = if busy { Some(Duration::ZERO) } else { timer };
        match poll.poll(&mut events, timeout) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            result => result.unwrap(),
        }
        if stop.load(Ordering::SeqCst) && !stopping {
            stopping = true;
            nbd.stop(poll.registry(), &mut ram);
        }
        for event in &events {
            nbd.ready(event, poll.registry(), &mut ram);
        }
        let mut batch = std::mem::take(&mut ram.queue);
        if order == Order::Shuffled {
            batch.reverse();
            ram.queue = batch.split_off(batch.len().div_ceil(2));
        }
        for request in batch {
            if ram.refuses(&request) {
                nbd.refused(request.id, &mut ram);
                continue;
            }
            let (id, result) = ram.execute(&request);
            nbd.reply(id, result, &mut ram);
        }
        more = nbd.turn_end(now(), poll.registry(), &mut ram);
        refused.store(nbd.clients_refused(), Ordering::SeqCst);
        if stopping && nbd.idle() {
            return ram;
        }
    }
}
