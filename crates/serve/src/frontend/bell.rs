// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wakes a thread from another one: an eventfd in the sleeper's poller, rung once until it is
//! heard.
//!
//! mio's own waker is one per poller, and belongs to the daemon. While the sleeper has not come to
//! look, a second ring says nothing new and costs no system call.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::event::{EventfdFlags, eventfd};

/// A bell that any thread may ring.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
    rung: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, rung: AtomicBool::new(false) })
    }

    /// The poller is edge-triggered, and each ring is an edge: the count is never read, and
    /// overflows in some centuries.
    pub(crate) fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut SourceFd(&self.fd.as_raw_fd()), token, Interest::READABLE)
    }

    /// Call it after what there is to be heard of.
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            let written = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
            debug_assert!(written.is_ok(), "an eventfd takes a one: {written:?}");
        }
    }

    /// Call it before looking.
    pub(crate) fn heard(&self) {
        self.rung.store(false, Ordering::SeqCst);
    }
}
