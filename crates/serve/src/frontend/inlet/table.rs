// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of one front-end that are at the engine, and their buffers.
//!
//! A place in the table names the request in the engine's ids. It is reused only when the engine
//! owes nothing for it, so an id needs no generation. A request that would wait for its origin
//! needs a buffer of those for such requests. Where there is none it is parked: it holds its place,
//! and no buffer.

use std::collections::VecDeque;

use flashfront_device::Share;
use flashfront_engine::{
    Buf, Lba, Memory, OriginId, Request, RequestError, RequestId, RequestOp, SECTOR_BYTES, Span, Time,
};

use super::super::{Core, export_of};
use super::parts::{PARTS_MAX, Part, parts};
use super::{Ask, BYTES_MAX, REQUESTS_MAX};

/// Bits of an id that name the part.
const PART_BITS: u32 = 2;
const _: () = assert!(PARTS_MAX <= 1 << PART_BITS);

/// How often parked requests are looked at once more, and how many of them at a time.
const RETRY_NS: u64 = 5_000_000;
const RETRIES: usize = 16;

/// A request at the engine, or parked.
#[derive(Debug)]
struct Taken<A> {
    /// The request; none: the place is free.
    ask: Option<A>,
    /// The parts, and the buffers of those with payload.
    parts: Vec<(Part, Option<Buf>)>,
    unanswered: u32,
    /// The first failure.
    error: Option<RequestError>,
    /// A part was refused: all of it has to wait for its origin, without buffers.
    refused: bool,
    since: Time,
}

/// The requests.
#[derive(Debug)]
pub(in crate::frontend) struct Table<A> {
    places: Vec<Taken<A>>,
    free: Vec<u32>,
    /// Requests with all parts answered. The client is told at the end of the turn, when new I/O is
    /// on its way.
    finished: Vec<u32>,
    held_bytes: u64,
    /// Requests that wait for buffers of requests that may wait, first come first served.
    parked: VecDeque<u32>,
    /// When some of these are looked at once more: what they ask for may have come into the cache
    /// meanwhile.
    retry_at: Option<Time>,
}

impl<A> Default for Table<A> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
            finished: Vec::new(),
            held_bytes: 0,
            parked: VecDeque::new(),
            retry_at: None,
        }
    }
}

impl<A: Ask> Table<A> {
    /// The engine was not asked for a part that would have to wait.
    pub(in crate::frontend) fn refused(&mut self, id: RequestId) {
        self.places[(id.0 >> PART_BITS) as usize].refused = true;
        self.reply(id, Ok(()));
    }

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

    /// Answers requests that the engine has answered.
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
        let found = export_of(core.exports(), want.origin);
        let found = found.and_then(|export| Some((export.origin, parts(&want, export)?)));
        let Some((origin, parts)) = found else {
            ask.answer(Err(RequestError::Invalid));
            return None;
        };
        if self.free.is_empty() && self.places.len() >= REQUESTS_MAX {
            return Some(ask);
        }
        let bytes: u64 = parts.iter().map(buf_bytes).sum();
        // Beyond half of the bytes that may be held only requests that end by themselves go on.
        let much = self.held_bytes > 0 && self.held_bytes + bytes > BYTES_MAX / 2;
        let Some(parts) = self.buffers(&parts, much.then_some(Share::Passing), origin, core) else {
            return Some(ask);
        };
        if want.op == RequestOp::Write {
            let filled = fill(&mut ask, &parts, core.memory());
            if let Err(error) = filled {
                self.give_back(&parts, core);
                ask.answer(Err(error));
                return None;
            }
            // If it may be refused its payload is wanted once more.
            if parts.iter().filter_map(|(_, buf)| *buf).all(|buf| core.may_wait(buf)) {
                ask.taken();
            }
        }
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Taken { ask: None, parts: Vec::new(), unanswered: 0, error: None, refused: false, since });
            self.places.len() as u32 - 1
        });
        self.begin(at, Some(ask), parts, origin, since, core);
        None
    }

    /// Hands a request to the engine.
    fn begin(
        &mut self,
        at: u32,
        ask: Option<A>,
        parts: Vec<(Part, Option<Buf>)>,
        origin: OriginId,
        since: Time,
        core: &mut dyn Core,
    ) {
        let fua = ask.as_ref().is_some_and(|ask| ask.want().fua);
        for (nth, (part, buf)) in parts.iter().enumerate() {
            core.submit(Request {
                id: RequestId(u64::from(at) << PART_BITS | nth as u64),
                origin,
                op: part.op,
                lba: Lba(part.offset / SECTOR_BYTES),
                sectors: part.len / SECTOR_BYTES,
                buf: *buf,
                fua,
                since,
                continues: nth > 0,
            });
        }
        let unanswered = parts.len() as u32;
        self.places[at as usize] = Taken { ask, parts, unanswered, error: None, refused: false, since };
    }

    /// Lets parked requests go on, as far as there are buffers for them. True if one does.
    pub(in crate::frontend) fn resume(&mut self, now: Time, core: &mut dyn Core) -> bool {
        let (mut begun, mut without) = (false, Vec::new());
        for _ in 0..self.parked.len() {
            let Some(at) = self.parked.pop_front() else { break };
            let origin = self.origin_of(at);
            if without.contains(&origin) || !self.try_again(at, Share::Waiting, origin, core) {
                without.push(origin);
                self.parked.push_back(at);
            } else {
                begun = true;
            }
        }
        if self.parked.is_empty() {
            self.retry_at = None;
        } else if now >= *self.retry_at.get_or_insert(now.plus_ns(RETRY_NS)) {
            self.retry_at = Some(now.plus_ns(RETRY_NS));
            for _ in 0..RETRIES.min(self.parked.len()) {
                let Some(at) = self.parked.pop_front() else { break };
                let origin = self.origin_of(at);
                if self.try_again(at, Share::Passing, origin, core) {
                    begun = true;
                } else {
                    self.parked.push_back(at);
                }
            }
        }
        begun
    }

    /// When [`Table::resume`] wants to be called at the latest.
    pub(in crate::frontend) fn next_timer(&self) -> Option<Time> {
        self.retry_at
    }

    fn origin_of(&self, at: u32) -> OriginId {
        self.places[at as usize].ask.as_ref().map_or(OriginId(0), |ask| ask.want().origin)
    }

    fn try_again(&mut self, at: u32, share: Share, origin: OriginId, core: &mut dyn Core) -> bool {
        let parts: Vec<Part> = self.places[at as usize].parts.iter().map(|(part, _)| *part).collect();
        let Some(parts) = self.buffers(&parts, Some(share), origin, core) else { return false };
        let Some(mut ask) = self.places[at as usize].ask.take() else { return false };
        let filled = if ask.want().op == RequestOp::Write { fill(&mut ask, &parts, core.memory()) } else { Ok(()) };
        if let Err(error) = filled {
            self.give_back(&parts, core);
            ask.answer(Err(error));
            self.free.push(at);
        } else {
            let since = self.places[at as usize].since;
            self.begin(at, Some(ask), parts, origin, since, core);
        }
        true
    }

    /// Takes all buffers or none: two requests with half of theirs would wait for each other.
    fn buffers(
        &mut self,
        parts: &[Part],
        share: Option<Share>,
        origin: OriginId,
        core: &mut dyn Core,
    ) -> Option<Vec<(Part, Option<Buf>)>> {
        let bytes: u64 = parts.iter().map(buf_bytes).sum();
        let most = if share == Some(Share::Waiting) { BYTES_MAX / 2 } else { BYTES_MAX };
        if self.held_bytes > 0 && self.held_bytes + bytes > most {
            return None;
        }
        let mut all = Vec::with_capacity(parts.len());
        for part in parts {
            let buf = match buf_bytes(part) {
                0 => None,
                bytes => match alloc(core, share, bytes as u32, origin) {
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
        if place.refused && place.error.is_none() {
            let mut parts = std::mem::take(&mut place.parts);
            self.give_back(&parts, core);
            parts.iter_mut().for_each(|(_, buf)| *buf = None);
            self.places[at as usize].parts = parts;
            return self.parked.push_back(at);
        }
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
        self.give_back(&parts, core);
        self.free.push(at);
    }

    fn give_back(&mut self, parts: &[(Part, Option<Buf>)], core: &mut dyn Core) {
        for (part, buf) in parts {
            if let Some(buf) = buf {
                self.held_bytes -= buf_bytes(part);
                core.free(*buf);
            }
        }
    }
}

/// A buffer of one share, or of any that may be had.
fn alloc(core: &mut dyn Core, share: Option<Share>, bytes: u32, origin: OriginId) -> Option<Buf> {
    match share {
        Some(share) => core.alloc_of(share, bytes, origin),
        None => core.alloc(bytes, origin),
    }
}

/// The bytes of a part's buffer; 0: it has none.
fn buf_bytes(part: &Part) -> u64 {
    part.payload().map_or(0, |piece| u64::from(piece.buf_bytes()))
}

/// The place of a part's payload.
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
