// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that write, read back and flush at random, each its own part of a disk, and record what
//! was acknowledged.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use flashfront_serve::frontend::nbd::{Client, ClientError};

use crate::harness::Random;
use crate::stamps::{Record, SECTOR};

/// A disk, as a client has it.
pub(crate) trait Disk {
    type Error;
    fn read_at(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), Self::Error>;
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), Self::Error>;
    fn flush(&mut self) -> Result<(), Self::Error>;
}

impl Disk for Client {
    type Error = ClientError;

    fn read_at(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), ClientError> {
        Client::read_at(self, at, bytes)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), ClientError> {
        Client::write_at(self, at, bytes, false)
    }

    fn flush(&mut self) -> Result<(), ClientError> {
        Client::flush(self)
    }
}

impl Disk for File {
    type Error = io::Error;

    fn read_at(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, at)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Writes, reads back, and flushes, until it is over or the daemon is gone. The writer `nth` has
/// the part of the disk that its record is of.
pub(crate) fn write_until_over<D: Disk>(
    client: &mut D,
    records: &[Mutex<Record>],
    nth: usize,
    random: &mut Random,
    answered: &Answered,
) -> Result<(), D::Error> {
    let (first, sectors) = {
        let record = lock(&records[nth]);
        (record.first(), record.sectors())
    };
    while !answered.is_over() {
        // Mostly less than a block, or not aligned to one; sometimes long; often in a hot place.
        let count = if random.below(12) == 0 { 1 + random.below(512) } else { 1 + random.below(24) };
        let span = if random.below(2) == 0 { sectors / 16 } else { sectors };
        let sector = first + random.below(span - count);
        match random.below(16) {
            0 => {
                // A FLUSH covers what was acknowledged to other connections too.
                let before: Vec<_> = records.iter().map(|record| lock(record).acknowledged()).collect();
                client.flush()?;
                for (record, before) in records.iter().zip(&before) {
                    lock(record).flushed(before);
                }
            }
            1..4 => {
                let mut bytes = vec![0; count as usize * SECTOR];
                client.read_at(sector * SECTOR as u64, &mut bytes)?;
                let wrong = lock(&records[nth]).wrong_alive(sector, &bytes);
                assert!(wrong.is_none(), "read while alive: {wrong:?}");
            }
            _ => {
                let payload = lock(&records[nth]).issue(sector, count);
                client.write_at(sector * SECTOR as u64, &payload)?;
                lock(&records[nth]).acknowledge(sector, count);
            }
        }
        answered.one();
    }
    Ok(())
}

/// How many requests have been answered, to wait for.
#[derive(Default)]
pub(crate) struct Answered {
    count: AtomicU64,
    gone: AtomicU64,
    over: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Answered {
    fn one(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        let _guard = lock(&self.lock);
        self.changed.notify_all();
    }

    /// Lets the writers end.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// A client has ended.
    pub(crate) fn gone(&self) {
        self.gone.fetch_add(1, Ordering::SeqCst);
        let _guard = lock(&self.lock);
        self.changed.notify_all();
    }

    /// Waits until `goal` requests are answered, or nobody asks any more.
    pub(crate) fn wait_for(&self, goal: u64) {
        let guard = lock(&self.lock);
        let waiting = |_: &mut ()| self.count.load(Ordering::SeqCst) < goal && self.gone.load(Ordering::SeqCst) == 0;
        let limit = Duration::from_secs(60);
        let (_guard, timeout) = self.changed.wait_timeout_while(guard, limit, waiting).expect("no client has panicked");
        assert!(!timeout.timed_out(), "the daemon answers {:?} of {goal} requests", self.count);
    }
}

#[track_caller]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no client has panicked")
}
