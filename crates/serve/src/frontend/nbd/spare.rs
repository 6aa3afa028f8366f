// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes buffers back from clients that don't read, and gives buffers to requests that are parked.
//!
//! A client may read nothing for [`STUCK_NS`] while others are short of buffers. Then its answers
//! are dropped, and read again when the client takes them. So a client that is stopped costs others
//! nothing, and its connection stays. Each connection's parked requests go on in their order;
//! connections go on in turns.
//!
//! Invariant: no connection holds buffers of answers that wait for a buffer. An answer that was
//! dropped is read again before its connection's parked requests. Answers behind it are dropped,
//! too, if buffers are short (test: `clients_that_pause_now_and_then_all_get_their_answers`).

use flashfront_device::Share;
use flashfront_engine::Time;

use super::super::Core;
use super::listener::Nbd;
use super::parked::Resumed;
use super::peer::Stuck;

/// A client's answers are taken back after its socket was full for this long.
///
/// A client that is alive has read something by then. To read all again for it costs more than to
/// wait.
const STUCK_NS: u64 = 10_000_000;
/// How often parked requests are tried again: their blocks may have come into the cache meanwhile,
/// or a lock may be free.
const RETRY_NS: u64 = 5_000_000;
/// Parked requests that are tried again at a time.
const RETRIES: usize = 16;
impl Nbd {
    /// Takes buffers back if any client is short of them.
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

    /// Reads dropped answers again for clients that read once more. True if any read was submitted.
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

    /// Tries some parked requests again.
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
