// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client's conversation, without its socket: bytes in, requests and bytes out.
//!
//! The caller moves bytes ([`Connection::receive`], [`Connection::transmit`]) and calls
//! [`Connection::advance`] after each. It makes no difference how the bytes were cut on their way
//! (test: `any_split_says_the_same`). Payload of a long write is received into its buffer. Payload
//! of a short one is copied from the read buffer, which takes many requests with one system call.
//!
//! A connection holds one read buffer, at most [`super::REQUESTS_MAX`] requests and
//! [`super::CONNECTION_BYTES_MAX`] of buffers. At a limit nothing more is parsed, and the caller
//! must not receive.

use std::io::{self, IoSlice, IoSliceMut};

use flashfront_device::Share;
use flashfront_engine::{OriginId, RequestError, Time};
use flashfront_nbd_proto::Request;
use flashfront_nbd_proto::server::{Refusal, Security, Server, Step};
use serde::{Deserialize, Serialize};

use super::accept::{Begun, accept};
use super::input::Input;
use super::offered::offered;
use super::outbox::Outbox;
use super::parked::{Resumed, drop_parked, resume};
use super::payload::{Came, Payload};
use super::reply::refuse;
use super::requests::Requests;
use super::wait::Wait;
use super::{again, ended, read};
use crate::frontend::piece::PieceId;
use crate::frontend::{Core, Export, export_of};
use crate::upgrade::{Bytes, Parcel};

/// Answers to options that a client may leave unread.
const HANDSHAKE_UNREAD_MAX: usize = 64 << 10;

/// Bytes that were received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) bytes: usize,
    /// Whether there was room for more: then the socket is empty.
    pub(super) short: bool,
}

/// The phase of a conversation.
#[derive(Debug)]
enum Phase {
    /// The client's next bytes are for the protocol.
    Talks,
    /// A request that was said, and could not be begun yet.
    Said(Said),
    /// The client's next bytes are a write's payload.
    Payload(Payload),
    Ending,
}

/// A client's request, as the protocol judged it.
#[derive(Clone, Copy, Debug)]
enum Said {
    Request(Request),
    Refused { cookie: u64, offset: u64, refusal: Refusal },
}

/// A conversation.
#[derive(Debug)]
pub(super) struct Connection {
    protocol: Server,
    input: Input,
    phase: Phase,
    requests: Requests,
    /// A count that grows whenever bytes come.
    received: u64,
    /// No request is begun, since another program is to take over.
    held: bool,
}

/// A conversation at a border of requests, as another program takes it up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Saved {
    protocol: Server,
    /// The volume that was opened: its origin, and its name.
    volume: Option<(u32, String)>,
    /// Bytes of the client that were not looked at, and bytes for it that were not sent.
    unread: Bytes,
    unsent: Bytes,
}

impl Connection {
    /// A new client; its greeting is ready to be sent.
    pub(super) fn new(number: u16, security: Security) -> Self {
        let mut outbox = Outbox::default();
        let protocol = outbox.say(|out| Server::new(security, out));
        Self {
            protocol,
            input: Input::default(),
            phase: Phase::Talks,
            requests: Requests::new(number, outbox),
            received: 0,
            held: false,
        }
    }

    /// Goes on with a conversation that another program began. `None`: its volume is not there any
    /// more.
    pub(super) fn take_up(number: u16, saved: &Saved, exports: &[Export], parcel: &Parcel) -> io::Result<Option<Self>> {
        let mut outbox = Outbox::default();
        let unsent = parcel.bytes(saved.unsent)?;
        outbox.say(|out| out.extend_from_slice(unsent));
        let mut input = Input::default();
        if !input.put(parcel.bytes(saved.unread)?) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a client's bytes are more than there is room for"));
        }
        let mut requests = Requests::new(number, outbox);
        if let Some((origin, name)) = &saved.volume {
            let export = export_of(exports, OriginId(*origin)).filter(|export| export.name == *name);
            let Some(export) = export else { return Ok(None) };
            requests.open(export.clone(), saved.protocol.replies());
        }
        let protocol = saved.protocol.clone();
        Ok(Some(Self { protocol, input, phase: Phase::Talks, requests, received: 0, held: false }))
    }

    /// Begins no request from now on, or does so again.
    pub(super) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Whether the conversation is at a border of requests: nothing is under way but bytes to be
    /// sent.
    pub(super) fn is_at_border(&self) -> bool {
        let requests = &self.requests;
        let waits = requests.parks.any() || requests.long().is_some() || requests.outbox.is_lacking();
        matches!(self.phase, Phase::Talks) && requests.in_flight() == 0 && !waits && !requests.is_cut_off()
    }

    /// Writes the conversation down, at a border of requests.
    pub(super) fn save(&self, parcel: &mut Parcel, core: &mut dyn Core) -> Saved {
        // Its name may have changed since.
        let named = |id: OriginId| export_of(core.exports(), id).map_or_else(String::new, |it| it.name.clone());
        Saved {
            protocol: self.protocol.clone(),
            volume: self.export().map(|export| (export.origin.0, named(export.origin))),
            unread: parcel.put_bytes(|out| out.extend_from_slice(self.input.here())),
            unsent: parcel.put_bytes(|out| self.requests.outbox.copy(core.memory(), out)),
        }
    }

    pub(super) fn in_handshake(&self) -> bool {
        self.protocol.in_handshake()
    }

    /// Goes on inside TLS: all bytes that follow, either way, belong to it.
    pub(super) fn enter_tls(&mut self) {
        debug_assert!(self.input.is_empty() && !self.has_output(), "plain bytes are left");
        self.protocol.enter_tls();
    }

    /// The export that the client has chosen.
    pub(super) fn export(&self) -> Option<&Export> {
        self.requests.export()
    }

    /// Requests from now on are counted from this time.
    pub(super) fn since(&mut self, since: Time) {
        self.requests.since(since);
    }

    /// Whether there is something to send.
    pub(super) fn has_output(&self) -> bool {
        !self.requests.outbox.is_empty()
    }

    /// Whether the first thing to be sent is here.
    pub(super) fn can_send(&self) -> bool {
        self.requests.outbox.can_send()
    }

    /// Bytes of payload that are here for the client.
    pub(super) fn unread_bytes(&self) -> u64 {
        self.requests.outbox.here_bytes()
    }

    /// A count that grows whenever the socket takes something.
    pub(super) fn sent(&self) -> u64 {
        self.requests.outbox.progress()
    }

    /// Whether everything is said; the socket may be closed.
    pub(super) fn is_over(&self) -> bool {
        let ends = matches!(self.phase, Phase::Ending) || self.requests.is_cut_off();
        ends && self.requests.table.len() == 0 && self.requests.outbox.is_empty()
    }

    /// Whether a reply that is begun can't be completed.
    pub(super) fn is_lost(&self) -> bool {
        self.requests.is_lost()
    }

    /// Requests at the engine.
    pub(super) fn in_flight(&self) -> u32 {
        self.requests.in_flight()
    }

    /// A count that grows whenever bytes or replies move.
    pub(super) fn progress(&self) -> u64 {
        self.received + self.requests.progress()
    }

    /// Notes that bytes have moved below this.
    pub(super) fn moved(&mut self) {
        self.received += 1;
    }

    /// The origin of the requests, if some of them are parked.
    pub(super) fn parked_for(&self) -> Option<OriginId> {
        self.requests.parked_for()
    }

    /// Tries the first of the parked requests. What the client `reads` goes first.
    pub(super) fn resume(&mut self, share: Share, reads: bool, core: &mut dyn Core) -> Resumed {
        resume(&mut self.requests, share, reads, core)
    }

    /// Drops the payload that the client has not taken.
    pub(super) fn take_back(&mut self, core: &mut dyn Core) {
        self.requests.take_back(core);
    }

    /// Drops the payload that can't be sent before other payload has been read again.
    pub(super) fn take_back_behind(&mut self, core: &mut dyn Core) {
        if self.requests.outbox.is_lacking() {
            self.requests.take_back_behind(core);
        }
    }

    /// Whether payload is to be sent soon that was taken back, and was not asked for since.
    pub(super) fn wants_payload(&self) -> bool {
        again::wants_payload(&self.requests)
    }

    /// Asks once more for payload that was taken back and is wanted soon. False if there is no
    /// buffer.
    pub(super) fn fetch_again(&mut self, core: &mut dyn Core) -> bool {
        again::fetch_again(&mut self.requests, None, core)
    }

    /// Calls `recv` with where the client's next bytes belong. Not after a [`Wait`] other than
    /// [`Wait::Input`].
    pub(super) fn receive(
        &mut self,
        core: &mut dyn Core,
        recv: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<Received> {
        let span = if let Phase::Payload(payload) = &self.phase { payload.direct() } else { None };
        debug_assert!(span.is_none() || self.input.is_empty(), "payload is taken from the read buffer first");
        let rest = self.input.room();
        let (bytes, room, direct) = match span {
            None => {
                let room = rest.len();
                (recv(&mut [IoSliceMut::new(rest)])?, room, 0)
            }
            Some(span) => {
                let room = span.len as usize + rest.len();
                let payload = IoSliceMut::new(core.memory().bytes_mut(span));
                let bytes = recv(&mut [payload, IoSliceMut::new(rest)])?;
                (bytes, room, bytes.min(span.len as usize))
            }
        };
        self.requests.since(core.now());
        if let Phase::Payload(payload) = &mut self.phase {
            payload.received(direct as u32);
            self.protocol.payload_taken(direct as u64);
        }
        self.input.came(bytes - direct);
        self.received += 1;
        Ok(Received { bytes, short: bytes < room })
    }

    /// Acts on what was received, as far as limits allow. `may_alloc`: no other client has waited
    /// longer for buffers.
    pub(super) fn advance(&mut self, core: &mut dyn Core, may_alloc: bool) -> Wait {
        loop {
            if matches!(self.phase, Phase::Ending) || self.requests.is_cut_off() {
                return Wait::End;
            }
            if self.requests.parks.any_write() {
                // Their payload is held here: no more of it until they are at the engine.
                return Wait::Own;
            }
            if self.held && self.requests.long().is_none() && matches!(self.phase, Phase::Talks) {
                return Wait::Own;
            }
            let wait = match (self.requests.long(), &self.phase) {
                (Some(place), _) => read::go_on(&mut self.requests, place, core, may_alloc),
                (None, Phase::Talks) => self.step(core),
                (None, Phase::Said(said)) => {
                    let said = *said;
                    self.begin(said, core, may_alloc)
                }
                (None, Phase::Payload(payload)) => {
                    let payload = *payload;
                    self.take_payload(payload, core, may_alloc)
                }
                (None, Phase::Ending) => Some(Wait::End),
            };
            if let Some(wait) = wait {
                return wait;
            }
        }
    }

    /// Calls `send` with the next bytes; tells whether all of them were taken.
    pub(super) fn transmit(
        &mut self,
        core: &mut dyn Core,
        send: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        self.requests.transmit(core, send)
    }

    /// The engine's answer to one piece.
    pub(super) fn reply(&mut self, id: PieceId, result: Result<(), RequestError>, core: &mut dyn Core) {
        ended::answered(&mut self.requests, id, result, core);
    }

    /// The engine was not asked for a piece that would have to wait.
    pub(super) fn refused(&mut self, id: PieceId, core: &mut dyn Core) {
        ended::refused(&mut self.requests, id, core);
    }

    /// Takes nothing more from the client; what is in flight is still answered.
    pub(super) fn finish_up(&mut self, core: &mut dyn Core) {
        let phase = std::mem::replace(&mut self.phase, Phase::Ending);
        if let Some(place) = self.requests.long() {
            read::cut_short(&mut self.requests, place, core);
        } else if let Phase::Payload(payload) = phase {
            payload.drop(&mut self.requests, core);
        }
        self.protocol.end();
        self.input.clear();
    }

    /// The socket is gone: drops all that is not the engine's at the moment.
    pub(super) fn abort(&mut self, core: &mut dyn Core) {
        self.requests.die();
        drop_parked(&mut self.requests, core);
        self.requests.clear_outbox(core);
        self.finish_up(core);
    }

    /// Asks the protocol what the client's next bytes mean.
    fn step(&mut self, core: &mut dyn Core) -> Option<Wait> {
        let input = self.input.here();
        let step = if self.protocol.in_handshake() {
            if self.requests.outbox.head_bytes() > HANDSHAKE_UNREAD_MAX {
                return Some(Wait::Own);
            }
            let exports = offered(core.exports());
            self.requests.outbox.say(|out| self.protocol.step(input, &exports, out))
        } else {
            self.protocol.step(input, &[], &mut Vec::new())
        };
        match step {
            Step::Need => return Some(Wait::Input),
            Step::Took(took) => self.input.took(took),
            Step::StartTls(took) => {
                self.input.took(took);
                return Some(Wait::Tls);
            }
            Step::Opened { took, export } => {
                self.input.took(took);
                if let Some(export) = core.exports().get(export) {
                    self.requests.open(export.clone(), self.protocol.replies());
                }
            }
            Step::Request { took, request } => {
                self.input.took(took);
                self.phase = Phase::Said(Said::Request(request));
            }
            Step::Refused { took, cookie, offset, refusal } => {
                self.input.took(took);
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
        if self.requests.table.is_full() {
            return Some(Wait::Own);
        }
        self.phase = match said {
            Said::Request(request) => match accept(&mut self.requests, &request, core, may_alloc) {
                Begun::Must(wait) => return Some(wait),
                Begun::Goes => Phase::Talks,
                Begun::Receives(payload) => Phase::Payload(payload),
            },
            Said::Refused { cookie, offset, refusal } => {
                refuse(&mut self.requests, cookie, offset, refusal, core);
                Phase::Talks
            }
        };
        None
    }

    /// Goes on with the payload of a write.
    fn take_payload(&mut self, payload: Payload, core: &mut dyn Core, may_alloc: bool) -> Option<Wait> {
        let before = self.input.len();
        let came = payload.go_on(&mut self.input, &mut self.requests, core, may_alloc);
        self.protocol.payload_taken((before - self.input.len()) as u64);
        let (phase, wait) = match came {
            Came::Waits(payload, wait) => (Phase::Payload(payload), Some(wait)),
            Came::Goes(payload) => (Phase::Payload(payload), None),
            Came::Completely => (Phase::Talks, None),
        };
        self.phase = phase;
        wait
    }
}
