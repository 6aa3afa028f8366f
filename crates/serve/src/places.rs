// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clients of a socket for operators: what each is doing since when, and which of them must go.
//!
//! A client is idle while the server waits for it: for a whole question, or for it to read its
//! answer. An idle client goes after a while, and at once when its place is needed. The clock is
//! the caller's, so that tests have one of their own.

use std::collections::HashMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connection that can be closed from outside.
pub(crate) trait Close {
    /// Wakes the threads that read or write there; nothing more is sent.
    fn close(&mut self);
}

impl Close for UnixStream {
    fn close(&mut self) {
        // A client that has gone is no error.
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// The connected clients.
#[derive(Debug)]
pub(crate) struct Places<S> {
    all: HashMap<u64, Place<S>>,
    last: u64,
}

impl<S> Default for Places<S> {
    fn default() -> Self {
        Self { all: HashMap::new(), last: 0 }
    }
}

#[derive(Debug)]
struct Place<S> {
    stream: S,
    doing: Doing,
    /// The client has sent a whole question at least once.
    has_asked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// The server has waited for the client since then.
    Idle(Instant),
    /// The daemon is working on the client's question.
    Asking,
    /// The connection was closed; its thread is about to see that.
    Leaving,
}

impl<S: Close> Places<S> {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Takes a client in, and returns its number.
    pub(crate) fn add(&mut self, stream: S, now: Instant) -> u64 {
        self.last += 1;
        self.all.insert(self.last, Place { stream, doing: Doing::Idle(now), has_asked: false });
        self.last
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.all.remove(&id);
    }

    /// A whole question came. Returns false if the client was told to go meanwhile.
    pub(crate) fn asks(&mut self, id: u64) -> bool {
        let place = self.all.get_mut(&id).filter(|place| place.doing != Doing::Leaving);
        place.is_some_and(|place| {
            (place.doing, place.has_asked) = (Doing::Asking, true);
            true
        })
    }

    /// The server waits for the client from now on.
    pub(crate) fn idles(&mut self, id: u64, now: Instant) {
        if let Some(place) = self.all.get_mut(&id).filter(|place| place.doing != Doing::Leaving) {
            place.doing = Doing::Idle(now);
        }
    }

    /// Closes the connections of all clients that have been idle for `patience`; returns how many.
    pub(crate) fn close_overdue(&mut self, now: Instant, patience: Duration) -> usize {
        let overdue = |place: &&mut Place<S>| matches!(place.doing, Doing::Idle(since) if now.saturating_duration_since(since) >= patience);
        self.all.values_mut().filter(overdue).map(Place::close).count()
    }

    /// When the next client may be overdue. A client that is asking now can't be before `now +
    /// patience`.
    pub(crate) fn next_overdue(&self, now: Instant, patience: Duration) -> Option<Instant> {
        let due = |place: &Place<S>| match place.doing {
            Doing::Idle(since) => Some(since + patience),
            Doing::Asking => Some(now + patience),
            Doing::Leaving => None,
        };
        self.all.values().filter_map(due).min()
    }

    /// Closes a connection for the sake of a new client, unless one is closing already.
    ///
    /// It takes a client that never sent a whole question if there is one, else the client that has
    /// been idle for longest. Returns whether a place will be free soon.
    pub(crate) fn make_room(&mut self) -> bool {
        if self.all.values().any(|place| place.doing == Doing::Leaving) {
            return true;
        }
        let idle_since = |place: &Place<S>| match place.doing {
            Doing::Idle(since) => Some(since),
            Doing::Asking | Doing::Leaving => None,
        };
        let idle =
            self.all.values_mut().filter_map(|place| idle_since(place).map(|since| (place.has_asked, since, place)));
        let longest = idle.min_by_key(|(has_asked, since, _)| (*has_asked, *since));
        longest.map(|(_, _, place)| place.close()).is_some()
    }

    /// Closes all connections.
    pub(crate) fn close_all(&mut self) {
        self.all.values_mut().for_each(Place::close);
    }
}

impl Places<UnixStream> {
    /// The server ends: nothing more is read. An answer under way still gets out.
    pub(crate) fn stop_reading(&self) {
        for place in self.all.values() {
            // A client that has gone is no error.
            let _ = place.stream.shutdown(Shutdown::Read);
        }
    }
}

impl<S: Close> Place<S> {
    fn close(&mut self) {
        self.doing = Doing::Leaving;
        self.stream.close();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A clock in seconds.
    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn client(places: &mut Places<UnixStream>, now: Instant) -> (u64, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (places.add(ours, now), theirs)
    }

    fn is_closed(client: &UnixStream) -> bool {
        matches!((&mut &*client).read(&mut [0]), Ok(0))
    }

    #[test]
    fn whoever_says_nothing_for_30_seconds_is_closed_and_nobody_else() {
        let (mut places, start) = (Places::default(), Instant::now());
        let (_, silent) = client(&mut places, start);
        let (asking, busy) = client(&mut places, start);
        let (again, active) = client(&mut places, start);
        assert!(places.asks(asking));
        assert_eq!(places.next_overdue(start, PATIENCE), Some(at(start, 30)));
        assert_eq!(places.close_overdue(at(start, 29), PATIENCE), 0);
        assert!(places.asks(again));
        places.idles(again, at(start, 29));
        assert_eq!(places.close_overdue(at(start, 30), PATIENCE), 1);
        assert!(is_closed(&silent) && !is_closed(&busy) && !is_closed(&active));
        assert_eq!(places.next_overdue(at(start, 30), PATIENCE), Some(at(start, 59)));
        assert_eq!(places.close_overdue(at(start, 500), PATIENCE), 1);
        assert!(is_closed(&active) && !is_closed(&busy), "the pump has the command of `busy`");
        assert_eq!(places.next_overdue(at(start, 500), PATIENCE), Some(at(start, 530)));
    }

    #[test]
    fn room_is_made_by_those_who_never_asked_and_then_by_those_who_are_idle_longest() {
        let (mut places, start) = (Places::default(), Instant::now());
        let (watching, watcher) = client(&mut places, start);
        let (asking, busy) = client(&mut places, start);
        assert!(places.asks(watching) && places.asks(asking));
        places.idles(watching, at(start, 1));
        let (older, silent) = client(&mut places, at(start, 2));
        let (newer, half_a_line) = client(&mut places, at(start, 3));
        for (id, gone) in [(older, &silent), (newer, &half_a_line), (watching, &watcher)] {
            assert!(!is_closed(gone));
            assert!(places.make_room() && is_closed(gone));
            assert!(places.make_room(), "one is leaving: nobody else has to");
            assert!(!places.asks(id), "a command that came too late is not carried out");
            places.remove(id);
        }
        assert!(!places.make_room() && !is_closed(&busy), "all are at work");
        assert_eq!(places.len(), 1);
    }
}
