// SPDX-License-Identifier: MIT OR Apache-2.0
//! An export as a server offers it, and the terms under which a client has opened it.

use crate::sizes::BlockSizes;
use crate::wire::{Replies, export_flag};

/// A disk that clients can open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name that clients ask for. The empty name means the only export, if there is one only.
    pub name: String,
    /// The description for people.
    pub description: String,
    /// The size.
    pub size_bytes: u64,
    /// Flags of [`export_flag`]: what it can do. HAS_FLAGS, SEND_DF and BLOCK_STATUS_PAYLOAD are
    /// added where they belong. A command without its flag is refused.
    pub flags: u16,
    /// The block sizes. A client that does not ask for them may have longer requests.
    pub sizes: BlockSizes,
}

impl Export {
    /// The flags that a client with such replies is told.
    pub(crate) fn told_flags(&self, replies: Replies) -> u16 {
        let flags = self.flags | export_flag::HAS_FLAGS;
        match replies {
            Replies::Simple => flags,
            Replies::Structured => flags | export_flag::SEND_DF,
            Replies::Extended => flags | export_flag::SEND_DF | export_flag::BLOCK_STATUS_PAYLOAD,
        }
    }
}

/// The terms that client and server have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Agreed {
    pub(crate) replies: Replies,
    /// The client has asked for the block sizes, so it keeps to them.
    pub(crate) sized: bool,
    /// The client may ask what is allocated.
    pub(crate) allocation: bool,
}

/// An opened export: what requests are judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Terms {
    pub(crate) agreed: Agreed,
    pub(crate) size_bytes: u64,
    pub(crate) flags: u16,
    pub(crate) sizes: BlockSizes,
}

impl Terms {
    pub(crate) fn new(export: &Export, agreed: Agreed) -> Self {
        Self { agreed, size_bytes: export.size_bytes, flags: export.flags, sizes: export.sizes }
    }

    pub(crate) fn can(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// The export of that name; the empty name is the only one, if there is only one.
pub(crate) fn find(exports: &[Export], name: &[u8]) -> Option<usize> {
    let named = exports.iter().position(|export| export.name.as_bytes() == name);
    named.or_else(|| (name.is_empty() && exports.len() == 1).then_some(0))
}
