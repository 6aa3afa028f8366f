// SPDX-License-Identifier: MIT OR Apache-2.0
//! What goes into the engine and what comes out of it: requests, completions, effects.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::fact::event::Event;
use crate::fact::memory::{Buf, Span};
use crate::fact::types::{Lba, Mode, OriginId, SECTOR_BYTES, Time};
use crate::fact::volume::VolumeChange;

/// The caller's name for a request; comes back in its [`Effect::Reply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The engine's name for an I/O; comes back in its [`Input::IoDone`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOp {
    /// Fill the buffer.
    Read,
    /// Store the buffer.
    Write,
    /// Store the buffer, but for the first bytes of its first sector and the last ones of its last
    /// sector. Those stay as they are, whatever else is written to them at the same time.
    WriteBytes {
        /// Bytes of the first sector that stay; fewer than 512.
        head: u16,
        /// Bytes of the last sector that stay; fewer than 512.
        tail: u16,
    },
    /// Bring the range into the cache, as far as the policy admits that. The buffer is filled as by
    /// a read.
    Prefetch,
    /// Bring the range into the cache, for nobody who reads it now. What is there already is left
    /// as it is, and not read. The buffer is the engine's to use.
    Warm {
        /// Whether blocks of others may leave for it; else only free room is used.
        replace: bool,
    },
    /// Fill the buffer, of [`crate::MAP_BYTES`], with a list of the range's extents
    /// ([`crate::fact::extents`]). The range begins and ends with a block, or with the origin; it
    /// may be of any length. The list may tell of less.
    Map,
    /// Make everything acknowledged so far durable. Range and buffer are ignored.
    Flush,
    /// The range's content is no longer needed.
    Discard,
    /// The range reads as zeroes from now on. `may_discard` allows the origin to unmap it.
    WriteZeroes {
        /// Whether the origin's space may be given back.
        may_discard: bool,
    },
}

impl RequestOp {
    /// Whether the request has a buffer that is filled or stored.
    #[must_use]
    pub const fn has_payload(self) -> bool {
        matches!(self, Self::Read | Self::Prefetch | Self::Warm { .. }) || self.stores()
    }

    /// Bytes that the client gets or gives with so many sectors. A prefetch gives nothing.
    pub(crate) const fn payload_bytes(self, sectors: u64) -> u32 {
        // Requests with a payload have at most 1 MiB.
        if matches!(self, Self::Read) || self.stores() {
            (sectors as u32).saturating_mul(SECTOR_BYTES as u32)
        } else {
            0
        }
    }

    /// Whether the request changes the volume.
    #[must_use]
    pub const fn changes(self) -> bool {
        self.stores() || matches!(self, Self::Discard | Self::WriteZeroes { .. })
    }

    /// Whether the request stores its buffer.
    #[must_use]
    pub const fn stores(self) -> bool {
        matches!(self, Self::Write | Self::WriteBytes { .. })
    }
}

/// A request of a client.
///
/// `buf` covers the range *and the rest of its first and last block*. Byte 0 of the buffer is the
/// start of the block that holds `lba`, so payload starts at `lba % 8 * 512`. The bytes around the
/// payload are the engine's to use. The buffer stays the caller's; the engine lets go of it with
/// the reply.
///
/// Until then nobody else writes to it, so it is no memory of a client's. The checksum of a write
/// is taken before the copy ([`crate::Memory::copy_summed`]), and bytes that changed in between
/// would count as damaged.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Comes back in the reply.
    pub id: RequestId,
    /// The origin that is meant.
    pub origin: OriginId,
    /// What to do.
    pub op: RequestOp,
    /// First sector.
    pub lba: Lba,
    /// Length in sectors; for reads and writes at most [`crate::REQUEST_BYTES_MAX`] / 512.
    pub sectors: u64,
    /// The payload of a read or write, or the list of a map.
    pub buf: Option<Buf>,
    /// Reply only when durable (writes, discards, write-zeroes).
    pub fua: bool,
    /// When the caller had it; comes back in the reply. The engine does not look at it.
    pub since: Time,
    /// Whether the client's request began with the part that ends where this one begins. The engine
    /// does not look at it.
    pub continues: bool,
}

/// What a request turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// A read that the cache answered alone.
    Hit,
    /// A read that needed the origin for some part, or waited for another request's read of the
    /// origin.
    Miss,
    /// A write, or a write-zeroes.
    Write,
    /// A FLUSH.
    Flush,
    /// A discard, a question about the map, what is brought for nobody, or a request that was
    /// refused without any work.
    Other,
}

/// What a reply says of its request, for callers that measure how long requests take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// [`Request::origin`].
    pub origin: OriginId,
    /// What it turned out to be.
    pub kind: AnswerKind,
    /// [`Request::since`].
    pub since: Time,
    /// Bytes of a read's or a write's payload; 0 for all other requests.
    pub bytes: u32,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// A device failed, or the only copy of a block is corrupt.
    Io,
    /// The origin has no space left. Nothing is broken: the request may be sent again when there is
    /// some.
    NoSpace,
    /// The volume takes no writes: it is read-only, or its origin has become so.
    ReadOnly,
    /// The range is outside the origin, empty, or longer than allowed.
    Invalid,
    /// The engine is stopping.
    Stopping,
}

impl From<DeviceError> for RequestError {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::NoSpace => Self::NoSpace,
            DeviceError::ReadOnly => Self::ReadOnly,
            DeviceError::Io | DeviceError::Unsupported | DeviceError::Gone | DeviceError::TimedOut => Self::Io,
        }
    }
}

/// Why a device did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// EIO and the like: this range, this time.
    Io,
    /// ENOSPC: a sparse file's file system is full, or its user's quota is used up.
    NoSpace,
    /// EROFS, EPERM: the device takes no writes any more.
    ReadOnly,
    /// The device does not know this operation (discard, zero).
    Unsupported,
    /// The device is gone.
    Gone,
    /// The device did not answer for so long that it counts as hanging. What was asked for may
    /// still happen, but only before the device takes anything new; its memory is no longer the
    /// caller's concern.
    TimedOut,
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Io => "I/O error (EIO)",
            Self::NoSpace => "no space left (ENOSPC)",
            Self::ReadOnly => "it takes no writes any more (EROFS)",
            Self::Unsupported => "it does not know this operation (EOPNOTSUPP)",
            Self::Gone => "the device is gone (ENODEV)",
            Self::TimedOut => "it does not answer (ETIMEDOUT)",
        })
    }
}

/// Which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceId {
    /// The cache device; of a mirrored cache, member 0.
    Cache,
    /// Member 1 of a mirrored cache.
    Mirror,
    /// An origin.
    Origin(OriginId),
}

/// What a device is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read into the span.
    Read,
    /// Write from the span.
    Write,
    /// Make all writes completed before this one was submitted durable.
    Flush,
    /// Unmap; the content is undefined afterwards.
    Discard,
    /// Zero. The range keeps its space on the device, or gets it.
    Zero,
    /// Zero, and give the range's space back if the device can; it is zeroed in any case.
    Punch,
    /// Write a list of the range's extents ([`crate::put_extents`]) into the span, whose length has
    /// nothing to do with the range's. A hole is told only of what reads as zeroes.
    Map,
}

impl Op {
    /// Whether the range reads as zeroes afterwards.
    #[must_use]
    pub const fn zeroes(self) -> bool {
        matches!(self, Self::Zero | Self::Punch)
    }
}

/// An I/O for the caller to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Comes back with the completion.
    pub token: Token,
    /// Where.
    pub device: DeviceId,
    /// What.
    pub op: Op,
    /// First byte on the device, a multiple of 512 (of 4096 on the cache device).
    pub offset: u64,
    /// Length in bytes, a multiple of 512.
    pub len: u64,
    /// The memory of a read or write, `len` bytes long; or of a map.
    pub span: Option<Span>,
}

/// What an operator may change on a running engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Treat writes to this origin so from now on. Durable in the superblock.
    SetMode {
        /// The origin.
        origin: OriginId,
        /// The new mode.
        mode: Mode,
    },
    /// Change the volumes. Durable in the table of volumes: [`Event::VolumeChanged`] tells when, or
    /// [`Event::VolumeRefused`] why not.
    Volume {
        /// Comes back with the event.
        ticket: u64,
        /// What to do.
        change: Box<VolumeChange>,
    },
    /// At most this many dirty blocks; an excess is destaged at once.
    SetDirtyLimit {
        /// Blocks.
        blocks: u64,
    },
    /// Refuse what clients want to change of this origin, until the next opening: somebody else
    /// writes it now. Reads are answered as before.
    RefuseWrites {
        /// The origin.
        origin: OriginId,
    },
    /// Streams longer than this bypass the cache; 0 = never.
    SetSequentialBypass {
        /// Bytes.
        bytes: u64,
    },
    /// Destage everything at full speed (`true`), or stop doing so. While it lasts new writes
    /// are treated as writethrough, so that it ends. [`Event::Drained`] tells the end.
    Drain(bool),
    /// There is a second device now, whose content doesn't matter: make it the mirror.
    /// [`Event::MirrorWhole`] tells the end. Nothing happens if there are two already.
    AddMirror,
    /// There is a second device now: fill it with all that the cache holds, clean data too, and let
    /// the present one go. [`Event::MemberLeft`] tells the end. If dirty blocks can't be read, the
    /// device becomes the mirror, and [`Event::MirrorWhole`] tells how many.
    Replace,
    /// Let a member of a mirrored cache go: [`Event::MemberLeft`] tells when. If it is the lead,
    /// the other one gets clean data first. That may end with [`Event::MirrorWhole`], as in
    /// [`Control::Replace`].
    RemoveMember {
        /// 0 or 1.
        member: u8,
    },
    /// Let the other member of a mirrored cache lead, and the lead mirror it. The new lead gets
    /// clean data first. [`Event::MemberLeads`] tells the end, or [`Event::MirrorWhole`], as in
    /// [`Control::Replace`].
    PromoteMember {
        /// 0 or 1: the one that is to lead.
        member: u8,
    },
    /// End the copying to a new device, or of a lead that is to leave, as long as that goes. The
    /// cache stays on the devices where it is.
    EndCopying,
    /// Empty the end of the log, so that the cache can be made smaller. Each lane keeps so many
    /// segments; `None`: all. [`Status::left_in_end`](crate::Status::left_in_end) tells how far
    /// that is. Nothing of this is durable.
    Vacate {
        /// Segments of each lane.
        keep_segments: Option<u32>,
        /// The dirty limit of the smaller cache, which comes into force as more is destaged;
        /// `None`: the limit that was set.
        dirty_limit_blocks: Option<u64>,
    },
    /// The answer to [`Event::FailureUnmarked`]: whether it is remembered durably that this cache
    /// must not be replayed. If not, writes of cached blocks and FLUSH fail, since a replay would
    /// undo what they promise.
    FailureRecorded {
        /// The record is durable.
        durable: bool,
    },
    /// Clients are about to leave: from now on no request is kept waiting for an origin that
    /// refuses its dirty data, or answers nothing. A write that found no room below the dirty limit
    /// fails with [`RequestError::Stopping`]. So does a write that waits until the blocks that it
    /// replaces are destaged.
    LetClientsGo,
    /// A device that hung ([`DeviceError::TimedOut`]) answers again: what waited for that is tried
    /// at once.
    Answers {
        /// Which.
        device: DeviceId,
    },
    /// The answer to [`Event::Replayed`].
    GoOn {
        /// Forget every clean block, because an origin was changed behind our back.
        drop_clean: bool,
    },
    /// Finish what is in flight, make everything durable, write a checkpoint, then emit
    /// [`Event::Stopped`]. Requests are refused from now on.
    Stop,
}

/// What the caller tells the engine.
#[derive(Clone, Debug)]
pub enum Input {
    /// A client asks.
    Request(Request),
    /// An I/O ended.
    IoDone {
        /// Which.
        token: Token,
        /// How.
        result: Result<(), DeviceError>,
    },
    /// An operator asks.
    Control(Control),
    /// The time of [`crate::Engine::next_timer`] has come (harmless at any other time).
    Timer,
}

/// What the engine wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Carry out this I/O and report [`Input::IoDone`].
    Io(Io),
    /// Answer the client.
    Reply {
        /// Which request.
        id: RequestId,
        /// How it went.
        result: Result<(), RequestError>,
        /// What it was.
        answered: Answered,
    },
    /// Tell the operator.
    Event(Event),
}

/// A list of effects, in the order they are wanted. Reused by the caller between calls.
#[derive(Debug, Default)]
pub struct Effects(pub Vec<Effect>);
