// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ublk front-end: a volume as /dev/ublkbN, a block device of this machine.
//!
//! The kernel's driver hands over requests by commands of io_uring, whose ring is one more poll
//! token. So all of it runs in the pump's thread and needs no thread of its own and no C library.
//! The only copy is between the client's pages and the pump's buffers (UBLK_F_USER_COPY, Linux
//! 6.5); ADR 0084 says why it stays. The crate `libublk` is not used: it brings an executor, a
//! thread per queue, and libclang at build time. `abi` is the kernel's header, `driver` a device as
//! a whole, `queue` its requests, `ask` one of them. By `begin` a device comes from another daemon
//! or is made, and by `hold` it goes to the next.
//!
//! **Recovery** (UBLK_F_USER_RECOVERY, _REISSUE): the device outlives a killed daemon. Its requests
//! wait, and the next daemon gets those that were not answered again. To the client nothing has
//! happened, so the process's death may lose nothing that was acknowledged. With durability `flush`
//! up to a second of writes would be lost, unnoticed. So only devices of durability `always` are
//! recoverable. Others end with the daemon, with I/O errors, as an NBD connection does. A device is
//! taken over only by its mark: of the same origin.
//!
//! **Upgrade** (ADR 0076): a recoverable device is left between two requests, and the next program
//! recovers it as if this one had died. Until that program serves, it only looks at the device. So
//! this one can recover the device as well.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use flashfront_engine::{OriginId, RequestError, RequestId, SECTOR_BYTES, Time};
use mio::unix::SourceFd;
use mio::{Interest, Registry, event::Event};

use super::inlet::Table;
use super::{Core, Export, Frontend, TokenRange};
use crate::upgrade::Parcel;

mod abi;
mod ask;
mod begin;
mod driver;
mod error;
mod hold;
mod in_use;
mod queue;
#[cfg(test)]
mod tests;

use abi::{control, feature};
use ask::{Results, UblkAsk};
use begin::{find, make, take_over};
use driver::Driver;
pub use error::UblkError;
use in_use::in_use;
use queue::{Fetched, Queue};

/// Requests in flight, as many as a table takes.
const DEPTH: u16 = 128;
/// The longest request with payload.
const IO_BYTES_MAX: u32 = 1 << 20;
/// The longest discard or zeroing: seconds on a disk that must be written for it.
const DISCARD_SECTORS_MAX: u32 = (256 << 20) / SECTOR_BYTES as u32;
/// How long to wait before the kernel is asked again to take answers that it refused.
const AGAIN_NS: u64 = 1_000_000;
/// How long to wait for a device to be gone. If a program still has it open, it goes when that
/// closes it.
const DELETE_WAIT: Duration = Duration::from_secs(2);

/// Options of a ublk device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UblkOptions {
    /// N of /dev/ublkbN.
    pub number: u32,
    /// The volume's origin.
    pub origin: OriginId,
    /// The mark that tells this origin from all others.
    pub mark: u64,
    /// Whether no acknowledged write is lost with the process.
    pub recoverable: bool,
}

/// The phase of a device's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Made, or taken over, and not known to clients yet.
    Made,
    /// The driver was told to start; it reads partitions meanwhile.
    Starting,
    Live,
    /// The driver was told to stop; it writes back what it has meanwhile.
    Stopping,
    /// Left to the next daemon, once what is at the engine is answered.
    Leaving,
    Gone,
}

/// The ublk front-end for one volume.
#[derive(Debug)]
pub struct Ublk {
    options: UblkOptions,
    driver: Driver,
    /// Requests in flight.
    depth: u16,
    /// The queue; none: it is closed, or another daemon's as yet.
    queue: Option<Queue>,
    table: Table<UblkAsk>,
    /// Requests without buffers so far, in the order they came.
    waiting: VecDeque<UblkAsk>,
    results: Results,
    /// When to send answers that the kernel has refused.
    again_at: Option<Time>,
    phase: Phase,
    /// Whether the device was another daemon's.
    recovering: bool,
    /// A stop is to follow the start.
    stop_asked: bool,
    /// No request is taken: the next program is to have the device.
    on_hold: bool,
    failed: Option<io::Error>,
}

impl Ublk {
    /// Makes the device, or finds the device that another daemon left. Clients see it, or go on,
    /// when the pump runs.
    ///
    /// # Errors
    /// See [`UblkError`].
    pub fn open(export: &Export, options: UblkOptions) -> Result<Self, UblkError> {
        let number = options.number;
        let failed = |doing| move |error: io::Error| UblkError::Io { number, doing, error };
        let control = File::options().read(true).write(true).open("/dev/ublk-control");
        let control = control.map_err(|error| UblkError::NoDriver { error })?;
        let mut driver = Driver::new(control, number).map_err(failed("get an io_uring for"))?;
        let can = driver.features().map_err(|_| UblkError::TooOld)?;
        if can & feature::USER_COPY == 0 {
            return Err(UblkError::TooOld);
        }
        let found = find(&mut driver, &options, can)?;
        let recovering = found.is_some();
        let info = match found {
            Some(info) => info,
            None => make(&mut driver, export, &options).map_err(failed("make"))?,
        };
        let mut ublk = Self {
            options,
            driver,
            depth: info.depth,
            queue: None,
            table: Table::default(),
            waiting: VecDeque::new(),
            results: Rc::new(RefCell::new(Vec::new())),
            again_at: None,
            phase: Phase::Made,
            recovering,
            stop_asked: false,
            on_hold: false,
            failed: None,
        };
        if !recovering {
            // Dropped after an error, it takes the device away again.
            ublk.open_queue().map_err(failed("open"))?;
        }
        Ok(ublk)
    }

    /// Opens the character device, which only one process may have open.
    fn open_queue(&mut self) -> io::Result<()> {
        let opened = File::options().read(true).write(true).open(format!("/dev/ublkc{}", self.options.number));
        self.queue = Some(Queue::open(opened?, self.depth)?);
        Ok(())
    }

    fn name(&self) -> String {
        format!("ublkb{}", self.options.number)
    }

    /// Takes what the driver has fetched; says whether something was submitted.
    fn take_in(&mut self, core: &mut dyn Core) -> bool {
        if self.phase == Phase::Leaving || self.on_hold && self.phase == Phase::Live {
            // Not answered, these are the next daemon's.
            return false;
        }
        let mut submitted = false;
        while let Some(ask) = self.waiting.pop_front() {
            match self.table.accept(ask, core) {
                None => submitted = true,
                Some(waiting) => {
                    self.waiting.push_front(waiting);
                    break;
                }
            }
        }
        while let Some(fetched) = self.queue.as_mut().and_then(Queue::fetched) {
            let (tag, description) = match fetched {
                Fetched::Request(tag, description) => (tag, description),
                Fetched::Over(error) => {
                    self.over(error);
                    continue;
                }
            };
            let Some(want) = ask::want(&description, self.options.origin) else {
                self.results.borrow_mut().push((tag, -libc::EOPNOTSUPP));
                continue;
            };
            let Some(payloads) = self.queue.as_ref().map(Queue::payloads) else {
                break;
            };
            let ask = UblkAsk { tag, want, since: core.now(), payloads, results: Rc::clone(&self.results) };
            let waiting = if self.waiting.is_empty() { self.table.accept(ask, core) } else { Some(ask) };
            submitted |= waiting.is_none();
            self.waiting.extend(waiting);
        }
        submitted
    }

    /// A place of the queue is lost.
    fn over(&mut self, error: io::Error) {
        if self.phase == Phase::Starting {
            // It would never end.
            self.failed.get_or_insert(error);
        } else if error.raw_os_error() != Some(libc::ENODEV) {
            // ENODEV is a device that is being stopped.
            tracing::error!("/dev/{}: fetching a request: {error}", self.name());
        }
    }

    /// Sends what was answered, with one system call; and what the kernel has refused before.
    fn give_back(&mut self, now: Time) {
        let refused = self.again_at.take().is_some();
        let Some(queue) = &mut self.queue else {
            return;
        };
        for (tag, result) in self.results.take() {
            queue.give_back(tag, result);
        }
        match queue.submit() {
            Ok(()) if refused => tracing::info!("/dev/{}: the kernel takes requests back again", self.name()),
            Ok(()) => {}
            Err(error) => {
                self.again_at = Some(now.plus_ns(AGAIN_NS));
                if !refused {
                    tracing::warn!(
                        "/dev/{}: giving requests back: {error}; tried again each millisecond, and its clients wait until the kernel takes them (is it out of memory?)",
                        self.name()
                    );
                }
            }
        }
    }

    /// Goes on when an order to the driver has ended.
    fn follow_orders(&mut self) {
        let Some(ended) = self.driver.ended() else {
            return;
        };
        match (self.phase, ended) {
            (Phase::Starting, Ok(())) => {
                self.phase = Phase::Live;
                if self.recovering {
                    tracing::info!("/dev/{}: taken over from the daemon before; its requests go on", self.name());
                }
            }
            (Phase::Starting, Err(error)) => {
                self.failed = Some(error);
                self.delete();
            }
            (Phase::Stopping, ended) => {
                if let Err(error) = ended {
                    tracing::warn!("/dev/{}: stopping it: {error}", self.name());
                }
                self.delete();
            }
            (_, _) => {}
        }
    }

    /// Stops the device, or leaves it to the next daemon.
    fn begin_stop(&mut self) {
        self.stop_asked = false;
        if self.options.recoverable && in_use(&self.name()) {
            tracing::warn!(
                "/dev/{}: in use (mounted, or part of another device), so it stays; its requests wait for the next start of this daemon",
                self.name()
            );
            self.phase = Phase::Leaving;
            return;
        }
        self.phase = Phase::Stopping;
        if let Err(error) = self.driver.begin(control::STOP_DEVICE, 0) {
            tracing::warn!("/dev/{}: stopping it: {error}", self.name());
            self.delete();
        }
    }

    /// Takes the device away.
    fn delete(&mut self) {
        // The driver waits until no process has the character device open.
        self.waiting.clear();
        self.queue = None;
        self.phase = Phase::Gone;
        if let Err(error) = self.driver.delete(DELETE_WAIT) {
            tracing::warn!("/dev/{}: deleting it: {error}", self.name());
        }
    }
}

impl Drop for Ublk {
    fn drop(&mut self) {
        // A live device is the next daemon's, or dies with the process: the driver sees to both.
        if self.phase == Phase::Made && !self.recovering {
            self.delete();
        }
    }
}

impl Frontend for Ublk {
    fn uri(&self) -> String {
        format!("file:///dev/{}", self.name())
    }

    fn uri_of(&self, export: &Export) -> Option<String> {
        (self.options.origin == export.origin).then(|| self.uri())
    }

    fn only(&self) -> Option<OriginId> {
        Some(self.options.origin)
    }

    fn tokens_max(&self) -> usize {
        2
    }

    fn register(&mut self, registry: &Registry, tokens: TokenRange) -> io::Result<()> {
        if self.recovering {
            let taken = take_over(&mut self.driver).and_then(|()| self.open_queue());
            taken.map_err(|error| {
                io::Error::new(error.kind(), format!("/dev/{}: can't take it over: {error}", self.name()))
            })?;
        }
        let (Some(queue), Some(first), Some(second)) = (&mut self.queue, tokens.get(0), tokens.get(1)) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        registry.register(&mut SourceFd(&queue.ring_fd()), first, Interest::READABLE)?;
        registry.register(&mut SourceFd(&self.driver.ring_fd()), second, Interest::READABLE)?;
        queue.fetch_all()?;
        let order = if self.recovering { control::END_RECOVERY } else { control::START_DEVICE };
        self.phase = Phase::Starting;
        self.driver.begin(order, u64::from(std::process::id()))
    }

    fn starting(&mut self) -> io::Result<bool> {
        match self.failed.take() {
            Some(error) => Err(io::Error::new(error.kind(), format!("/dev/{}: {error}", self.name()))),
            None => Ok(self.phase == Phase::Starting),
        }
    }

    fn ready(&mut self, _event: &Event, _registry: &Registry, core: &mut dyn Core) {
        self.follow_orders();
        self.take_in(core);
    }

    fn reply(&mut self, id: RequestId, result: Result<(), RequestError>, _core: &mut dyn Core) {
        self.table.reply(id, result);
    }

    fn refused(&mut self, id: RequestId, _core: &mut dyn Core) {
        self.table.refused(id);
    }

    fn room(&mut self, _core: &mut dyn Core) {
        // Requests that wait are tried at the end of every turn.
    }

    fn turn_end(&mut self, now: Time, _registry: &Registry, core: &mut dyn Core) -> bool {
        self.table.answer(core);
        let (submitted, phase) = (self.table.resume(now, core) | self.take_in(core), self.phase);
        self.give_back(now);
        if self.stop_asked && self.phase == Phase::Live {
            self.begin_stop();
        }
        self.follow_orders();
        if self.phase == Phase::Leaving && self.table.is_empty() {
            self.waiting.clear();
            self.queue = None;
            self.phase = Phase::Gone;
        }
        // The daemon waits for the next phase, and nothing else may wake it.
        submitted || self.phase != phase
    }

    fn next_timer(&self) -> Option<Time> {
        [self.again_at, self.table.next_timer()].into_iter().flatten().min()
    }

    fn stop(&mut self, _registry: &Registry, _core: &mut dyn Core) {
        // Requests are still served until the driver has stopped: it writes back what clients have
        // written.
        self.stop_asked = true;
    }

    fn idle(&self) -> bool {
        self.phase == Phase::Gone && self.table.is_empty()
    }

    fn stays(&self) -> Option<String> {
        self.ends_with_this()
    }

    fn hold(&mut self, _forced: bool, _core: &mut dyn Core) {
        self.on_hold = true;
    }

    fn held(&self) -> bool {
        self.is_held()
    }

    fn release(&mut self) {
        self.on_hold = false;
    }

    fn hand_over(&mut self, parcel: &mut Parcel, _core: &mut dyn Core) -> io::Result<()> {
        // The next program finds the device by its mark.
        parcel.state.clients += self.clients() as u64;
        Ok(())
    }

    fn leave(&mut self) {
        self.leave_device();
    }

    fn clients(&self) -> usize {
        usize::from(matches!(self.phase, Phase::Live | Phase::Stopping))
    }

    /// A program that writes to it as to a file is not seen; the driver's stop writes what the
    /// kernel has of that.
    fn holders(&self) -> usize {
        usize::from(self.clients() > 0 && in_use(&self.name()))
    }
}
