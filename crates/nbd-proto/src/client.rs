// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client's conversation with a server.
//!
//! [`Client`] reads what the server says, and writes the headers of requests. The crate's page has
//! the order of calls. Nothing that the server says is believed unchecked: a read is answered only
//! when each of its bytes has come exactly once.

mod check;
mod error;
mod handshake;
mod info;
mod outstanding;
mod step;

pub use error::{Broken, Misuse};
pub use handshake::Context;
pub use info::{ExportInfo, Wanted};
pub use outstanding::Failure;
pub use step::{Extent, Step};

use std::collections::HashMap;

use crate::request::Request;
use crate::wire::{
    ANSWER_HEADER_BYTES, ChunkHeader, Errno, Fields, Replies, ReplyHeader, RequestHeader, SimpleReply, chunk, command,
};
use check::check;
use handshake::{ANSWER_BYTES_MAX, Handshake, Opened};
use outstanding::Outstanding;

/// A buffer of this many bytes holds all that [`Client::step`] may need at once.
pub const INPUT_BYTES_MIN: usize = ANSWER_HEADER_BYTES + ANSWER_BYTES_MAX;
/// The longest error that is believed. The protocol's longest string has 4096 bytes.
const ERROR_BYTES_MAX: u32 = 8 << 10;
/// The longest metadata about a range that is believed.
const EXTENTS_BYTES_MAX: u32 = 32 << 20;

/// Where a conversation is.
#[derive(Debug)]
enum Phase {
    Handshake(Handshake),
    StartTls(Handshake),
    Replies,
    /// This many bytes of a read are the caller's; whether the reply ends with them.
    Payload {
        left: u64,
        cookie: u64,
        done: bool,
    },
    /// This many extents of a context are still to come.
    Extents {
        left: u32,
        cookie: u64,
        context: usize,
        done: bool,
    },
    /// The answer to this request is complete.
    Answered(u64),
    Broken(Broken),
}

/// The protocol's side of a conversation.
#[derive(Debug)]
pub struct Client {
    phase: Phase,
    opened: Option<Opened>,
    outstanding: HashMap<u64, Outstanding>,
    /// The client has said goodbye.
    left: bool,
}

impl Client {
    /// A client that has just connected. The server speaks first.
    #[must_use]
    pub fn new(wanted: Wanted) -> Self {
        let phase = Phase::Handshake(Handshake::new(wanted));
        Self { phase, opened: None, outstanding: HashMap::new(), left: false }
    }

    /// Says what the server's next bytes mean. `out` takes what the handshake has to say.
    ///
    /// Bytes that are done with must not come again.
    ///
    /// # Errors
    /// [`Broken`], now and at every later call: close the connection. What is outstanding has no
    /// answer.
    pub fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Step, Broken> {
        let step = match &mut self.phase {
            Phase::Handshake(handshake) => handshake.step(input, out).map(|step| self.shook(step)),
            Phase::StartTls(_) => Ok(Step::StartTls(0)),
            Phase::Replies => self.reply(input).map_err(Broken::Protocol),
            Phase::Payload { left, .. } => Ok(Step::Payload(*left)),
            Phase::Extents { .. } => self.extents(input).map_err(Broken::Protocol),
            Phase::Answered(cookie) => {
                let cookie = *cookie;
                self.phase = Phase::Replies;
                self.answered(0, cookie).map_err(Broken::Protocol)
            }
            Phase::Broken(broken) => Err(broken.clone()),
        };
        if let Err(broken) = &step {
            self.phase = Phase::Broken(broken.clone());
        }
        step
    }

    /// The caller has taken so many bytes of data.
    ///
    /// # Panics
    /// If that is more than [`Step::Payload`] told.
    pub fn payload_taken(&mut self, bytes: u64) {
        let Phase::Payload { left, cookie, done } = self.phase else {
            assert_eq!(bytes, 0, "there is no data");
            return;
        };
        let left = left.checked_sub(bytes).expect("no more than the data is taken");
        self.phase = match (left, done) {
            (0, true) => Phase::Answered(cookie),
            (0, false) => Phase::Replies,
            _ => Phase::Payload { left, cookie, done },
        };
    }

    /// From now on all bytes, either way, are inside TLS. `out` takes what is said first.
    pub fn enter_tls(&mut self, out: &mut Vec<u8>) {
        if let Phase::StartTls(handshake) = &mut self.phase {
            handshake.enter_tls(out);
            self.phase = Phase::Handshake(handshake.clone());
        }
    }

    /// Appends the header of a request. Send it, and a write's payload of `request.len` bytes
    /// behind it.
    ///
    /// # Errors
    /// If the server would refuse it, or could not know what is meant.
    pub fn submit(&mut self, request: Request, out: &mut Vec<u8>) -> Result<(), Misuse> {
        let Some(opened) = self.opened.as_ref().filter(|_| !self.left && !matches!(self.phase, Phase::Broken(_)))
        else {
            return Err(Misuse::NotOpen);
        };
        check(&request, opened)?;
        if self.outstanding.contains_key(&request.cookie) {
            return Err(Misuse::Cookie(request.cookie));
        }
        request.header(opened.replies).encode(opened.replies, out);
        self.outstanding.insert(request.cookie, Outstanding::new(request));
        Ok(())
    }

    /// Says goodbye, once all requests are answered: the server closes the connection.
    pub fn disconnect(&mut self, out: &mut Vec<u8>) {
        if let Some(opened) = self.opened.as_ref().filter(|_| !self.left) {
            let header = RequestHeader { flags: 0, command: command::DISCONNECT, cookie: 0, offset: 0, len: 0 };
            header.encode(opened.replies, out);
            self.left = true;
        }
    }

    /// What the server says of its export. `None` until the handshake is over.
    #[must_use]
    pub fn info(&self) -> Option<&ExportInfo> {
        self.opened.as_ref().map(|opened| &opened.info)
    }

    /// How replies look, as agreed on.
    #[must_use]
    pub fn replies(&self) -> Replies {
        self.opened.as_ref().map_or(Replies::Simple, |opened| opened.replies)
    }

    /// The metadata contexts that were selected.
    #[must_use]
    pub fn contexts(&self) -> &[Context] {
        self.opened.as_ref().map_or(&[], |opened| &opened.contexts)
    }

    /// Requests without an answer.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// The request with this cookie, if it has no answer.
    #[must_use]
    pub fn request(&self, cookie: u64) -> Option<&Request> {
        self.outstanding.get(&cookie).map(Outstanding::request)
    }

    fn shook(&mut self, step: handshake::Step) -> Step {
        match step {
            handshake::Step::Need => Step::Need,
            handshake::Step::Took(took) => Step::Took(took),
            handshake::Step::StartTls(took) => {
                if let Phase::Handshake(handshake) = &self.phase {
                    self.phase = Phase::StartTls(handshake.clone());
                }
                Step::StartTls(took)
            }
            handshake::Step::Open(took, opened) => {
                self.opened = Some(opened);
                self.phase = Phase::Replies;
                Step::Opened(took)
            }
        }
    }

    fn reply(&mut self, input: &[u8]) -> Result<Step, &'static str> {
        match ReplyHeader::decode(self.replies(), input)? {
            None => Ok(Step::Need),
            Some((ReplyHeader::Simple(reply), took)) => self.simple(reply, took),
            Some((ReplyHeader::Chunk(header), took)) => self.chunk(header, took, &input[took..]),
        }
    }

    fn simple(&mut self, SimpleReply { error, cookie }: SimpleReply, took: usize) -> Result<Step, &'static str> {
        let chunks = self.replies() != Replies::Simple;
        let outstanding = known(&mut self.outstanding, cookie)?;
        if chunks && outstanding.is_read() {
            return Err("a simple reply to a read");
        }
        if error != 0 {
            outstanding.fail(Failure { errno: Errno(error), at: None, text: String::new() });
        } else if outstanding.is_read() {
            let Request { offset, len, .. } = *outstanding.request();
            outstanding.data(offset, len)?;
            self.phase = Phase::Payload { left: len, cookie, done: true };
            return Ok(Step::Data { took, cookie, at: offset, len: len as u32 });
        }
        self.answered(took, cookie)
    }

    fn chunk(&mut self, header: ChunkHeader, took: usize, payload: &[u8]) -> Result<Step, &'static str> {
        let ChunkHeader { done, kind, cookie, offset, len } = header;
        let extended = self.replies() == Replies::Extended;
        let outstanding = known(&mut self.outstanding, cookie)?;
        if extended && offset != outstanding.request().offset {
            return Err("a chunk with another offset than its request's");
        }
        let mut fields = Fields(payload);
        match kind {
            chunk::NONE if len == 0 && done => self.answered(took, cookie),
            chunk::OFFSET_DATA if outstanding.is_read() && len > 8 => {
                let Some(at) = fields.u64() else { return Ok(Step::Need) };
                let len = len - 8;
                outstanding.data(at, len.into())?;
                self.phase = Phase::Payload { left: len.into(), cookie, done };
                Ok(Step::Data { took: took + 8, cookie, at, len })
            }
            chunk::OFFSET_HOLE if outstanding.is_read() && len == 12 => {
                let (Some(at), Some(len)) = (fields.u64(), fields.u32()) else { return Ok(Step::Need) };
                outstanding.data(at, len.into())?;
                self.phase = if done { Phase::Answered(cookie) } else { Phase::Replies };
                Ok(Step::Hole { took: took + 12, cookie, at, len })
            }
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXTENDED if outstanding.is_status() => {
                if extended != (kind == chunk::BLOCK_STATUS_EXTENDED) {
                    return Err("extents of a kind that was not agreed on");
                }
                self.status(header, took, fields)
            }
            _ if kind & chunk::ERROR != 0 && (6..=ERROR_BYTES_MAX).contains(&len) => {
                let Some(data) = fields.take(len as usize) else { return Ok(Step::Need) };
                outstanding.fail(failure(kind, data)?);
                let took = took + len as usize;
                if done { self.answered(took, cookie) } else { Ok(Step::Took(took)) }
            }
            _ => Err("a chunk of an unexpected kind"),
        }
    }

    /// The head of a list of extents.
    fn status(&mut self, header: ChunkHeader, took: usize, mut fields: Fields<'_>) -> Result<Step, &'static str> {
        let extended = self.replies() == Replies::Extended;
        let (head, each) = if extended { (8, 16) } else { (4, 8) };
        let bytes = header.len.checked_sub(head).filter(|bytes| *bytes > 0 && bytes.is_multiple_of(each));
        let left =
            bytes.filter(|bytes| *bytes <= EXTENTS_BYTES_MAX).ok_or("a list of extents of a wrong length")? / each;
        let id = fields.u32();
        let count = if extended { fields.u32() } else { Some(left) };
        let (Some(id), Some(count)) = (id, count) else { return Ok(Step::Need) };
        if count != left {
            return Err("a list of extents of a wrong length");
        }
        let context = self.contexts().iter().position(|context| context.id == id);
        let context = context.ok_or("extents of a context that was not selected")?;
        let ChunkHeader { cookie, done, .. } = header;
        known(&mut self.outstanding, cookie)?.extents(id)?;
        self.phase = Phase::Extents { left, cookie, context, done };
        Ok(Step::Took(took + head as usize))
    }

    /// As many extents as have come.
    fn extents(&mut self, input: &[u8]) -> Result<Step, &'static str> {
        let Phase::Extents { left, cookie, context, done } = self.phase else { return Ok(Step::Need) };
        let extended = self.replies() == Replies::Extended;
        let each = if extended { 16 } else { 8 };
        let count = (left as usize).min(input.len() / each);
        if count == 0 {
            return Ok(Step::Need);
        }
        let took = count * each;
        let mut fields = Fields(&input[..took]);
        let mut extents = Vec::with_capacity(count);
        while let Some(extent) = next_extent(&mut fields, extended) {
            if extent.bytes == 0 {
                return Err("an extent of no bytes");
            }
            extents.push(extent);
        }
        let left = left - count as u32;
        self.phase = match (left, done) {
            (0, true) => Phase::Answered(cookie),
            (0, false) => Phase::Replies,
            _ => Phase::Extents { left, cookie, context, done },
        };
        Ok(Step::Extents { took, cookie, context, extents })
    }

    fn answered(&mut self, took: usize, cookie: u64) -> Result<Step, &'static str> {
        let contexts = self.contexts().len();
        let outstanding = self.outstanding.remove(&cookie).ok_or("a reply to an unknown request")?;
        let result = outstanding.end(contexts)?;
        Ok(Step::Answer { took, cookie, result })
    }
}

fn known(outstanding: &mut HashMap<u64, Outstanding>, cookie: u64) -> Result<&mut Outstanding, &'static str> {
    outstanding.get_mut(&cookie).ok_or("a reply to an unknown request")
}

fn next_extent(fields: &mut Fields<'_>, extended: bool) -> Option<Extent> {
    let mut number = || if extended { fields.u64() } else { fields.u32().map(u64::from) };
    Some(Extent { bytes: number()?, flags: number()? })
}

/// The failure that a chunk tells of.
fn failure(kind: u16, data: &[u8]) -> Result<Failure, &'static str> {
    const SHORT: &str = "an error that is shorter than it says";
    let mut fields = Fields(data);
    let errno = fields.u32().filter(|errno| *errno != 0).ok_or("an error without a number")?;
    let bytes = fields.u16().ok_or(SHORT)?;
    let text = String::from_utf8_lossy(fields.take(bytes.into()).ok_or(SHORT)?).into_owned();
    let at = if kind == chunk::ERROR_OFFSET { Some(fields.u64().ok_or(SHORT)?) } else { None };
    Ok(Failure { errno: Errno(errno), at, text })
}
