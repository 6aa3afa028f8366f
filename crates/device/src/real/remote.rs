// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device that is not a file: the export of an NBD server, or a volume in an object store.
//!
//! A thread of the device carries out tasks. The reactor hands it jobs as it hands them to threads
//! for devices that sleep, and hears of their end in the same way. What is called here waits for
//! the thread.

mod link;
mod mark;
mod open_by;
mod task;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use flashfront_bucket::Pages;
use flashfront_nbd_proto::Ask;
use flashfront_nbd_proto::uri::Uri;
use rustix::io::Errno;

pub use link::{LinkCheck, LinkNews, LinkState, LinkWatch, ReadAt, StoreState};
pub use mark::Mark;
pub use open_by::OpenBy;
pub(super) use task::{Call, Task, Wish};

use super::aligned::AlignedBuf;
use super::storage::Storage;
use crate::Geometry;

/// A call is waited for so long. Then a device that is away is an error.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// Whether a path is the URI of a device on another machine, or behind another program.
#[must_use]
pub fn is_uri(path: &Path) -> bool {
    path.to_str().is_some_and(|text| Uri::is_uri(text) || flashfront_bucket::is_url(text))
}

/// Whether a path is the URL of a volume in an object store.
#[must_use]
pub fn is_in_store(path: &Path) -> bool {
    path.to_str().is_some_and(flashfront_bucket::is_url)
}

/// The thread of a device.
pub(super) trait Server: fmt::Debug + Send + Sync {
    /// Takes a task.
    fn submit(&self, task: Box<dyn Task>);

    /// Drops the tasks of an owner that are not under way. Nobody will hear of them.
    fn forget(&self, owner: usize);

    /// Returns the link as it is now.
    fn link(&self) -> LinkState;

    /// Lets somebody look after the link: once.
    fn watch(&self, watch: LinkWatch);

    /// Tells the content of a volume in an object store.
    fn mark(&self) -> Option<Mark> {
        None
    }

    /// Whether nobody may write it, ever.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Takes over what others may have open, before the first write. `cache` is the UUID of the
    /// cache in front.
    fn take_over(&self, _cache: Option<[u8; 16]>) -> io::Result<()> {
        Ok(())
    }

    /// Keeps pages of the volume's map in a file, from now on.
    fn keep_pages(&self, _pages: &Pages) {}

    /// Has the next flush leave the volume as it will be found: nothing goes on by itself after it.
    fn settle(&self) {}

    /// Notes whether the cache in front holds what the volume lacks.
    fn owe(&self, _owes: bool) {}
}

/// What a device can do.
#[derive(Clone, Debug)]
pub(super) struct Abilities {
    /// The server as messages name it.
    pub(super) name: &'static str,
    pub(super) geometry: Geometry,
    pub(super) storage: Storage,
    /// Tasks that the server is given at a time.
    pub(super) places: usize,
    /// Whether there is anything to be flushed.
    pub(super) may_flush: bool,
    pub(super) may_discard: bool,
}

/// An open device with a thread.
#[derive(Debug)]
pub(super) struct Remote {
    server: Box<dyn Server>,
    abilities: Abilities,
    /// Calls that nobody waits for any more.
    given_up: Mutex<Vec<Weak<()>>>,
}

/// All changes under these locks are single assignments.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote {
    pub(super) fn new(server: impl Server + 'static, abilities: Abilities) -> Self {
        Self { server: Box::new(server), abilities, given_up: Mutex::default() }
    }

    pub(super) const fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    /// The thread.
    pub(super) fn server(&self) -> &dyn Server {
        self.server.as_ref()
    }

    /// Reads whole blocks, at once.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let memory = self.call(Ask::READ, offset, into.len() as u64, AlignedBuf::new(into.len()))?;
        into.copy_from_slice(&memory[..into.len()]);
        Ok(())
    }

    /// Writes whole blocks, at once.
    pub(super) fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let mut memory = AlignedBuf::new(from.len());
        memory[..from.len()].copy_from_slice(from);
        self.call(Ask::Write, offset, from.len() as u64, memory).map(drop)
    }

    /// Makes durable what was written. A device that takes no writes has nothing to be flushed.
    pub(super) fn flush(&self) -> io::Result<()> {
        if !self.abilities.may_flush {
            return Ok(());
        }
        self.call(Ask::Flush, 0, 0, AlignedBuf::new(0)).map(drop)
    }

    /// Discards whole blocks, at most 1 GiB; says whether the server can.
    pub(super) fn discard(&self, offset: u64, bytes: u64) -> io::Result<bool> {
        if !self.abilities.may_discard {
            return Ok(false);
        }
        self.call(Ask::Trim, offset, bytes, AlignedBuf::new(0)).map(|_| true)
    }

    fn call(&self, ask: Ask, offset: u64, bytes: u64, memory: AlignedBuf) -> io::Result<AlignedBuf> {
        let name = self.abilities.name;
        let timed_out = |text| Err(io::Error::new(io::ErrorKind::TimedOut, text));
        let mut given_up = locked(&self.given_up);
        given_up.retain(|call| call.strong_count() > 0);
        // What was given up may still be written: nothing newer may go before it.
        if !given_up.is_empty() {
            return timed_out(format!("{name} has not answered an earlier call yet"));
        }
        drop(given_up);
        let (answer, answers) = channel();
        let alive = Arc::new(());
        let this = Arc::downgrade(&alive);
        self.server.submit(Box::new(Call { ask, offset, bytes, memory, answer, _alive: alive }));
        match answers.recv_timeout(CALL_LIMIT) {
            Ok((result, memory)) => result.map(|()| memory).map_err(io::Error::from),
            Err(RecvTimeoutError::Timeout) => {
                let why = self.server.link().away.map_or_else(|| "it is silent".to_owned(), |(_, why)| why);
                locked(&self.given_up).push(this);
                timed_out(format!("{name} did not answer for {} s ({why})", CALL_LIMIT.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(Errno::IO.into()),
        }
    }
}
