// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wakes the pump from another thread: an eventfd in the pump's poller, rung once until it is heard.
//!
//! mio's own waker is one per poller, and belongs to the daemon. While the pump has not come to look, a
//! second ring says nothing new and costs no system call.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::event::{EventfdFlags, eventfd};

/// A bell that any thread may ring.
#[derive(Debug)]
pub(super) struct Bell {
    fd: OwnedFd,
    rung: AtomicBool,
}

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, rung: AtomicBool::new(false) })
    }

    /// The poller is edge-triggered, and each ring is an edge: the count is never read, and overflows in
    /// some centuries.
    pub(super) fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut SourceFd(&self.fd.as_raw_fd()), token, Interest::READABLE)
    }

    /// Call it after what there is to be heard of.
    pub(super) fn ring(&self) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            let written = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
            debug_assert!(written.is_ok(), "an eventfd takes a one: {written:?}");
        }
    }

    /// Call it before looking.
    pub(super) fn heard(&self) {
        self.rung.store(false, Ordering::SeqCst);
    }
}
