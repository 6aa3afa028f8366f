// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client's conversation, without its socket: bytes in, requests and bytes out.
//!
//! The caller moves bytes ([`Connection::receive`], [`Connection::transmit`]) and calls
//! [`Connection::advance`] after each; how the bytes were cut on their way makes no difference
//! (test: `any_split_says_the_same`). Payload of a long write is received into its buffer, a
//! short one is copied from the read buffer, which takes many requests with one system call.
//! Held here: one read buffer, at most [`super::REQUESTS_MAX`] requests and
//! [`super::CONNECTION_BYTES_MAX`] of buffers. Where a limit is reached, nothing more is
//! parsed, and the caller must not receive. Requests that wait without buffers are `parked`.

use std::io::{self, IoSlice, IoSliceMut};

use flashfront_device::Share;
use flashfront_engine::{Buf, OriginId, Time};

use super::super::{Core, Export};
use super::check::{Ask, Refusal, check};
use super::content::Segment;
use super::handshake::{Agreed, Handshake, OPTION_BYTES_MAX, Security, Step};
use super::outbox::{Outbox, Sent};
use super::parked::Parks;
use super::payload::{Payload, direct};
use super::pending::Table;
use super::status::{STATUS_PAYLOAD_BYTES, narrow};
use super::wire::{Errno, Replies, RequestHeader, command};
use super::{CONNECTION_BYTES_MAX, PAYLOAD_BYTES_MAX};

/// The read buffer: 31 writes of 4 KiB with one system call. It must hold the longest option.
const INPUT_BYTES: usize = 128 << 10;
const _: () = assert!(INPUT_BYTES >= OPTION_BYTES_MAX as usize + 16);
/// Answers to options that a client may leave unread.
const HANDSHAKE_UNREAD_MAX: usize = 64 << 10;

/// Why a connection does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// For bytes of the client.
    Input,
    /// For its own replies to be made and sent.
    Own,
    /// For buffers.
    Room,
    /// For its replies to be sent, and then for [`Connection::enter_tls`].
    Tls,
    /// For the replies to be sent; then the connection is over.
    End,
}

/// What was received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) bytes: usize,
    /// Whether there was room for more: then the socket is empty.
    pub(super) short: bool,
}

/// Where a conversation is.
#[derive(Debug)]
pub(super) enum Phase {
    Handshake(Handshake),
    /// TLS was asked for; the handshake as it goes on inside.
    StartTls(Handshake),
    Commands,
    Payload(Payload),
    /// A read that is too long to be in memory at once is answered bit by bit, and nothing else
    /// meanwhile.
    Long(u16),
    /// This many bytes of a refused write are still to come.
    Skip(u32),
    Ending,
}

/// A conversation.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) number: u16,
    pub(super) phase: Phase,
    pub(super) export: Option<Export>,
    pub(super) agreed: Agreed,
    pub(super) input: Box<[u8]>,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) table: Table,
    pub(super) outbox: Outbox,
    /// What the read that is being answered consists of; kept for its memory.
    pub(super) segments: Vec<Segment>,
    /// Bytes of buffers held.
    pub(super) held_bytes: u64,
    /// Requests that the engine has not answered.
    pub(super) in_flight: u32,
    /// Requests that wait for an origin and for a buffer first.
    pub(super) parks: Parks,
    /// Bytes of writes at the engine that may be refused: their payload comes back then.
    pub(super) unsure_bytes: u64,
    /// The socket is gone: nothing is sent any more.
    pub(super) dead: bool,
    /// What was taken back from the outbox can't be read again.
    pub(super) broken: bool,
    /// Grows whenever something moves.
    pub(super) progress: u64,
    /// When what is in the read buffer was there to be had.
    pub(super) since: Time,
}

impl Connection {
    /// A new client; its greeting is ready to be sent.
    pub(super) fn new(number: u16, security: Security) -> Self {
        let mut outbox = Outbox::default();
        outbox.say(Handshake::greet);
        Self {
            number,
            phase: Phase::Handshake(Handshake::new(security)),
            export: None,
            agreed: Agreed { replies: Replies::Simple, sized: false, allocation: false },
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            table: Table::default(),
            outbox,
            segments: Vec::new(),
            held_bytes: 0,
            in_flight: 0,
            parks: Parks::default(),
            unsure_bytes: 0,
            dead: false,
            broken: false,
            progress: 0,
            since: Time(0),
        }
    }

    pub(super) fn in_handshake(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_) | Phase::StartTls(_))
    }

    /// All bytes that follow, either way, are inside TLS.
    pub(super) fn enter_tls(&mut self) {
        if let Phase::StartTls(handshake) = self.phase {
            debug_assert!(self.start == self.end && self.outbox.is_empty(), "plain bytes are left");
            self.phase = Phase::Handshake(handshake);
        }
    }

    /// Whether there is something to send.
    pub(super) fn has_output(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether everything is said; the socket may be closed.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ending) && self.table.len() == 0 && self.outbox.is_empty()
    }

    /// Requests at the engine.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Grows whenever bytes or replies move.
    pub(super) fn progress(&self) -> u64 {
        self.progress
    }

    /// Calls `recv` with where the client's next bytes belong. Not after a [`Wait`] other than
    /// [`Wait::Input`].
    pub(super) fn receive(
        &mut self,
        core: &mut dyn Core,
        recv: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<Received> {
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let rest = &mut self.input[self.end..];
        let Some(span) = direct(&self.phase) else {
            let room = rest.len();
            let bytes = recv(&mut [IoSliceMut::new(rest)])?;
            self.since = core.now();
            self.end += bytes;
            self.progress += 1;
            return Ok(Received { bytes, short: bytes < room });
        };
        debug_assert!(self.end == 0, "payload is taken from the read buffer first");
        let room = span.len as usize + rest.len();
        let payload = IoSliceMut::new(core.memory().bytes_mut(span));
        let bytes = recv(&mut [payload, IoSliceMut::new(rest)])?;
        self.since = core.now();
        let direct = bytes.min(span.len as usize);
        if let Phase::Payload(payload) = &mut self.phase {
            payload.received(direct as u32);
        }
        self.end += bytes - direct;
        self.progress += 1;
        Ok(Received { bytes, short: bytes < room })
    }

    /// Acts on what was received, as far as limits allow. `may_alloc`: nobody has waited longer
    /// for buffers.
    pub(super) fn advance(&mut self, core: &mut dyn Core, may_alloc: bool) -> Wait {
        loop {
            if self.parks.any_write() && !matches!(self.phase, Phase::Ending) {
                // Their payload is held here: no more of it until they are at the engine.
                return Wait::Own;
            }
            let wait = match self.phase {
                Phase::Handshake(_) => self.handshake(core),
                Phase::StartTls(_) => Some(Wait::Tls),
                Phase::Commands => self.command(core, may_alloc),
                Phase::Payload(payload) => self.payload(payload, core, may_alloc),
                Phase::Long(place) => self.go_on(place, core, may_alloc),
                Phase::Skip(left) => self.skip(left),
                Phase::Ending => Some(Wait::End),
            };
            if let Some(wait) = wait {
                return wait;
            }
        }
    }

    /// Calls `send` with what is next; tells whether all of it was taken.
    pub(super) fn transmit(
        &mut self,
        core: &mut dyn Core,
        send: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        let (bytes, offered) = self.outbox.send(core.memory(), send)?;
        self.progress += 1;
        let (table, held_bytes) = (&mut self.table, &mut self.held_bytes);
        self.outbox.sent(bytes, |sent| release(sent, table, held_bytes, core));
        Ok(bytes == offered)
    }

    /// Takes nothing more from the client; what is in flight is still answered.
    pub(super) fn finish_up(&mut self, core: &mut dyn Core) {
        match std::mem::replace(&mut self.phase, Phase::Ending) {
            Phase::Payload(payload) => self.drop_payload(payload, core),
            Phase::Long(place) => self.cut_short(place, core),
            _ => {}
        }
        self.start = 0;
        self.end = 0;
    }

    /// The socket is gone: drops all that is not the engine's at the moment.
    pub(super) fn abort(&mut self, core: &mut dyn Core) {
        self.dead = true;
        self.drop_parked(core);
        let (table, held_bytes) = (&mut self.table, &mut self.held_bytes);
        self.outbox.clear(|sent| release(sent, table, held_bytes, core));
        self.finish_up(core);
    }

    fn handshake(&mut self, core: &mut dyn Core) -> Option<Wait> {
        if self.outbox.head_bytes() > HANDSHAKE_UNREAD_MAX {
            return Some(Wait::Own);
        }
        let Phase::Handshake(handshake) = &mut self.phase else {
            return None;
        };
        let input = &self.input[self.start..self.end];
        let exports = core.exports();
        match self.outbox.say(|out| handshake.step(input, exports, out)) {
            Step::Need => return Some(Wait::Input),
            Step::Took(bytes) => self.start += bytes,
            Step::Start { took, export, agreed } => {
                self.start += took;
                self.export = Some(exports[export].clone());
                self.agreed = agreed;
                self.phase = Phase::Commands;
            }
            Step::StartTls(took) => {
                self.start += took;
                self.phase = Phase::StartTls(handshake.encrypted());
            }
            Step::End => self.phase = Phase::Ending,
        }
        None
    }

    fn command(&mut self, core: &mut dyn Core, may_alloc: bool) -> Option<Wait> {
        let replies = self.agreed.replies;
        let mut took = RequestHeader::bytes(replies);
        let input = &self.input[self.start..self.end];
        if input.len() < took {
            return Some(Wait::Input);
        }
        let Some(mut header) = RequestHeader::decode(replies, input) else {
            // Out of step with the client: no byte that follows can be trusted.
            self.finish_up(core);
            return None;
        };
        let mut payload_bytes = header.payload_bytes(replies);
        let too_much = replies == Replies::Extended && payload_bytes > PAYLOAD_BYTES_MAX.into();
        if header.command == command::DISCONNECT || too_much {
            self.finish_up(core);
            return None;
        }
        if self.table.is_full() {
            return Some(Wait::Own);
        }
        if header.command == command::BLOCK_STATUS && payload_bytes == STATUS_PAYLOAD_BYTES as u64 {
            let Some(payload) = input.get(took..took + STATUS_PAYLOAD_BYTES) else {
                return Some(Wait::Input);
            };
            if narrow(&mut header, payload) {
                took += STATUS_PAYLOAD_BYTES;
                payload_bytes = 0;
            }
        }
        let checked = match &self.export {
            Some(export) => check(&header, export, self.agreed),
            None => Err(Refusal(Errno::EINVAL, "no export was chosen")),
        };
        match checked {
            Ok(ask) => {
                let wait = self.accept(&header, ask, core, may_alloc);
                if wait.is_some() {
                    return wait;
                }
            }
            Err(refusal) => {
                // What it was to do doesn't matter any more.
                let place = self.table.insert(Ask::Flush, header.cookie, header.offset, header.len);
                self.table.get_mut(place).fail(refusal, None);
                self.finish(place, core);
                if payload_bytes > 0 {
                    self.phase = Phase::Skip(payload_bytes as u32);
                }
            }
        }
        self.start += took;
        None
    }

    fn skip(&mut self, left: u32) -> Option<Wait> {
        let here = (self.end - self.start).min(left as usize);
        self.start += here;
        let left = left - here as u32;
        self.phase = if left == 0 { Phase::Commands } else { Phase::Skip(left) };
        (left > 0).then_some(Wait::Input)
    }

    /// Whether `bytes` of buffers must wait. A connection that holds nothing may always have
    /// what its first request needs.
    pub(super) fn must_wait(&self, bytes: u64, may_alloc: bool) -> Option<Wait> {
        if self.held_bytes > 0 && self.held_bytes + bytes > CONNECTION_BYTES_MAX {
            Some(Wait::Own)
        } else if !may_alloc {
            Some(Wait::Room)
        } else {
            None
        }
    }
}

impl Connection {
    /// Of which share a further buffer must be: beyond half of what a connection may hold only of
    /// those for requests that end by themselves. So these go on, however many of its others wait.
    pub(super) fn share_for(&self, bytes: u64) -> Option<Share> {
        let much = self.held_bytes > 0 && self.held_bytes + bytes > CONNECTION_BYTES_MAX / 2;
        much.then_some(Share::Passing)
    }

    /// The origin that its requests are for, once it has chosen an export.
    pub(super) fn origin(&self) -> Option<OriginId> {
        self.export.as_ref().map(|export| export.origin)
    }

    /// A buffer of one share, or of any that may be had.
    pub(super) fn alloc(&self, share: Option<Share>, bytes: u32, core: &mut dyn Core) -> Option<Buf> {
        let origin = self.origin()?;
        match share {
            Some(share) => core.alloc_of(share, bytes, origin),
            None => core.alloc(bytes, origin),
        }
    }
}

/// Gives back what was sent.
pub(super) fn release(sent: Sent, table: &mut Table, held_bytes: &mut u64, core: &mut dyn Core) {
    match sent {
        Sent::Buf(buf, bytes) => {
            *held_bytes -= u64::from(bytes);
            core.free(buf);
        }
        // What was taken back and asked for again is still to come.
        Sent::Answer(place) if table.get_mut(place).again > 0 => table.get_mut(place).orphan = true,
        Sent::Answer(place) => table.remove(place),
    }
}
