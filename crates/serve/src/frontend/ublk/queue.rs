// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of a device: an io_uring, which is a poll token, fetches them from the driver and
//! gives them back.
//!
//! All of it belongs to the thread that fetches first: the driver insists on that. A request's
//! description lies in memory that the driver shares. Its payload is copied by reading and writing
//! the character device, straight from and to the buffers of the pump.
#![expect(unsafe_code, reason = "maps memory of the driver's; submission entries")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::rc::Rc;

use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::abi::{Description, IoCommand, io as order, payload_at};

/// The character device, through which payload is copied.
#[derive(Debug)]
pub(super) struct Payloads(File);

impl Payloads {
    /// Copies from a write, from byte `at` of its payload on.
    pub(super) fn read(&self, tag: u16, at: usize, into: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, into, payload_at(tag) + at as u64)
    }

    /// Copies to a read.
    pub(super) fn write(&self, tag: u16, at: usize, from: &[u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&self.0, from, payload_at(tag) + at as u64)
    }
}

/// The result of a fetch.
#[derive(Debug)]
pub(super) enum Fetched {
    /// A request.
    Request(u16, Description),
    /// No request will come any more under this tag, for this reason.
    Over(io::Error),
}

/// The queue of a device.
pub(super) struct Queue {
    ring: IoUring,
    payloads: Rc<Payloads>,
    descriptions: NonNull<Description>,
    mapped_bytes: usize,
    depth: u16,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("depth", &self.depth).finish_non_exhaustive()
    }
}

impl Queue {
    /// Opens the queue; nothing is fetched yet.
    pub(super) fn open(file: File, depth: u16) -> io::Result<Self> {
        // All may be fetched or given back at once.
        let ring = IoUring::builder().build(u32::from(depth).next_power_of_two())?;
        Self::with(ring, file, depth)
    }

    fn with(ring: IoUring, file: File, depth: u16) -> io::Result<Self> {
        let mapped_bytes = (usize::from(depth) * size_of::<Description>()).next_multiple_of(4096);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let at = unsafe {
            mmap(std::ptr::null_mut(), mapped_bytes, ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE, &file, 0)
        }?;
        let descriptions = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { ring, payloads: Rc::new(Payloads(file)), descriptions, mapped_bytes, depth })
    }

    /// Becomes readable when something was fetched.
    pub(super) fn ring_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    pub(super) fn payloads(&self) -> Rc<Payloads> {
        Rc::clone(&self.payloads)
    }

    /// Fetches under every tag. This thread is the queue's from now on.
    pub(super) fn fetch_all(&mut self) -> io::Result<()> {
        for tag in 0..self.depth {
            self.push(order::FETCH, tag, -1);
        }
        self.submit()
    }

    /// Returns the next fetch that has ended.
    pub(super) fn fetched(&mut self) -> Option<Fetched> {
        let entry = self.ring.completion().next()?;
        let tag = entry.user_data() as u16;
        if entry.result() < 0 || tag >= self.depth {
            return Some(Fetched::Over(io::Error::from_raw_os_error(entry.result().saturating_neg())));
        }
        // SAFETY: inside the mapping, and the driver has done with it when the fetch ends.
        let description = unsafe { self.descriptions.add(usize::from(tag)).read_volatile() };
        Some(Fetched::Request(tag, description))
    }

    /// Gives a request back with its result (bytes, or a negative errno), and fetches the next.
    /// [`Queue::submit`] sends it.
    pub(super) fn give_back(&mut self, tag: u16, result: i32) {
        self.push(order::COMMIT_AND_FETCH, tag, result);
    }

    /// Sends all that was given back. After an error the kernel may have taken a part; the next
    /// call sends the rest.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
                // It stops where it is short of something, and says only how far it came.
                Ok(_) => {}
            }
        }
        Ok(())
    }

    fn push(&mut self, order: u32, tag: u16, result: i32) {
        let command = IoCommand { queue: 0, tag, result, addr: 0 };
        let fd = Fd(self.payloads.0.as_raw_fd());
        let entry = opcode::UringCmd16::new(fd, order).cmd(command.encode()).build().user_data(u64::from(tag));
        // SAFETY: it points to nothing.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        debug_assert!(pushed.is_ok(), "a tag is on its way once at most, and there is room for all");
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the mapping of `open`, and no reference into it was ever given out.
        let unmapped = unsafe { munmap(self.descriptions.as_ptr().cast(), self.mapped_bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of the descriptions: {unmapped:?}");
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A queue without a driver behind it, whose commands end at once with an error. The kernel
    /// refuses to take them until [`accept`]. `None`: there is no io_uring here, which is said.
    pub(in super::super) fn refused(depth: u16) -> Option<Queue> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let ring = IoUring::builder().setup_r_disabled().build(u32::from(depth));
        let ring = ring.inspect_err(|error| eprintln!("SKIPPED: no io_uring: {error}")).ok()?;
        Some(Queue::with(ring, file, depth).unwrap())
    }

    /// The kernel takes commands from now on.
    pub(in super::super) fn accept(queue: &Queue) {
        queue.ring.submitter().register_enable_rings().unwrap();
    }

    /// How many have ended.
    pub(in super::super) fn ended(queue: &mut Queue) -> usize {
        std::iter::from_fn(|| queue.fetched()).count()
    }

    #[test]
    fn what_the_kernel_takes_in_parts_is_all_sent() {
        let Some(mut queue) = refused(8) else { return };
        accept(&queue);
        // The kernel takes this one, finds it wrong, and leaves those after it where they are.
        let wrong = opcode::Nop::new().build().personality(0x7fff);
        // SAFETY: it points to nothing.
        unsafe { queue.ring.submission().push(&wrong) }.unwrap();
        for tag in 0..7 {
            queue.give_back(tag, 0);
        }
        queue.submit().unwrap();
        assert_eq!(ended(&mut queue), 8);
    }
}
