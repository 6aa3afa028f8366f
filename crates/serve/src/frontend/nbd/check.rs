// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which requests are in order: by the rules of the protocol, and of the export.
//!
//! Everything that reaches the engine has passed here, so the rest of the front-end may count on
//! ranges that are inside the export, aligned, not empty and not too long.

use flashfront_engine::RequestOp;

use super::super::Export;
use super::PAYLOAD_BYTES_MAX;
use super::wire::{Errno, RequestHeader, command, command_flag};

/// Judges a request by the rules of the protocol and of the export.
pub(super) fn check(header: &RequestHeader, export: &Export, structured: bool) -> Result<RequestOp, Errno> {
    let (op, flags, past_end) = match header.command {
        command::READ => {
            let flags = if structured { command_flag::DF } else { 0 };
            (RequestOp::Read, flags, Errno::EINVAL)
        }
        command::WRITE => (RequestOp::Write, 0, Errno::ENOSPC),
        command::FLUSH => (RequestOp::Flush, 0, Errno::EINVAL),
        command::TRIM => (RequestOp::Discard, 0, Errno::EINVAL),
        command::WRITE_ZEROES => {
            let may_discard = header.flags & command_flag::NO_HOLE == 0;
            (RequestOp::WriteZeroes { may_discard }, command_flag::NO_HOLE, Errno::ENOSPC)
        }
        command::CACHE => return Err(Errno::ENOTSUP),
        _ => return Err(Errno::EINVAL),
    };
    // FUA is allowed with every command, and means nothing to a read.
    if header.flags & !(flags | command_flag::FUA) != 0 {
        return Err(Errno::EINVAL);
    }
    if op == RequestOp::Flush {
        return if header.offset == 0 && header.len == 0 { Ok(op) } else { Err(Errno::EINVAL) };
    }
    if export.read_only && op != RequestOp::Read {
        return Err(Errno::EPERM);
    }
    let block = u64::from(export.block_bytes);
    let len = u64::from(header.len);
    let payload = matches!(op, RequestOp::Read | RequestOp::Write);
    let too_long = payload && header.len > PAYLOAD_BYTES_MAX;
    if len == 0 || !header.offset.is_multiple_of(block) || !len.is_multiple_of(block) || too_long {
        return Err(Errno::EINVAL);
    }
    match header.offset.checked_add(len) {
        Some(end) if end <= export.size_bytes => Ok(op),
        _ => Err(past_end),
    }
}
