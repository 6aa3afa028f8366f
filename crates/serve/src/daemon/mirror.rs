// SPDX-License-Identifier: MIT OR Apache-2.0
//! A new device for a running cache: `flashfront mirror add`, and `flashfront cache replace`.
//!
//! To open a device, look at its content and wipe it can take seconds. So a thread does that, and
//! clients notice nothing. The engine hears of the device when nothing on it looks like a cache any
//! more. By then no I/O is in flight to the device that it replaces.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};

use flashfront_device::real::{Access, DeviceFile, OpenError, is_uri, watched};
use flashfront_engine::{Control, Input, MirrorStatus, Status};

use super::error::ServeError;
use super::held::Held;
use super::link;
use super::open::{member_id, patient};
use super::own::Own;
use super::stop::StopHandle;
use crate::config::{Config, Size};
use crate::control::{Reply, Response};
use crate::offline::{self, FormatError};
use crate::pump::Pump;
use crate::storage;

/// Why a device does not become the mirror. Only [`MirrorError::Write`] has changed something.
#[derive(Debug, thiserror::Error)]
pub(super) enum MirrorError {
    #[error("the cache has a mirror already, and both devices are well; nothing to do")]
    Whole,
    #[error(
        "the cache is on two devices; to put another in the place of one: `flashfront mirror remove` that, then `flashfront mirror add` the other"
    )]
    Two,
    #[error("the cache is on one device, {0}; there is no mirror to remove")]
    NoMirror(String),
    #[error("{0} leads already, and holds everything; nothing to do")]
    Leads(String),
    #[error("one of the two cache devices is left out already, and {0} is the only one that counts")]
    Alone(String),
    #[error("{path} is no device of this cache; it is on {devices}", path = path.display())]
    NotOurs { path: PathBuf, devices: String },
    #[error(
        "{blocks} that can't be read from the other device are on {path} alone; write them anew or restore them (`flashfront status` lists what is lost), or `flashfront drain`, and try again"
    )]
    OnlyThere { path: String, blocks: String },
    #[error("a new mirror is being filled already; `flashfront status` shows how far it is")]
    Busy,
    #[error("the failure of the other cache device is not recorded yet; try again in a moment")]
    Leaving,
    #[error(
        "I/O to the device that is to be replaced has not ended yet; try again when the kernel has given it up (see dmesg)"
    )]
    InFlight,
    #[error("the cache is still being replayed; try again when it serves")]
    Opening,
    #[error("the cache device failed, so nothing new is put on it; drain it and make a new cache")]
    Failed,
    #[error("the origins are served without a cache; there is nothing to mirror or to replace")]
    WithoutCache,
    #[error("{path}: name the device by its whole path, as the daemon may run in another folder", path = .0.display())]
    Relative(PathBuf),
    #[error("{path} is in use by this cache, as {used}{ways}; a mirror needs a device of its own", path = path.display(), used = used.display())]
    InUse { path: PathBuf, used: PathBuf, ways: String },
    #[error("{path} leads to this daemon itself, by {place}; its cache needs a device that others have", path = path.display())]
    Own { path: PathBuf, place: String },
    #[error("{path} has {found}, and the cache {needed}; a mirror must be at least as large", path = path.display(), found = Size(*found).told(), needed = Size(*needed).told())]
    Small { path: PathBuf, needed: u64, found: u64 },
    #[error("{path} has blocks of {found}; a cache device may have 4 KiB at most", path = path.display(), found = Size(u64::from(*found)))]
    Blocks { path: PathBuf, found: u32 },
    #[error(transparent)]
    Silent(ServeError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Occupied(#[from] FormatError),
    #[error("{path}: can't be written: {source}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the thread that opens the device can't be started: {0}")]
    Thread(io::Error),
    #[error("the device was not opened, because of a bug; see the log")]
    Panicked,
}

/// The device that is on its way to become the mirror, if one is.
#[derive(Debug, Default)]
pub(super) struct NewMirror(Option<Opening>);

/// A device that a thread opens.
#[derive(Debug)]
struct Opening {
    opened: Receiver<Result<DeviceFile, MirrorError>>,
    aim: Aim,
    reply: Reply,
}

/// What a new device becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    Mirror,
    /// The only device of the cache.
    Replace,
}

/// The daemon that gets a new mirror.
pub(super) struct Cache<'a> {
    pub(super) config: &'a Config,
    pub(super) pump: &'a mut Pump,
    pub(super) held: &'a mut Held,
    pub(super) stop: &'a StopHandle,
    /// Clients are served: the log was replayed.
    pub(super) serves: bool,
}

impl NewMirror {
    /// Begins to open the device at `path`. The answer comes when the engine has it.
    pub(super) fn add(&mut self, mut cache: Cache<'_>, path: &Path, force: bool, aim: Aim, reply: Reply) {
        match cache.begin_opening(self.0.is_some(), path, force, aim) {
            Ok(opened) => self.0 = Some(Opening { opened, aim, reply }),
            Err(error) => answer(&reply, Err(error)),
        }
    }

    /// Hands the device to the engine if it is open by now.
    pub(super) fn go_on(&mut self, mut cache: Cache<'_>) {
        let Some(opening) = self.0.take() else { return };
        match opening.opened.try_recv() {
            Err(TryRecvError::Empty) => self.0 = Some(opening),
            Err(TryRecvError::Disconnected) => answer(&opening.reply, Err(MirrorError::Panicked)),
            Ok(opened) => {
                let done = opened.and_then(|file| cache.hand_over(file, opening.aim));
                if let Err(error) = &done {
                    tracing::warn!("no new cache device: {error}");
                }
                answer(&opening.reply, done);
            }
        }
    }

    /// Gives up waiting for the device; its operator gets no answer.
    pub(super) fn give_up(&mut self) {
        self.0 = None;
    }
}

impl Cache<'_> {
    /// The number that a new member would have.
    fn free(&self, aim: Aim) -> Result<u8, MirrorError> {
        let status = self.serving()?;
        match (status.mirror, self.pump.engine().free_member()) {
            (MirrorStatus::Whole, _) if status.succeeding.is_some() => Err(MirrorError::Busy),
            (MirrorStatus::Whole, _) if aim == Aim::Replace => Err(MirrorError::Two),
            (MirrorStatus::Whole, _) => Err(MirrorError::Whole),
            (MirrorStatus::Syncing { .. }, _) => Err(MirrorError::Busy),
            (_, None) => Err(MirrorError::Leaving),
            (_, Some(number)) if self.pump.devices().in_flight(member_id(number)) > 0 => Err(MirrorError::InFlight),
            (_, Some(number)) => Ok(number),
        }
    }

    /// The status of a cache that takes orders.
    pub(super) fn serving(&self) -> Result<Status, MirrorError> {
        let status = self.pump.engine().status();
        if self.config.without_cache {
            return Err(MirrorError::WithoutCache);
        }
        if !self.serves {
            return Err(MirrorError::Opening);
        }
        if status.cache_failed {
            return Err(MirrorError::Failed);
        }
        Ok(status)
    }

    fn begin_opening(
        &mut self,
        busy: bool,
        path: &Path,
        force: bool,
        aim: Aim,
    ) -> Result<Receiver<Result<DeviceFile, MirrorError>>, MirrorError> {
        let number = self.free(aim)?;
        if busy {
            return Err(MirrorError::Busy);
        }
        if path.is_relative() && !is_uri(path) {
            return Err(MirrorError::Relative(path.to_owned()));
        }
        // The device that failed may be the very device that comes back: its lock must go first.
        let file = self.held.take_member(number);
        self.pump.devices_mut().remove(member_id(number));
        close(file);
        let (path, needed) = (path.to_owned(), self.pump.engine().superblock().cache_bytes);
        let used: Vec<PathBuf> = self.held.paths().map(Path::to_owned).collect();
        let (sender, opened) = mpsc::channel();
        let stop = self.stop.clone();
        let (config, own) = (self.config.clone(), Own::of(self.config));
        let open = move || {
            let opened = answered_mirror(&config, move || open(&path, (&used, &own), needed, force));
            // A daemon that has ended meanwhile doesn't need it.
            let _ = sender.send(opened);
            stop.wake();
        };
        std::thread::Builder::new().name("mirror".to_owned()).spawn(open).map_err(MirrorError::Thread)?;
        Ok(opened)
    }

    fn hand_over(&mut self, file: DeviceFile, aim: Aim) -> Result<(), MirrorError> {
        // Things may have changed since.
        let number = self.free(aim)?;
        let file = Arc::new(file);
        if let Some(notice) = file.notice() {
            tracing::warn!("{notice}");
        }
        link::look_after_member(&file, self.pump.engine().superblock());
        // The new device has the timeout of the mirror, whichever member is the lead now.
        let timeout = self.config.timeout_of_mirror();
        let device = self.pump.devices().reactor().attach(Arc::clone(&file));
        self.pump.devices_mut().attach(member_id(number), patient(Box::new(device), timeout, file.places()));
        self.held.put_member(number, Arc::clone(&file));
        let path = file.path().display();
        if aim == Aim::Replace {
            tracing::info!("{path}: becomes the cache device, by the operator; copying what the cache holds");
            self.pump.apply(Input::Control(Control::Replace));
        } else {
            tracing::info!("{path}: becomes the mirror; copying what is dirty");
            self.pump.apply(Input::Control(Control::AddMirror));
        }
        Ok(())
    }
}

/// Opens a device within the time that a mirror has to answer.
fn answered_mirror(
    config: &Config,
    open: impl FnOnce() -> Result<DeviceFile, MirrorError> + Send + 'static,
) -> Result<DeviceFile, MirrorError> {
    let limit = config.timeout_of_mirror();
    watched(|_| limit, open).unwrap_or_else(|silent| Err(MirrorError::Silent(silent.into())))
}

/// Opens and wipes a device; refuses each device that `format` would refuse.
fn open(path: &Path, (used, own): (&[PathBuf], &Own), needed: u64, force: bool) -> Result<DeviceFile, MirrorError> {
    for used in used {
        if let Some(shared) = storage::shared(path, used) {
            let ways = storage::in_brackets(&shared);
            return Err(MirrorError::InUse { path: path.to_owned(), used: used.clone(), ways });
        }
    }
    if let Some(place) = own.reached_by(path) {
        return Err(MirrorError::Own { path: path.to_owned(), place });
    }
    let file = DeviceFile::open(path, Access::Exclusive)?;
    let geometry = file.geometry();
    if geometry.size_bytes < needed {
        return Err(MirrorError::Small { path: path.to_owned(), needed, found: geometry.size_bytes });
    }
    if geometry.logical_block_bytes > 4096 {
        return Err(MirrorError::Blocks { path: path.to_owned(), found: geometry.logical_block_bytes });
    }
    let found = offline::occupants(&file);
    if !force && !found.is_empty() {
        return Err(FormatError::Occupied { path: path.to_owned(), found: found.join("; ") }.into());
    }
    offline::wipe(&file).map_err(|source| MirrorError::Write { path: path.to_owned(), source })?;
    Ok(file)
}

/// Closes a device by a thread: on some file systems a close waits for an answer.
fn close(file: Option<Arc<DeviceFile>>) {
    // Without a thread to be had the closure, and the file in it, is dropped here.
    let _ = std::thread::Builder::new().name("close".to_owned()).spawn(move || drop(file));
}

pub(super) fn answer(to: &Reply, done: Result<(), MirrorError>) {
    // A client that has gone is no error.
    let _ = to.send(match done {
        Ok(()) => Response::Done,
        Err(error) => Response::Error { message: error.to_string() },
    });
}
