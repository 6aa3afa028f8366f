// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume grows, since its origin has.
//!
//! A thread asks the origin for its size, since a file on a network may take its time. The engine
//! makes the new size durable. Then clients learn of it, each front-end in its way.

use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};

use flashfront_device::real::watched;
use flashfront_engine::{OriginId, VolumeChange, VolumeError};

use super::error::VolumesError;
use super::orders::{Reply, Sizing, What};
use super::refuse;
use crate::config::Size;
use crate::daemon::Daemon;
use crate::stale;

impl Daemon {
    pub(super) fn begin_growing(&mut self, name: &str, reply: &Reply) -> Result<(), VolumesError> {
        self.may_change()?;
        let volume = &self.config.volumes[self.place_of(name)?];
        let id = volume.id;
        let Some(origin) = self.held.origin(id) else { return Ok(()) };
        if origin.link().is_some() {
            return Err(VolumesError::GrownExport(name.to_owned()));
        }
        let (origin, limit, stop) = (Arc::clone(origin), self.config.timeout_of_origin(volume), self.stop.clone());
        let (state, uuid) = (self.config.state.clone(), self.pump.engine().superblock().uuid);
        let (sender, size_bytes) = mpsc::channel();
        let thread = move || {
            let path = origin.path().to_owned();
            // After a crash nothing speaks for an origin that was not written: its samples in the
            // superblock are those of its old size.
            let state = state.filter(|state| state.exists());
            let forget = move || state.map_or(Ok(()), |state| stale::forget_openings(&state, &uuid));
            let asked = watched(|_| limit, move || forget().and_then(|()| origin.size_now()));
            let asked = asked.map_err(|silent| VolumesError::Serve(silent.into()));
            let size = asked.and_then(|size| size.map_err(|source| VolumesError::Read { path, source }));
            // A daemon that has ended meanwhile doesn't need it.
            let _ = sender.send(size);
            stop.wake();
        };
        std::thread::Builder::new().name("size".to_owned()).spawn(thread).map_err(VolumesError::Thread)?;
        self.volumes.sizing = Some(Sizing { name: name.to_owned(), id, size_bytes, reply: reply.clone() });
        Ok(())
    }

    /// Goes on with a volume whose origin was asked for its size.
    pub(super) fn go_on_growing(&mut self) {
        let Some(sizing) = self.volumes.sizing.take() else { return };
        let begun = match sizing.size_bytes.try_recv() {
            Err(TryRecvError::Empty) => {
                self.volumes.sizing = Some(sizing);
                return;
            }
            Err(TryRecvError::Disconnected) => Err(VolumesError::Panicked),
            Ok(size) => size.and_then(|size| self.grow_to(sizing.id, &sizing.name, size, &sizing.reply)),
        };
        refuse(&sizing.name, &sizing.reply, begun);
    }

    fn grow_to(&mut self, id: OriginId, name: &str, to_bytes: u64, reply: &Reply) -> Result<(), VolumesError> {
        self.may_change()?;
        let error = |error| VolumesError::Engine { name: name.to_owned(), error };
        let Some(origin) = self.held.origin(id) else { return Err(error(VolumeError::NoSuchVolume)) };
        let geometry = origin.geometry();
        let from_bytes = geometry.size_bytes;
        if to_bytes < from_bytes {
            let path = origin.path().to_owned();
            return Err(VolumesError::Shrunk { path, size: Size(from_bytes), found: Size(to_bytes) });
        }
        if !to_bytes.is_multiple_of(geometry.logical_block_bytes.into()) {
            return Err(error(VolumeError::BadSize));
        }
        // From the answer of the engine on its I/O may go there.
        origin.use_bytes(to_bytes);
        let change = VolumeChange::Grow { origin: id, size_bytes: to_bytes };
        self.ask(change, What::Grow { id, from_bytes, to_bytes }, reply);
        Ok(())
    }

    /// The cache has the new size.
    pub(super) fn grown(&mut self, id: OriginId, size_bytes: u64) {
        let name = self.config.volume(id).map_or("?", |volume| volume.name.as_str());
        tracing::info!("volume {name}: grown by the operator to {}", Size(size_bytes).told());
        self.change_export(id, |export| export.size_bytes = size_bytes);
    }

    /// The volume stays as large as it was.
    pub(super) fn stay_at(&self, id: OriginId, size_bytes: u64) {
        if let Some(origin) = self.held.origin(id) {
            origin.use_bytes(size_bytes);
        }
    }
}
