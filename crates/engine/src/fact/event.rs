// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the operator is told: things that happened, worth a line in a log.

use crate::fact::io::{DeviceError, DeviceId, Op};
use crate::fact::open_error::OpenError;
use crate::fact::types::{Key, Lba, Mode, OriginId};
use crate::fact::volume::VolumeError;

/// Something an operator wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The log is replayed, and nothing is written yet: [`Control::GoOn`] lets the opening go on.
    /// Only with `Options::hold_replayed`.
    Replayed,
    /// Replay is over; requests are served.
    Ready {
        /// Blocks in the cache after replay.
        blocks_cached: u64,
        /// Dirty ones among them.
        blocks_dirty: u64,
        /// Commits replayed after the checkpoints.
        commits_replayed: u64,
    },
    /// The cache can't be opened; nothing was changed.
    OpenFailed(OpenError),
    /// A block on the cache device did not match its checksum.
    Corrupt {
        /// Which block of which origin.
        key: Key,
        /// Dirty: its data is lost and reads fail. Clean: it was read from the origin instead.
        dirty: bool,
    },
    /// An origin failed to carry out an I/O, of a client or of destage.
    OriginFailed {
        /// The origin.
        origin: OriginId,
        /// What it was asked to do.
        op: Op,
        /// First sector of the I/O; 0 of a flush.
        lba: Lba,
        /// Its length; 0 of a flush.
        sectors: u64,
        /// How it failed.
        error: DeviceError,
    },
    /// A cache device failed to carry out an I/O.
    DeviceFailed {
        /// Which device.
        device: DeviceId,
        /// Doing what.
        op: Op,
        /// First byte of the I/O.
        offset: u64,
        /// How.
        error: DeviceError,
    },
    /// The cache device refused a write or a flush. From now on nothing new is put on it. Clean
    /// data is read from it as long as that goes, dirty data is destaged, and writes go to the
    /// origin. The superblock is marked, so that this cache isn't replayed later.
    CacheFailed,
    /// A member of a mirrored cache refused a write or a flush, or the device that should become
    /// the mirror did. It is left out.
    MemberFailed {
        /// Which.
        device: DeviceId,
    },
    /// That is durable on the other member, which goes on alone.
    MemberLeft {
        /// Which one is out.
        device: DeviceId,
    },
    /// The other member of a mirrored cache leads now, durably.
    MemberLeads {
        /// The new lead.
        device: DeviceId,
    },
    /// Both members hold all dirty data from now on, but what could not be read.
    MirrorWhole {
        /// How many blocks that is: they are dirty on the lead, where they may be readable again.
        lacking: u64,
    },
    /// A dirty block could not be read, or did not match its checksum, on one member; the other one
    /// has it.
    ReadFromMirror {
        /// Which block of which origin.
        key: Key,
    },
    /// The mark can't be written: the caller has to remember elsewhere that this cache must not be
    /// replayed, and answers with [`crate::Control::FailureRecorded`]. Until then writes of cached
    /// blocks and FLUSH wait.
    FailureUnmarked,
    /// Writing dirty data to an origin failed; it stays dirty and is tried again later.
    DestageFailed {
        /// The origin.
        origin: OriginId,
        /// How.
        error: DeviceError,
    },
    /// A mode change is durable.
    ModeChanged {
        /// The origin.
        origin: OriginId,
        /// The mode it has now.
        mode: Mode,
    },
    /// A change of the volumes is durable. Of a volume that was removed no I/O is under way any
    /// more; one that was added is served from now on.
    VolumeChanged {
        /// The number that [`crate::Control::Volume`] had.
        ticket: u64,
        /// The volume.
        origin: OriginId,
    },
    /// A change of the volumes was refused.
    VolumeRefused {
        /// The number that [`crate::Control::Volume`] had.
        ticket: u64,
        /// The volume; `None`: it was to be added.
        origin: Option<OriginId>,
        /// Why.
        error: VolumeError,
    },
    /// A drain is over: nothing is dirty.
    Drained,
    /// A stop is over: everything is durable, nothing is in flight.
    Stopped,
}
