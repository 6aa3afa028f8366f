// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trait of all devices, be they real, virtual or wrapped: they take I/O, and say later how it
//! went.
//!
//! Nothing here blocks. The caller submits any number of I/Os, kicks once per batch, and polls.
//! Between polls it sleeps in `Reactor::wait` (real devices) or until [`Device::next_event`]
//! (virtual and delayed ones). Completions come in any order. An I/O that is outside the device or
//! not aligned to its logical block is a bug of the caller: it asserts.

use flashfront_engine::{DeviceError, Op, Span, Time, Token};

use crate::Arena;

/// An I/O, without saying on which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceIo {
    /// Comes back in [`Done`]. Unique among the I/Os in flight on this device.
    pub token: Token,
    /// The operation.
    pub op: Op,
    /// First byte on the device. 0 for a flush.
    pub offset: u64,
    /// Length in bytes. 0 for a flush.
    pub len: u64,
    /// The memory of a read or write, `len` bytes long. The caller neither frees nor changes it
    /// until the I/O is done.
    pub span: Option<Span>,
}

/// Tells that an I/O has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The I/O.
    pub token: Token,
    /// How.
    pub result: Result<(), DeviceError>,
}

/// The geometry of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The size, a multiple of `logical_block_bytes`.
    pub size_bytes: u64,
    /// The unit of offsets, lengths and memory addresses of I/O: 512 or 4096.
    pub logical_block_bytes: u32,
    /// Whether the device has a head to move; `None` if that is not known.
    pub rotational: Option<bool>,
}

impl Geometry {
    /// Asserts that this device can be asked for this I/O.
    pub(crate) fn check(&self, io: &DeviceIo) {
        if io.op == Op::Flush {
            return;
        }
        let block = u64::from(self.logical_block_bytes);
        let end = io.offset.checked_add(io.len).expect("an I/O ends within 2^64 bytes");
        assert!(io.len > 0 && end <= self.size_bytes, "bug: {io:?} is outside a device of {} bytes", self.size_bytes);
        assert!((io.offset | io.len).is_multiple_of(block), "bug: {io:?} is not aligned to blocks of {block} bytes");
        if matches!(io.op, Op::Read | Op::Write) {
            let span = io.span.expect("bug: a read or write without memory");
            assert_eq!(u64::from(span.len), io.len, "bug: {io:?} has memory of another length");
            assert!(
                u64::from(span.offset()).is_multiple_of(block),
                "bug: the memory of {io:?} is not aligned to {block} bytes"
            );
        }
    }
}

/// How a device hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hang {
    /// When the device was given the oldest I/O that was given up.
    pub since: Time,
    /// I/Os that were given up and have not ended.
    pub ios: u64,
    /// The bytes of memory that they keep.
    pub bytes: u64,
}

/// A device: takes I/O, reports completions.
pub trait Device {
    /// Takes one I/O. It may wait for [`Device::kick`] before it starts.
    fn submit(&mut self, now: Time, io: DeviceIo, arena: &mut Arena);

    /// Starts everything submitted so far. With io_uring it starts in the reactor's next wait: one
    /// system call for all devices, and for the sleep.
    fn kick(&mut self);

    /// Appends what has ended to `done`. Never waits.
    fn poll(&mut self, now: Time, arena: &mut Arena, done: &mut Vec<Done>);

    /// When [`Device::poll`] will have something, if that is known: virtual and delayed devices.
    fn next_event(&self) -> Option<Time>;

    /// The geometry of the device. While the device is open, only its size can change: it grows.
    fn geometry(&self) -> Geometry;

    /// Says how the device hangs, if its wrapper looks: [`crate::wrap::Patience`] does.
    fn hang(&self) -> Option<Hang> {
        None
    }
}

impl<D: Device + ?Sized> Device for Box<D> {
    fn submit(&mut self, now: Time, io: DeviceIo, arena: &mut Arena) {
        (**self).submit(now, io, arena);
    }

    fn kick(&mut self) {
        (**self).kick();
    }

    fn poll(&mut self, now: Time, arena: &mut Arena, done: &mut Vec<Done>) {
        (**self).poll(now, arena, done);
    }

    fn next_event(&self) -> Option<Time> {
        (**self).next_event()
    }

    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }

    fn hang(&self) -> Option<Hang> {
        (**self).hang()
    }
}
