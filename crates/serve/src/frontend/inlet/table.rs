// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of one front-end that are at the engine, and what they hold.
//!
//! A place in the table names the request in the engine's ids; it is reused only when the engine owes
//! nothing for it, so an id needs no generation.

use flashfront_engine::{Buf, Lba, Memory, Request, RequestError, RequestId, RequestOp, SECTOR_BYTES, Span};

use super::super::Core;
use super::parts::{PARTS_MAX, Part, parts};
use super::{Ask, BYTES_MAX, REQUESTS_MAX};

/// Bits of an id that name the part.
const PART_BITS: u32 = 2;
const _: () = assert!(PARTS_MAX <= 1 << PART_BITS);

/// A request at the engine.
#[derive(Debug)]
struct Place<A> {
    /// Nobody's: the place is free.
    ask: Option<A>,
    /// Its parts, and the buffers of those with payload.
    parts: Vec<(Part, Option<Buf>)>,
    unanswered: u32,
    /// The first failure.
    error: Option<RequestError>,
}

/// The requests.
#[derive(Debug)]
pub(in crate::frontend) struct Table<A> {
    places: Vec<Place<A>>,
    free: Vec<u32>,
    /// All parts are answered; the client is told at the end of the turn, when new I/O is on its way.
    finished: Vec<u32>,
    held_bytes: u64,
}

impl<A> Default for Table<A> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new(), finished: Vec::new(), held_bytes: 0 }
    }
}

impl<A: Ask> Table<A> {
    /// The engine has answered a part.
    pub(in crate::frontend) fn reply(&mut self, id: RequestId, result: Result<(), RequestError>) {
        let at = (id.0 >> PART_BITS) as u32;
        let place = &mut self.places[at as usize];
        debug_assert!(place.unanswered > 0, "a reply to nobody: {id:?}");
        place.unanswered -= 1;
        if let Err(error) = result {
            place.error.get_or_insert(error);
        }
        if place.unanswered == 0 {
            self.finished.push(at);
        }
    }

    /// Answers those that the engine has answered.
    pub(in crate::frontend) fn answer(&mut self, core: &mut dyn Core) {
        while let Some(at) = self.finished.pop() {
            self.finish(at, core);
        }
    }

    /// Whether all are answered.
    pub(in crate::frontend) fn is_empty(&self) -> bool {
        self.places.len() == self.free.len()
    }

    /// Starts a request; gives it back if it must wait.
    pub(in crate::frontend) fn accept(&mut self, mut ask: A, core: &mut dyn Core) -> Option<A> {
        let (want, since) = (ask.want(), ask.since(core));
        let found = core.exports().get(want.export).and_then(|export| Some((export.origin, parts(&want, export)?)));
        let Some((origin, parts)) = found else {
            ask.answer(Err(RequestError::Invalid));
            return None;
        };
        if self.free.is_empty() && self.places.len() >= REQUESTS_MAX {
            return Some(ask);
        }
        let Some(parts) = self.buffers(&parts, core) else {
            return Some(ask);
        };
        if want.op == RequestOp::Write {
            let filled = fill(&mut ask, &parts, core.memory());
            ask.taken();
            if let Err(error) = filled {
                self.give_back(parts, core);
                ask.answer(Err(error));
                return None;
            }
        }
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { ask: None, parts: Vec::new(), unanswered: 0, error: None });
            self.places.len() as u32 - 1
        });
        for (nth, (part, buf)) in parts.iter().enumerate() {
            let id = RequestId(u64::from(at) << PART_BITS | nth as u64);
            core.submit(Request {
                id,
                origin,
                op: part.op,
                lba: Lba(part.offset / SECTOR_BYTES),
                sectors: part.len / SECTOR_BYTES,
                buf: *buf,
                fua: want.fua,
                since,
            });
        }
        let unanswered = parts.len() as u32;
        self.places[at as usize] = Place { ask: Some(ask), parts, unanswered, error: None };
        None
    }

    /// All buffers or none: two requests with half of theirs would wait for each other.
    fn buffers(&mut self, parts: &[Part], core: &mut dyn Core) -> Option<Vec<(Part, Option<Buf>)>> {
        let bytes: u64 = parts.iter().map(buf_bytes).sum();
        if self.held_bytes > 0 && self.held_bytes + bytes > BYTES_MAX {
            return None;
        }
        let mut all = Vec::with_capacity(parts.len());
        for part in parts {
            let buf = match buf_bytes(part) {
                0 => None,
                bytes => match core.alloc(bytes as u32) {
                    None => {
                        all.drain(..).filter_map(|(_, buf)| buf).for_each(|buf| core.put_back(buf));
                        return None;
                    }
                    some => some,
                },
            };
            all.push((*part, buf));
        }
        self.held_bytes += bytes;
        Some(all)
    }

    fn finish(&mut self, at: u32, core: &mut dyn Core) {
        let place = &mut self.places[at as usize];
        let (ask, parts) = (place.ask.take(), std::mem::take(&mut place.parts));
        if let Some(ask) = ask {
            let result = place.error.map_or(Ok(()), Err);
            let (memory, mut data): (&dyn Memory, [&[u8]; PARTS_MAX]) = (core.memory(), [&[]; PARTS_MAX]);
            let mut count = 0;
            if ask.want().op == RequestOp::Read {
                for span in parts.iter().filter_map(span) {
                    data[count] = memory.bytes(span);
                    count += 1;
                }
            }
            ask.answer(result.map(|()| &data[..count]));
        }
        self.give_back(parts, core);
        self.free.push(at);
    }

    fn give_back(&mut self, parts: Vec<(Part, Option<Buf>)>, core: &mut dyn Core) {
        self.held_bytes -= parts.iter().map(|(part, _)| buf_bytes(part)).sum::<u64>();
        parts.into_iter().filter_map(|(_, buf)| buf).for_each(|buf| core.free(buf));
    }
}

/// What the buffer of a part takes; 0 = it has none.
fn buf_bytes(part: &Part) -> u64 {
    part.payload().map_or(0, |piece| u64::from(piece.buf_bytes()))
}

/// Where the payload of a part is.
fn span((part, buf): &(Part, Option<Buf>)) -> Option<Span> {
    let (piece, buf) = (part.payload()?, (*buf)?);
    Some(Span::new(buf, piece.buf_offset(), piece.len))
}

fn fill<A: Ask>(ask: &mut A, parts: &[(Part, Option<Buf>)], memory: &mut dyn Memory) -> Result<(), RequestError> {
    let mut at = 0;
    for span in parts.iter().filter_map(span) {
        ask.fill(at, memory.bytes_mut(span))?;
        at += span.len as usize;
    }
    Ok(())
}
