// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prepares a process that serves a block device of its own machine: its memory must not wait for
//! that device.
//!
//! When memory is short the kernel empties its page cache. The pages of a file system on our own
//! device go through us, so we must not wait for that to happen. PR_SET_IO_FLUSHER makes our
//! allocations do without it, and spares us being slowed as a writer. Threads inherit it, so it is
//! asked for before there are any. Locking keeps our pages from being swapped, perhaps to that
//! device.
//!
//! Both need root (or CAP_SYS_RESOURCE and CAP_IPC_LOCK). Without them all is well until memory is
//! short, so a refusal is logged and no more. docs/guide/same-machine.md tells the rest.

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, configure_io_flusher_behavior, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Prepares this process; call it before it starts threads.
pub(crate) fn prepare() {
    if let Err(errno) = configure_io_flusher_behavior(true) {
        tracing::warn!(
            "can't become an I/O flusher ({errno}; it takes root or CAP_SYS_RESOURCE): a block device of this machine may hang when memory is short"
        );
    }
    // With a limit on locked memory, a later allocation would fail for it instead.
    let unlimited = getrlimit(Resource::Memlock).current.is_none();
    let may = unlimited || capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    // Pages are locked when they are first used: what is only reserved costs nothing.
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    let locked = if may { mlockall(flags) } else { Err(rustix::io::Errno::PERM) };
    if let Err(errno) = locked {
        tracing::warn!(
            "can't lock its memory ({errno}; it takes root, or LimitMEMLOCK=infinity): keep swap off this machine's served volumes"
        );
    }
}
