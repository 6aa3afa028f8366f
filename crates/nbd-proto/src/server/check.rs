// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that requests are in order: by the rules of the protocol, and of the export.
//!
//! A request that has passed has a range inside the export, not empty and not too long. Any byte
//! may be its first or last one, as far as the block sizes allow.

use super::export::Terms;
use crate::request::Ask;
use crate::wire::{Errno, Replies, RequestHeader, command, command_flag, export_flag};

/// Why a request is refused, or has failed: for programs, and for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub Errno, pub &'static str);

impl Refusal {
    const FLAG: Self = Self(Errno::EINVAL, "this command has no such flag");
    const OUTSIDE: Self = Self(Errno::EINVAL, "the range ends behind the last byte of the export");
    const TOO_LONG: Self = Self(Errno::EINVAL, "the range is longer than the maximum block size");
    const UNKNOWN: Self = Self(Errno::EINVAL, "this server knows no such command");
}

/// Returns the operation of a header, or its fault.
pub(crate) fn check(header: &RequestHeader, terms: &Terms) -> Result<Ask, Refusal> {
    let (ask, flags) = ask_of(header, terms)?;
    // FUA is allowed with every command, and means nothing to a read.
    let fua = if terms.can(export_flag::SEND_FUA) { command_flag::FUA } else { 0 };
    if header.flags & !(flags | fua) != 0 {
        return Err(Refusal::FLAG);
    }
    if ask == Ask::Flush {
        let sound = header.offset == 0 && header.len == 0;
        return if sound { Ok(ask) } else { Err(Refusal(Errno::EINVAL, "a flush has no range")) };
    }
    if terms.can(export_flag::READ_ONLY) && ask.changes() {
        return Err(Refusal(Errno::EPERM, "this export is read-only"));
    }
    range(header, ask, terms)?;
    match ask {
        Ask::Read { whole: true } if header.len > terms.sizes.maximum.into() => {
            Err(Refusal(Errno::EOVERFLOW, "the range is too long for one chunk"))
        }
        _ => Ok(ask),
    }
}

/// The command, and the flags that it may have.
fn ask_of(header: &RequestHeader, terms: &Terms) -> Result<(Ask, u16), Refusal> {
    let replies = terms.agreed.replies;
    let needs = |flag: u16| if terms.can(flag) { Ok(()) } else { Err(Refusal::UNKNOWN) };
    let has = |flag: u16| header.flags & flag != 0;
    match header.command {
        command::READ => {
            let flags = if replies == Replies::Simple { 0 } else { command_flag::DF };
            Ok((Ask::Read { whole: has(command_flag::DF) }, flags))
        }
        command::WRITE => Ok((Ask::Write, if replies == Replies::Extended { command_flag::PAYLOAD_LEN } else { 0 })),
        command::FLUSH => needs(export_flag::SEND_FLUSH).map(|()| (Ask::Flush, 0)),
        command::TRIM => needs(export_flag::SEND_TRIM).map(|()| (Ask::Trim, 0)),
        command::WRITE_ZEROES => {
            needs(export_flag::SEND_WRITE_ZEROES)?;
            let ask = Ask::Zeroes { may_discard: !has(command_flag::NO_HOLE), fast: has(command_flag::FAST_ZERO) };
            let fast = if terms.can(export_flag::SEND_FAST_ZERO) { command_flag::FAST_ZERO } else { 0 };
            Ok((ask, command_flag::NO_HOLE | fast))
        }
        command::CACHE => needs(export_flag::SEND_CACHE).map(|()| (Ask::Cache, 0)),
        command::BLOCK_STATUS if terms.agreed.allocation => {
            Ok((Ask::Status { one: has(command_flag::REQ_ONE) }, command_flag::REQ_ONE))
        }
        command::BLOCK_STATUS => Err(Refusal(Errno::EINVAL, "no metadata context was selected for this export")),
        _ => Err(Refusal::UNKNOWN),
    }
}

fn range(header: &RequestHeader, ask: Ask, terms: &Terms) -> Result<(), Refusal> {
    if header.len == 0 {
        return Err(Refusal(Errno::EINVAL, "the range is empty"));
    }
    let most = if terms.agreed.sized { terms.sizes.maximum } else { u32::MAX };
    if matches!(ask, Ask::Read { .. } | Ask::Cache | Ask::Write) && header.len > most.into() {
        return Err(Refusal::TOO_LONG);
    }
    let end = header.offset.checked_add(header.len);
    if end.is_none_or(|end| end > terms.size_bytes) {
        let grows = matches!(ask, Ask::Write | Ask::Zeroes { .. });
        return Err(if grows { Refusal(Errno::ENOSPC, Refusal::OUTSIDE.1) } else { Refusal::OUTSIDE });
    }
    if !terms.sizes.are_kept_by(header.offset, header.len) {
        return Err(Refusal(Errno::EINVAL, "the range does not keep to the minimum block size"));
    }
    Ok(())
}
