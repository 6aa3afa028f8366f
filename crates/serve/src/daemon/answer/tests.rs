// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operators' calls: many at once, while front-ends start, and at the end.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::time::Instant;

use flashfront_device::real::{Prefer, Reactor};
use flashfront_engine::{RequestError, RequestId, Time};
use mio::{Poll, Registry, Waker, event::Event};

use super::super::open::{Listening, open, options};
use super::super::{Daemon, Hooks, begin};
use crate::config::Config;
use crate::control::{Command, ControlCall, Response};
use crate::frontend::{Core, Frontend, TokenRange};
use crate::pump::WAKER;
use crate::rig::{Bench, CACHE_BYTES};

/// A daemon that could serve, and the way to ask it.
fn opened(config: &Config) -> (Daemon, Sender<ControlCall>) {
    let opened = open(config).unwrap();
    let options = options(config, &opened).unwrap();
    let (poll, hooks) = (Poll::new().unwrap(), Hooks::default());
    hooks.stop.wakes(&Arc::new(Waker::new(poll.registry(), WAKER).unwrap()));
    let (calls, called) = channel();
    let daemon = begin(config, opened, options, Reactor::new(Prefer::Auto).unwrap(), &hooks, poll, called).unwrap();
    (daemon.opened().unwrap().unwrap(), calls)
}

#[test]
fn operators_who_ask_without_end_leave_clients_their_turns() {
    let bench = Bench::formatted();
    let config = bench.config();
    let (mut daemon, calls) = opened(&config);
    let (reply, answers) = channel();
    for _ in 0..1000 {
        calls.send(ControlCall { command: Command::Status, reply: reply.clone().into() }).unwrap();
    }
    daemon.answer_calls();
    let mut answered = answers.try_iter().count();
    assert!((1..100).contains(&answered), "{answered} before the clients' turn");
    // A turn that nothing else ends.
    while answered < 1000 {
        daemon.turn().unwrap();
        daemon.answer_calls();
        answered += answers.try_iter().count();
    }
    daemon.close(false).unwrap();
}

/// A front-end that takes a turn to start. In that turn an operator asks whether the daemon is
/// ready.
struct Starting {
    asks: Option<ControlCall>,
    calls: Sender<ControlCall>,
}

impl Frontend for Starting {
    fn uri(&self) -> String {
        "starting:".to_owned()
    }

    fn tokens_max(&self) -> usize {
        0
    }

    fn register(&mut self, _registry: &Registry, _tokens: TokenRange) -> io::Result<()> {
        Ok(())
    }

    fn starting(&mut self) -> io::Result<bool> {
        Ok(self.asks.take().is_some_and(|call| self.calls.send(call).is_ok()))
    }

    fn ready(&mut self, _event: &Event, _registry: &Registry, _core: &mut dyn Core) {}

    fn reply(&mut self, _id: RequestId, _result: Result<(), RequestError>, _core: &mut dyn Core) {}

    fn refused(&mut self, id: RequestId, _core: &mut dyn Core) {
        panic!("nothing of it waits for an origin: {id:?}");
    }

    fn room(&mut self, _core: &mut dyn Core) {}

    fn turn_end(&mut self, _now: Time, _registry: &Registry, _core: &mut dyn Core) -> bool {
        true
    }

    fn next_timer(&self) -> Option<Time> {
        None
    }

    fn stop(&mut self, _registry: &Registry, _core: &mut dyn Core) {}

    fn idle(&self) -> bool {
        true
    }

    fn clients(&self) -> usize {
        0
    }
}

#[test]
fn who_asks_while_front_ends_start_is_answered() {
    let bench = Bench::formatted();
    let config = bench.config();
    let (mut daemon, calls) = opened(&config);
    let (reply, answers) = channel();
    let asks = Some(ControlCall { command: Command::Status, reply: reply.into() });
    let here: Vec<Box<dyn Frontend>> = vec![Box::new(Starting { asks, calls })];
    daemon.begin_serving(Listening { here, ..Listening::default() }, Vec::new()).unwrap();
    match answers.try_recv() {
        Ok(Response::Status(report)) => assert!(report.opening),
        other => panic!("{other:?}: it is answered when something else happens"),
    }
    daemon.close(false).unwrap();
}

/// The thread that serves an operator is waited for at the end.
#[test]
fn a_stop_does_not_wait_for_operators_who_wait() {
    let bench = Bench::formatted();
    let config = bench.config();
    let (mut daemon, calls) = opened(&config);
    daemon.ready = Some(Instant::now());
    let device = bench.path("mirror");
    let file = File::create(&device).unwrap();
    file.set_len(CACHE_BYTES).unwrap();
    // It is waited for a little, as by the time of this stop.
    file.lock().unwrap();
    let (add, added) = channel();
    calls.send(ControlCall { command: Command::AddMirror { device, force: false }, reply: add.into() }).unwrap();
    daemon.answer_calls();
    assert_eq!(added.try_recv(), Err(TryRecvError::Empty), "the device is being opened");
    daemon.stop.stop_at_once();
    assert!(!daemon.serve().unwrap());
    let (reply, answers) = channel();
    assert_eq!(added.try_recv(), Err(TryRecvError::Disconnected));
    // An operator that comes now gets no answer, either.
    let late = calls.send(ControlCall { command: Command::Status, reply: reply.into() });
    assert!(late.is_err() || answers.try_recv() == Err(TryRecvError::Disconnected));
    daemon.close(false).unwrap();
}
