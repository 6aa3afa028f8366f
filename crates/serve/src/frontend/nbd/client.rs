// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small NBD client: blocking, pipelined, for `flashfront try` and for tests.
//!
//! `submit` queues, `recv` waits for whichever reply comes next; the caller matches them by
//! cookie. Fewer than [`super::REQUESTS_MAX`] requests may be outstanding, or both ends could
//! wait for the other to read. Not for hostile servers: lengths are checked, time is not.

mod hello;

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use super::listen::Listen;
use super::wire::{
    CHUNK_MAGIC, Errno, Replies, RequestHeader, SIMPLE_MAGIC, chunk, command, command_flag, export_flag,
};

/// Bytes read, and queued, before a system call.
const BUFFER_BYTES: usize = 256 << 10;
/// The longest answer to an option that is believed.
const ANSWER_BYTES_MAX: u32 = 64 << 10;

/// What a server says of its export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportInfo {
    /// Its size.
    pub size_bytes: u64,
    /// The transmission flags, as on the wire.
    pub flags: u16,
    /// What requests must be aligned to (512 if not told).
    pub block_bytes: u32,
    /// What requests should be aligned to.
    pub preferred_bytes: u32,
    /// The longest read or write.
    pub payload_bytes_max: u32,
}

impl ExportInfo {
    /// Whether writes are refused.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.flags & export_flag::READ_ONLY != 0
    }
}

/// Why the client could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket failed, or the server hung up.
    #[error("NBD connection: {0}")]
    Io(#[from] io::Error),
    /// The server did not speak the protocol.
    #[error("NBD server broke the protocol: {0}")]
    Protocol(&'static str),
    /// The server does not want us.
    #[error("NBD server refused the export {name:?} (answer {kind:#x}): {text}")]
    Refused {
        /// The name asked for.
        name: String,
        /// The kind of answer.
        kind: u32,
        /// The server's words.
        text: String,
    },
    /// A request failed.
    #[error("NBD server answered {0}")]
    Failed(Errno),
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientOp {
    /// Read.
    Read,
    /// Write the payload.
    Write {
        /// Durable when answered.
        fua: bool,
    },
    /// Make everything acknowledged durable.
    Flush,
    /// Discard.
    Trim,
    /// Zero; `no_hole` keeps the space allocated.
    WriteZeroes {
        /// Keep the space.
        no_hole: bool,
        /// Durable when answered.
        fua: bool,
    },
}

/// The reply to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Of which request.
    pub cookie: u64,
    /// How it went.
    pub result: Result<(), Errno>,
}

/// A request that is not answered.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    read: bool,
    offset: u64,
    len: u32,
}

/// What a part of a reply brought.
enum Chunk {
    /// So many bytes of what was read.
    Data(u32),
    Error(Errno),
}

/// A connection in the transmission phase.
#[derive(Debug)]
pub struct Client {
    input: BufReader<Socket>,
    output: Vec<u8>,
    info: ExportInfo,
    structured: bool,
    outstanding: HashMap<u64, Outstanding>,
    next_cookie: u64,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(into),
            Self::Tcp(socket) => socket.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.write(from),
            Self::Tcp(socket) => socket.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Client {
    /// Connects and opens the export `name` (empty = the default one), with structured replies
    /// if wanted and offered.
    ///
    /// # Errors
    /// If nobody listens, the server is none, or it refuses.
    pub fn connect(at: &Listen, name: &str, structured: bool) -> Result<Self, ClientError> {
        let socket = match at {
            Listen::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
            Listen::Tcp { host, port } => {
                let socket = TcpStream::connect((host.as_str(), *port))?;
                socket.set_nodelay(true)?;
                Socket::Tcp(socket)
            }
        };
        let mut client = Self {
            input: BufReader::with_capacity(BUFFER_BYTES, socket),
            output: Vec::new(),
            info: ExportInfo::default(),
            structured: false,
            outstanding: HashMap::new(),
            next_cookie: 0,
        };
        client.shake_hands(name, structured)?;
        Ok(client)
    }

    /// What the server says of the export.
    #[must_use]
    pub fn info(&self) -> &ExportInfo {
        &self.info
    }

    /// Requests without a reply.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Queues a request of `len` bytes at `offset`; `payload` is that of a write, else empty.
    /// It is sent with the next [`Client::recv`] or [`Client::send`], or when enough is queued.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn submit(
        &mut self,
        op: ClientOp,
        offset: u64,
        len: u32,
        payload: &[u8],
        cookie: u64,
    ) -> Result<(), ClientError> {
        let flag = |on: bool, flag: u16| if on { flag } else { 0 };
        let (command, flags) = match op {
            ClientOp::Read => (command::READ, 0),
            ClientOp::Write { fua } => (command::WRITE, flag(fua, command_flag::FUA)),
            ClientOp::Flush => (command::FLUSH, 0),
            ClientOp::Trim => (command::TRIM, 0),
            ClientOp::WriteZeroes { no_hole, fua } => {
                let flags = flag(no_hole, command_flag::NO_HOLE) | flag(fua, command_flag::FUA);
                (command::WRITE_ZEROES, flags)
            }
        };
        RequestHeader { flags, command, cookie, offset, len: len.into() }.encode(Replies::Structured, &mut self.output);
        self.output.extend_from_slice(payload);
        let read = op == ClientOp::Read;
        self.outstanding.insert(cookie, Outstanding { read, offset, len });
        if self.output.len() >= BUFFER_BYTES {
            self.send()?;
        }
        Ok(())
    }

    /// Says a write of which only so many bytes come.
    #[cfg(test)]
    pub(crate) fn say_a_part_of_a_write(&mut self, offset: u64, len: u32, bytes: usize) -> Result<(), ClientError> {
        let len = len.into();
        let header = RequestHeader { flags: 0, command: command::WRITE, cookie: 0, offset, len };
        header.encode(Replies::Structured, &mut self.output);
        self.output.resize(self.output.len() + bytes, 7);
        self.send()
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn send(&mut self) -> Result<(), ClientError> {
        self.input.get_mut().write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }

    /// Waits for a reply; `data` becomes what a read returned, or empty.
    ///
    /// # Errors
    /// If the socket fails or the server breaks the protocol. A failed request is no such
    /// error, see [`Answer::result`].
    pub fn recv(&mut self, data: &mut Vec<u8>) -> Result<Answer, ClientError> {
        if self.input.buffer().is_empty() {
            self.send()?;
        }
        data.clear();
        let (mut failed, mut got) = (None, 0);
        loop {
            let magic = u32::from_be_bytes(self.array()?);
            if magic == SIMPLE_MAGIC {
                let error = u32::from_be_bytes(self.array()?);
                let cookie = u64::from_be_bytes(self.array()?);
                let request = self.known(cookie)?;
                if request.read && self.structured {
                    return Err(ClientError::Protocol("a simple reply to a read"));
                }
                if request.read && error == 0 {
                    data.resize(request.len as usize, 0);
                    self.input.read_exact(data)?;
                }
                self.outstanding.remove(&cookie);
                let result = if error == 0 { Ok(()) } else { Err(Errno(error)) };
                return Ok(Answer { cookie, result });
            }
            if magic != CHUNK_MAGIC || !self.structured {
                return Err(ClientError::Protocol("a reply without a magic"));
            }
            let flags = u16::from_be_bytes(self.array()?);
            let kind = u16::from_be_bytes(self.array()?);
            let cookie = u64::from_be_bytes(self.array()?);
            let len = u32::from_be_bytes(self.array()?);
            let request = self.known(cookie)?;
            match self.chunk(kind, len, request, data)? {
                Chunk::Data(bytes) => got += u64::from(bytes),
                Chunk::Error(error) => {
                    failed.get_or_insert(error);
                }
            }
            if flags & chunk::DONE != 0 {
                self.outstanding.remove(&cookie);
                if request.read && failed.is_none() && got != u64::from(request.len) {
                    return Err(ClientError::Protocol("a reply with another amount of data than was asked for"));
                }
                return Ok(Answer { cookie, result: failed.map_or(Ok(()), Err) });
            }
        }
    }

    /// Reads, and waits. No request may be outstanding (as for all that wait).
    ///
    /// # Errors
    /// If the request or the connection fails.
    pub fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<(), ClientError> {
        let mut data = Vec::new();
        self.call(ClientOp::Read, offset, wire_u32(into.len())?, &[], &mut data)?;
        into.copy_from_slice(&data);
        Ok(())
    }

    /// Writes, and waits.
    ///
    /// # Errors
    /// If the request or the connection fails.
    pub fn write_at(&mut self, offset: u64, from: &[u8], fua: bool) -> Result<(), ClientError> {
        let len = wire_u32(from.len())?;
        self.call(ClientOp::Write { fua }, offset, len, from, &mut Vec::new())
    }

    /// Makes everything acknowledged durable, and waits.
    ///
    /// # Errors
    /// If the request or the connection fails.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.call(ClientOp::Flush, 0, 0, &[], &mut Vec::new())
    }

    /// Discards, and waits.
    ///
    /// # Errors
    /// If the request or the connection fails.
    pub fn trim(&mut self, offset: u64, len: u32) -> Result<(), ClientError> {
        self.call(ClientOp::Trim, offset, len, &[], &mut Vec::new())
    }

    /// Zeroes, and waits.
    ///
    /// # Errors
    /// If the request or the connection fails.
    pub fn write_zeroes(&mut self, offset: u64, len: u32) -> Result<(), ClientError> {
        let op = ClientOp::WriteZeroes { no_hole: false, fua: false };
        self.call(op, offset, len, &[], &mut Vec::new())
    }

    /// Says goodbye. Dropping the client without it is a hang-up, which servers bear too.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        let command = command::DISCONNECT;
        let header = RequestHeader { flags: 0, command, cookie: 0, offset: 0, len: 0 };
        header.encode(Replies::Structured, &mut self.output);
        self.send()?;
        // The server closes when all is answered.
        io::copy(&mut self.input, &mut io::sink())?;
        Ok(())
    }

    fn call(
        &mut self,
        op: ClientOp,
        offset: u64,
        len: u32,
        payload: &[u8],
        data: &mut Vec<u8>,
    ) -> Result<(), ClientError> {
        self.next_cookie += 1;
        let cookie = self.next_cookie;
        self.submit(op, offset, len, payload, cookie)?;
        let answer = self.recv(data)?;
        if answer.cookie != cookie {
            return Err(ClientError::Protocol("the reply to another request"));
        }
        answer.result.map_err(ClientError::Failed)
    }

    /// Takes a chunk's payload; the error if it is one.
    fn chunk(&mut self, kind: u16, len: u32, request: Outstanding, data: &mut Vec<u8>) -> Result<Chunk, ClientError> {
        const BROKEN: ClientError = ClientError::Protocol("a chunk outside its request");
        match kind {
            chunk::NONE if len == 0 => Ok(Chunk::Data(0)),
            chunk::OFFSET_DATA | chunk::OFFSET_HOLE if request.read => {
                let offset = u64::from_be_bytes(self.array()?);
                let piece = if kind == chunk::OFFSET_DATA {
                    len.checked_sub(8).ok_or(BROKEN)?
                } else {
                    u32::from_be_bytes(self.array()?)
                };
                let start = offset.checked_sub(request.offset).ok_or(BROKEN)?;
                let end = start.checked_add(u64::from(piece)).ok_or(BROKEN)?;
                if end > u64::from(request.len) {
                    return Err(BROKEN);
                }
                data.resize(request.len as usize, 0);
                let place = &mut data[start as usize..end as usize];
                if kind == chunk::OFFSET_DATA {
                    self.input.read_exact(place)?;
                } else {
                    place.fill(0);
                }
                Ok(Chunk::Data(piece))
            }
            _ if kind & chunk::ERROR != 0 && (6..=ANSWER_BYTES_MAX).contains(&len) => {
                let error = u32::from_be_bytes(self.array()?);
                io::copy(&mut (&mut self.input).take(u64::from(len) - 4), &mut io::sink())?;
                Ok(Chunk::Error(Errno(error)))
            }
            _ => Err(ClientError::Protocol("a chunk of an unexpected kind")),
        }
    }

    fn known(&self, cookie: u64) -> Result<Outstanding, ClientError> {
        let request = self.outstanding.get(&cookie).copied();
        request.ok_or(ClientError::Protocol("a reply to an unknown request"))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ClientError> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

fn wire_u32(len: usize) -> Result<u32, ClientError> {
    u32::try_from(len).map_err(|_| ClientError::Protocol("a request of 4 GiB or more"))
}
