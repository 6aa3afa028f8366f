// SPDX-License-Identifier: MIT OR Apache-2.0
//! A store whose requests are counted. One that fails is sent once more at once.
//!
//! The second try spares volumes most of the accidents of networks. Whoever asked hears of a
//! failure only if both have failed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flashfront_object::Fault;

use crate::meter::{Meter, Verb};
use crate::store::{Listed, Store};

/// A store that is busy is left alone so long before the second try.
const PAUSE: Duration = Duration::from_millis(100);
/// A failure that took longer is no accident.
const ACCIDENT: Duration = Duration::from_secs(10);
/// The names that a store tells in one answer: Amazon S3 and Google tell no more.
const NAMES: u64 = 1_000;

/// A store, and what counts.
#[derive(Debug)]
pub(crate) struct Metered {
    store: Arc<dyn Store>,
    meter: Arc<Meter>,
}

impl Metered {
    pub(crate) fn new(store: Arc<dyn Store>, meter: Arc<Meter>) -> Self {
        Self { store, meter }
    }

    /// Asks, and asks again. `counts` are the requests and bytes of an answer.
    fn ask<T>(
        &self,
        verb: Verb,
        request: impl Fn(&dyn Store) -> Result<T, Fault>,
        counts: impl Fn(&T) -> (u64, u64),
    ) -> Result<T, Fault> {
        let once = || {
            let began = Instant::now();
            let answer = request(self.store.as_ref());
            self.meter.ended(verb, began.elapsed(), answer.as_ref().map(&counts));
            answer
        };
        let began = Instant::now();
        match once() {
            Err(Fault::Away(_)) if began.elapsed() < ACCIDENT => {
                // pacing: a store that is busy wants to be left alone.
                std::thread::sleep(PAUSE);
                self.meter.repeats(verb);
                once()
            }
            answer => answer,
        }
    }
}

impl Store for Metered {
    fn put(&self, name: &str, body: &Arc<Vec<u8>>, create: bool) -> Result<(), Fault> {
        self.ask(Verb::Put, |store| store.put(name, body, create), |()| (1, body.len() as u64))
    }

    fn get(&self, name: &str, range: Option<(u64, u64)>) -> Result<Vec<u8>, Fault> {
        self.ask(Verb::Get, |store| store.get(name, range), |bytes| (1, bytes.len() as u64))
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, Fault> {
        let requests = |all: &Vec<Listed>| (all.len() as u64).div_ceil(NAMES).max(1);
        self.ask(Verb::List, |store| store.list(prefix), |all| (requests(all), 0))
    }

    fn volume_below(&self, prefix: &str) -> Result<Option<String>, Fault> {
        self.ask(Verb::List, |store| store.volume_below(prefix), |_| (1, 0))
    }

    fn delete(&self, name: &str) -> Result<(), Fault> {
        self.ask(Verb::Delete, |store| store.delete(name), |()| (1, 0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::store::Memory;

    /// Fails each request whose number is among these.
    #[derive(Debug)]
    struct Failing(Memory, Vec<u64>, AtomicU64);

    impl Failing {
        fn fate(&self) -> Result<(), Fault> {
            let nth = self.2.fetch_add(1, Ordering::Relaxed);
            let busy = "non-2xx status code: 503 Slow Down";
            if self.1.contains(&nth) { Err(Fault::Away(busy.to_owned())) } else { Ok(()) }
        }
    }

    impl Store for Failing {
        fn put(&self, name: &str, body: &Arc<Vec<u8>>, create: bool) -> Result<(), Fault> {
            self.fate()?;
            self.0.put(name, body, create)
        }

        fn get(&self, name: &str, range: Option<(u64, u64)>) -> Result<Vec<u8>, Fault> {
            self.fate()?;
            self.0.get(name, range)
        }

        fn list(&self, prefix: &str) -> Result<Vec<Listed>, Fault> {
            self.fate()?;
            self.0.list(prefix)
        }

        fn delete(&self, name: &str) -> Result<(), Fault> {
            self.fate()?;
            self.0.delete(name)
        }
    }

    #[test]
    fn each_try_counts_and_the_second_one_is_made_at_once() {
        let meter = Arc::new(Meter::default());
        let failing = Failing(Memory::default(), vec![0, 3, 4], AtomicU64::new(0));
        let store = Metered::new(Arc::new(failing), Arc::clone(&meter));
        let body = Arc::new(vec![7; 100]);
        store.put("a/1", &body, true).unwrap();
        assert_eq!(store.put("a/1", &body, true), Err(Fault::Taken));
        assert!(matches!(store.get("a/1", None), Err(Fault::Away(_))), "two tries");
        assert_eq!(store.get("a/1", Some((10, 20))).unwrap().len(), 20);
        assert_eq!(store.list("a/").unwrap().len(), 1);
        store.delete("a/1").unwrap();
        let [get, put, list, delete] = meter.tallies();
        assert_eq!((put.requests, put.errors, put.throttled, put.retries, put.bytes), (3, 1, 1, 1, 100));
        assert_eq!((get.requests, get.errors, get.retries, get.bytes), (3, 2, 1, 20));
        assert_eq!((list.requests, delete.requests, delete.errors), (1, 1, 0));
    }
}
