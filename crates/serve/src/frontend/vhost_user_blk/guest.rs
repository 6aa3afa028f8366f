// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that a client shares: files that it sends, mapped here, by the addresses of its
//! guest.
//!
//! Every access is checked against the mappings, so that a wild address is an error. It changes
//! only while no request is in flight (`messages`), and is unmapped with its last holder.

use std::fs::File;
use std::io;

use flashfront_device::prefetch;
use serde::{Deserialize, Serialize};
use vhost::vhost_user::message::{VhostUserMemoryRegion, VhostUserSingleMemoryRegion};
use vhost::vhost_user::{Error, Result};
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap, MmapRegion,
};

use super::fault::Guard;
use super::files;
use super::limits::MEMORY_SLOTS_MAX;
use crate::upgrade::{Descriptor, Parcel};

/// A file of a client that has `own` bytes already, mapped.
pub(super) fn map(file: File, offset: u64, bytes: u64, own: u64) -> io::Result<(MmapRegion, Guard)> {
    let file = files::memory(file).map_err(io::Error::other)?;
    let end = offset.checked_add(bytes).ok_or(io::ErrorKind::InvalidInput)?;
    // Memory that is taken away later is noticed by the guard.
    if file.metadata()?.len() < end {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // The kernel neither unmaps nor replaces (`fault`) a part of a huge page.
    let page = files::page_bytes(&file)?;
    if !bytes.is_multiple_of(page) {
        return Err(io::Error::other(format!("{bytes} bytes of memory in pages of {page}; share whole pages")));
    }
    let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
    let guard = Guard::new(bytes, own)?;
    let region = MmapRegion::from_file(FileOffset::new(file, offset), bytes).map_err(io::Error::other)?;
    guard.watch(region.as_ptr());
    Ok((region, guard))
}

/// A region of the guest's memory, and the client's own address for it.
#[derive(Debug)]
struct Mapping {
    guest: u64,
    bytes: u64,
    user: u64,
    guard: Guard,
}

/// A region, on its way to another program.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedRegion {
    file: Descriptor,
    offset: u64,
    guest: u64,
    bytes: u64,
    user: u64,
}

/// A client's memory.
#[derive(Debug, Default)]
pub(super) struct Guest {
    // Before `memory`, so that the guards go first.
    mappings: Vec<Mapping>,
    memory: GuestMemoryMmap,
}

impl Guest {
    /// The memory, by the guest's addresses.
    pub(super) fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    /// Puts the files of all regions into the parcel; returns the rest.
    pub(super) fn save(&self, parcel: &mut Parcel) -> io::Result<Vec<SavedRegion>> {
        let save = |place: &Mapping| {
            let region = self.memory.find_region(GuestAddress(place.guest));
            let file = region.and_then(GuestMemoryRegion::file_offset).ok_or(io::ErrorKind::NotFound)?;
            let (file, offset) = (parcel.put(file.file())?, file.start());
            Ok(SavedRegion { file, offset, guest: place.guest, bytes: place.bytes, user: place.user })
        };
        self.mappings.iter().map(save).collect()
    }

    /// Maps the memory of a guest that another program had.
    pub(super) fn restore(saved: &[SavedRegion], parcel: &Parcel) -> io::Result<Self> {
        let mut guest = Self::default();
        for place in saved {
            let region = VhostUserMemoryRegion::new(place.guest, place.bytes, place.user, place.offset);
            let file = File::from(parcel.descriptor(place.file)?);
            guest.add(&region, file).map_err(io::Error::other)?;
        }
        Ok(guest)
    }

    /// Adds a region.
    pub(super) fn add(&mut self, region: &VhostUserMemoryRegion, file: File) -> Result<()> {
        let (guest, bytes, user) = (region.guest_phys_addr, region.memory_size, region.user_addr);
        if self.mappings.len() >= MEMORY_SLOTS_MAX {
            return Err(Error::InvalidOperation("too many memory regions"));
        }
        let own = self.mappings.iter().map(|place| place.bytes).sum();
        let (mapped, guard) = map(file, region.mmap_offset, bytes, own).map_err(Error::ReqHandlerError)?;
        let mapped = GuestRegionMmap::new(mapped, GuestAddress(guest));
        let mapped = mapped.ok_or(Error::InvalidOperation("a memory region beyond the end of the address space"))?;
        let memory = self.memory.insert_region(mapped.into());
        self.memory = memory.map_err(|_| Error::InvalidOperation("a memory region that overlaps another"))?;
        self.mappings.push(Mapping { guest, bytes, user, guard });
        Ok(())
    }

    /// Removes a region.
    pub(super) fn remove(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let (guest, bytes, user) = (region.guest_phys_addr, region.memory_size, region.user_addr);
        let same = |it: &Mapping| (it.guest, it.bytes, it.user) == (guest, bytes, user);
        let Some(at) = self.mappings.iter().position(same) else {
            return Err(Error::InvalidOperation("no such memory region to be removed"));
        };
        self.mappings.remove(at);
        let removed = self.memory.remove_region(GuestAddress(guest), bytes);
        let (memory, _) = removed.map_err(|_| Error::InvalidOperation("no such memory region to be removed"))?;
        self.memory = memory;
        Ok(())
    }

    /// Translates an address of the client to the guest's address.
    pub(super) fn translate(&self, user: u64) -> Option<GuestAddress> {
        let place =
            self.mappings.iter().find(|place| user.checked_sub(place.user).is_some_and(|at| at < place.bytes))?;
        Some(GuestAddress(place.guest + (user - place.user)))
    }

    /// A hint: what is at this address will be read soon. Another processor has written it, so it
    /// is far away.
    pub(super) fn expect(&self, at: GuestAddress) {
        if let Ok(at) = self.memory.get_host_address(at) {
            prefetch(at);
        }
    }

    /// Whether some of it was gone when it was needed.
    pub(super) fn is_hit(&self) -> bool {
        self.mappings.iter().any(|place| place.guard.is_hit())
    }

    /// Whether all of the range is there.
    pub(super) fn holds(&self, at: GuestAddress, bytes: u64) -> bool {
        let Some(last) = bytes.checked_sub(1).and_then(|last| at.0.checked_add(last)) else {
            return bytes == 0;
        };
        let mut next = at.0;
        loop {
            let Some(region) = self.memory.find_region(GuestAddress(next)) else {
                return false;
            };
            let end = region.last_addr().0;
            if end >= last {
                return true;
            }
            next = end + 1;
        }
    }
}
