// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that connect and say nothing: the front-end alone, with a clock of the test's.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use flashfront_engine::Time;
use rustix::event::PollFlags;

use super::super::CONNECTIONS_MAX;
use super::alone::Alone;
use super::driver::becomes;
use crate::frontend::Frontend;

const SECOND: u64 = 1_000_000_000;
/// GET_FEATURES of version 1: the first thing that a guest says.
const HELLO: [u8; 12] = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// Whether the other side has hung up.
fn is_closed(stream: &mut UnixStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    matches!(stream.read(&mut [0; 64]), Ok(0))
}

#[test]
fn who_says_nothing_gives_up_his_place_after_a_while() {
    let mut alone = Alone::new();
    let path = alone.path.clone();
    let mut guest = UnixStream::connect(&path).unwrap();
    guest.write_all(&HELLO).unwrap();
    let mut silent: Vec<_> = (1..CONNECTIONS_MAX).map(|_| UnixStream::connect(&path).unwrap()).collect();
    alone.turn(0);
    assert_eq!((alone.front.clients(), alone.front.next_timer()), (CONNECTIONS_MAX, Some(Time(30 * SECOND))));
    // No place for one more: it is told so at once.
    let late = UnixStream::connect(&path).unwrap();
    alone.turn(29 * SECOND);
    // It is closed by a thread.
    assert!(becomes(&late, PollFlags::HUP) && !silent.iter_mut().any(is_closed));
    alone.turn(30 * SECOND);
    assert!(silent.iter_mut().all(is_closed));
    assert_eq!((alone.front.clients(), alone.front.next_timer()), (1, None), "the guest stays, however long");
    let mut next = UnixStream::connect(&path).unwrap();
    // Not while too many are being closed.
    while alone.front.clients() == 1 {
        alone.turn(31 * SECOND);
    }
    assert!(!is_closed(&mut next));
}
