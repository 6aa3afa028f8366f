// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which requests are in order: by the rules of the protocol, and of the export.
//!
//! Everything that reaches the engine has passed here, so the rest of the front-end may count on
//! ranges that are inside the export, not empty and not too long. Any byte may be their first or
//! last one.

use super::super::Export;
use super::PAYLOAD_BYTES_MAX;
use super::handshake::Agreed;
use super::wire::{Errno, Replies, RequestHeader, command, command_flag};

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Read {
        /// The answer is to be one chunk.
        whole: bool,
    },
    /// Read into the cache.
    Cache,
    Write,
    Flush,
    Trim,
    Zeroes {
        may_discard: bool,
    },
    Status {
        /// Whether a single extent is all that is wanted.
        one: bool,
    },
}

/// Why a request is refused, or has failed: for programs, and for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal(pub(super) Errno, pub(super) &'static str);

impl Refusal {
    const FLAG: Self = Self(Errno::EINVAL, "this command has no such flag");
    const OUTSIDE: Self = Self(Errno::EINVAL, "the range ends behind the last byte of the export");
    const TOO_LONG: Self = Self(Errno::EINVAL, "the range is longer than the maximum block size");
}

/// Judges a request by the rules of the protocol and of the export.
pub(super) fn check(header: &RequestHeader, export: &Export, agreed: Agreed) -> Result<Ask, Refusal> {
    let structured = agreed.replies != Replies::Simple;
    let (ask, flags) = match header.command {
        command::READ => {
            let whole = header.flags & command_flag::DF != 0;
            (Ask::Read { whole }, if structured { command_flag::DF } else { 0 })
        }
        command::WRITE => (Ask::Write, if agreed.replies == Replies::Extended { command_flag::PAYLOAD_LEN } else { 0 }),
        command::FLUSH => (Ask::Flush, 0),
        command::TRIM => (Ask::Trim, 0),
        command::WRITE_ZEROES => {
            let may_discard = header.flags & command_flag::NO_HOLE == 0;
            (Ask::Zeroes { may_discard }, command_flag::NO_HOLE | command_flag::FAST_ZERO)
        }
        command::CACHE => (Ask::Cache, 0),
        command::BLOCK_STATUS if agreed.allocation => {
            let one = header.flags & command_flag::REQ_ONE != 0;
            (Ask::Status { one }, command_flag::REQ_ONE)
        }
        command::BLOCK_STATUS => {
            return Err(Refusal(Errno::EINVAL, "no metadata context was selected for this export"));
        }
        _ => return Err(Refusal(Errno::EINVAL, "this server knows no such command")),
    };
    // FUA is allowed with every command, and means nothing to a read.
    if header.flags & !(flags | command_flag::FUA) != 0 {
        return Err(Refusal::FLAG);
    }
    if ask == Ask::Flush {
        let sound = header.offset == 0 && header.len == 0;
        return if sound { Ok(ask) } else { Err(Refusal(Errno::EINVAL, "a flush has no range")) };
    }
    let changes = matches!(ask, Ask::Write | Ask::Trim | Ask::Zeroes { .. });
    if export.read_only && changes {
        return Err(Refusal(Errno::EPERM, "this export is read-only"));
    }
    if header.len == 0 {
        return Err(Refusal(Errno::EINVAL, "the range is empty"));
    }
    let most = if agreed.sized { PAYLOAD_BYTES_MAX } else { u32::MAX };
    if matches!(ask, Ask::Read { .. } | Ask::Cache | Ask::Write) && header.len > most.into() {
        return Err(Refusal::TOO_LONG);
    }
    let end = header.offset.checked_add(header.len);
    if end.is_none_or(|end| end > export.size_bytes) {
        let grows = matches!(ask, Ask::Write | Ask::Zeroes { .. });
        return Err(if grows { Refusal(Errno::ENOSPC, Refusal::OUTSIDE.1) } else { Refusal::OUTSIDE });
    }
    match ask {
        Ask::Read { whole: true } if header.len > PAYLOAD_BYTES_MAX.into() => {
            Err(Refusal(Errno::EOVERFLOW, "the range is too long for one chunk"))
        }
        // What is dirty in the range has to be written to the origin before, and nobody knows how
        // long that takes.
        Ask::Zeroes { .. } if header.flags & command_flag::FAST_ZERO != 0 => {
            Err(Refusal(Errno::ENOTSUP, "zeroing may take as long as writing"))
        }
        _ => Ok(ask),
    }
}
