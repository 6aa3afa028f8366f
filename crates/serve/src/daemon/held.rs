// SPDX-License-Identifier: MIT OR Apache-2.0
//! The devices that a daemon holds: cache devices and origins, open and locked.
//!
//! They stay open until what the next start must know is written: by then another device may be
//! found by the same path.

use std::path::Path;
use std::sync::Arc;

use flashfront_device::real::{DeviceFile, MapFile};
use flashfront_engine::format::Mirror;
use flashfront_engine::{DeviceId, Engine, MirrorStatus, OriginId};

use super::members::Members;
use super::open::member_id;
use crate::config::Config;
use crate::origin_errors::Site;

mod map_file;

/// The devices of a daemon.
pub(super) struct Held {
    /// Cache devices by their number of member.
    members: [Option<Arc<DeviceFile>>; 2],
    /// The origins, in the order of the volumes, and their ids.
    origins: Vec<Arc<DeviceFile>>,
    ids: Vec<OriginId>,
    /// Keeps pages of the maps of origins in object stores.
    map_file: Option<MapFile>,
}

impl Held {
    pub(super) fn new(members: Members, origins: Vec<Arc<DeviceFile>>, ids: Vec<OriginId>, config: &Config) -> Self {
        let map_file = map_file::open(config);
        let mut held = Self { members: [None, None], origins: Vec::new(), ids: Vec::new(), map_file };
        for (id, origin) in ids.into_iter().zip(origins) {
            held.put_origin(id, origin);
        }
        for (number, file) in members {
            held.put_member(number, file);
        }
        held
    }

    pub(super) fn origins(&self) -> &[Arc<DeviceFile>] {
        &self.origins
    }

    /// An origin by its id.
    pub(super) fn origin(&self, id: OriginId) -> Option<&Arc<DeviceFile>> {
        self.ids.binary_search(&id).ok().map(|at| &self.origins[at])
    }

    /// Holds one more origin, whose id is above those of the others.
    pub(super) fn put_origin(&mut self, id: OriginId, file: Arc<DeviceFile>) {
        if let Some(map_file) = &self.map_file {
            file.keep_pages(map_file.pages());
        }
        self.ids.push(id);
        self.origins.push(file);
    }

    pub(super) fn take_origin(&mut self, id: OriginId) -> Option<Arc<DeviceFile>> {
        let at = self.ids.binary_search(&id).ok()?;
        self.ids.remove(at);
        Some(self.origins.remove(at))
    }

    pub(super) fn member(&self, number: u8) -> Option<&Arc<DeviceFile>> {
        self.members[usize::from(number)].as_ref()
    }

    pub(super) fn put_member(&mut self, number: u8, file: Arc<DeviceFile>) {
        self.members[usize::from(number)] = Some(file);
    }

    pub(super) fn take_member(&mut self, number: u8) -> Option<Arc<DeviceFile>> {
        self.members[usize::from(number)].take()
    }

    /// The file with pages of maps.
    pub(super) const fn map_file(&self) -> Option<&MapFile> {
        self.map_file.as_ref()
    }

    /// The paths of all devices.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.members.iter().flatten().chain(&self.origins).map(|file| file.path())
    }

    /// The cache devices that the engine uses, the lead first.
    ///
    /// A member that is being left out is not among them, and a mirror that is still being filled
    /// isn't, either.
    pub(super) fn members_in_use(&self, engine: &Engine) -> Members {
        let pairing = engine.superblock().pairing;
        let lead = pairing.lead;
        let whole = engine.status().mirror == MirrorStatus::Whole && pairing.mirror == Mirror::Whole;
        let used = [lead, 1 - lead].into_iter().take(if whole { 2 } else { 1 });
        used.filter_map(|number| Some((number, self.member(number)?.clone()))).collect()
    }

    /// Returns the name of a device for people: its path.
    pub(super) fn name(&self, id: DeviceId) -> String {
        self.file(id).map_or_else(|| format!("{id:?}"), |file| file.path().display().to_string())
    }

    /// Says where a device is: this machine's logs know nothing of the errors of servers.
    pub(super) fn site(&self, id: DeviceId) -> Site {
        match self.file(id).and_then(|file| file.link()) {
            None => Site::Here,
            Some(link) if link.store.is_some() => Site::Store,
            Some(_) => Site::Server,
        }
    }

    fn file(&self, id: DeviceId) -> Option<&Arc<DeviceFile>> {
        match id {
            DeviceId::Cache => self.member(0),
            DeviceId::Mirror => self.member(1),
            DeviceId::Origin(id) => self.origin(id),
        }
    }

    /// The path of the cache device that holds everything.
    pub(super) fn name_of_lead(&self, engine: &Engine) -> String {
        self.name(member_id(engine.superblock().pairing.lead))
    }
}
