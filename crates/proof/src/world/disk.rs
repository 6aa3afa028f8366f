// SPDX-License-Identifier: MIT OR Apache-2.0
//! A disk of a world lies in RAM, behind a connection that may break. Faults can be ordered for it,
//! and it is waited for only so long.

use std::ops::{Deref, DerefMut};

use flashfront_device::sim::{Link, RamDisk};
use flashfront_device::wrap::{Inject, Patience};
use flashfront_device::{Arena, Device, DeviceIo, Done, Geometry, Hang};
use flashfront_engine::Time;

/// A disk.
#[derive(Clone)]
pub struct Disk(Patience<Inject<Link>>);

impl Disk {
    /// With so much time for each I/O; `None` = for ever.
    #[must_use]
    pub fn new(disk: Inject<Link>, limit_ns: Option<u64>) -> Self {
        Self(Patience::new(disk, limit_ns, usize::MAX))
    }

    /// Puts these faults and as much time around another disk, with nothing in flight.
    #[must_use]
    pub fn around(&self, disk: RamDisk) -> Self {
        Self(self.0.with(self.0.device().around(Link::new(disk))))
    }
}

impl Deref for Disk {
    type Target = Inject<Link>;

    fn deref(&self) -> &Inject<Link> {
        self.0.device()
    }
}

impl DerefMut for Disk {
    fn deref_mut(&mut self) -> &mut Inject<Link> {
        self.0.device_mut()
    }
}

impl Device for Disk {
    fn submit(&mut self, now: Time, io: DeviceIo, arena: &mut Arena) {
        self.0.submit(now, io, arena);
    }

    fn kick(&mut self) {
        self.0.kick();
    }

    fn poll(&mut self, now: Time, arena: &mut Arena, done: &mut Vec<Done>) {
        self.0.poll(now, arena, done);
    }

    fn next_event(&self) -> Option<Time> {
        self.0.next_event()
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn hang(&self) -> Option<Hang> {
        self.0.hang()
    }
}
