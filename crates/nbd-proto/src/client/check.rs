// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which requests a server takes, by what it has told of its export.

use super::error::Misuse;
use super::handshake::Opened;
use crate::request::{Ask, Request};
use crate::wire::{Replies, export_flag};

/// Whether the server takes a request.
pub(super) fn check(request: &Request, opened: &Opened) -> Result<(), Misuse> {
    let Request { ask, offset, len, fua, .. } = *request;
    let Opened { info, replies, contexts } = opened;
    let chunks = *replies != Replies::Simple;
    let offered = match ask {
        Ask::Read { whole } => !whole || (chunks && info.can(export_flag::SEND_DF)),
        Ask::Cache => info.can(export_flag::SEND_CACHE),
        Ask::Write => true,
        Ask::Flush => info.can(export_flag::SEND_FLUSH),
        Ask::Trim => info.can(export_flag::SEND_TRIM),
        Ask::Zeroes { fast, .. } => {
            info.can(export_flag::SEND_WRITE_ZEROES) && (!fast || info.can(export_flag::SEND_FAST_ZERO))
        }
        Ask::Status { .. } => chunks && !contexts.is_empty(),
    };
    if ask.changes() && info.read_only() {
        return Err(Misuse::ReadOnly);
    }
    if !offered || (fua && !info.can(export_flag::SEND_FUA)) {
        return Err(Misuse::NotOffered);
    }
    if ask == Ask::Flush {
        return if offset == 0 && len == 0 { Ok(()) } else { Err(Misuse::Range) };
    }
    if len == 0 || offset.checked_add(len).is_none_or(|end| end > info.size_bytes) {
        return Err(Misuse::Range);
    }
    if !info.sizes.are_kept_by(offset, len) {
        return Err(Misuse::Unaligned(info.sizes.minimum));
    }
    let payload = matches!(ask, Ask::Read { .. } | Ask::Cache | Ask::Write);
    let most = match replies {
        _ if payload => info.sizes.maximum.into(),
        Replies::Extended => u64::MAX,
        Replies::Simple | Replies::Structured => u32::MAX.into(),
    };
    if len > most { Err(Misuse::TooLong(most)) } else { Ok(()) }
}
