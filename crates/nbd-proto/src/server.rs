// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server's conversation with one client.
//!
//! [`Server`] reads what the client says: the handshake, requests, the end. [`Reply`] writes what
//! the client is told afterwards. The crate's page has the order of calls.

mod check;
mod context;
mod export;
mod handshake;
mod reply;

pub use check::Refusal;
pub use export::Export;
pub use handshake::Security;
pub use reply::{Extent, Part, Reply};

use crate::request::Request;
use crate::wire::{Fields, Replies, RequestHeader, command, command_flag};
use check::check;
use context::ALLOCATION_ID;
use export::{Agreed, Terms};
use handshake::{Handshake, OPTION_BYTES_MAX};

/// A buffer of this many bytes holds all that [`Server::step`] may need at once.
pub const INPUT_BYTES_MIN: usize = OPTION_BYTES_MAX as usize + crate::wire::OPTION_HEADER_BYTES;
/// The payload of a BLOCK_STATUS request that names the one context there is: the length of the
/// range, and the context.
const STATUS_PAYLOAD_BYTES: usize = 12;

/// The meaning of a client's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing can be said yet: more bytes are needed.
    Need,
    /// This many bytes are done with, and there may be an answer to send.
    Took(usize),
    /// This many bytes are done with. Send the answer, which is not encrypted, begin TLS, and call
    /// [`Server::enter_tls`].
    StartTls(usize),
    /// This many bytes are done with. The client has chosen the export with this number; send the
    /// answer.
    Opened {
        /// The bytes.
        took: usize,
        /// The number in the list of exports.
        export: usize,
    },
    /// This many bytes are done with, and are a request that is in order. The payload of a write
    /// follows.
    Request {
        /// The bytes.
        took: usize,
        /// The request.
        request: Request,
    },
    /// This many bytes are done with, and are a request that is not in order. Reply with
    /// [`Reply::failed`].
    Refused {
        /// The bytes.
        took: usize,
        /// The request's name.
        cookie: u64,
        /// The first byte of its range.
        offset: u64,
        /// The fault of the request.
        refusal: Refusal,
    },
    /// This many bytes of the last write's payload are next. They are the caller's: take some of
    /// them, and call [`Server::payload_taken`].
    Payload(u64),
    /// The conversation is over: send what is queued, answer the requests that are under way, and
    /// close.
    End,
}

/// The phase of a conversation.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
enum Phase {
    Handshake(Handshake),
    /// TLS was asked for; the handshake as it goes on inside.
    StartTls(Handshake),
    Requests(Terms),
    /// This many bytes of a payload belong to the caller.
    Payload(Terms, u64),
    /// This many bytes of a refused payload are still to come.
    Skip(Terms, u64),
    Over,
}

/// The protocol's side of a conversation.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Server {
    phase: Phase,
    replies: Replies,
}

impl Server {
    /// Greets a new client: the greeting is appended to `out`.
    #[must_use]
    pub fn new(security: Security, out: &mut Vec<u8>) -> Self {
        Handshake::greet(out);
        Self { phase: Phase::Handshake(Handshake::new(security)), replies: Replies::Simple }
    }

    /// Says what the client's next bytes mean. `out` takes the answers of the handshake.
    ///
    /// `exports` is looked at until one is chosen. Bytes that are done with must not come again.
    pub fn step(&mut self, input: &[u8], exports: &[Export], out: &mut Vec<u8>) -> Step {
        match &mut self.phase {
            Phase::Handshake(_) => self.handshake(input, exports, out),
            Phase::StartTls(_) => Step::StartTls(0),
            Phase::Requests(terms) => {
                let terms = *terms;
                self.request(input, terms)
            }
            Phase::Payload(_, left) => Step::Payload(*left),
            Phase::Skip(terms, left) => {
                let here = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                *left -= here as u64;
                if *left == 0 {
                    self.phase = Phase::Requests(*terms);
                }
                if here == 0 { Step::Need } else { Step::Took(here) }
            }
            Phase::Over => Step::End,
        }
    }

    /// Notes that the caller has taken this many bytes of payload.
    ///
    /// # Panics
    /// If that is more than [`Step::Payload`] told.
    pub fn payload_taken(&mut self, bytes: u64) {
        let Phase::Payload(terms, left) = self.phase else {
            assert_eq!(bytes, 0, "there is no payload");
            return;
        };
        let left = left.checked_sub(bytes).expect("no more than the payload is taken");
        self.phase = if left == 0 { Phase::Requests(terms) } else { Phase::Payload(terms, left) };
    }

    /// Goes on inside TLS: all bytes that follow, either way, belong to it.
    pub fn enter_tls(&mut self) {
        if let Phase::StartTls(handshake) = self.phase {
            self.phase = Phase::Handshake(handshake);
        }
    }

    /// Takes nothing more from the client.
    pub fn end(&mut self) {
        self.phase = Phase::Over;
    }

    /// Whether the client has not chosen an export yet.
    #[must_use]
    pub fn in_handshake(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_) | Phase::StartTls(_))
    }

    /// How replies look, as agreed on.
    #[must_use]
    pub fn replies(&self) -> Replies {
        self.replies
    }

    fn handshake(&mut self, input: &[u8], exports: &[Export], out: &mut Vec<u8>) -> Step {
        let Phase::Handshake(handshake) = &mut self.phase else { return Step::Need };
        match handshake.step(input, exports, out) {
            handshake::Step::Need => Step::Need,
            handshake::Step::Took(took) => Step::Took(took),
            handshake::Step::Start { took, export, agreed } => {
                self.replies = agreed.replies;
                self.phase = Phase::Requests(Terms::new(&exports[export], agreed));
                Step::Opened { took, export }
            }
            handshake::Step::StartTls(took) => {
                self.phase = Phase::StartTls(handshake.encrypted());
                Step::StartTls(took)
            }
            handshake::Step::End => {
                self.phase = Phase::Over;
                Step::End
            }
        }
    }

    fn request(&mut self, input: &[u8], terms: Terms) -> Step {
        let Agreed { replies, .. } = terms.agreed;
        let mut took = RequestHeader::bytes(replies);
        if input.len() < took {
            return Step::Need;
        }
        let Some(mut header) = RequestHeader::decode(replies, input) else {
            // Out of step with the client: no byte that follows can be trusted.
            self.phase = Phase::Over;
            return Step::End;
        };
        let mut payload_bytes = header.payload_bytes(replies);
        let too_much = replies == Replies::Extended && payload_bytes > terms.sizes.maximum.into();
        if header.command == command::DISCONNECT || too_much {
            self.phase = Phase::Over;
            return Step::End;
        }
        if header.command == command::BLOCK_STATUS && payload_bytes == STATUS_PAYLOAD_BYTES as u64 {
            let Some(payload) = input.get(took..took + STATUS_PAYLOAD_BYTES) else {
                return Step::Need;
            };
            if narrow(&mut header, payload) {
                took += STATUS_PAYLOAD_BYTES;
                payload_bytes = 0;
            }
        }
        let RequestHeader { cookie, offset, len, .. } = header;
        match check(&header, &terms) {
            Ok(ask) => {
                if payload_bytes > 0 {
                    self.phase = Phase::Payload(terms, payload_bytes);
                }
                let fua = header.flags & command_flag::FUA != 0;
                Step::Request { took, request: Request { cookie, ask, offset, len, fua } }
            }
            Err(refusal) => {
                if payload_bytes > 0 {
                    self.phase = Phase::Skip(terms, payload_bytes);
                }
                Step::Refused { took, cookie, offset, refusal }
            }
        }
    }
}

/// Takes the payload of a BLOCK_STATUS request away. With the payload the request means what the
/// same one without it does, if the payload names the context that there is. Tells whether it does.
fn narrow(header: &mut RequestHeader, payload: &[u8]) -> bool {
    let mut fields = Fields(payload);
    let (len, id) = (fields.u64(), fields.u32());
    let Some(len) = len.filter(|_| id == Some(ALLOCATION_ID)) else {
        return false;
    };
    header.len = len;
    header.flags &= !command_flag::PAYLOAD_LEN;
    true
}
