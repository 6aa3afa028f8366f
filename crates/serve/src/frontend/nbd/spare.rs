// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers for those who wait: taken back from clients that don't read, and given to requests that
//! are parked.
//!
//! The answers of a client that reads nothing for [`STUCK_NS`] are dropped when somebody is short
//! of buffers, and read again when the client takes them. So a client that is stopped costs others
//! nothing, and its connection stays. Each connection's parked requests go on in their order;
//! connections go on in turns.
//!
//! Invariant: nobody holds buffers of answers that wait for a buffer. An answer that was dropped is
//! read again before its connection's parked requests. What came behind it is dropped, too, if
//! somebody is short (test: `clients_that_pause_now_and_then_all_get_their_answers`).

use flashfront_device::Share;
use flashfront_engine::Time;

use super::super::Core;
use super::listener::{Nbd, Peer};
use super::parked::Resumed;

/// So long a client's socket is full before its answers are taken back. A client that is alive has
/// read something by then: reading all again for it costs more than waiting.
const STUCK_NS: u64 = 10_000_000;
/// How often parked requests are looked at once more: what they ask for may have come into the
/// cache meanwhile, or a lock may be free.
const RETRY_NS: u64 = 5_000_000;
/// So many at a time.
const RETRIES: usize = 16;
/// A client with so many bytes unread, and a full socket, has no further requests carried out.
pub(super) const UNREAD_BYTES_MAX: u64 = 8 << 20;

/// A client whose socket is full.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stuck {
    since: Time,
    progress: u64,
}

impl Peer {
    /// Tries the first of the requests that are parked; before that, answers that were dropped, if
    /// the client reads them now.
    fn resume(&mut self, share: Share, core: &mut dyn Core) -> Resumed {
        self.connection.resume(share, self.writable, core)
    }
}

impl Nbd {
    /// Makes room, if anybody is short of it.
    pub(super) fn make_room(&mut self, now: Time, core: &mut dyn Core) {
        self.stuck_until = None;
        if !core.is_short() {
            return;
        }
        for peer in self.peers.iter_mut().flatten() {
            peer.connection.take_back_behind(core);
            if peer.writable || peer.connection.unread_bytes() == 0 {
                peer.stuck = None;
                continue;
            }
            let progress = peer.connection.sent();
            let stuck = peer.stuck.filter(|stuck| stuck.progress == progress);
            let stuck = *peer.stuck.insert(stuck.unwrap_or(Stuck { since: now, progress }));
            let due = stuck.since.plus_ns(STUCK_NS);
            if now >= due {
                peer.connection.take_back(core);
            } else {
                self.stuck_until = Some(self.stuck_until.map_or(due, |until| until.min(due)));
            }
        }
    }

    /// Reads again what clients want that read once more. True if anything was asked for.
    pub(super) fn fetch_again(&mut self, core: &mut dyn Core) -> bool {
        let mut asked = false;
        for peer in self.peers.iter_mut().flatten() {
            if peer.writable && peer.connection.parked_for().is_none() && peer.connection.wants_payload() {
                let before = peer.connection.in_flight();
                let served = peer.connection.fetch_again(core);
                asked |= peer.connection.in_flight() > before;
                if !served {
                    break;
                }
            }
        }
        asked
    }

    /// Notes that a connection has parked requests.
    pub(super) fn note_parked(&mut self, number: u16) {
        let any = self.peers[usize::from(number)].as_ref().is_some_and(|peer| peer.connection.parked_for().is_some());
        if any && !self.parked.contains(&number) {
            self.parked.push_back(number);
        }
    }

    /// Lets parked requests go on, as far as there are buffers for them. True if one does.
    pub(super) fn resume_parked(&mut self, now: Time, core: &mut dyn Core) -> bool {
        let (mut begun, mut without) = (false, Vec::new());
        let mut rest = self.parked.len();
        while rest > 0 {
            rest -= 1;
            let Some(number) = self.parked.pop_front() else { break };
            let Some(peer) = &mut self.peers[usize::from(number)] else { continue };
            let Some(origin) = peer.connection.parked_for() else { continue };
            let resumed = if without.contains(&origin) { Resumed::NoRoom } else { peer.resume(Share::Waiting, core) };
            if peer.connection.parked_for().is_some() {
                self.parked.push_back(number);
            }
            match resumed {
                Resumed::Begun => {
                    begun = true;
                    rest = self.parked.len();
                    self.mark(number);
                }
                // The others of this origin wait for the same.
                Resumed::NoRoom => without.push(origin),
                Resumed::HasEnough => {}
            }
        }
        begun | self.retry_parked(now, core)
    }

    /// Looks once more at some of those that wait on.
    fn retry_parked(&mut self, now: Time, core: &mut dyn Core) -> bool {
        if self.parked.is_empty() {
            self.retry_at = None;
            return false;
        }
        if now < *self.retry_at.get_or_insert(now.plus_ns(RETRY_NS)) {
            return false;
        }
        self.retry_at = Some(now.plus_ns(RETRY_NS));
        let mut begun = false;
        for _ in 0..RETRIES {
            let Some(number) = self.parked.pop_front() else { break };
            if let Some(peer) = &mut self.peers[usize::from(number)]
                && peer.connection.parked_for().is_some()
            {
                begun |= peer.resume(Share::Passing, core) == Resumed::Begun;
                self.mark(number);
                self.note_parked(number);
            }
        }
        begun
    }
}
