// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stores under a program that is killed, and under one that meets another program.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use flashfront_bucket::{Listed, Store};
use flashfront_object::Fault;

/// A store, as a program sees it that is killed after some changes. No later request of that
/// program arrives.
#[derive(Debug)]
pub(crate) struct Mortal {
    store: Arc<dyn Store>,
    /// Changes that are still carried out; below 0: the program is dead.
    left: AtomicI64,
}

impl Mortal {
    pub(crate) fn new(store: &Arc<dyn Store>, changes: i64) -> Arc<Self> {
        Arc::new(Self { store: Arc::clone(store), left: AtomicI64::new(changes) })
    }

    /// Whether the program has ended before it was killed.
    pub(crate) fn lives(&self) -> bool {
        self.left.load(Ordering::SeqCst) >= 0
    }

    fn is_alive(&self) -> Result<(), Fault> {
        if self.lives() { Ok(()) } else { Err(Fault::Refused("the program is dead".to_owned())) }
    }

    fn changes(&self) -> Result<(), Fault> {
        self.left.fetch_sub(1, Ordering::SeqCst);
        self.is_alive()
    }
}

impl Store for Mortal {
    fn put(&self, name: &str, body: &Arc<Vec<u8>>, create: bool) -> Result<(), Fault> {
        self.changes()?;
        self.store.put(name, body, create)
    }

    fn get(&self, name: &str, range: Option<(u64, u64)>) -> Result<Vec<u8>, Fault> {
        self.is_alive()?;
        self.store.get(name, range)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, Fault> {
        self.is_alive()?;
        self.store.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<(), Fault> {
        self.changes()?;
        self.store.delete(name)
    }
}

/// A store, as a program sees it that meets another program before one of its requests.
pub(crate) struct Meets {
    store: Arc<dyn Store>,
    /// Requests before the meeting.
    left: AtomicI64,
    other: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Meets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meets").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Meets {
    pub(crate) fn new(store: &Arc<dyn Store>, requests: i64, other: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { store: Arc::clone(store), left: AtomicI64::new(requests), other: Box::new(other) })
    }

    /// Whether the other program came.
    pub(crate) fn has_met(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    fn request(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            (self.other)();
        }
    }
}

impl Store for Meets {
    fn put(&self, name: &str, body: &Arc<Vec<u8>>, create: bool) -> Result<(), Fault> {
        self.request();
        self.store.put(name, body, create)
    }

    fn get(&self, name: &str, range: Option<(u64, u64)>) -> Result<Vec<u8>, Fault> {
        self.request();
        self.store.get(name, range)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, Fault> {
        self.request();
        self.store.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<(), Fault> {
        self.request();
        self.store.delete(name)
    }
}
