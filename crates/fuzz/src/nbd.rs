// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NBD server and its clients. Several clients at a time send any bytes, in any pieces. Some
//! don't read, leave in the middle, or wait.
//!
//! The server may hang up on them. But it may not pass on requests that are not in order. It may
//! not keep buffers or places of clients that have left. It may not be busy without work, or serve
//! the next client badly.

mod server;

use std::cell::RefCell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::Target;
use crate::bytes::Bytes;
use server::{EXPORT_BYTES, Server};

pub(crate) const TARGET: Target = Target {
    name: "nbd",
    summary: "the NBD server: handshake and transmission, with hostile clients",
    input_bytes_max: 4096,
    // Payload is not on the heap but in the arena, which has a bound of its own.
    heap_bytes_max: 16 << 20,
    body,
};

const CLIENTS_MAX: usize = 5;
/// Bytes of payload that are really sent for one request.
const PAYLOAD_BYTES_MAX: usize = 128 << 10;
const OPTION_MAGIC: &[u8] = b"IHAVEOPT";
const REQUEST_MAGIC: u32 = 0x2560_9513;
const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
const GREETING_BYTES: usize = 18;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const SET_META_CONTEXT: u32 = 10;
const EXTENDED_HEADERS: u32 = 11;
const PAYLOAD_LEN: u16 = 1 << 5;

thread_local! {
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
}

fn body(data: &[u8]) {
    // A server that has panicked is not put back.
    let mut server = SERVER.take().unwrap_or_else(Server::start);
    let mut bytes = Bytes::new(data);
    let what = bytes.u8();
    let read_only = what & 4 != 0;
    server.offer(1 + u16::from(what & 1), if what & 2 == 0 { 512 } else { 4096 }, read_only);
    server.disk.broken = what & 8 != 0;
    let mut run = Run { server, clients: Vec::new(), at: 0 };
    run.connect();
    while !bytes.is_empty() {
        run.act(&mut bytes);
    }
    run.end();
    let Run { mut server, .. } = run;
    server.expect_rest();
    server.disk.broken = false;
    server.offer(1, 4096, false);
    serves_well(&mut server);
    server.expect_rest();
    SERVER.set(Some(server));
}

struct Run {
    server: Server,
    clients: Vec<Option<UnixStream>>,
    /// The client whose turn it is.
    at: usize,
}

impl Run {
    fn connect(&mut self) {
        if self.clients.len() < CLIENTS_MAX
            && let Ok(client) = self.server.connect()
        {
            self.at = self.clients.len();
            self.clients.push(Some(client));
        }
    }

    fn act(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.below(14) {
            0 => {
                let len = bytes.u8().into();
                self.say(bytes.take(len));
            }
            1 | 2 => self.say(&hello(
                bytes.pick(&[Replies::Simple, Replies::Structured, Replies::Extended]),
                bytes.below(4) > 0,
            )),
            3 => {
                let option = bytes.pick(&[1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 0x1234_5678]);
                let len = bytes.u8().into();
                let mut said = option_of(option, bytes.take(len));
                if bytes.below(8) == 0 {
                    // The length differs from the length of the data.
                    let wrong = bytes.number(4) as u32;
                    said[12..16].copy_from_slice(&wrong.to_be_bytes());
                }
                self.say(&said);
            }
            4..=7 => self.request(bytes),
            8 => self.hear(bytes.below(1 << 16) as usize),
            9 => {
                let count = 1 + bytes.below(64) as usize;
                self.server.answer(count, bytes.below(2) == 0);
            }
            10 => self.connect(),
            11 => self.at = bytes.below(self.clients.len() as u64) as usize,
            12 => match bytes.below(3) {
                0 => self.clients[self.at] = None,
                1 => self.shut_down(),
                _ => self.hear(usize::MAX),
            },
            _ => self.server.now = self.server.now.plus_ns(bytes.below(64) * 1_000_000_000),
        }
        self.server.turn();
    }

    /// Sends a request with a sound magic, and often with sound places. Behind a write's header
    /// comes its payload, or a part of it.
    fn request(&mut self, bytes: &mut Bytes<'_>) {
        let extended = bytes.below(3) == 0;
        let command = bytes.pick(&[0_u16, 1, 1, 0, 3, 4, 6, 5, 7, 7, 2, 0x0101]);
        let flags = u16::from(bytes.pick(&[0_u8, 0, 1, 2, 4, 8, 16, 32, 0xff]));
        let unit = bytes.pick(&[4096_u64, 512, 1 << 20, 1]);
        let offset = match bytes.below(8) {
            7 => EXPORT_BYTES.wrapping_sub(bytes.number(2)),
            6 => bytes.number(8),
            _ => bytes.below(256) * unit,
        };
        let len =
            if bytes.below(16) == 15 { bytes.number(if extended { 8 } else { 4 }) } else { bytes.below(40) * unit };
        let marks = extended && command == 1 && bytes.below(8) < 7;
        let flags = if marks { flags | PAYLOAD_LEN } else { flags };
        let mut said = request_of(extended, command, flags, bytes.u8().into(), offset, len);
        if command == 1 || flags & PAYLOAD_LEN != 0 {
            // The payload comes in full, or is cut off.
            let cut = bytes.below(8) == 7;
            let payload = (len as usize).min(PAYLOAD_BYTES_MAX);
            said.resize(said.len() + if cut { payload / 2 } else { payload }, 0x77);
            if command == 7 {
                let end = said.len();
                // There is only one context.
                said[end - 1.min(payload)..].fill(1);
            }
        }
        self.say(&said);
    }

    /// Says something, as far as the server takes it.
    fn say(&mut self, mut bytes: &[u8]) {
        let Some(client) = &mut self.clients[self.at] else { return };
        while !bytes.is_empty() {
            match client.write(bytes) {
                Ok(sent) if sent > 0 => bytes = &bytes[sent..],
                // The socket is full, perhaps because the server waits for us; or it has hung up.
                _ => return,
            }
            self.server.turn();
        }
    }

    /// Reads at most `most` bytes from the server.
    fn hear(&mut self, most: usize) {
        if let Some(client) = &mut self.clients[self.at] {
            hear(client, most);
        }
    }

    fn shut_down(&self) {
        if let Some(client) = &self.clients[self.at] {
            // The server may have hung up already.
            let _ = client.shutdown(std::net::Shutdown::Write);
        }
    }

    /// Lets all clients read what is left for them, and leave.
    fn end(&mut self) {
        for nth in 0..self.clients.len() {
            loop {
                self.server.settle();
                let Some(client) = &mut self.clients[nth] else { break };
                if hear(client, usize::MAX) == 0 {
                    break;
                }
            }
            self.clients[nth] = None;
        }
        self.server.settle();
    }
}

fn hear(client: &mut UnixStream, most: usize) -> usize {
    let mut heard = 0;
    let mut buf = [0; 64 << 10];
    while heard < most {
        match client.read(&mut buf[..(most - heard).min(64 << 10)]) {
            Ok(bytes) if bytes > 0 => heard += bytes,
            _ => break,
        }
    }
    heard
}

fn option_of(option: u32, data: &[u8]) -> Vec<u8> {
    let len = (data.len() as u32).to_be_bytes();
    [OPTION_MAGIC, &option.to_be_bytes(), &len, data].concat()
}

/// The kind of replies that a client agrees on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replies {
    Simple,
    Structured,
    Extended,
}

/// A client's whole part of a handshake; `sized`: it asks for the block sizes.
fn hello(replies: Replies, sized: bool) -> Vec<u8> {
    let mut said = 3_u32.to_be_bytes().to_vec();
    match replies {
        Replies::Simple => {}
        Replies::Structured => said.extend(option_of(STRUCTURED_REPLY, &[])),
        Replies::Extended => said.extend(option_of(EXTENDED_HEADERS, &[])),
    }
    if replies != Replies::Simple {
        said.extend(option_of(SET_META_CONTEXT, b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation"));
    }
    let wanted: &[u8] = if sized { b"\0\0\0\x04disk\0\x01\0\x03" } else { b"\0\0\0\x04disk\0\0" };
    said.extend(option_of(GO, wanted));
    said
}

fn request_of(extended: bool, command: u16, flags: u16, cookie: u64, offset: u64, len: u64) -> Vec<u8> {
    let magic = if extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
    let mut said = magic.to_be_bytes().to_vec();
    said.extend(flags.to_be_bytes());
    said.extend(command.to_be_bytes());
    said.extend(cookie.to_be_bytes());
    said.extend(offset.to_be_bytes());
    if extended {
        said.extend(len.to_be_bytes());
    } else {
        said.extend((len as u32).to_be_bytes());
    }
    said
}

/// Checks that a client that does nothing wrong is served.
fn serves_well(server: &mut Server) {
    let mut client = server.connect().expect("the server listens");
    let payload: Vec<u8> = (0..4096_u32).map(|nth| (nth * 7 + 1) as u8).collect();
    let write = [request_of(false, 1, 0, 1, 8192, 4096), payload.clone()].concat();
    let said =
        [hello(Replies::Simple, true), write, request_of(false, 0, 0, 2, 8192, 4096), request_of(false, 2, 0, 3, 0, 0)]
            .concat();
    let sent = client.write(&said).expect("the socket is empty");
    assert_eq!(sent, said.len());
    // The read must not overtake the write.
    server.settle();
    let mut heard = Vec::new();
    let end = client.read_to_end(&mut heard);
    assert!(end.is_ok(), "{end:?}: the server does not hang up after a disconnect");
    assert_eq!(&heard[..GREETING_BYTES], b"NBDMAGICIHAVEOPT\0\x03");
    let reply = |cookie: u64| [[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], cookie.to_be_bytes()].concat();
    let expected = [reply(1), reply(2), payload].concat();
    assert!(heard.ends_with(&expected), "what was written is not what is read");
}
