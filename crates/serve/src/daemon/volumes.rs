// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes that come, go and change while the daemon serves: `flashfront volume`.
//!
//! The engine makes each change durable in the table of volumes. What can be refused is refused
//! before: names, origins that are in use, clients of a volume that is to go. Front-ends of a new
//! volume listen before the engine hears of it, so that an address that can't be had changes
//! nothing. One change is under way at a time; the others wait in a queue.

use std::sync::Arc;
use std::sync::mpsc::TryRecvError;

use flashfront_device::real::{DeviceFile, is_uri};
use flashfront_engine::format::Shares;
use flashfront_engine::{
    BLOCK_BYTES, Control, Destage, DeviceId, DirtyOnRemove, Engine, Input, OriginId, VolumeChange, VolumeError,
};

use super::error::failed;
use super::open::{listen_for, patient};
use super::own::Own;
use super::{Daemon, changes, link};
use crate::config::{ConfigError, Listener, Size, Volume, name_is_usable};
use crate::control::{self, Response};
use crate::frontend::Export;
use crate::stale::Watch;

mod error;
mod grow;
mod open;
pub(super) mod orders;
mod shares;

use error::VolumesError;
use open::{Known, Opened};
use orders::{Asked, Coming, Opening, Order, Reply, Wanted, What};

impl Daemon {
    /// Goes on with what is wanted.
    pub(super) fn change_volumes(&mut self) {
        if let Some(opening) = self.volumes.opening.take() {
            match opening.opened.try_recv() {
                Err(TryRecvError::Empty) => self.volumes.opening = Some(opening),
                Err(TryRecvError::Disconnected) => answer(&opening.reply, &Err(VolumesError::Panicked)),
                Ok(opened) => {
                    let (name, reply) = (opening.wanted.name.clone(), opening.reply.clone());
                    let added = opened.and_then(|opened| match opened.is_taken_over {
                        false => self.begin_taking_over(opened, opening.wanted, &reply),
                        true => self.add_opened(opened, &reply),
                    });
                    refuse(&name, &reply, added);
                }
            }
        }
        self.go_on_growing();
        while !self.volumes.is_busy()
            && let Some((order, reply)) = self.volumes.queue.pop_front()
        {
            if reply.as_ref().is_some_and(|reply| !reply.begin()) {
                continue;
            }
            let (name, begun) = match order {
                Order::Add(wanted) => (wanted.name.clone(), self.begin_adding(wanted, &reply)),
                Order::Remove { name, dirty, disconnect } => {
                    let begun = self.begin_removing(&name, dirty, disconnect, &reply);
                    (name, begun)
                }
                Order::Rename { name, to } => {
                    let begun = self.begin_renaming(&name, to, &reply);
                    (name, begun)
                }
                Order::SetReadOnly { name, read_only } => {
                    let begun = self.begin_setting(&name, read_only, &reply);
                    (name, begun)
                }
                Order::SetShares { name, shares } => {
                    let begun = self.begin_sharing(&name, shares, &reply);
                    (name, begun)
                }
                Order::Grow { name } => {
                    let begun = self.begin_growing(&name, &reply);
                    (name, begun)
                }
            };
            refuse(&name, &reply, begun);
        }
        self.refuse_to_wait();
    }

    /// Operators need not wait until a volume that goes is destaged, and may give up what is left
    /// of its dirty blocks. What the config file wants waits.
    fn refuse_to_wait(&mut self) {
        let Some(id) = self.volumes.destaging() else { return };
        let leaving = self.config.volume(id).map_or_else(String::new, |volume| volume.name.clone());
        for (order, reply) in std::mem::take(&mut self.volumes.queue) {
            match &order {
                Order::Remove { name, dirty: DirtyOnRemove::Discard, .. } if *name == leaving => {
                    self.give_up_the_rest(id, &reply);
                }
                _ if reply.is_some() => answer(&reply, &Err(VolumesError::Removing(leaving.clone()))),
                _ => self.volumes.order(order, reply),
            }
        }
    }

    /// A volume that is destaged before it goes is to go without what is left.
    fn give_up_the_rest(&mut self, id: OriginId, reply: &Reply) {
        let begins = reply.as_ref().is_none_or(control::Reply::begin);
        let Some(Asked { what: What::Remove { export, .. }, .. }) = self.volumes.asked.take_if(|_| begins) else {
            return;
        };
        let (blocks, dirty) = (self.dirty_blocks_of(id), DirtyOnRemove::Discard);
        let what = What::Remove { id, export, dirty, blocks };
        self.ask(VolumeChange::Remove { origin: id, dirty }, what, reply);
    }

    fn dirty_blocks_of(&self, id: OriginId) -> u64 {
        let status = self.pump.engine().status();
        status.origins.iter().find(|it| it.id == id).map_or(0, |it| it.blocks_dirty)
    }

    /// Whether volumes can be changed at all.
    fn may_change(&self) -> Result<(), VolumesError> {
        if self.config.without_cache {
            return Err(VolumesError::WithoutCache);
        }
        if self.ready.is_none() {
            return Err(VolumesError::Opening);
        }
        Ok(())
    }

    fn place_of(&self, name: &str) -> Result<usize, VolumesError> {
        let volumes = &self.config.volumes;
        volumes.iter().position(|volume| volume.name == name).ok_or_else(|| {
            let known: Vec<&str> = volumes.iter().map(|volume| volume.name.as_str()).collect();
            VolumesError::Unknown { name: name.to_owned(), known: known.join(", ") }
        })
    }

    /// Refuses a name that clients couldn't ask for, or that another volume has.
    fn check_name(&self, name: &str) -> Result<(), VolumesError> {
        if !name_is_usable(name) {
            return Err(VolumesError::Name(ConfigError::BadName(name.to_owned())));
        }
        let is_in_a_path = |listener: &Listener| match listener {
            Listener::Fuse(_) => true,
            Listener::VhostUserBlk { path, .. } => Listener::is_of_each(path),
            Listener::Nbd(_) | Listener::Ublk(_) => false,
        };
        if self.config.listeners.iter().any(is_in_a_path) && [".", ".."].contains(&name) {
            return Err(VolumesError::Name(ConfigError::NoFileName(name.to_owned())));
        }
        match self.place_of(name) {
            Ok(_) => Err(VolumesError::NameTaken(name.to_owned())),
            Err(_) => Ok(()),
        }
    }

    fn begin_adding(&mut self, wanted: Wanted, reply: &Reply) -> Result<(), VolumesError> {
        self.may_change()?;
        if self.config.disposable_cache.is_some() {
            return Err(VolumesError::Disposable);
        }
        self.check_name(&wanted.name)?;
        if wanted.origin.is_relative() && !is_uri(&wanted.origin) {
            return Err(VolumesError::Relative(wanted.origin));
        }
        let superblock = self.pump.engine().superblock();
        if superblock.table.is_none() {
            return Err(VolumesError::Engine { name: wanted.name, error: VolumeError::NeedsVersion2 });
        }
        let shares = wanted.shares.of(Shares::default(), superblock);
        Engine::check_shares(shares, None, superblock)
            .map_err(|error| VolumesError::Engine { name: wanted.name.clone(), error })?;
        let opened = open::begin(&wanted, self.known_for(&wanted, shares), &self.stop)?;
        self.volumes.opening = Some(Opening { wanted, opened, reply: reply.clone() });
        Ok(())
    }

    fn known_for(&self, wanted: &Wanted, shares: Shares) -> Known {
        Known {
            used: self.used(),
            state: self.config.state.clone(),
            uuid: self.pump.engine().superblock().uuid,
            shares,
            own: Own::of(&self.config),
            timeout: self.config.timeout_of_origin(&Volume::new(&wanted.name, wanted.origin.clone())),
        }
    }

    /// The origin was opened to be read: refuses what the engine would refuse, before its writer is
    /// fenced.
    fn begin_taking_over(&mut self, opened: Opened, wanted: Wanted, reply: &Reply) -> Result<(), VolumesError> {
        self.may_change()?;
        let volume = &opened.volume;
        let refused = |error| VolumesError::Engine { name: wanted.name.clone(), error };
        self.pump.engine().check_new_volume(volume).map_err(refused)?;
        let known = self.known_for(&wanted, volume.shares);
        let opened = open::begin_taking_over(opened, known, &self.stop)?;
        self.volumes.opening = Some(Opening { wanted, opened, reply: reply.clone() });
        Ok(())
    }

    /// The devices in use, each with the volume that it is the origin of.
    fn used(&self) -> Vec<(Arc<DeviceFile>, Option<String>)> {
        let members = [0, 1].into_iter().filter_map(|number| self.held.member(number));
        let members = members.map(|file| (Arc::clone(file), None));
        let origins = self.config.volumes.iter().zip(self.held.origins());
        let origins = origins.map(|(volume, file)| (Arc::clone(file), Some(volume.name.clone())));
        members.chain(origins).collect()
    }

    /// The origin is open: has the engine add the volume.
    fn add_opened(&mut self, opened: Opened, reply: &Reply) -> Result<(), VolumesError> {
        let Opened { file, volume: new, .. } = opened;
        // Things may have changed since.
        self.may_change()?;
        let table = self.pump.engine().superblock().table.as_ref();
        let id = OriginId(table.map_or(0, |table| table.next_id));
        let mut volume = Volume::new(&new.name, file.path().to_owned());
        volume.id = id;
        let export = Export {
            read_only: new.read_only,
            discard_zeroes: file.discard_zeroes(),
            ..Export::new(&new.name, id, new.size_bytes)
        };
        let frontends = listen_for(&self.config, &volume, &export).map_err(VolumesError::Serve)?;
        if let Some(notice) = file.notice() {
            tracing::warn!("{notice}");
        }
        let file = Arc::new(file);
        let device = self.pump.devices().reactor().attach(Arc::clone(&file));
        let mut device = patient(Box::new(device), self.config.timeout_of_origin(&volume), file.places());
        // The mark of a volume in an object store says more than samples.
        if file.mark().is_none() {
            let superblock = self.pump.engine().superblock();
            let (owner, limit) = ((superblock.uuid, superblock.epoch), self.config.timeout_of_origin(&volume));
            let watch = Watch::new(self.config.state.as_deref(), &file, id, owner, limit);
            let (name, stop) = (file.path().display().to_string(), self.stop.clone());
            device = Box::new(watch.around(device, name, move || stop.wake()));
        }
        let coming = Coming { volume, file, device, export, frontends };
        self.ask(VolumeChange::Add(new), What::Add(Box::new(coming)), reply);
        Ok(())
    }

    fn begin_removing(
        &mut self,
        name: &str,
        dirty: DirtyOnRemove,
        disconnect: bool,
        reply: &Reply,
    ) -> Result<(), VolumesError> {
        self.may_change()?;
        let at = self.place_of(name)?;
        if self.config.volumes.len() == 1 {
            return Err(VolumesError::Last(name.to_owned()));
        }
        let id = self.config.volumes[at].id;
        let blocks = self.dirty_blocks_of(id);
        if dirty == DirtyOnRemove::Refuse && blocks > 0 {
            return Err(VolumesError::Dirty { name: name.to_owned(), blocks });
        }
        let export = self.pump.exports().iter().find(|export| export.origin == id).cloned();
        if let Some(export) = &export {
            // Nobody comes in any more while the clients are counted.
            export.guests.close(true);
            let clients = self.pump.users_of(export);
            if clients > 0 && !disconnect {
                export.guests.close(false);
                return Err(VolumesError::Clients { name: name.to_owned(), clients });
            }
        }
        let exports = self.pump.exports().iter().filter(|export| export.origin != id).cloned().collect();
        self.pump.set_exports(exports);
        let (change, what) = (VolumeChange::Remove { origin: id, dirty }, What::Remove { id, export, dirty, blocks });
        if dirty == DirtyOnRemove::Destage && blocks > 0 {
            // To destage may take longer than an operator's program waits; `status` shows the rest.
            self.ask(change, what, &None);
            answer(reply, &Ok(()));
        } else {
            self.ask(change, what, reply);
        }
        Ok(())
    }

    fn begin_renaming(&mut self, name: &str, to: String, reply: &Reply) -> Result<(), VolumesError> {
        self.may_change()?;
        let id = self.config.volumes[self.place_of(name)?].id;
        self.check_name(&to)?;
        self.ask(VolumeChange::Rename { origin: id, name: to.clone() }, What::Rename { id, to }, reply);
        Ok(())
    }

    fn begin_setting(&mut self, name: &str, read_only: bool, reply: &Reply) -> Result<(), VolumesError> {
        self.may_change()?;
        let id = self.config.volumes[self.place_of(name)?].id;
        if let Some(file) = self.held.origin(id).filter(|file| file.is_snapshot() && !read_only) {
            return Err(VolumesError::Snapshot(file.path().to_owned()));
        }
        self.ask(VolumeChange::SetReadOnly { origin: id, read_only }, What::SetReadOnly { id, read_only }, reply);
        Ok(())
    }

    fn ask(&mut self, change: VolumeChange, what: What, reply: &Reply) {
        self.volumes.tickets += 1;
        let ticket = self.volumes.tickets;
        self.volumes.asked = Some(Asked { ticket, what, reply: reply.clone() });
        self.pump.apply(Input::Control(Control::Volume { ticket, change: Box::new(change) }));
    }

    /// The change that was asked for is durable.
    pub(super) fn volume_changed(&mut self, ticket: u64) {
        let Some(Asked { what, reply, .. }) = self.volumes.asked.take_if(|asked| asked.ticket == ticket) else {
            return;
        };
        let done = match what {
            What::Add(coming) => self.added(*coming),
            What::Remove { id, dirty, blocks, .. } => {
                self.removed(id, if dirty == DirtyOnRemove::Discard { blocks } else { 0 });
                Ok(())
            }
            What::Rename { id, to } => {
                self.renamed(id, to);
                Ok(())
            }
            What::SetReadOnly { id, read_only } => {
                self.set_read_only(id, read_only);
                Ok(())
            }
            What::SetShares { id, from, to } => {
                self.shares_set(id, from, to);
                Ok(())
            }
            What::Grow { id, to_bytes, .. } => {
                self.grown(id, to_bytes);
                Ok(())
            }
        };
        answer(&reply, &done);
        self.change_volumes();
    }

    /// The change that was asked for was refused.
    pub(super) fn volume_refused(&mut self, ticket: u64, error: VolumeError) {
        let Some(Asked { what, reply, .. }) = self.volumes.asked.take_if(|asked| asked.ticket == ticket) else {
            return;
        };
        let id = match &what {
            What::Add(coming) => coming.volume.id,
            What::Remove { id, .. }
            | What::Rename { id, .. }
            | What::SetReadOnly { id, .. }
            | What::SetShares { id, .. }
            | What::Grow { id, .. } => *id,
        };
        let name = match &what {
            What::Add(coming) => coming.volume.name.clone(),
            _ => self.config.volume(id).map_or_else(String::new, |volume| volume.name.clone()),
        };
        match what {
            What::Remove { export: Some(export), .. } => self.offer_again(export),
            What::Grow { from_bytes, .. } => self.stay_at(id, from_bytes),
            _ => {}
        }
        let error = match error {
            VolumeError::Dirty { blocks } => VolumesError::Dirty { name: name.clone(), blocks },
            error => VolumesError::Engine { name: name.clone(), error },
        };
        refuse(&name, &reply, Err(error));
        self.change_volumes();
    }

    /// Serves a volume that the cache has from now on.
    fn added(&mut self, coming: Coming) -> Result<(), VolumesError> {
        let Coming { volume, file, device, export, frontends } = coming;
        let superblock = self.pump.engine().superblock().clone();
        changes::remember_served(&self.config, std::slice::from_ref(&file), &superblock);
        if let Some(record) = superblock.origins.iter().find(|record| record.id == volume.id) {
            link::look_after_origin(&self.config, &file, record, Some(&superblock));
        }
        self.pump.devices_mut().attach(DeviceId::Origin(volume.id), device);
        file.owe(true);
        self.held.put_origin(volume.id, file);
        if volume.is_in_store() && !export.read_only && self.config.destage() == Destage::Free {
            tracing::warn!(
                "volume {}: its origin is in an object store, and this daemon destages in free order: until a restart the store alone is no state in which the volume was",
                volume.name
            );
        }
        tracing::info!("volume {}: added by the operator, with the origin {}", volume.name, volume.origin.display());
        self.config.volumes.push(volume);
        let exports = self.pump.exports().iter().chain([&export]).cloned().collect();
        self.pump.set_exports(exports);
        let mut listening = Ok(());
        for frontend in frontends {
            let added = self.pump.add_frontend(frontend).map_err(failed("epoll"));
            listening = listening.and(added.map_err(VolumesError::Serve));
        }
        self.uris.push(self.pump.uris_of(&export));
        listening
    }

    /// Lets go of a volume that the cache has no more. So many dirty blocks were given up.
    fn removed(&mut self, id: OriginId, given_up: u64) {
        let Some(at) = self.config.volumes.iter().position(|volume| volume.id == id) else { return };
        let volume = self.config.volumes.remove(at);
        self.uris.remove(at);
        self.pump.end_frontends_of(id);
        self.pump.forget(id);
        let file = self.held.take_origin(id);
        // What this cache had of it is there, or was given up.
        file.iter().for_each(|file| file.owe(false));
        close(file);
        let (name, origin) = (volume.name, volume.origin.display());
        if given_up == 0 {
            tracing::info!("volume {name}: removed by the operator; {origin} is complete without the cache");
        } else {
            tracing::warn!(
                "volume {name}: removed by the operator, who gave up {} of dirty blocks; {origin} lacks them",
                Size(given_up * BLOCK_BYTES)
            );
        }
    }

    fn renamed(&mut self, id: OriginId, to: String) {
        let Some(at) = self.config.volumes.iter().position(|volume| volume.id == id) else { return };
        let before = std::mem::replace(&mut self.config.volumes[at].name, to.clone());
        tracing::info!("volume {before}: renamed by the operator to {to}");
        self.change_export(id, |export| export.name.clone_from(&to));
        let export = self.pump.exports().iter().find(|export| export.origin == id).cloned();
        if let Some(export) = export {
            self.uris[at] = self.pump.uris_of(&export);
        }
    }

    fn set_read_only(&mut self, id: OriginId, read_only: bool) {
        let name = self.config.volume(id).map_or("?", |volume| volume.name.as_str());
        tracing::info!("volume {name}: set by the operator: read-only {read_only}");
        self.change_export(id, |export| export.read_only = read_only);
    }

    fn change_export(&mut self, id: OriginId, change: impl Fn(&mut Export)) {
        let mut exports = self.pump.exports().to_vec();
        exports.iter_mut().filter(|export| export.origin == id).for_each(change);
        self.pump.set_exports(exports);
    }

    /// A volume that was to be removed stays.
    fn offer_again(&mut self, export: Export) {
        export.guests.close(false);
        let mut exports = self.pump.exports().to_vec();
        exports.insert(exports.partition_point(|other| other.origin < export.origin), export);
        self.pump.set_exports(exports);
    }
}

/// Closes a device by a thread: on some file systems a close waits for an answer.
fn close(file: Option<Arc<DeviceFile>>) {
    // Without a thread to be had the closure, and the file in it, is dropped here.
    let _ = std::thread::Builder::new().name("close".to_owned()).spawn(move || drop(file));
}

/// Tells of a change that was refused.
fn refuse(name: &str, reply: &Reply, done: Result<(), VolumesError>) {
    if let Err(error) = &done {
        tracing::warn!("volume {name}: not changed: {error}");
        answer(reply, &done);
    }
}

fn answer(to: &Reply, done: &Result<(), VolumesError>) {
    let response = match done {
        Ok(()) => Response::Done,
        Err(error) => Response::Error { message: error.to_string() },
    };
    // A client that has gone is no error.
    let _ = to.as_ref().map(|to| to.send(response));
}
