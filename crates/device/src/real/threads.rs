// SPDX-License-Identifier: MIT OR Apache-2.0
//! I/O by threads, for machines without io_uring and for devices whose I/O may sleep.
//!
//! Containers' seccomp profiles forbid io_uring. A device whose I/O may sleep in the system call
//! that starts it has threads with io_uring, too ([`super::placement`]).
//!
//! Each device has workers of its own, so that a device that hangs keeps no other waiting. They are
//! started as they are wanted. Each does one job at a time with plain system calls. An eventfd
//! tells the pump that something has ended. Threads are slower than io_uring by two context
//! switches per I/O, with the same results.
#![expect(unsafe_code, reason = "I/O on the arena's memory")]

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flashfront_engine::DeviceError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::discard::blkdiscard;
use super::extents;
use super::file::DeviceFile;
use super::job::{Job, Step};
use super::remote_job::RemoteJob;
use crate::Done;

/// Workers of a device, at most. Enough to keep an SSD busy (they saturate at 16 to 32 I/Os in
/// flight); each costs 128 KiB of stack address space.
pub(super) const WORKERS: usize = 32;
const STACK_BYTES: usize = 128 << 10;

/// The workers of all devices of a reactor.
#[derive(Debug)]
pub(super) struct Threads {
    ended: Arc<Ended>,
    /// The queues, by the number of the device.
    queues: BTreeMap<u32, Arc<Queue>>,
    /// Devices whose jobs are done by a thread of theirs.
    remotes: BTreeMap<u32, Arc<DeviceFile>>,
    /// Jobs that were given and not fetched.
    in_flight: usize,
    /// Jobs under way are not waited for at the end.
    abandoned: bool,
}

/// A job that is done.
#[derive(Debug)]
pub(super) struct Ended {
    done: Mutex<Vec<(u32, Done)>>,
    /// Readable while `done` is not empty.
    wake: OwnedFd,
}

/// The jobs of one device.
#[derive(Debug)]
struct Queue {
    todo: Mutex<Todo>,
    /// Signalled when `todo` has changed.
    changed: Condvar,
    ended: Arc<Ended>,
}

#[derive(Debug, Default)]
struct Todo {
    jobs: VecDeque<Job>,
    /// Workers there are, and how many of them wait for a job.
    workers: usize,
    idle: usize,
    /// No more jobs will come.
    stopping: bool,
}

/// A worker that panicked while holding a lock left the data whole: all changes are single pushes
/// and pops.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Threads {
    /// Begins without workers.
    pub(super) fn new() -> io::Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let ended = Arc::new(Ended { done: Mutex::default(), wake });
        Ok(Self { ended, queues: BTreeMap::new(), remotes: BTreeMap::new(), in_flight: 0, abandoned: false })
    }

    /// Readable while there is something to [`Threads::reap`].
    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.ended.wake.as_fd()
    }

    pub(super) fn start(&mut self, jobs: impl Iterator<Item = Job>) {
        for job in jobs {
            self.in_flight += 1;
            let file = Arc::clone(&job.file);
            if let Some(remote) = file.remote() {
                self.remotes.entry(job.device).or_insert_with(|| Arc::clone(&file));
                remote.server().submit(Box::new(RemoteJob::new(job, &self.ended)));
                continue;
            }
            let queue = self.queues.entry(job.device).or_insert_with(|| {
                let ended = Arc::clone(&self.ended);
                Arc::new(Queue { todo: Mutex::default(), changed: Condvar::new(), ended })
            });
            queue.push(job);
        }
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Ends the workers of a device when they have done what it was given.
    pub(super) fn close(&mut self, device: u32) {
        if let Some(queue) = self.queues.remove(&device) {
            queue.stop();
        }
        if let Some(file) = self.remotes.remove(&device) {
            self.forget(&file);
        }
    }

    fn forget(&self, file: &DeviceFile) {
        if let Some(remote) = file.remote() {
            remote.server().forget(RemoteJob::owner_of(&self.ended));
        }
    }

    /// Everything that has ended since the last call; clears the eventfd.
    pub(super) fn reap(&mut self) -> Vec<(u32, Done)> {
        let mut done = locked(&self.ended.done);
        if !done.is_empty() {
            // Can't fail: signalled under the same lock.
            let _ = rustix::io::read(&self.ended.wake, &mut [0; 8]);
        }
        self.in_flight -= done.len();
        std::mem::take(&mut *done)
    }

    /// Waits no longer for jobs under way.
    pub(super) const fn abandon(&mut self) {
        self.abandoned = true;
    }

    /// Sleeps until something has ended, `watched` is readable or the time is over. Says whether
    /// `watched` is readable.
    pub(super) fn wait(&self, watched: Option<RawFd>, timeout: Option<Duration>) -> io::Result<bool> {
        let mut fds = Vec::from([PollFd::from_borrowed_fd(self.wake_fd(), PollFlags::IN)]);
        // SAFETY: the kernel is asked about the descriptor and nothing else; of a closed one it
        // says so.
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
        for queue in self.queues.values() {
            locked(&queue.todo).jobs.clear();
            queue.stop();
        }
        self.remotes.values().for_each(|file| self.forget(file));
        if !self.abandoned {
            self.queues.values().for_each(|queue| queue.wait_for_workers());
        }
    }
}

impl Queue {
    fn push(self: &Arc<Self>, job: Job) {
        let mut todo = locked(&self.todo);
        todo.jobs.push_back(job);
        // Each job that is not taken yet has a worker that waits for one, or gets a new one.
        if todo.jobs.len() <= todo.idle {
            return self.changed.notify_one();
        }
        if todo.workers == WORKERS {
            return;
        }
        let queue = Arc::clone(self);
        let builder = std::thread::Builder::new().name("io".to_owned()).stack_size(STACK_BYTES);
        if builder.spawn(move || queue.work()).is_ok() {
            todo.workers += 1;
        } else if todo.workers == 0
            && let Some(job) = todo.jobs.pop_back()
        {
            // The kernel is out of threads, and none is there that could do it later.
            self.ended.push(job, Err(DeviceError::Io));
        }
    }

    fn stop(&self) {
        locked(&self.todo).stopping = true;
        self.changed.notify_all();
    }

    fn wait_for_workers(&self) {
        let mut todo = locked(&self.todo);
        while todo.workers > 0 {
            todo = self.changed.wait(todo).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self) {
        // Also when it panics.
        let _worker = Worker(self);
        while let Some(mut job) = self.next() {
            let result = run(&mut job);
            self.ended.push(job, result);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut todo = locked(&self.todo);
        loop {
            if let Some(job) = todo.jobs.pop_front() {
                return Some(job);
            }
            if todo.stopping {
                return None;
            }
            todo.idle += 1;
            todo = self.changed.wait(todo).unwrap_or_else(PoisonError::into_inner);
            todo.idle -= 1;
        }
    }
}

struct Worker<'a>(&'a Queue);

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        locked(&self.0.todo).workers -= 1;
        self.0.changed.notify_all();
    }
}

impl Ended {
    /// Tells of the end of a job.
    pub(super) fn push(&self, job: Job, result: Result<(), DeviceError>) {
        let entry = (job.device, Done { token: job.token, result });
        // File and memory are let go of before the end is told.
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
    let file = job.file.file().ok_or(Errno::NXIO)?;
    match job.step() {
        Step::Read { offset, len, to } => {
            // SAFETY: `len` bytes at `to` are in the job's chunk; until the job is done they are
            // the kernel's alone.
            let to = unsafe { std::slice::from_raw_parts_mut(to.as_ptr(), len as usize) };
            rustix::io::pread(file, to, offset).map(|bytes| bytes as u32)
        }
        Step::Write { offset, len, from } => {
            // SAFETY: as above; and no code changes them.
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
