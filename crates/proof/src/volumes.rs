// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes that come, change and go in a world: its client asks for that, and forgets what was on a
//! volume that is gone.
//!
//! A volume's id is its place in the lists of the world. The engine never gives an id twice.

use flashfront_engine::{Control, DirtyOnRemove, Event, NewVolume, OriginId, SECTOR_BYTES, VolumeChange, VolumeError};

use crate::client::Client;
use crate::spec::OriginSpec;

impl Client {
    /// Puts a fresh origin in this place, behind all others or instead of one.
    fn put_origin(&mut self, nth: usize, spec: OriginSpec) {
        let world = &mut self.world;
        if nth < world.spec.origins.len() {
            world.spec.origins[nth] = spec;
            world.origins[nth] = world.fresh_disk(nth);
        } else {
            world.spec.origins.push(spec);
            let disk = world.fresh_disk(nth);
            world.origins.push(disk);
        }
        self.oracle.put_origin(nth, spec.size_bytes / SECTOR_BYTES);
    }

    /// Whether the cache has this volume now.
    #[must_use]
    pub fn has_volume(&self, origin: usize) -> bool {
        self.world.engine().superblock().origin(OriginId(origin as u32)).is_some()
    }

    /// The volumes that the cache has now.
    #[must_use]
    pub fn volumes(&self) -> Vec<usize> {
        self.world.engine().superblock().origins.iter().map(|record| record.id.0 as usize).collect()
    }

    /// Asks for a change of the volumes. Returns the number that the answer will have.
    pub fn ask_volume(&mut self, change: VolumeChange) -> u64 {
        self.tickets += 1;
        let ticket = self.tickets;
        self.world.control(Control::Volume { ticket, change: Box::new(change) });
        ticket
    }

    /// Asks for a new volume before an origin whose sectors all hold write 0. The answer tells its
    /// id.
    pub fn ask_add(&mut self, spec: OriginSpec) -> u64 {
        let next = self.world.engine().superblock().next_id().expect("ids are left");
        self.put_origin(next.0 as usize, spec);
        self.ask_volume(VolumeChange::Add(NewVolume {
            name: format!("volume{}", self.tickets),
            size_bytes: spec.size_bytes,
            block_bytes: spec.logical_block_bytes,
            whole_flushes: self.world.spec.whole_flushes,
            mode: spec.mode,
            ..NewVolume::default()
        }))
    }

    /// The answer to a change, if it has come.
    pub fn volume_answer(&mut self, ticket: u64) -> Option<Result<usize, VolumeError>> {
        self.judge();
        let is_it = |event: &Event| answer(event).is_some_and(|(it, _)| it == ticket);
        let at = self.events.iter().position(is_it)?;
        let (_, answer) = answer(&self.events.remove(at))?;
        if let Ok(origin) = answer {
            // Clients may use what it has now.
            let status = self.world.engine().status();
            let size = status.origins.iter().find(|it| it.id.0 as usize == origin).map(|it| it.size_bytes);
            let spec = &mut self.world.spec.origins[origin];
            spec.size_bytes = size.unwrap_or(spec.size_bytes);
        }
        Some(answer)
    }

    /// Waits for the answer to a change.
    ///
    /// # Errors
    /// Why it was refused.
    ///
    /// # Panics
    /// If it never comes.
    pub fn await_volume(&mut self, ticket: u64) -> Result<usize, VolumeError> {
        loop {
            if let Some(answer) = self.volume_answer(ticket) {
                return answer;
            }
            assert!(self.world.step(), "a change of the volumes is never answered: {:?}", self.world.engine().status());
        }
    }

    /// Adds a volume, and waits until it is there.
    ///
    /// # Errors
    /// Why it was refused.
    pub fn add_volume(&mut self, spec: OriginSpec) -> Result<usize, VolumeError> {
        let ticket = self.ask_add(spec);
        let origin = self.await_volume(ticket)?;
        self.volume_came(origin, spec);
        Ok(origin)
    }

    /// A volume was added, and got this id. A planted bug gives the id of another volume: then this
    /// origin is in the place of that one's.
    pub(crate) fn volume_came(&mut self, origin: usize, spec: OriginSpec) {
        if self.world.origins.len() > origin + 1 {
            self.put_origin(origin, spec);
        }
    }

    /// An origin becomes larger, and its volume is to grow. Returns the number of the answer.
    pub fn ask_grow(&mut self, origin: usize, size_bytes: u64) -> u64 {
        self.world.grow_disk(origin, size_bytes);
        self.oracle.grow_origin(origin, size_bytes / SECTOR_BYTES);
        self.ask_volume(VolumeChange::Grow { origin: OriginId(origin as u32), size_bytes })
    }

    /// Grows a volume, and waits until its clients may use the new part.
    ///
    /// # Errors
    /// Why it was refused.
    pub fn grow_volume(&mut self, origin: usize, size_bytes: u64) -> Result<usize, VolumeError> {
        let ticket = self.ask_grow(origin, size_bytes);
        self.await_volume(ticket)
    }

    /// Removes a volume, and waits until it is gone.
    ///
    /// # Errors
    /// Why it was refused.
    pub fn remove_volume(&mut self, origin: usize, dirty: DirtyOnRemove) -> Result<usize, VolumeError> {
        let ticket = self.ask_remove(origin, dirty);
        self.await_volume(ticket)
    }

    /// Asks for a volume to be removed. If nothing was to be given up, its origin must hold all of
    /// it when it is gone.
    pub fn ask_remove(&mut self, origin: usize, dirty: DirtyOnRemove) -> u64 {
        let ticket = self.ask_volume(VolumeChange::Remove { origin: OriginId(origin as u32), dirty });
        self.leaving.insert(origin, (dirty, self.world.engine().superblock().epoch, ticket));
        ticket
    }

    /// Looks which volumes are gone: the origin of each is complete, or what it lacks was given up.
    ///
    /// # Panics
    /// If an origin lacks something that was not given up.
    pub(crate) fn judge_leaving(&mut self) {
        for event in &self.events {
            // An earlier change of the same volume may have been refused, too.
            if let Event::VolumeRefused { ticket, .. } = event {
                self.leaving.retain(|_, it| it.2 != *ticket);
            }
        }
        if !self.world.serving() {
            return;
        }
        let epoch = self.world.engine().superblock().epoch;
        // An opening knows nothing of a removal that was not durable before.
        let settled: Vec<_> = self.leaving.iter().map(|(origin, it)| (*origin, it.0, it.1)).collect();
        for (origin, dirty, asked) in settled {
            let is_there = self.has_volume(origin);
            if is_there && asked == epoch {
                continue;
            }
            self.leaving.remove(&origin);
            if is_there {
                continue;
            }
            if dirty == DirtyOnRemove::Discard {
                self.oracle.excuse_origin(origin);
            } else {
                self.judge_origin(origin);
            }
        }
    }
}

/// What an event answers to a change of the volumes.
fn answer(event: &Event) -> Option<(u64, Result<usize, VolumeError>)> {
    match event {
        Event::VolumeChanged { ticket, origin } => Some((*ticket, Ok(origin.0 as usize))),
        Event::VolumeRefused { ticket, error, .. } => Some((*ticket, Err(*error))),
        _ => None,
    }
}
