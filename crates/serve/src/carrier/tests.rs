// SPDX-License-Identifier: MIT OR Apache-2.0
//! Daemons whose clients are served by other threads than the engine's, and a thread that dies.

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use flashfront_device::Arena;
use flashfront_engine::{BLOCK_BYTES, Buf, Memory, OriginId, Request, RequestError, RequestId, Time};
use mio::{Events, Poll, Registry, Token, event::Event};

use super::start;
use crate::config::{Config, ConfigError, Listener, Size};
use crate::daemon::{Ended, Hooks, ServeError};
use crate::frontend::desk::Clock;
use crate::frontend::nbd::{Client, connect as open};
use crate::frontend::{Core, Export, Frontend, TokenRange};
use crate::rig::{Bench, ORIGIN_BYTES};

fn config(bench: &Bench, threads: usize) -> Config {
    Config { threads, ..bench.config() }
}

fn connect(config: &Config) -> Client {
    open(config.listeners[0].nbd().unwrap(), "", true).unwrap()
}

/// Asks until it is so, for at most half a minute.
fn until(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(30), "it never is");
        std::thread::yield_now();
    }
}

/// A block full of one number, which tells its writer and the round.
fn block(owner: u64, round: u64) -> Vec<u8> {
    (round << 8 | owner).to_le_bytes().repeat(BLOCK_BYTES as usize / 8)
}

/// Reads what another client has been told is written, on a connection of its own.
fn read_what_is_written(mut client: Client, owner: u64, written: &Receiver<(u64, u64)>) {
    let mut found = vec![0; BLOCK_BYTES as usize];
    for (at, round) in written {
        client.read_at(at * BLOCK_BYTES, &mut found).unwrap();
        let newest = u64::from_le_bytes(found[..8].try_into().unwrap()) >> 8;
        assert!(newest >= round, "block {at} was written in round {round}, and is of round {newest}");
        assert!(found == block(owner, newest), "block {at} is torn");
    }
}

#[test]
fn clients_of_several_threads_see_one_disk() {
    let bench = Bench::formatted();
    let config = config(&bench, 3);
    let mut served = bench.serve_with(config.clone(), Hooks::default());
    std::thread::scope(|scope| {
        for owner in 0..4 {
            let (tell, told) = channel();
            let (mut writer, reader) = (connect(&config), connect(&config));
            scope.spawn(move || {
                for round in 1..400 {
                    // Blocks of its own all over the disk, each of them several times.
                    let at = (round * 37 % 64) * (ORIGIN_BYTES / BLOCK_BYTES / 64) + owner;
                    writer.write_at(at * BLOCK_BYTES, &block(owner, round), round % 50 == 0).unwrap();
                    tell.send((at, round)).unwrap();
                    if round % 20 == 0 {
                        writer.flush().unwrap();
                    }
                }
            });
            scope.spawn(move || read_what_is_written(reader, owner, &told));
        }
    });
    // More than fits into one buffer, both ways.
    let mut others: Vec<Client> = (0..3).map(|_| connect(&config)).collect();
    for (nth, client) in others.iter_mut().enumerate() {
        client.write_at(nth as u64 * (8 << 20) + 512, &vec![nth as u8 + 1; 3 << 20], false).unwrap();
    }
    others.rotate_left(1);
    for (nth, client) in others.iter_mut().enumerate() {
        let mut found = vec![0; 3 << 20];
        client.read_at(nth as u64 * (8 << 20) + 512, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == nth as u8 + 1));
    }
    // Clients that have left are gone when their threads have seen it. Three clients, and the rig's
    // own, are left.
    until(|| {
        let status = served.status();
        (status.threads, status.clients, status.request_buffer_bytes) == (3, 4, 0)
    });
    served.stop();
}

#[test]
fn a_stop_answers_what_it_has_taken_from_clients_of_all_threads() {
    let bench = Bench::formatted();
    let config = config(&bench, 3);
    let served = bench.serve_with(config.clone(), Hooks::default());
    let (wrote, enough) = channel();
    let acknowledged: Vec<u64> = std::thread::scope(|scope| {
        let write_until_the_end = |owner: u64| {
            let (mut client, wrote) = (connect(&config), wrote.clone());
            scope.spawn(move || {
                let mut rounds = 0;
                while client.write_at((rounds % 100 * 8 + owner) * BLOCK_BYTES, &block(owner, rounds), false).is_ok() {
                    rounds += 1;
                    if rounds == 50 {
                        wrote.send(()).unwrap();
                    }
                }
                rounds
            })
        };
        let writers: Vec<_> = (0..4).map(write_until_the_end).collect();
        (0..4).for_each(|_| enough.recv().unwrap());
        assert!(matches!(served.end(), Ended::Clean { .. }));
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let mut served = bench.serve();
    let mut found = vec![0; BLOCK_BYTES as usize];
    for (owner, rounds) in (0..).zip(acknowledged) {
        for round in rounds.saturating_sub(100)..rounds {
            served.nbd.read_at((round % 100 * 8 + owner) * BLOCK_BYTES, &mut found).unwrap();
            // The one after the last may have been written, and its answer lost.
            let next = round + 100 == rounds && found == block(owner, rounds);
            assert!(next || found == block(owner, round), "owner {owner}, round {round} of {rounds}");
        }
    }
    served.stop();
}

#[test]
fn a_stop_at_once_waits_for_no_client() {
    let bench = Bench::formatted();
    let config = config(&bench, 2);
    let served = bench.serve_with(config.clone(), Hooks::default());
    let mut other = connect(&config);
    other.write_at(0, &block(1, 1), true).unwrap();
    served.stop_at_once();
    assert!(other.write_at(0, &block(1, 2), true).is_err());
    let mut found = vec![0; BLOCK_BYTES as usize];
    let mut served = bench.serve();
    served.nbd.read_at(0, &mut found).unwrap();
    assert!(found == block(1, 1));
    served.stop();
}

#[test]
fn an_address_has_one_limit_of_clients_for_all_threads() {
    let bench = Bench::formatted();
    let config = config(&bench, 3);
    let served = bench.serve_with(config.clone(), Hooks::default());
    // The rig's own is the first.
    let mut clients: Vec<Client> = (1..64).map(|_| connect(&config)).collect();
    let place = config.listeners[0].nbd().unwrap();
    assert!(open(place, "", true).is_err(), "there is no place for a 65th");
    clients.swap_remove(20).disconnect().unwrap();
    // Its place is free once it is gone, which the daemon sees when it sees it.
    let mut late = None;
    until(|| {
        late = open(place, "", true).ok();
        late.is_some()
    });
    late.unwrap().write_at(0, &block(1, 1), true).unwrap();
    served.stop_at_once();
}

#[test]
fn threads_that_cannot_be_used_are_refused() {
    let bench = Bench::formatted();
    let refusal = |config: &Config| bench.refused(config).to_string();
    for threads in [0, 65] {
        assert!(refusal(&config(&bench, threads)).contains("must be 1 to 64"));
    }
    let of = |mib: u64| Config { buffer_bytes: Some(Size(mib << 20)), ..config(&bench, 5) };
    let said = refusal(&of(283));
    assert!(said.contains("at least 284 MiB") && said.contains("threads = 5"), "{said}");
    let blk = Listener::VhostUserBlk { path: bench.path("blk"), volume: None };
    let idle = Config { listeners: vec![blk.clone()], ..config(&bench, 3) };
    let error = bench.refused(&idle);
    assert!(matches!(error, ServeError::Config(ConfigError::IdleThreads { given: 3, most: 2 })), "{error}");
    Config { listeners: vec![blk], ..config(&bench, 2) }.check().unwrap();
    for enough in [of(284), config(&bench, 5)] {
        bench.serve_with(enough, Hooks::default()).stop();
    }
}

/// A front-end with a bug, or one that asks for one thing.
struct Odd {
    dies: bool,
}

impl Frontend for Odd {
    fn uri(&self) -> String {
        "odd:".to_owned()
    }

    fn tokens_max(&self) -> usize {
        0
    }

    fn register(&mut self, _registry: &Registry, _tokens: TokenRange) -> io::Result<()> {
        Ok(())
    }

    fn ready(&mut self, _event: &Event, _registry: &Registry, _core: &mut dyn Core) {}

    fn reply(&mut self, _id: RequestId, _result: Result<(), RequestError>, _core: &mut dyn Core) {}

    fn refused(&mut self, _id: RequestId, _core: &mut dyn Core) {}

    fn room(&mut self, _core: &mut dyn Core) {}

    fn turn_end(&mut self, _now: Time, _registry: &Registry, _core: &mut dyn Core) -> bool {
        assert!(!self.dies, "a bug in a front-end, for a test");
        false
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

/// A pump that has nothing.
struct Nothing(Arena);

impl Core for Nothing {
    fn exports(&self) -> &[Export] {
        &[]
    }

    fn memory(&mut self) -> &mut dyn Memory {
        &mut self.0
    }

    fn alloc(&mut self, _bytes: u32, _origin: OriginId) -> Option<Buf> {
        None
    }

    fn free(&mut self, _buf: Buf) {}

    fn submit(&mut self, _request: Request) {}
}

/// Returns the stand-in for this front-end in the pump, once the carrier has rung for it.
fn rung(odd: Odd, stop: bool) -> (Box<dyn Frontend>, Poll) {
    let mut poll = Poll::new().unwrap();
    let (arena, _loan) = Arena::lending(0, 8 << 20);
    let mut carried =
        start("odd".to_owned(), vec![Box::new(odd)], arena, Vec::new(), Clock::start()).unwrap().remove(0);
    carried.register(poll.registry(), TokenRange { first: 1, count: 1 }).unwrap();
    let mut core = Nothing(Arena::new(8 << 20));
    if stop {
        carried.stop(poll.registry(), &mut core);
        carried.turn_end(Time(0), poll.registry(), &mut core);
    }
    let mut events = Events::with_capacity(1);
    poll.poll(&mut events, Some(Duration::from_secs(30))).unwrap();
    assert_eq!(events.iter().next().unwrap().token(), Token(1));
    (carried, poll)
}

#[test]
#[should_panic(expected = "the thread that serves odd: died")]
fn a_thread_that_dies_takes_the_daemon_with_it() {
    let (mut carried, poll) = rung(Odd { dies: true }, false);
    carried.turn_end(Time(0), poll.registry(), &mut Nothing(Arena::new(8 << 20)));
}

#[test]
fn a_front_end_that_was_stopped_ends_and_says_so() {
    let (mut carried, poll) = rung(Odd { dies: false }, true);
    assert!(carried.idle());
    carried.turn_end(Time(0), poll.registry(), &mut Nothing(Arena::new(8 << 20)));
}
