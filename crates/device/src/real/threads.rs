// SPDX-License-Identifier: MIT OR Apache-2.0
//! I/O by a pool of threads, for where io_uring is forbidden (containers' seccomp profiles).
//!
//! Each worker does one job at a time with plain system calls. An eventfd tells the pump that
//! something has ended. Slower than io_uring by two context switches per I/O, same results.
#![expect(unsafe_code, reason = "I/O on the arena's memory")]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use flashfront_engine::DeviceError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::discard::blkdiscard;
use super::extents;
use super::job::{Job, Step};
use crate::Done;

/// Enough to keep an SSD busy (they saturate at 16 to 32 I/Os in flight); each costs 128 KiB of
/// stack address space.
pub(super) const WORKERS: usize = 32;
const STACK_BYTES: usize = 128 << 10;

/// A pool of workers.
#[derive(Debug)]
pub(super) struct Threads {
    pool: Arc<Pool>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Pool {
    todo: Mutex<Todo>,
    /// Signalled when `todo` has changed.
    changed: Condvar,
    done: Mutex<Vec<(u32, Done)>>,
    /// Readable while `done` is not empty.
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct Todo {
    jobs: VecDeque<Job>,
    stopping: bool,
}

/// A worker that panicked while holding a lock left the data whole: all changes are single pushes and pops.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Threads {
    /// So many workers.
    pub(super) fn new(workers: usize) -> io::Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let pool = Pool { todo: Mutex::default(), changed: Condvar::new(), done: Mutex::default(), wake };
        let mut threads = Self { pool: Arc::new(pool), workers: Vec::with_capacity(workers) };
        for number in 0..workers {
            let pool = threads.pool.clone();
            let builder = std::thread::Builder::new().name(format!("io-{number}")).stack_size(STACK_BYTES);
            // On failure `threads` is dropped, which ends those already started.
            threads.workers.push(builder.spawn(move || pool.work())?);
        }
        Ok(threads)
    }

    /// Readable while there is something to [`Threads::reap`].
    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.pool.wake.as_fd()
    }

    pub(super) fn start(&mut self, jobs: impl Iterator<Item = Job>) {
        let mut todo = locked(&self.pool.todo);
        let before = todo.jobs.len();
        todo.jobs.extend(jobs);
        let added = todo.jobs.len() - before;
        drop(todo);
        for _ in 0..added.min(self.workers.len()) {
            self.pool.changed.notify_one();
        }
    }

    /// Everything that has ended since the last call; clears the eventfd.
    pub(super) fn reap(&mut self) -> Vec<(u32, Done)> {
        let mut done = locked(&self.pool.done);
        if !done.is_empty() {
            // Can't fail: signalled under the same lock.
            let _ = rustix::io::read(&self.pool.wake, &mut [0; 8]);
        }
        std::mem::take(&mut *done)
    }

    /// Sleeps until something has ended, `watched` is readable or the time is over. Says whether
    /// `watched` is readable.
    pub(super) fn wait(&self, watched: Option<RawFd>, timeout: Option<Duration>) -> io::Result<bool> {
        let mut fds = Vec::from([PollFd::from_borrowed_fd(self.wake_fd(), PollFlags::IN)]);
        // SAFETY: the kernel is asked about the descriptor and nothing else; of a closed one it says so.
        let watched = watched.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
        fds.extend(watched.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // Longer than a timespec can say is for ever.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(fds.get(1).is_some_and(|fd| !fd.revents().is_empty())),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for Threads {
    /// Waits for the jobs being done; those not begun are dropped.
    fn drop(&mut self) {
        {
            let mut todo = locked(&self.pool.todo);
            todo.stopping = true;
            todo.jobs.clear();
        }
        self.pool.changed.notify_all();
        for worker in self.workers.drain(..) {
            // A panic of the worker has been printed already; there is nobody to pass it to.
            let _ = worker.join();
        }
    }
}

impl Pool {
    fn work(&self) {
        while let Some(mut job) = self.next() {
            let result = run(&mut job);
            let entry = (job.device, Done { token: job.token, result });
            // File and memory are let go of before anybody hears of the end.
            drop(job);
            let mut done = locked(&self.done);
            done.push(entry);
            if done.len() == 1 {
                // Under the lock, so that the eventfd is readable exactly while the list is not
                // empty. Fails only if the counter is at 2^64 - 2.
                let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut todo = locked(&self.todo);
        loop {
            if todo.stopping {
                return None;
            }
            if let Some(job) = todo.jobs.pop_front() {
                return Some(job);
            }
            todo = self.changed.wait(todo).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn run(job: &mut Job) -> Result<(), DeviceError> {
    loop {
        let outcome = perform(job);
        if let Some(result) = job.advance(outcome) {
            return result;
        }
    }
}

/// Carries out the job's step, waiting for it.
fn perform(job: &Job) -> Result<u32, Errno> {
    let file = job.file.file();
    match job.step() {
        Step::Read { offset, len, to } => {
            // SAFETY: `len` bytes at `to` are in the job's chunk; until the job is done they are the kernel's alone.
            let to = unsafe { std::slice::from_raw_parts_mut(to.as_ptr(), len as usize) };
            rustix::io::pread(file, to, offset).map(|bytes| bytes as u32)
        }
        Step::Write { offset, len, from } => {
            // SAFETY: as above; and nobody changes them.
            let from = unsafe { std::slice::from_raw_parts(from.as_ptr(), len as usize) };
            rustix::io::pwrite(file, from, offset).map(|bytes| bytes as u32)
        }
        Step::SyncData => rustix::fs::fdatasync(file).map(|()| 0),
        Step::Fallocate { mode, offset, len } => rustix::fs::fallocate(file, mode, offset, len).map(|()| 0),
        Step::BlkDiscard { offset, len } => blkdiscard(file, offset, len).map(|()| 0),
        Step::Map { offset, len, into, room } => {
            // SAFETY: as for a read, of `room` bytes.
            let into = unsafe { std::slice::from_raw_parts_mut(into.as_ptr(), room as usize) };
            extents::map(file, offset, len, into).map(|()| 0)
        }
    }
}
