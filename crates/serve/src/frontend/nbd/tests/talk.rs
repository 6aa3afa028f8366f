// SPDX-License-Identifier: MIT OR Apache-2.0
//! Talks to a connection without sockets: bytes cut as wanted, requests carried out when wanted.

use std::collections::BTreeMap;

use super::super::super::piece::PieceId;
use super::super::connection::Connection;
use super::super::wait::Wait;
use super::ram::Ram;
use flashfront_nbd_proto::server::Security;
use flashfront_nbd_proto::wire::{self, Fields, Replies, RequestHeader, handshake_flag, info, option};

/// A client, its connection, and the disk.
pub(super) struct Talk {
    pub(super) connection: Connection,
    pub(super) ram: Ram,
    /// Bytes of the server that were read.
    pub(super) said: Vec<u8>,
}

/// A reply: the error (0 = none) and the data of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) error: u32,
    pub(super) data: Vec<u8>,
}

impl Talk {
    pub(super) fn new(ram: Ram) -> Self {
        Self::secured(ram, Security::Off)
    }

    pub(super) fn secured(ram: Ram, security: Security) -> Self {
        Self { connection: Connection::new(0, security), ram, said: Vec::new() }
    }

    /// A connection after its handshake, which is taken out of `said`.
    pub(super) fn started(ram: Ram, structured: bool) -> Self {
        let mut talk = Self::new(ram);
        talk.hear(&hello(structured));
        talk.said.clear();
        talk
    }

    /// A talk with any replies, of a client that knows of block sizes or doesn't.
    pub(super) fn started_of(ram: Ram, replies: Replies, sized: bool) -> Self {
        let mut talk = Self::new(ram);
        talk.hear(&hello_of(replies, sized));
        talk.said.clear();
        talk
    }

    /// Says `bytes`, all at once, and lets everything be done.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        self.hear_cut(bytes, || usize::MAX);
    }

    /// Says `bytes`; every transfer, either way, is of at most `cut()` bytes (0 counts as 1).
    pub(super) fn hear_cut(&mut self, mut bytes: &[u8], mut cut: impl FnMut() -> usize) {
        loop {
            let wait = self.connection.advance(&mut self.ram, true);
            let moved = self.execute(usize::MAX) + self.read(usize::MAX, &mut cut);
            match wait {
                Wait::Input if bytes.is_empty() => return,
                Wait::Input => bytes = &bytes[self.say(bytes, cut())..],
                Wait::Own | Wait::Room => assert!(moved > 0, "stuck: {wait:?}"),
                Wait::Tls | Wait::End => return,
            }
        }
    }

    /// The connection takes at most `max` of `bytes`; how many it took.
    pub(super) fn say(&mut self, bytes: &[u8], max: usize) -> usize {
        let mut rest = &bytes[..bytes.len().min(max.max(1))];
        let result = self.connection.receive(&mut self.ram, |slices| {
            let mut total = 0;
            for slice in slices {
                let count = slice.len().min(rest.len());
                slice[..count].copy_from_slice(&rest[..count]);
                rest = &rest[count..];
                total += count;
            }
            Ok(total)
        });
        result.unwrap().bytes
    }

    /// Carries out at most `count` of the requests that wait; how many it were.
    pub(super) fn execute(&mut self, count: usize) -> usize {
        let count = count.min(self.ram.queue.len());
        for request in self.ram.queue.drain(..count).collect::<Vec<_>>() {
            if self.ram.refuses(&request) {
                self.connection.refused(PieceId::decode(request.id), &mut self.ram);
                continue;
            }
            let (id, result) = self.ram.execute(&request);
            self.connection.reply(PieceId::decode(id), result, &mut self.ram);
        }
        count
    }

    /// Reads at most `max` bytes of the server's output; returns how many they were.
    pub(super) fn read(&mut self, max: usize, cut: &mut impl FnMut() -> usize) -> usize {
        let mut total = 0;
        while self.connection.can_send() && total < max {
            let room = cut().max(1).min(max - total);
            let said = &mut self.said;
            let before = said.len();
            let result = self.connection.transmit(&mut self.ram, |slices| {
                let mut left = room;
                for slice in slices {
                    let count = slice.len().min(left);
                    said.extend_from_slice(&slice[..count]);
                    left -= count;
                }
                assert!(left < room, "nothing was offered");
                Ok(room - left)
            });
            result.unwrap();
            total += self.said.len() - before;
        }
        total
    }

    /// The client hangs up, and the engine finishes.
    pub(super) fn hang_up(mut self) -> Ram {
        self.connection.abort(&mut self.ram);
        self.execute(usize::MAX);
        assert!(self.connection.is_over());
        assert_eq!(self.ram.buffers.held_bytes + self.ram.buffers.passing_bytes, 0, "buffers leaked");
        self.ram
    }
}

/// The data of an INFO or GO.
pub(super) fn info_data(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = wire::len_before(name.as_bytes()).to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(wanted.len() as u16).to_be_bytes());
    for kind in wanted {
        data.extend_from_slice(&kind.to_be_bytes());
    }
    data
}

/// The client's flags.
pub(super) fn client_flags() -> Vec<u8> {
    let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
    u32::from(flags).to_be_bytes().to_vec()
}

/// Returns all a client says until its first request; it keeps to block sizes.
pub(super) fn hello(structured: bool) -> Vec<u8> {
    let mut out = client_flags();
    if structured {
        wire::encode_option(&mut out, option::STRUCTURED_REPLY, &[]);
    }
    wire::encode_option(&mut out, option::GO, &info_data("disk", &[info::BLOCK_SIZE]));
    out
}

/// The hello with any replies, and with `base:allocation` where there can be; `sized`: the block
/// sizes are asked for.
pub(super) fn hello_of(replies: Replies, sized: bool) -> Vec<u8> {
    let mut out = client_flags();
    let option = match replies {
        Replies::Simple => None,
        Replies::Structured => Some(option::STRUCTURED_REPLY),
        Replies::Extended => Some(option::EXTENDED_HEADERS),
    };
    if let Some(option) = option {
        wire::encode_option(&mut out, option, &[]);
        wire::encode_option(&mut out, option::SET_META_CONTEXT, &context_data("disk", &["base:allocation"]));
    }
    wire::encode_option(&mut out, option::GO, &info_data("disk", if sized { &[info::BLOCK_SIZE] } else { &[] }));
    out
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
pub(super) fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = wire::len_before(name.as_bytes()).to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend_from_slice(&wire::len_before(query.as_bytes()));
        data.extend_from_slice(query.as_bytes());
    }
    data
}

/// A request on the wire.
pub(super) fn request(command: u16, flags: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    request_of(Replies::Simple, command, flags, cookie, offset, len.into())
}

/// A request of a client with these replies.
pub(super) fn request_of(replies: Replies, command: u16, flags: u16, cookie: u64, offset: u64, len: u64) -> Vec<u8> {
    let mut out = Vec::new();
    RequestHeader { flags, command, cookie, offset, len }.encode(replies, &mut out);
    out
}

/// The replies in `said`, by cookie, of a client with simple or structured replies.
pub(super) fn replies(said: &[u8], structured: bool, reads: &BTreeMap<u64, u32>) -> BTreeMap<u64, Heard> {
    let reads = reads.iter().map(|(cookie, len)| (*cookie, u64::from(*len))).collect();
    replies_of(said, if structured { Replies::Structured } else { Replies::Simple }, &reads)
}

/// The replies in `said`, by cookie. `reads` tells the length of each read. Panics at anything that
/// is not a complete, well-formed reply to a read of those or to something else. What tells of
/// extents is the data of its request.
pub(super) fn replies_of(said: &[u8], replies: Replies, reads: &BTreeMap<u64, u64>) -> BTreeMap<u64, Heard> {
    let mut all = BTreeMap::new();
    // Reads whose last chunk has not come: the chunks that came, and the bytes that are known.
    let mut begun: BTreeMap<u64, (Heard, u64)> = BTreeMap::new();
    let mut firsts = BTreeMap::new();
    let mut fields = Fields(said);
    while !fields.0.is_empty() {
        let magic = fields.u32().unwrap();
        if magic == wire::SIMPLE_MAGIC {
            assert_ne!(replies, Replies::Extended, "a simple reply");
            let (error, cookie) = (fields.u32().unwrap(), fields.u64().unwrap());
            let read = reads.get(&cookie);
            assert!(
                replies == Replies::Simple || (read.is_none() && error == 0),
                "a simple reply to a read, or an error"
            );
            let len = read.filter(|_| error == 0).copied().unwrap_or(0);
            let heard = Heard { error, data: fields.take(len as usize).unwrap().to_vec() };
            assert!(all.insert(cookie, heard).is_none(), "{cookie} was answered twice");
            continue;
        }
        let extended = replies == Replies::Extended;
        assert_eq!(magic, if extended { wire::EXTENDED_CHUNK_MAGIC } else { wire::CHUNK_MAGIC });
        let (flags, kind, cookie) = (fields.u16().unwrap(), fields.u16().unwrap(), fields.u64().unwrap());
        let len = if extended {
            fields.u64().unwrap();
            fields.u64().unwrap()
        } else {
            fields.u32().unwrap().into()
        };
        let mut data = Fields(fields.take(len as usize).unwrap());
        let read = reads.get(&cookie).copied();
        let (heard, known) = begun.entry(cookie).or_insert_with(|| (Heard { error: 0, data: Vec::new() }, 0));
        match kind {
            wire::chunk::NONE => assert!(len == 0 && flags == wire::chunk::DONE),
            wire::chunk::OFFSET_DATA | wire::chunk::OFFSET_HOLE => {
                let read = read.expect("a chunk for a read");
                let at = data.u64().unwrap();
                // Chunks come in order here.
                let first = *firsts.entry(cookie).or_insert(at);
                assert_eq!(at - first, *known);
                if kind == wire::chunk::OFFSET_DATA {
                    heard.data.extend_from_slice(data.0);
                } else {
                    let bytes = data.u32().unwrap() as usize;
                    heard.data.resize(heard.data.len() + bytes, 0);
                    assert!(data.0.is_empty() && bytes > 0);
                }
                *known = heard.data.len() as u64;
                assert!(*known <= read);
            }
            wire::chunk::BLOCK_STATUS | wire::chunk::BLOCK_STATUS_EXTENDED => heard.data = data.0.to_vec(),
            wire::chunk::ERROR_PLAIN | wire::chunk::ERROR_OFFSET => {
                heard.error = data.u32().unwrap();
                assert_ne!(heard.error, 0);
                let words = data.u16().unwrap();
                let words = std::str::from_utf8(data.take(words.into()).unwrap()).unwrap();
                assert!(!words.is_empty(), "an error in words");
                assert_eq!(data.0.len(), if kind == wire::chunk::ERROR_OFFSET { 8 } else { 0 });
            }
            _ => panic!("a chunk of kind {kind}"),
        }
        if flags & wire::chunk::DONE != 0 {
            firsts.remove(&cookie);
            let (mut heard, known) = begun.remove(&cookie).unwrap();
            assert!(heard.error != 0 || read.is_none_or(|read| read == known), "a read without all its data");
            if heard.error != 0 {
                heard.data.clear();
            }
            assert!(all.insert(cookie, heard).is_none(), "{cookie} was answered twice");
        }
    }
    assert!(begun.is_empty(), "replies without an end: {begun:?}");
    all
}
