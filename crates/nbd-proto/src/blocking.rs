// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small client that waits: pipelined, over anything that reads and writes.
//!
//! [`Client::submit`] queues, [`Client::recv`] waits for whichever reply comes next; the caller
//! matches them by cookie. If much is outstanding, both ends can wait for the other to read: keep
//! to what the server takes at a time. Time is not limited here.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use crate::client::{self, Broken, ExportInfo, Failure, Misuse, Step, Wanted};
use crate::request::{Ask, Request};
use crate::wire::{Errno, Replies};

/// Bytes read, and queued, before a call of the stream.
const BUFFER_BYTES: usize = 256 << 10;
const _: () = assert!(BUFFER_BYTES >= client::INPUT_BYTES_MIN);

/// Why the client could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The stream failed, or the server hung up.
    #[error("NBD connection: {0}")]
    Io(#[from] io::Error),
    /// The server does not speak the protocol, or does not want this client.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The request can't be sent.
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// A request failed.
    #[error("NBD server answered {0}")]
    Failed(Errno),
}

/// The reply to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The cookie of the request.
    pub cookie: u64,
    /// How it went.
    pub result: Result<(), Failure>,
}

/// A connection to an export.
#[derive(Debug)]
pub struct Client<S> {
    stream: S,
    protocol: client::Client,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    output: Vec<u8>,
    info: ExportInfo,
    /// The data of reads that are answered in part, by cookie.
    parts: HashMap<u64, Vec<u8>>,
    /// A buffer for the next one.
    spare: Vec<u8>,
    extents: Vec<client::Extent>,
    next_cookie: u64,
}

impl<S: Read + Write> Client<S> {
    /// Opens the export `name` (empty: the default one), with structured replies if wanted and
    /// offered.
    ///
    /// # Errors
    /// If the stream fails, the other end is no server, or it refuses.
    pub fn open(stream: S, name: &str, structured: bool) -> Result<Self, ClientError> {
        let replies = if structured { Replies::Structured } else { Replies::Simple };
        Self::open_with(stream, Wanted { export: name.to_owned(), tls: false, replies, contexts: Vec::new() })
    }

    /// Opens an export. TLS is the stream's own business: [`Wanted::tls`] is not looked at.
    ///
    /// # Errors
    /// As for [`Client::open`].
    pub fn open_with(stream: S, wanted: Wanted) -> Result<Self, ClientError> {
        let protocol = client::Client::new(Wanted { tls: false, ..wanted });
        let mut client = Self {
            stream,
            protocol,
            input: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            output: Vec::new(),
            info: ExportInfo { size_bytes: 0, flags: 0, sizes: crate::sizes::BlockSizes::UNTOLD },
            parts: HashMap::new(),
            spare: Vec::new(),
            extents: Vec::new(),
            next_cookie: 0,
        };
        while client.protocol.info().is_none() {
            client.step()?;
        }
        client.info = client.protocol.info().copied().unwrap_or(client.info);
        Ok(client)
    }

    /// What the server says of the export.
    #[must_use]
    pub fn info(&self) -> &ExportInfo {
        &self.info
    }

    /// The conversation itself.
    #[must_use]
    pub fn protocol(&self) -> &client::Client {
        &self.protocol
    }

    /// Requests without a reply.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.protocol.outstanding()
    }

    /// Queues a request; `payload` is that of a write, else empty. It is sent with the next
    /// [`Client::recv`] or [`Client::send`], or when enough is queued.
    ///
    /// # Errors
    /// If the request makes no sense, or the stream fails.
    ///
    /// # Panics
    /// If the payload is not as long as the request says.
    pub fn submit(&mut self, request: Request, payload: &[u8]) -> Result<(), ClientError> {
        let bytes = if request.ask == Ask::Write { request.len } else { 0 };
        assert_eq!(payload.len() as u64, bytes, "a payload goes with a write");
        self.protocol.submit(request, &mut self.output)?;
        self.say(payload)
    }

    /// Queues bytes as they are. A test of a server can say anything with this.
    ///
    /// # Errors
    /// If the stream fails.
    pub fn say(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.output.extend_from_slice(bytes);
        if self.output.len() >= BUFFER_BYTES {
            self.send()?;
        }
        Ok(())
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// If the stream fails.
    pub fn send(&mut self) -> Result<(), ClientError> {
        self.stream.write_all(&self.output)?;
        self.stream.flush()?;
        self.output.clear();
        Ok(())
    }

    /// Waits for a reply; `data` becomes what a read returned, or empty.
    ///
    /// # Errors
    /// If the stream fails or the server breaks the protocol. A failed request is no such error,
    /// see [`Answer::result`].
    pub fn recv(&mut self, data: &mut Vec<u8>) -> Result<Answer, ClientError> {
        data.clear();
        self.extents.clear();
        loop {
            match self.step()? {
                Step::Answer { cookie, result, .. } => {
                    if let Some(part) = self.parts.remove(&cookie) {
                        self.spare = std::mem::replace(data, part);
                    }
                    if result.is_err() {
                        data.clear();
                    }
                    return Ok(Answer { cookie, result });
                }
                Step::Data { cookie, at, len, .. } => self.receive(cookie, at, len)?,
                // What is new in the data is zeroes.
                Step::Hole { cookie, .. } => drop(self.part(cookie)),
                Step::Extents { extents, .. } => self.extents.extend(extents),
                _ => {}
            }
        }
    }

    /// Reads, and waits. No request may be outstanding (as for all that wait).
    ///
    /// # Errors
    /// If the request or the connection fails.
    pub fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<(), ClientError> {
        let mut data = Vec::new();
        self.call(Ask::READ, offset, into.len() as u64, false, &[], &mut data)?;
        into.copy_from_slice(&data);
        Ok(())
    }

    /// Writes, and waits.
    ///
    /// # Errors
    /// If the request or the connection fails.
    pub fn write_at(&mut self, offset: u64, from: &[u8], fua: bool) -> Result<(), ClientError> {
        self.call(Ask::Write, offset, from.len() as u64, fua, from, &mut Vec::new())
    }

    /// Makes everything acknowledged durable, and waits.
    ///
    /// # Errors
    /// If the request or the connection fails.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.call(Ask::Flush, 0, 0, false, &[], &mut Vec::new())
    }

    /// Discards, and waits.
    ///
    /// # Errors
    /// If the request or the connection fails.
    pub fn trim(&mut self, offset: u64, len: u64) -> Result<(), ClientError> {
        self.call(Ask::Trim, offset, len, false, &[], &mut Vec::new())
    }

    /// Zeroes, and waits.
    ///
    /// # Errors
    /// If the request or the connection fails.
    pub fn write_zeroes(&mut self, offset: u64, len: u64) -> Result<(), ClientError> {
        self.call(Ask::ZEROES, offset, len, false, &[], &mut Vec::new())
    }

    /// Asks for the extents of a range, and waits. One context at most must be selected.
    ///
    /// # Errors
    /// If the request or the connection fails.
    pub fn extents(&mut self, offset: u64, len: u64) -> Result<Vec<client::Extent>, ClientError> {
        self.call(Ask::Status { one: false }, offset, len, false, &[], &mut Vec::new())?;
        Ok(std::mem::take(&mut self.extents))
    }

    /// Says goodbye. Dropping the client without it is a hang-up, which servers bear too.
    ///
    /// # Errors
    /// If the stream fails.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        self.protocol.disconnect(&mut self.output);
        self.send()?;
        // The server closes when all is answered.
        io::copy(&mut self.stream, &mut io::sink())?;
        Ok(())
    }

    fn call(
        &mut self,
        ask: Ask,
        offset: u64,
        len: u64,
        fua: bool,
        payload: &[u8],
        data: &mut Vec<u8>,
    ) -> Result<(), ClientError> {
        self.next_cookie += 1;
        let cookie = self.next_cookie;
        self.submit(Request { cookie, ask, offset, len, fua }, payload)?;
        let answer = self.recv(data)?;
        if answer.cookie != cookie {
            return Err(Broken::Protocol("the reply to another request").into());
        }
        answer.result.map_err(|failure| ClientError::Failed(failure.errno))
    }

    /// The data of a read as far as it has come, and the read's first byte. Zeroes are where
    /// nothing has come.
    fn part(&mut self, cookie: u64) -> (&mut Vec<u8>, u64) {
        let (offset, len) = self.protocol.request(cookie).map_or((0, 0), |request| (request.offset, request.len));
        let part = self.parts.entry(cookie).or_insert_with(|| fresh(&mut self.spare));
        if part.len() as u64 != len {
            part.clear();
            part.resize(len as usize, 0);
        }
        (part, offset)
    }

    /// Takes the next thing that the server says. What is queued is sent before this waits.
    fn step(&mut self) -> Result<Step, ClientError> {
        loop {
            let step = self.protocol.step(&self.input[self.start..self.end], &mut self.output)?;
            let took = match &step {
                Step::Need | Step::Payload(_) => 0,
                Step::Took(took) | Step::StartTls(took) | Step::Opened(took) => *took,
                Step::Data { took, .. }
                | Step::Hole { took, .. }
                | Step::Extents { took, .. }
                | Step::Answer { took, .. } => *took,
            };
            self.start += took;
            if step != Step::Need {
                return Ok(step);
            }
            self.fill()?;
        }
    }

    /// Receives some bytes more.
    fn fill(&mut self) -> Result<(), ClientError> {
        self.send()?;
        self.input.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let bytes = read_some(&mut self.stream, &mut self.input[self.end..])?;
        self.end += bytes;
        Ok(())
    }

    /// Receives the data that is next.
    fn receive(&mut self, cookie: u64, at: u64, len: u32) -> Result<(), ClientError> {
        let here = (self.end - self.start).min(len as usize);
        if here < len as usize {
            self.send()?;
        }
        let from = self.start..self.start + here;
        self.start += here;
        let (part, offset) = self.part(cookie);
        let start = (at - offset) as usize;
        let mut part = std::mem::take(part);
        let into = &mut part[start..start + len as usize];
        into[..here].copy_from_slice(&self.input[from]);
        let received = self.stream.read_exact(&mut into[here..]);
        self.parts.insert(cookie, part);
        self.protocol.payload_taken(len.into());
        Ok(received?)
    }
}

/// The memory of a buffer, without its content.
fn fresh(spare: &mut Vec<u8>) -> Vec<u8> {
    spare.clear();
    std::mem::take(spare)
}

fn read_some(stream: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
