// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server that is far away: carries TCP connections to a server here, with the delay and the
//! bandwidth of a link.

use std::io::{Read as _, Result, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that are carried in one piece.
const PIECE_BYTES: usize = 64 << 10;
/// The link carries on for so long without being looked at. A thread of this machine may wait as
/// long for its turn.
const LATE: Duration = Duration::from_millis(2);

/// A direction of a link, which all connections share.
struct Direction {
    bytes_per_second: f64,
    one_way: Duration,
    /// When the link has taken all that was given to it.
    free: Mutex<Instant>,
}

impl Direction {
    /// Waits until the link has taken so many bytes; when they arrive.
    fn carry(&self, bytes: usize) -> Instant {
        let taken = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            *free = (*free).max(Instant::now() - LATE) + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
            *free
        };
        wait_until(taken);
        taken + self.one_way
    }
}

fn wait_until(when: Instant) {
    thread::sleep(when.saturating_duration_since(Instant::now())); // pacing: the link takes its time
}

/// Starts a link to the server at `port` of this machine, and returns the port of its other end.
/// Each direction carries so many bytes per second. The link stays until this process ends.
pub(super) fn far(port: u16, round_trip: Duration, bytes_per_second: f64) -> Result<u16> {
    let direction =
        || Arc::new(Direction { bytes_per_second, one_way: round_trip / 2, free: Mutex::new(Instant::now()) });
    let (there, back) = (direction(), direction());
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let own = listener.local_addr()?.port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            // A server that is gone is seen by the client as a connection that ends.
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            // A TCP connection costs a round trip before its first byte.
            let there = connect(&client, &server, &there, round_trip);
            let _ = there.and_then(|()| connect(&server, &client, &back, Duration::ZERO));
        }
    });
    Ok(own)
}

/// Carries what comes from one to the other, the first piece later by `wait`.
fn connect(from: &TcpStream, to: &TcpStream, direction: &Arc<Direction>, wait: Duration) -> Result<()> {
    let (from, to, direction) = (from.try_clone()?, to.try_clone()?, Arc::clone(direction));
    to.set_nodelay(true)?;
    let (send, arrivals) = mpsc::channel();
    thread::spawn(move || depart(from, &direction, wait, &send));
    thread::spawn(move || arrive(to, &arrivals));
    Ok(())
}

/// Reads until the sender has ended.
fn depart(mut from: TcpStream, direction: &Direction, mut wait: Duration, send: &Sender<(Instant, Vec<u8>)>) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(len @ 1..) = from.read(&mut piece) {
        let arrival = direction.carry(len) + std::mem::take(&mut wait);
        if send.send((arrival, piece[..len].to_vec())).is_err() {
            return;
        }
    }
}

/// Writes each piece when it arrives. The connection ends as its sender has ended it.
fn arrive(mut to: TcpStream, arrivals: &Receiver<(Instant, Vec<u8>)>) {
    for (when, bytes) in arrivals {
        wait_until(when);
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // The connection may have ended by itself.
    let _ = to.shutdown(Shutdown::Write);
}
