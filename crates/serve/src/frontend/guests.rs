// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clients of a volume: how many there are, and whether more may come.
//!
//! All threads with front-ends share the count. A volume that is removed is closed first, and its
//! clients are counted then. A client comes in before it looks whether the volume is closed. So no
//! client is missed (test: `nobody_comes_in_uncounted`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Debug, Default)]
struct Counts {
    clients: AtomicUsize,
    closed: AtomicBool,
}

/// The clients of a volume, for all that have to do with it.
#[derive(Clone, Debug, Default)]
pub struct Guests(Arc<Counts>);

/// Which clients it has is no part of what a volume is.
impl PartialEq for Guests {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Guests {}

/// A client of a volume, until it is dropped.
#[derive(Debug)]
pub(super) struct Guest(Guests);

impl Guests {
    /// Lets a client in; `None`: the volume is closed.
    pub(super) fn enter(&self) -> Option<Guest> {
        self.0.clients.fetch_add(1, Ordering::SeqCst);
        // If it is closed the guest leaves at once.
        let guest = Guest(self.clone());
        (!self.0.closed.load(Ordering::SeqCst)).then_some(guest)
    }

    /// How many clients there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.clients.load(Ordering::SeqCst)
    }

    /// Lets nobody in any more, or does so again.
    pub(crate) fn close(&self, closed: bool) {
        self.0.closed.store(closed, Ordering::SeqCst);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.0.clients.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_counted_and_kept_out() {
        let guests = Guests::default();
        let one = guests.enter().unwrap();
        let other = guests.clone().enter().unwrap();
        assert_eq!(guests.count(), 2);
        guests.close(true);
        assert!(guests.enter().is_none());
        assert_eq!(guests.count(), 2);
        drop((one, other));
        guests.close(false);
        assert!(guests.enter().is_some());
        assert_eq!(guests.count(), 0);
    }

    #[test]
    fn nobody_comes_in_uncounted() {
        for _ in 0..200 {
            let guests = Guests::default();
            let other = guests.clone();
            let thread = std::thread::spawn(move || other.enter());
            guests.close(true);
            let counted = guests.count();
            let came = thread.join().unwrap();
            assert!(came.is_none() || counted == 1, "{counted} counted, and {came:?} came");
        }
    }
}
