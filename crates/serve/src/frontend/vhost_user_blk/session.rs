// SPDX-License-Identifier: MIT OR Apache-2.0
//! The session of a client, which it has set up by messages: features, memory, queues.
//!
//! The `vhost` crate reads messages, checks their form, and calls this; `messages` decides when. An
//! error is told to a client that asked for an acknowledgement, and the server hangs up on it.

use std::fs::File;
use std::{io, mem};

use serde::{Deserialize, Serialize};
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight, VhostUserLog,
    VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_bindings::bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;
use virtio_bindings::bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

use super::super::Export;
use super::config_space::{bit, features, space};
use super::files;
use super::guest::{Guest, SavedRegion};
use super::inflight::{Inflight, SavedInflight};
use super::limits::{MEMORY_SLOTS_MAX, QUEUES_MAX};
use super::private;
use super::ring::{Addresses, Ring, SavedRing};
use super::unflushed::Unflushed;
use crate::upgrade::Parcel;

/// The address of a base that vhost returns for a mapped region; only for postcopy.
type Bases = Option<Vec<vhost::VhostUserMemoryRegionBase>>;

/// What a client has said of features, as the `vhost` crate must know it. A reset changes none of
/// it.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Said {
    /// The client has asked for the features.
    pub(super) asked: bool,
    pub(super) features: Option<u64>,
    pub(super) protocol: Option<u64>,
}

/// A session between two requests, on its way to another program.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedSession {
    pub(super) said: Said,
    features: u64,
    regions: Vec<SavedRegion>,
    rings: Vec<SavedRing>,
    inflight: Option<SavedInflight>,
    /// Writes that were acknowledged are taken for gone: FLUSH fails.
    lost: bool,
}

/// The session of one client.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) export: Export,
    said: Said,
    features: u64,
    pub(super) guest: Guest,
    pub(super) rings: Vec<Ring>,
    inflight: Option<Inflight>,
    debt: Unflushed,
    /// Kicks that were replaced, to be taken out of the poller before they are closed.
    pub(super) retired: Vec<File>,
    /// The client's process, if it is known.
    client: Option<u32>,
}

impl Session {
    pub(super) fn new(export: Export, debt: Unflushed) -> Result<Self> {
        let rings = (0..QUEUES_MAX).map(|_| Ring::new()).collect::<Result<_>>()?;
        let (guest, retired) = (Guest::default(), Vec::new());
        let said = Said::default();
        Ok(Self { export, said, features: 0, guest, rings, inflight: None, debt, retired, client: None })
    }

    /// The session of this process.
    pub(super) fn of(self, client: Option<u32>) -> Self {
        Self { client, ..self }
    }

    /// Puts the session's files into the parcel; returns the rest.
    pub(super) fn save(&self, parcel: &mut Parcel) -> io::Result<SavedSession> {
        Ok(SavedSession {
            said: self.said,
            features: self.features,
            regions: self.guest.save(parcel)?,
            rings: self.rings.iter().map(|ring| ring.save(parcel)).collect::<io::Result<_>>()?,
            inflight: self.inflight.as_ref().map(|inflight| inflight.save(parcel)).transpose()?,
            lost: self.debt.is_left(),
        })
    }

    /// Goes on with the session of another program. Nothing in the guest's memory is changed.
    pub(super) fn restore(&mut self, saved: &SavedSession, parcel: &Parcel) -> io::Result<()> {
        if saved.rings.len() > self.rings.len() {
            return Err(io::Error::other(format!("{} queues, and there are {QUEUES_MAX}", saved.rings.len())));
        }
        (self.said, self.features) = (saved.said, saved.features);
        self.guest = Guest::restore(&saved.regions, parcel)?;
        self.inflight = saved.inflight.as_ref().map(|inflight| Inflight::restore(inflight, parcel)).transpose()?;
        for (index, (ring, saved)) in self.rings.iter_mut().zip(&saved.rings).enumerate() {
            ring.restore(saved, index, &self.guest, self.inflight.as_ref(), parcel)?;
        }
        if saved.lost {
            self.debt.lose();
        }
        Ok(())
    }

    /// Refuses memory that the client does not share.
    fn check_shared(&self, address: u64, file: &File) -> Result<()> {
        let refused = self.client.map_or(Ok(()), |client| private::refuse(client, address, file));
        refused.map_err(Error::ReqHandlerError)
    }

    /// Whether a write is acknowledged only when it is durable. So it is for a guest that can't say
    /// FLUSH (virtio 1.2, 5.2.6.2).
    pub(super) fn writes_through(&self) -> bool {
        self.features & bit(VIRTIO_BLK_F_FLUSH) == 0
    }

    /// The writes that are owed, and the memory where they are noted.
    pub(super) fn debt(&mut self) -> (&mut Unflushed, Option<&Inflight>) {
        (&mut self.debt, self.inflight.as_ref())
    }

    /// Whether shared memory was gone when it was needed.
    pub(super) fn is_hit(&self) -> bool {
        self.guest.is_hit() || self.inflight.as_ref().is_some_and(Inflight::is_hit)
    }

    fn ring(&mut self, index: u32) -> Result<&mut Ring> {
        self.rings.get_mut(index as usize).ok_or(Error::InvalidOperation("a queue beyond the last"))
    }

    pub(super) fn retire_kick(&mut self, index: usize) {
        let ring = &mut self.rings[index];
        let watched = mem::take(&mut ring.watched);
        self.retired.extend(ring.kick.take().filter(|_| watched));
    }

    /// Finds the rings in memory that has changed. A started ring that is no longer in it is an
    /// error.
    fn translate(&mut self) -> Result<()> {
        for ring in &mut self.rings {
            let found = ring.translate(&self.guest);
            if ring.is_started() {
                found?;
            }
        }
        Ok(())
    }

    fn reset(&mut self) {
        for index in 0..self.rings.len() {
            self.retire_kick(index);
            self.rings[index].stop();
            self.rings[index].enabled = false;
        }
        self.features = 0;
    }
}

fn eventfd(file: File) -> Result<File> {
    files::eventfd(file).map_err(|error| Error::ReqHandlerError(io::Error::other(error)))
}

const UNKNOWN: Error = Error::InvalidOperation("a message that was never offered");

impl VhostUserBackendReqHandlerMut for Session {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.reset();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        self.said.asked = true;
        Ok(features(&self.export) | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits())
    }

    fn set_features(&mut self, asked: u64) -> Result<()> {
        self.said.features = Some(asked);
        let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        if asked & !(features(&self.export) | protocol) != 0 {
            return Err(Error::InvalidOperation("features that were not offered"));
        }
        self.features = asked;
        for ring in &mut self.rings {
            ring.set_event_idx(asked & bit(VIRTIO_RING_F_EVENT_IDX) != 0);
            // Without the protocol's features there is no message to enable it.
            ring.enabled |= asked & protocol == 0;
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Bases> {
        self.guest = Guest::default();
        for (region, file) in regions.iter().zip(files) {
            self.check_shared(region.user_addr, &file)?;
            self.guest.add(region, file)?;
        }
        self.translate()?;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        self.ring(index)?.set_size(num)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let ring = self.rings.get_mut(index as usize).ok_or(Error::InvalidOperation("a queue beyond the last"))?;
        ring.set_addresses(Addresses { descriptors, used, available }, &self.guest)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.ring(index)?.set_base(base)
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.ring(index)?;
        self.retire_kick(index as usize);
        let base = self.rings[index as usize].stop();
        Ok(VhostUserVringState::new(index, u32::from(base)))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let fd = fd.ok_or(Error::InvalidOperation("a queue without a kick, which would have to be polled"))?;
        let (at, fd) = (usize::from(index), eventfd(fd)?);
        self.ring(index.into())?;
        self.retire_kick(at);
        let ring = &mut self.rings[at];
        ring.kick = Some(fd);
        if ring.is_started() {
            ring.kicked = true;
            return Ok(());
        }
        ring.start(at, &self.guest, self.inflight.as_ref())
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let call = fd.map(eventfd).transpose()?;
        self.ring(index.into())?.set_call(call);
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        fd.map(eventfd).transpose()?;
        // The guest is not told of errors that way: a damaged ring ends the connection.
        self.ring(index.into()).map(|_| ())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    fn set_protocol_features(&mut self, asked: u64) -> Result<()> {
        self.said.protocol = Some(asked);
        if asked & !self.get_protocol_features()?.bits() != 0 {
            return Err(Error::InvalidOperation("protocol features that were not offered"));
        }
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let ring = self.ring(index)?;
        ring.enabled = enable;
        ring.kicked = true;
        Ok(())
    }

    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let space = space(&self.export);
        let (start, end) = (offset as usize, offset as usize + size as usize);
        space.get(start..end).map(<[u8]>::to_vec).ok_or(Error::InvalidParam)
    }

    fn set_config(&mut self, _offset: u32, _bytes: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation("a configuration that is not for the guest to write"))
    }

    fn get_inflight_fd(&mut self, asked: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Inflight::create(asked)
    }

    fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        if self.rings.iter().any(Ring::is_started) {
            return Err(Error::InvalidOperation("memory for requests in flight, while queues run"));
        }
        let inflight = Inflight::open(given, file)?;
        if self.debt.take_over(&inflight) {
            tracing::warn!(
                "{}: a guest is back whose unflushed writes died with the daemon before; its FLUSH fails until its disk is reset",
                self.export.name
            );
        }
        self.inflight = Some(inflight);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MEMORY_SLOTS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<vhost::VhostUserMemoryRegionBase>> {
        self.check_shared(region.user_addr, &file)?;
        self.guest.add(region, file)?;
        self.translate()?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.guest.remove(region)?;
        self.translate()
    }

    fn set_gpu_socket(&mut self, _gpu: GpuBackend) -> Result<()> {
        Err(UNKNOWN)
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        Err(UNKNOWN)
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _fd: File,
    ) -> Result<Option<File>> {
        Err(UNKNOWN)
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(UNKNOWN)
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(UNKNOWN)
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        Err(UNKNOWN)
    }
}
