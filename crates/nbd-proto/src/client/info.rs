// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a client wants of a server, and what the server tells it.

use crate::sizes::BlockSizes;
use crate::wire::{Fields, Replies, export_flag, info};

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The name of the export; the empty name is the server's default.
    pub export: String,
    /// All that follows the greeting must be inside TLS. A server without TLS is refused.
    pub tls: bool,
    /// The most that is asked for. The server may agree on less: on [`Replies::Simple`], if it
    /// knows nothing else.
    pub replies: Replies,
    /// Metadata contexts to be selected, like `base:allocation`. There are none with simple
    /// replies.
    pub contexts: Vec<String>,
}

impl Wanted {
    /// An export with all that a server may offer, without TLS.
    #[must_use]
    pub fn all_of(export: &str) -> Self {
        Self {
            export: export.to_owned(),
            tls: false,
            replies: Replies::Extended,
            contexts: vec![String::from("base:allocation")],
        }
    }
}

/// What a server says of its export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Its size.
    pub size_bytes: u64,
    /// The transmission flags ([`export_flag`]).
    pub flags: u16,
    /// The block sizes; [`BlockSizes::UNTOLD`] if the server tells none.
    pub sizes: BlockSizes,
}

impl ExportInfo {
    pub(super) const NONE: Self = Self { size_bytes: 0, flags: 0, sizes: BlockSizes::UNTOLD };

    /// Whether writes are refused.
    #[must_use]
    pub const fn read_only(&self) -> bool {
        self.can(export_flag::READ_ONLY)
    }

    /// Whether several connections see one disk: a FLUSH of one covers the writes of all.
    #[must_use]
    pub const fn can_multi_conn(&self) -> bool {
        self.can(export_flag::CAN_MULTI_CONN)
    }

    /// Whether a transmission flag is set.
    #[must_use]
    pub const fn can(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Notes a piece of information; what is wrong with it, if anything is.
    pub(super) fn note(&mut self, data: &[u8]) -> Result<(), &'static str> {
        const SHORT: &str = "a short answer to GO";
        let mut fields = Fields(data);
        match fields.u16().ok_or(SHORT)? {
            info::EXPORT => {
                self.size_bytes = fields.u64().ok_or(SHORT)?;
                self.flags = fields.u16().ok_or(SHORT)?;
            }
            info::BLOCK_SIZE => {
                let mut size = || fields.u32().ok_or(SHORT);
                self.sizes = BlockSizes { minimum: size()?, preferred: size()?, maximum: size()? };
                if !self.sizes.are_sound() {
                    return Err("block sizes that the protocol does not allow");
                }
            }
            _ => {}
        }
        Ok(())
    }
}
