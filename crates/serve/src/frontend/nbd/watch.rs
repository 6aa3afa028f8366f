// SPDX-License-Identifier: MIT OR Apache-2.0
//! Timeouts: the server hangs up on clients that take too long.
//!
//! A client may be as slow as it likes, but for the beginning and the end. The clock is the
//! caller's.

use flashfront_engine::Time;
use mio::Registry;

use super::super::Core;
use super::listener::Nbd;
use super::stream::Stream;
use super::wait::Wait;

/// A client must have chosen an export within this time.
const HANDSHAKE_NS: u64 = 30_000_000_000;
/// While stopping a client must take what it is sent within this time.
const STALLED_NS: u64 = 5_000_000_000;
/// How often stalled clients are looked for, while there is a reason.
const WATCH_NS: u64 = 1_000_000_000;

impl Nbd {
    /// Closes the client that has been here for longest without choosing an export, if there is
    /// one. Returns the number of its place, which is free then.
    ///
    /// Connections that say nothing would else lock out all others until their time is over.
    pub(super) fn make_place(&mut self, registry: &Registry, core: &mut dyn Core) -> Option<usize> {
        let waiting = self.peers.iter().enumerate().filter_map(|(number, peer)| {
            let peer = peer.as_ref().filter(|peer| peer.stream.is_some() && peer.connection.in_handshake())?;
            // A client that came in this turn has not been looked at.
            Some((peer.since.accepted.is_none(), peer.since.accepted, number))
        });
        let (.., number) = waiting.min()?;
        self.hang_up(number as u16, core);
        self.reap(number as u16, registry);
        if self.peers[number].is_some() {
            return None;
        }
        self.full.give_way(&self.at, self.options.connections_max);
        Some(number)
    }

    /// Hangs up on clients that take too long.
    pub(super) fn watch(&mut self, now: Time, core: &mut dyn Core) {
        let mut late = Vec::new();
        let mut timer: Option<Time> = None;
        for (number, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            let accepted = *peer.since.accepted.get_or_insert(now);
            if peer.connection.in_handshake() {
                let deadline = accepted.plus_ns(HANDSHAKE_NS);
                let shakes = peer.wait == Wait::Tls || peer.stream.as_ref().is_some_and(Stream::is_handshaking);
                let deadline = self.shaken_until.filter(|_| shakes).map_or(deadline, |until| until.min(deadline));
                if now >= deadline {
                    late.push(number as u16);
                } else {
                    timer = Some(timer.map_or(deadline, |timer| timer.min(deadline)));
                }
            }
            let progress = peer.connection.progress();
            let moved = match peer.since.moved {
                Some(moved) if progress == peer.since.progress => moved,
                _ => now,
            };
            peer.since.moved = Some(moved);
            peer.since.progress = progress;
            if self.stopping && peer.has_output() && now.since_ns(moved) >= STALLED_NS {
                late.push(number as u16);
            }
        }
        if self.stopping || self.acceptable {
            let next = now.plus_ns(WATCH_NS);
            timer = Some(timer.map_or(next, |timer| timer.min(next)));
        }
        self.timer = timer;
        for number in late {
            self.hang_up(number, core);
        }
    }
}
