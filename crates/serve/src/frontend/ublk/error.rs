// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why there is no block device: what, where, and what to do.

use std::io;

/// Why a device can't be made or taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UblkError {
    /// The driver is not there.
    #[error(
        "/dev/ublk-control: {error}; the kernel's ublk driver must be there (`modprobe ublk_drv`; Linux 6.5 or later), and this must be root. Without it: --fuse, or --nbd"
    )]
    NoDriver {
        /// Why.
        error: io::Error,
    },
    /// An early driver.
    #[error("the ublk driver of this kernel is too old; Linux 6.5 is needed. Without it: --fuse, or --nbd")]
    TooOld,
    /// Another program's, or of another volume.
    #[error("/dev/ublkb{number} is there, and is not this volume's; choose another number (--ublk N)")]
    Taken {
        /// N.
        number: u32,
    },
    /// Another daemon serves the device, or a program still has it open.
    #[error(
        "/dev/ublkb{number} is served already, or what a killed daemon left of it is still mounted or open; stop that daemon, or unmount it"
    )]
    InUse {
        /// N.
        number: u32,
    },
    /// The device must stay recoverable.
    #[error(
        "/dev/ublkb{number} was left by a daemon with durability `always` and waits for one; serve with --durability always, unmount it and stop, and then choose"
    )]
    Durability {
        /// N.
        number: u32,
    },
    /// The driver refuses.
    #[error("/dev/ublkb{number}: can't {doing} it: {error}")]
    Io {
        /// N.
        number: u32,
        /// The operation.
        doing: &'static str,
        /// Why.
        error: io::Error,
    },
}
