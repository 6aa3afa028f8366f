// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of the volumes that are wanted, and the one that is under way.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use flashfront_device::Device;
use flashfront_device::real::DeviceFile;
use flashfront_engine::format::Shares;
use flashfront_engine::{DirtyOnRemove, Mode, OriginId};

use super::error::VolumesError;
use super::open::Opened;
use crate::config::{SharesAsked, Volume};
use crate::control;
use crate::frontend::{Export, Frontend};

/// A volume that an operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Wanted {
    pub(in crate::daemon) name: String,
    pub(in crate::daemon) origin: PathBuf,
    pub(in crate::daemon) mode: Mode,
    pub(in crate::daemon) read_only: bool,
    pub(in crate::daemon) shares: SharesAsked,
}

/// The channel for the answer; none: only the log tells it.
pub(super) type Reply = Option<control::Reply>;

/// A change of the volumes that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Order {
    Add(Wanted),
    Remove { name: String, dirty: DirtyOnRemove, disconnect: bool },
    Rename { name: String, to: String },
    SetReadOnly { name: String, read_only: bool },
    SetShares { name: String, shares: SharesAsked },
    Grow { name: String },
}

/// An origin that a thread opens.
pub(super) struct Opening {
    pub(super) wanted: Wanted,
    pub(super) opened: Receiver<Result<Opened, VolumesError>>,
    pub(super) reply: Reply,
}

/// A volume whose origin is asked by a thread how large it is.
pub(super) struct Sizing {
    pub(super) name: String,
    pub(super) id: OriginId,
    pub(super) size_bytes: Receiver<Result<u64, VolumesError>>,
    pub(super) reply: Reply,
}

/// A change that the engine has been asked for.
pub(super) struct Asked {
    pub(super) ticket: u64,
    pub(super) what: What,
    pub(super) reply: Reply,
}

/// What to do when the engine has made it.
pub(super) enum What {
    Add(Box<Coming>),
    Remove { id: OriginId, export: Option<Export>, dirty: DirtyOnRemove, blocks: u64 },
    Rename { id: OriginId, to: String },
    SetReadOnly { id: OriginId, read_only: bool },
    SetShares { id: OriginId, from: Shares, to: Shares },
    Grow { id: OriginId, from_bytes: u64, to_bytes: u64 },
}

/// A volume that is served as soon as the cache has it.
pub(super) struct Coming {
    pub(super) volume: Volume,
    pub(super) file: Arc<DeviceFile>,
    pub(super) device: Box<dyn Device>,
    pub(super) export: Export,
    pub(super) frontends: Vec<Box<dyn Frontend>>,
}

/// The changes that are wanted, and the one that is under way.
#[derive(Default)]
pub(in crate::daemon) struct Volumes {
    pub(super) queue: VecDeque<(Order, Reply)>,
    /// An origin that is being opened.
    pub(super) opening: Option<Opening>,
    pub(super) sizing: Option<Sizing>,
    pub(super) asked: Option<Asked>,
    pub(super) tickets: u64,
}

impl Volumes {
    /// The place of a volume whose dirty blocks are destaged before it goes: that takes a while.
    pub(super) fn destaging(&self) -> Option<OriginId> {
        match self.asked.as_ref()?.what {
            What::Remove { id, dirty: DirtyOnRemove::Destage, blocks: 1.., .. } => Some(id),
            _ => None,
        }
    }

    /// A change comes behind those that wait.
    pub(in crate::daemon) fn order(&mut self, order: Order, reply: Reply) {
        self.queue.push_back((order, reply));
    }

    /// Gives up waiting; operators get no answer.
    pub(in crate::daemon) fn give_up(&mut self) {
        *self = Self { tickets: self.tickets, ..Self::default() };
    }

    /// The volume that is being removed, if one is.
    pub(in crate::daemon) fn leaving(&self) -> Option<OriginId> {
        match self.asked.as_ref()?.what {
            What::Remove { id, .. } => Some(id),
            What::Add(_)
            | What::Rename { .. }
            | What::SetReadOnly { .. }
            | What::SetShares { .. }
            | What::Grow { .. } => None,
        }
    }

    pub(in crate::daemon) fn is_busy(&self) -> bool {
        self.opening.is_some() || self.sizing.is_some() || self.asked.is_some()
    }
}
