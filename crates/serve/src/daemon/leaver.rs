// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache device that leaves a running cache by order: `flashfront mirror remove`, and the old one
//! of `flashfront cache replace`.
//!
//! When the other device says durably that it is out, and nothing is in flight to it, its
//! superblocks are made void. So nobody can serve it again as if it were complete (test: end to end
//! `replace`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};

use flashfront_device::real::DeviceFile;
use flashfront_engine::format::{Mirror, Superblock};
use flashfront_engine::{Control, DeviceId, Engine, Input, MirrorStatus};

use super::held::Held;
use super::mirror::{Cache, MirrorError};
use super::open::member_id;
use super::stop::StopHandle;
use crate::offline;
use crate::pump::Pump;
use crate::report::counted;

/// The device that has left, until it is closed.
#[derive(Debug, Default)]
pub(super) struct Leaver {
    /// The number of a member that is out.
    out: Option<u8>,
    /// A thread closes the device of this path.
    closing: Option<(String, Receiver<()>)>,
}

impl Leaver {
    /// A member is out, durably. One that failed stays open until another takes its place.
    pub(super) fn note(&mut self, device: DeviceId, engine: &Engine) {
        if engine.superblock().pairing.mirror == Mirror::None {
            self.out = [0, 1].into_iter().find(|number| member_id(*number) == device);
        }
    }

    /// Lets the device go when nothing is in flight to it.
    pub(super) fn go_on(&mut self, pump: &mut Pump, held: &mut Held, stop: &StopHandle) {
        if let Some((_, closed)) = &self.closing
            && closed.try_recv() == Err(TryRecvError::Disconnected)
        {
            self.closing = None;
        }
        let Some(number) = self.out.filter(|number| pump.devices().in_flight(member_id(*number)) == 0) else { return };
        let (free, mirror) = (pump.engine().free_member(), pump.engine().status().mirror);
        if free.is_none() && mirror == MirrorStatus::None {
            // Lanes have yet to give up a filling.
            return;
        }
        self.out = None;
        // Another one may have taken the number meanwhile.
        if free != Some(number) {
            return;
        }
        let Some(file) = held.take_member(number) else { return };
        pump.devices_mut().remove(member_id(number));
        let (closing, closed) = mpsc::channel::<()>();
        let (path, superblock) = (file.path().display().to_string(), pump.engine().superblock().clone());
        let stop = stop.clone();
        let close = move || {
            make_void(&file, &superblock);
            drop(file);
            drop(closing);
            stop.wake();
        };
        if let Err(error) = std::thread::Builder::new().name("leaver".to_owned()).spawn(close) {
            tracing::warn!("{path}: its superblocks can't be made void ({error}); never serve it again");
        }
        self.closing = Some((path, closed));
    }

    /// The path of the device that is being closed.
    pub(super) fn path(&self) -> Option<String> {
        self.closing.as_ref().map(|(path, _)| path.clone())
    }
}

fn make_void(file: &Arc<DeviceFile>, superblock: &Superblock) {
    let path = file.path().display();
    match offline::make_void(file, superblock) {
        Ok(()) => tracing::info!("{path}: it is out of the cache, and free for other use"),
        Err(error) => {
            tracing::warn!("{path}: its superblocks can't be made void ({error}); never serve it again");
        }
    }
}

impl Cache<'_> {
    /// Lets the device at `path` lead, if it is the other one of two.
    pub(super) fn promote(&mut self, path: &Path) -> Result<(), MirrorError> {
        let status = self.serving()?;
        let lead = self.pump.engine().superblock().pairing.lead;
        let name = |number: u8| self.held.name(member_id(number));
        let number = match (status.mirror, self.held.number_of(path)) {
            (MirrorStatus::None, _) => return Err(MirrorError::NoMirror(name(lead))),
            (MirrorStatus::Alone { member }, _) => return Err(MirrorError::Alone(name(member))),
            (_, None) => {
                let devices = [0, 1].map(name).join(" and ");
                return Err(MirrorError::NotOurs { path: path.to_owned(), devices });
            }
            (_, Some(number)) if number == lead => return Err(MirrorError::Leads(name(lead))),
            (MirrorStatus::Syncing { .. }, _) => return Err(MirrorError::Busy),
            (MirrorStatus::Whole, Some(number)) => number,
        };
        let copies = status.succeeding.is_some() || status.promoting.is_some();
        if copies || self.pump.engine().superblock().pairing.mirror != Mirror::Whole {
            return Err(MirrorError::Busy);
        }
        if status.mirror_lacks_blocks > 0 {
            let blocks = counted(status.mirror_lacks_blocks, "dirty block");
            return Err(MirrorError::OnlyThere { path: name(lead), blocks });
        }
        tracing::info!("{}: it is to lead, by the operator; copying clean data", name(number));
        self.pump.apply(Input::Control(Control::PromoteMember { member: number }));
        Ok(())
    }

    /// Lets the device at `path` go, or ends its filling.
    pub(super) fn remove(&mut self, path: &Path) -> Result<(), MirrorError> {
        let status = self.serving()?;
        let lead = self.pump.engine().superblock().pairing.lead;
        let name = |number: u8| self.held.name(member_id(number));
        let number = match (status.mirror, self.held.number_of(path)) {
            (MirrorStatus::None, _) => return Err(MirrorError::NoMirror(name(lead))),
            (MirrorStatus::Alone { member }, _) => return Err(MirrorError::Alone(name(member))),
            (_, None) => {
                let devices = [0, 1].map(name).join(" and ");
                return Err(MirrorError::NotOurs { path: path.to_owned(), devices });
            }
            (MirrorStatus::Syncing { .. } | MirrorStatus::Whole, Some(number)) => number,
        };
        let syncing = matches!(status.mirror, MirrorStatus::Syncing { .. });
        if number != lead && (syncing || status.succeeding.is_some() || status.promoting.is_some()) {
            tracing::info!("{}: it is filled no further, by the operator", name(number));
            self.pump.apply(Input::Control(Control::EndCopying));
            return Ok(());
        }
        if syncing
            || status.succeeding.is_some()
            || status.promoting.is_some()
            || self.pump.engine().superblock().pairing.mirror != Mirror::Whole
        {
            return Err(MirrorError::Busy);
        }
        let lacks = if number == lead { status.mirror_lacks_blocks } else { status.lead_lacks_blocks };
        if lacks > 0 {
            let blocks = counted(lacks, "dirty block");
            return Err(MirrorError::OnlyThere { path: name(number), blocks });
        }
        tracing::info!("{}: it is to leave the cache, by the operator", name(number));
        self.pump.apply(Input::Control(Control::RemoveMember { member: number }));
        Ok(())
    }
}

impl Held {
    /// The number of the member at this path, or at another path of the same device.
    fn number_of(&self, path: &Path) -> Option<u8> {
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| PathBuf::from(path));
        [0, 1].into_iter().find(|number| self.member(*number).is_some_and(|file| whole(file.path()) == whole(path)))
    }
}
