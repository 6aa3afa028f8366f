// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metadata contexts: which ones a client lists or selects. There is one, `base:allocation`.

use super::export::{Export, find};
use crate::wire::{self, Fields, answer, option};

/// The longest name, or query, by the protocol.
pub(crate) const NAME_BYTES_MAX: usize = 4096;

/// The context, and its number for a client that has selected it.
pub(crate) const ALLOCATION: &[u8] = b"base:allocation";
pub(crate) const ALLOCATION_ID: u32 = 1;
/// The query that lists all contexts of the protocol, and selects none.
const WILDCARD: &[u8] = b"base:";

/// Answers LIST_META_CONTEXT or SET_META_CONTEXT; the export for which the context is selected, if
/// it is.
pub(crate) fn answer_contexts(option: u32, data: &[u8], exports: &[Export], out: &mut Vec<u8>) -> Option<usize> {
    let Some((name, queries)) = parse(data) else {
        wire::encode_answer(out, option, answer::INVALID, b"malformed LIST_META_CONTEXT or SET_META_CONTEXT");
        return None;
    };
    let Some(export) = find(exports, name) else {
        wire::encode_answer(out, option, answer::UNKNOWN, b"no export of that name");
        return None;
    };
    let lists = option == option::LIST_META_CONTEXT;
    let found = match queries.as_slice() {
        [] => lists,
        queries => queries.iter().any(|query| *query == ALLOCATION || (lists && *query == WILDCARD)),
    };
    if found {
        let id: u32 = if lists { 0 } else { ALLOCATION_ID };
        wire::encode_answer(out, option, answer::META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION].concat());
    }
    wire::encode_answer(out, option, answer::ACK, &[]);
    (found && !lists).then_some(export)
}

/// The name of the export and the queries; `None` if malformed. The option is short, so there are
/// not very many.
fn parse(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut fields = Fields(data);
    let name = string(&mut fields)?;
    let count = fields.u32()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(string(&mut fields)?);
    }
    fields.0.is_empty().then_some((name, queries))
}

fn string<'a>(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
    let len = fields.u32()? as usize;
    fields.take(len).filter(|string| string.len() <= NAME_BYTES_MAX)
}
