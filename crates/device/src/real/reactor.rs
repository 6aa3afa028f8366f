// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread's way to the kernel, shared by its devices.

use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use flashfront_engine::Time;

use super::error::OpenError;
use super::file::DeviceFile;
use super::job::Job;
use super::lock::Access;
use super::threads::Threads;
use super::uring::Uring;
use crate::{Arena, Chunk, Device, DeviceIo, Done, Geometry};

/// Forces a backend on every reactor made with [`Prefer::Auto`]: `uring` or `threads`.
const FORCE: &str = "FLASHFRONT_IO";

/// Which backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefer {
    /// What the environment variable `FLASHFRONT_IO` says; else io_uring if the kernel allows it,
    /// else threads.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// Threads.
    Threads,
}

/// Why there is no reactor.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReactorError {
    /// io_uring was asked for, and the kernel refuses.
    Uring(io::Error),
    /// The threads could not be started.
    Threads(io::Error),
    /// `FLASHFRONT_IO` is neither `uring` nor `threads`.
    Force(String),
}

impl fmt::Display for ReactorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uring(error) => write!(f, "the kernel refuses io_uring: {error}; {FORCE}=threads does without"),
            Self::Threads(error) => write!(f, "cannot start I/O threads: {error}"),
            Self::Force(value) => write!(f, "{FORCE}={value}: must be `uring` or `threads`"),
        }
    }
}

impl std::error::Error for ReactorError {}

#[derive(Debug)]
enum Backend {
    Uring(Box<Uring>),
    Threads(Threads),
}

#[derive(Debug)]
struct Shared {
    backend: Backend,
    /// What has ended and was not fetched yet, by device; `None` = number not in use.
    ended: Vec<Option<Vec<Done>>>,
}

/// A thread's way to the kernel.
#[derive(Debug)]
pub struct Reactor {
    shared: Arc<Mutex<Shared>>,
    backend_name: &'static str,
    notice: Option<String>,
}

impl Reactor {
    /// A reactor on this backend.
    ///
    /// # Errors
    /// [`ReactorError`]; with [`Prefer::Auto`] only if neither backend can be had.
    pub fn new(prefer: Prefer) -> Result<Self, ReactorError> {
        let forced = std::env::var(FORCE).unwrap_or_default();
        let prefer = match (prefer, forced.as_str()) {
            (Prefer::Auto, "uring") => Prefer::Uring,
            (Prefer::Auto, "threads") => Prefer::Threads,
            (Prefer::Auto, "") => Prefer::Auto,
            (Prefer::Auto, _) => return Err(ReactorError::Force(forced)),
            (prefer, _) => prefer,
        };
        match prefer {
            Prefer::Threads => Self::threads(None),
            Prefer::Uring => Self::uring(true).map_err(ReactorError::Uring),
            // ENOSYS (not built), EPERM (sysctl kernel.io_uring_disabled, seccomp), EACCES, ENOMEM
            // (RLIMIT_MEMLOCK before 5.12): whatever it is, threads need none of it.
            Prefer::Auto => Self::uring(true).or_else(|error| {
                Self::threads(Some(format!(
                    "io_uring is not available here ({error}); using I/O threads, which cost more CPU"
                )))
            }),
        }
    }

    /// `fixed` = register files and buffers.
    pub(super) fn uring(fixed: bool) -> io::Result<Self> {
        Ok(Self::with(Backend::Uring(Box::new(Uring::new(fixed)?)), "io_uring", None))
    }

    fn threads(notice: Option<String>) -> Result<Self, ReactorError> {
        let threads = Threads::new().map_err(ReactorError::Threads)?;
        Ok(Self::with(Backend::Threads(threads), "threads", notice))
    }

    fn with(backend: Backend, backend_name: &'static str, notice: Option<String>) -> Self {
        let shared = Shared { backend, ended: Vec::new() };
        Self { shared: Arc::new(Mutex::new(shared)), backend_name, notice }
    }

    /// Opens and locks a device, for I/O through this reactor.
    ///
    /// # Errors
    /// As [`DeviceFile::open`].
    pub fn open(&self, path: &Path, access: Access) -> Result<RealDevice, OpenError> {
        Ok(self.attach(DeviceFile::open(path, access)?))
    }

    /// Takes an open device, for I/O through this reactor. The lock is given up when nobody has the
    /// file any more.
    #[must_use]
    pub fn attach(&self, file: impl Into<Arc<DeviceFile>>) -> RealDevice {
        let file = file.into();
        let mut shared = locked(&self.shared);
        let free = shared.ended.iter().position(Option::is_none);
        let number = free.unwrap_or_else(|| {
            shared.ended.push(None);
            shared.ended.len() - 1
        });
        shared.ended[number] = Some(Vec::new());
        let fixed_file = match &mut shared.backend {
            Backend::Uring(uring) => !file.is_by_threads() && uring.register(number as u32, &file),
            Backend::Threads(_) => false,
        };
        drop(shared);
        RealDevice {
            shared: self.shared.clone(),
            number: number as u32,
            fixed_file,
            file,
            batch: Vec::new(),
            in_flight: 0,
        }
    }

    /// Hands the kernel the I/O that the devices were given, and sleeps. It wakes when some device
    /// has something to poll, `watched` is readable, a signal has come or the time is over (`None`
    /// = never). Says whether `watched` was seen readable; it must be the same descriptor at every
    /// call.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn wait(&self, watched: Option<RawFd>, timeout: Option<Duration>) -> io::Result<bool> {
        let mut shared = locked(&self.shared);
        let Shared { backend, ended } = &mut *shared;
        let unpolled = ended.iter().flatten().any(|list| !list.is_empty());
        let timeout = if unpolled { Some(Duration::ZERO) } else { timeout };
        let mut end = |device: u32, done| {
            // `None`: the device was dropped.
            if let Some(Some(list)) = ended.get_mut(device as usize) {
                list.push(done);
            }
        };
        match backend {
            Backend::Uring(uring) => Ok(uring.wait(watched, timeout, &mut end)),
            Backend::Threads(threads) => {
                let readable = threads.wait(watched, timeout)?;
                threads.reap().into_iter().for_each(|(device, done)| end(device, done));
                Ok(readable)
            }
        }
    }

    /// Lets go of an arena's chunk of which nothing is in use, so that its pages can be given back
    /// ([`Arena::trim`]).
    pub fn unregister_chunk(&self, number: usize, chunk: &Arc<Chunk>) {
        match &mut locked(&self.shared).backend {
            Backend::Uring(uring) => uring.unregister_chunk(number, chunk),
            // A worker holds a chunk only as long as its job.
            Backend::Threads(_) => {}
        }
    }

    /// Waits for so long until nothing is in flight, and says whether that is so; what is then is
    /// abandoned.
    #[must_use]
    pub fn finish(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            let in_flight = match &locked(&self.shared).backend {
                Backend::Uring(uring) => uring.in_flight(),
                Backend::Threads(threads) => threads.in_flight(),
            };
            let left = end.saturating_duration_since(Instant::now());
            if in_flight == 0 {
                return true;
            }
            if left.is_zero() || self.wait_for_io(left).is_err() {
                self.abandon();
                return false;
            }
        }
    }

    /// Waits for any I/O, also if what has ended was not polled.
    fn wait_for_io(&self, limit: Duration) -> io::Result<()> {
        let mut shared = locked(&self.shared);
        match &mut shared.backend {
            Backend::Uring(uring) => _ = uring.wait(None, Some(limit), &mut |_, _| {}),
            Backend::Threads(threads) => {
                threads.wait(None, Some(limit))?;
                threads.reap();
            }
        }
        Ok(())
    }

    /// From now on nobody waits for what is in flight: not when a device or this is dropped. For an
    /// end beside a device that hangs; memory and files of such I/O are kept until the process has
    /// ended.
    pub fn abandon(&self) {
        match &mut locked(&self.shared).backend {
            Backend::Uring(uring) => uring.abandon(),
            Backend::Threads(threads) => threads.abandon(),
        }
    }

    /// The backend in use: `io_uring` or `threads`.
    #[must_use]
    pub fn backend_name(&self) -> &'static str {
        self.backend_name
    }

    /// What the operator should know about the choice of backend, if anything.
    #[must_use]
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }
}

/// All changes of the shared state are whole before anything can panic.
fn locked(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A real device. Dropping it forgets what is in flight; the file is closed, and its lock given
/// up, when that has ended.
#[derive(Debug)]
pub struct RealDevice {
    shared: Arc<Mutex<Shared>>,
    number: u32,
    fixed_file: bool,
    file: Arc<DeviceFile>,
    /// Submitted and not kicked yet.
    batch: Vec<Job>,
    /// Kicked and not polled yet.
    in_flight: usize,
}

impl RealDevice {
    /// The open file: identity, path, synchronous helpers.
    #[must_use]
    pub fn file(&self) -> &DeviceFile {
        &self.file
    }
}

#[cfg(test)]
impl RealDevice {
    /// Submits a job after a test has changed it.
    pub(super) fn queue(
        &mut self,
        op: flashfront_engine::Op,
        offset: u64,
        len: u64,
        arena: &Arena,
        change: fn(&mut Job),
    ) {
        let io = DeviceIo { token: flashfront_engine::Token(0), op, offset, len, span: None };
        let mut job = Job::new(&self.file, self.number, self.fixed_file, &io, arena);
        change(&mut job);
        self.batch.push(job);
    }
}

impl Device for RealDevice {
    fn submit(&mut self, _now: Time, io: DeviceIo, arena: &mut Arena) {
        self.file.geometry().check(&io);
        self.batch.push(Job::new(&self.file, self.number, self.fixed_file, &io, arena));
    }

    fn kick(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        self.in_flight += self.batch.len();
        let mut shared = locked(&self.shared);
        match &mut shared.backend {
            Backend::Uring(uring) => uring.start(self.batch.drain(..)),
            Backend::Threads(threads) => threads.start(self.batch.drain(..)),
        }
    }

    fn poll(&mut self, _now: Time, _arena: &mut Arena, done: &mut Vec<Done>) {
        if let Some(list) = &mut locked(&self.shared).ended[self.number as usize] {
            self.in_flight -= list.len();
            done.append(list);
        }
    }

    /// [`Reactor::wait`] knows.
    fn next_event(&self) -> Option<Time> {
        None
    }

    fn geometry(&self) -> Geometry {
        self.file.geometry()
    }
}

impl Drop for RealDevice {
    fn drop(&mut self) {
        let mut shared = locked(&self.shared);
        match &mut shared.backend {
            Backend::Uring(uring) => uring.close(self.number, self.fixed_file),
            Backend::Threads(threads) => threads.close(self.number),
        }
        // With I/O in flight the number is never used again: its completions must not be taken
        // for those of a device opened later.
        if self.in_flight == 0 {
            shared.ended[self.number as usize] = None;
        }
    }
}

#[cfg(test)]
mod tests;
