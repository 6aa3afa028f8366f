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
use flashfront_nbd_proto::server::{INPUT_BYTES_MIN, Refusal, Security, Server, Step};
use flashfront_nbd_proto::{Ask, Request};

use super::super::{Core, Export};
use super::CONNECTION_BYTES_MAX;
use super::content::Segment;
use super::offered::offered;
use super::outbox::{Outbox, Sent};
use super::parked::Parks;
use super::payload::{Payload, direct};
use super::pending::Table;

/// The read buffer: 31 writes of 4 KiB with one system call. It must hold the longest option.
const INPUT_BYTES: usize = 128 << 10;
const _: () = assert!(INPUT_BYTES >= INPUT_BYTES_MIN);
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
    /// The client's next bytes are for the protocol.
    Commands,
    /// A request that was said, and could not be begun yet.
    Said(Said),
    Payload(Payload),
    /// A read that is too long to be in memory at once is answered bit by bit, and nothing else
    /// meanwhile.
    Long(u16),
    Ending,
}

/// What a client asked for, as the protocol judged it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    Request(Request),
    Refused { cookie: u64, offset: u64, refusal: Refusal },
}

/// A conversation.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) number: u16,
    pub(super) phase: Phase,
    pub(super) export: Option<Export>,
    pub(super) protocol: Server,
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
        let protocol = outbox.say(|out| Server::new(security, out));
        Self {
            number,
            phase: Phase::Commands,
            export: None,
            protocol,
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
        self.protocol.in_handshake()
    }

    /// All bytes that follow, either way, are inside TLS.
    pub(super) fn enter_tls(&mut self) {
        debug_assert!(self.start == self.end && self.outbox.is_empty(), "plain bytes are left");
        self.protocol.enter_tls();
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
        self.protocol.payload_taken(direct as u64);
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
                Phase::Commands => self.step(core),
                Phase::Said(said) => self.begin(said, core, may_alloc),
                Phase::Payload(payload) => self.payload(payload, core, may_alloc),
                Phase::Long(place) => self.go_on(place, core, may_alloc),
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
        self.protocol.end();
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

    /// Asks the protocol what the client's next bytes mean.
    fn step(&mut self, core: &mut dyn Core) -> Option<Wait> {
        let input = &self.input[self.start..self.end];
        let step = if self.protocol.in_handshake() {
            if self.outbox.head_bytes() > HANDSHAKE_UNREAD_MAX {
                return Some(Wait::Own);
            }
            let exports = offered(core.exports());
            self.outbox.say(|out| self.protocol.step(input, &exports, out))
        } else {
            self.protocol.step(input, &[], &mut Vec::new())
        };
        match step {
            Step::Need => return Some(Wait::Input),
            Step::Took(took) => self.start += took,
            Step::StartTls(took) => {
                self.start += took;
                return Some(Wait::Tls);
            }
            Step::Opened { took, export } => {
                self.start += took;
                self.export = core.exports().get(export).cloned();
            }
            Step::Request { took, request } => {
                self.start += took;
                self.phase = Phase::Said(Said::Request(request));
            }
            Step::Refused { took, cookie, offset, refusal } => {
                self.start += took;
                self.phase = Phase::Said(Said::Refused { cookie, offset, refusal });
            }
            // A write's payload is taken in its own phase.
            Step::Payload(_) => debug_assert!(false, "payload of no write"),
            Step::End => self.finish_up(core),
        }
        None
    }

    /// Begins a request, or tells what it must wait for.
    fn begin(&mut self, said: Said, core: &mut dyn Core, may_alloc: bool) -> Option<Wait> {
        if self.table.is_full() {
            return Some(Wait::Own);
        }
        self.phase = Phase::Commands;
        let wait = match said {
            Said::Request(request) => self.accept(&request, core, may_alloc),
            Said::Refused { cookie, offset, refusal } => {
                self.refuse(cookie, offset, refusal, core);
                None
            }
        };
        if wait.is_some() {
            self.phase = Phase::Said(said);
        }
        wait
    }

    /// Answers a request that is not in order.
    pub(super) fn refuse(&mut self, cookie: u64, offset: u64, refusal: Refusal, core: &mut dyn Core) {
        // What it was to do doesn't matter any more.
        let place = self.table.insert(Ask::Flush, cookie, offset, 0);
        self.table.get_mut(place).fail(refusal, None);
        self.finish(place, core);
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
