// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest and its virtual machine, as small as can be: memory, rings, and the client's half of
//! vhost-user.
//!
//! The memory outlives connections, as a guest's does. A test can do every step wrong. The
//! end-to-end tests have this file too, so it uses nothing of ours.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::MemfdFlags;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ, VIRTIO_BLK_F_WRITE_ZEROES,
};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

const fn bit(feature: u32) -> u64 {
    1 << feature
}

pub(super) const MEMORY_BYTES: u64 = 16 << 20;
/// The client's address for the guest's address 0.
pub(super) const USER: u64 = 0x7f00_0000_0000;
pub(super) const ENTRIES: u16 = 64;
pub(super) const QUEUES: usize = 2;
/// The bytes of each queue: its descriptors, rings, and 64 bytes for header and status of each
/// head.
const QUEUE_BYTES: u64 = 0x1_0000;
pub(super) const USED: u64 = 0x1000;
pub(super) const AVAILABLE: u64 = 0x2000;
const HEADERS: u64 = 0x3000;
const STATUS: u64 = 48;
/// Indirect tables, one for each head.
pub(super) const TABLES: u64 = 0x8000;
/// The place of payload.
pub(super) const DATA: u64 = 0x10_0000;

pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;

pub(super) const READ: u32 = 0;
pub(super) const STORE: u32 = 1;
pub(super) const FLUSH: u32 = 4;
pub(super) const GET_ID: u32 = 8;
pub(super) const DISCARD: u32 = 11;
pub(super) const ZERO: u32 = 13;

pub(super) const PENDING: u8 = 0xee;

/// The features that drivers ask for.
pub(super) fn usual() -> u64 {
    let asked = [
        VIRTIO_BLK_F_FLUSH,
        VIRTIO_BLK_F_MQ,
        VIRTIO_BLK_F_DISCARD,
        VIRTIO_BLK_F_WRITE_ZEROES,
        VIRTIO_F_VERSION_1,
        VIRTIO_RING_F_EVENT_IDX,
        VIRTIO_RING_F_INDIRECT_DESC,
    ];
    asked.into_iter().map(bit).fold(0, |all, one| all | one)
}

/// A guest's memory, and what its driver knows.
pub(super) struct Machine {
    pub(super) file: File,
    pub(super) memory: GuestMemoryMmap,
    available: [u16; QUEUES],
    used: [u16; QUEUES],
    /// The client keeps it from one daemon to the next.
    pub(super) inflight: Option<(VhostUserInflight, File)>,
}

/// A connection.
pub(super) struct Wire {
    pub(super) frontend: Frontend,
    kicks: Vec<EventFd>,
    calls: Vec<EventFd>,
}

impl Machine {
    pub(super) fn new() -> Self {
        Self::of(File::from(rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap()))
    }

    /// Makes a machine whose memory is this file.
    pub(super) fn of(file: File) -> Self {
        file.set_len(MEMORY_BYTES).unwrap();
        let offset = FileOffset::new(file.try_clone().unwrap(), 0);
        let ranges = [(GuestAddress(0), MEMORY_BYTES as usize, Some(offset))];
        let memory = GuestMemoryMmap::from_ranges_with_files(ranges).unwrap();
        Self { file, memory, available: [0; QUEUES], used: [0; QUEUES], inflight: None }
    }

    /// Connects as QEMU does, with memory for requests in flight.
    pub(super) fn connect(&mut self, socket: &Path, features: u64) -> Wire {
        let mut wire = Wire::hello(socket, features);
        self.share(&mut wire);
        wire
    }

    /// Is reset on a connection that stays, and starts anew, as QEMU does: queues stopped, empty
    /// rings, new memory for requests in flight.
    pub(super) fn reset(&mut self, wire: &mut Wire) {
        for queue in 0..QUEUES {
            wire.frontend.get_vring_base(queue).unwrap();
            for ring in [USED, AVAILABLE] {
                self.memory.write_obj(0u16, GuestAddress(queue as u64 * QUEUE_BYTES + ring + 2)).unwrap();
            }
        }
        (self.available, self.used, self.inflight) = ([0; QUEUES], [0; QUEUES], None);
        self.share(wire);
    }

    /// Gives the daemon its memory, and starts its queues.
    fn share(&mut self, wire: &mut Wire) {
        if self.inflight.is_none() {
            let asked =
                VhostUserInflight { num_queues: QUEUES as u16, queue_size: ENTRIES, ..VhostUserInflight::default() };
            self.inflight = Some(wire.frontend.get_inflight_fd(&asked).unwrap());
        }
        let (inflight, file) = self.inflight.as_ref().unwrap();
        wire.frontend.set_inflight_fd(inflight, file.as_raw_fd()).unwrap();
        wire.frontend.set_mem_table(&[self.region()]).unwrap();
        for queue in 0..QUEUES {
            // The base is that of the used ring, as QEMU has it if no daemon was there to be asked.
            let at = GuestAddress(queue as u64 * QUEUE_BYTES + USED + 2);
            wire.start(queue, self.memory.load(at, std::sync::atomic::Ordering::Acquire).unwrap());
        }
    }

    pub(super) fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: MEMORY_BYTES,
            userspace_addr: USER,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    pub(super) fn descriptor(&self, table: u64, index: u16, at: u64, len: u32, flags: u16, next: u16) {
        let entry = GuestAddress(table + u64::from(index) * 16);
        let mut bytes = [0; 16];
        bytes[0..8].copy_from_slice(&at.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..16].copy_from_slice(&next.to_le_bytes());
        self.memory.write_slice(&bytes, entry).unwrap();
    }

    /// Puts the chain of `head` into the ring.
    pub(super) fn offer(&mut self, queue: usize, head: u16) {
        let ring = queue as u64 * QUEUE_BYTES + AVAILABLE;
        let index = self.available[queue];
        self.memory.write_obj(head, GuestAddress(ring + 4 + u64::from(index % ENTRIES) * 2)).unwrap();
        self.available[queue] = index.wrapping_add(1);
        let order = std::sync::atomic::Ordering::Release;
        self.memory.store(self.available[queue], GuestAddress(ring + 2), order).unwrap();
    }

    /// Writes the header of the request that `head` is for; where it is.
    pub(super) fn header(&self, queue: usize, head: u16, kind: u32, sector: u64) -> u64 {
        let at = queue as u64 * QUEUE_BYTES + HEADERS + u64::from(head) * 64;
        self.memory.write_obj(kind, GuestAddress(at)).unwrap();
        self.memory.write_obj(sector, GuestAddress(at + 8)).unwrap();
        self.memory.write_obj(PENDING, GuestAddress(at + STATUS)).unwrap();
        at
    }

    /// A request with its payload in one part, by an indirect table of `head`.
    pub(super) fn ask(&mut self, queue: usize, head: u16, kind: u32, sector: u64, at: u64, len: u32) {
        self.ask_in_parts(queue, head, kind, sector, &[(at, len)]);
    }

    pub(super) fn ask_in_parts(&mut self, queue: usize, head: u16, kind: u32, sector: u64, parts: &[(u64, u32)]) {
        let header = self.header(queue, head, kind, sector);
        let base = queue as u64 * QUEUE_BYTES;
        let table = base + TABLES + u64::from(head) * 512;
        let filled = if matches!(kind, READ | GET_ID) { WRITE } else { 0 };
        self.descriptor(table, 0, header, 16, NEXT, 1);
        let mut next = 1;
        for &(at, len) in parts.iter().filter(|(_, len)| *len > 0) {
            self.descriptor(table, next, at, len, NEXT | filled, next + 1);
            next += 1;
        }
        self.descriptor(table, next, header + STATUS, 1, WRITE, 0);
        self.descriptor(base, head, table, (u32::from(next) + 1) * 16, INDIRECT, 0);
        self.offer(queue, head);
    }

    pub(super) fn status(&self, queue: usize, head: u16) -> u8 {
        let at = queue as u64 * QUEUE_BYTES + HEADERS + u64::from(head) * 64 + STATUS;
        self.memory.read_obj(GuestAddress(at)).unwrap()
    }

    /// Returns the requests that came back since the last time: heads, and bytes that were filled.
    pub(super) fn collect(&mut self, queue: usize) -> Vec<(u16, u32)> {
        let ring = queue as u64 * QUEUE_BYTES + USED;
        let order = std::sync::atomic::Ordering::Acquire;
        let end: u16 = self.memory.load(GuestAddress(ring + 2), order).unwrap();
        let mut heads = Vec::new();
        while self.used[queue] != end {
            let entry = ring + 4 + u64::from(self.used[queue] % ENTRIES) * 8;
            let head: u32 = self.memory.read_obj(GuestAddress(entry)).unwrap();
            heads.push((head as u16, self.memory.read_obj(GuestAddress(entry + 4)).unwrap()));
            self.used[queue] = self.used[queue].wrapping_add(1);
        }
        // By EVENT_IDX: the next one is wanted.
        let event = queue as u64 * QUEUE_BYTES + AVAILABLE + 4 + u64::from(ENTRIES) * 2;
        self.memory.store(end, GuestAddress(event), std::sync::atomic::Ordering::SeqCst).unwrap();
        heads
    }

    /// Kicks, and waits until one comes back; its status.
    pub(super) fn run(&mut self, wire: &Wire, queue: usize, head: u16) -> u8 {
        wire.kick(queue);
        assert_eq!(wire.wait(self, queue, 1)[0].0, head);
        self.status(queue, head)
    }

    pub(super) fn fill(&self, at: u64, len: u32, byte: u8) {
        self.memory.write_slice(&vec![byte; len as usize], GuestAddress(at)).unwrap();
    }

    pub(super) fn content(&self, at: u64, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }
}

impl Wire {
    /// Up to the features; the rest is for the test.
    pub(super) fn hello(socket: &Path, features: u64) -> Self {
        let wire = Self::dial(socket);
        let offered = wire.frontend.get_features().unwrap();
        assert_eq!(offered & features, features, "all that is asked for is offered");
        wire.frontend.set_features(features | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()).unwrap();
        wire
    }

    /// Up to the features of the protocol, which is as far as QEMU goes before it asks for the
    /// configuration.
    pub(super) fn dial(socket: &Path) -> Self {
        let mut frontend = Frontend::from_stream(UnixStream::connect(socket).unwrap(), QUEUES as u64);
        frontend.set_owner().unwrap();
        frontend.get_features().unwrap();
        let protocol = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        assert!(frontend.get_protocol_features().unwrap().contains(protocol));
        frontend.set_protocol_features(protocol).unwrap();
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        let events = || (0..QUEUES).map(|_| EventFd::new(0).unwrap()).collect();
        Self { frontend, kicks: events(), calls: events() }
    }

    pub(super) fn addresses(queue: usize) -> VringConfigData {
        let base = USER + queue as u64 * QUEUE_BYTES;
        VringConfigData {
            queue_max_size: ENTRIES,
            queue_size: ENTRIES,
            flags: 0,
            desc_table_addr: base,
            used_ring_addr: base + USED,
            avail_ring_addr: base + AVAILABLE,
            log_addr: None,
        }
    }

    pub(super) fn start(&mut self, queue: usize, base: u16) {
        self.frontend.set_vring_num(queue, ENTRIES).unwrap();
        self.frontend.set_vring_base(queue, base).unwrap();
        self.frontend.set_vring_addr(queue, &Self::addresses(queue)).unwrap();
        self.frontend.set_vring_call(queue, &self.calls[queue]).unwrap();
        self.frontend.set_vring_kick(queue, &self.kicks[queue]).unwrap();
        self.frontend.set_vring_enable(queue, true).unwrap();
    }

    pub(super) fn kick_fd(&self, queue: usize) -> &EventFd {
        &self.kicks[queue]
    }

    pub(super) fn kick(&self, queue: usize) {
        self.kicks[queue].write(1).unwrap();
    }

    /// Waits by the call until this many came back.
    pub(super) fn wait(&self, machine: &mut Machine, queue: usize, count: usize) -> Vec<(u16, u32)> {
        let mut heads = machine.collect(queue);
        while heads.len() < count {
            assert!(becomes(&self.calls[queue], PollFlags::IN), "only {} of {count} came back", heads.len());
            self.calls[queue].read().unwrap();
            heads.extend(machine.collect(queue));
        }
        heads
    }

    pub(super) fn config(&mut self, offset: u32, bytes: usize) -> Vec<u8> {
        let flags = VhostUserConfigFlags::empty();
        self.frontend.get_config(offset, bytes as u32, flags, &vec![0; bytes]).unwrap().1
    }

    /// Whether the daemon hangs up, rather than do what was asked.
    pub(super) fn is_hung_up_on(&self) -> bool {
        becomes(&self.frontend, PollFlags::HUP)
    }
}

/// Waits for something to happen to a descriptor; false if it doesn't in a time that is long for
/// any machine.
pub(super) fn becomes(fd: &impl AsRawFd, what: PollFlags) -> bool {
    let raw: RawFd = fd.as_raw_fd();
    let path = format!("/proc/self/fd/{raw}");
    assert!(Path::new(&path).symlink_metadata().is_ok(), "{path} is open");
    #[expect(unsafe_code, reason = "the crate's types have no AsFd")]
    // SAFETY: `fd` is borrowed, so it stays open as long as this.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(raw) };
    let mut poll = [PollFd::new(&fd, what)];
    let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
    rustix::event::poll(&mut poll, Some(&patience)).unwrap() > 0
}
