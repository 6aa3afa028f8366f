// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NBD protocol without I/O: any bytes, to its server and to its client, in any pieces.
//!
//! Neither end may take more than there is, or mean something else when the bytes are cut
//! elsewhere. The server passes on no request outside the export. The client calls a read answered
//! only if each of its bytes has come once.

use std::collections::BTreeMap;

use flashfront_nbd_proto::client::{Client, Wanted};
use flashfront_nbd_proto::server::{Export, Security, Server};
use flashfront_nbd_proto::uri::Uri;
use flashfront_nbd_proto::wire::{ChunkHeader, Replies, RequestHeader, SimpleReply, encode_answer, encode_option};
use flashfront_nbd_proto::{Ask, BlockSizes, Request, client, server};

use crate::Target;
use crate::bytes::Bytes;

pub(crate) const TARGET: Target = Target {
    name: "nbd_proto",
    summary: "the NBD protocol without I/O: both ends, with hostile bytes, cut anywhere",
    input_bytes_max: 4096,
    heap_bytes_max: 16 << 20,
    body,
};

const EXPORT_BYTES: u64 = 1 << 20;
/// The longest payload, and so the longest data that is made up here.
const PAYLOAD_BYTES_MAX: u32 = 8 << 10;
const SIZES: BlockSizes = BlockSizes { minimum: 1, preferred: 4096, maximum: PAYLOAD_BYTES_MAX };
const ALL: [Replies; 3] = [Replies::Simple, Replies::Structured, Replies::Extended];

fn body(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let what = bytes.u8();
    if what == 0xff {
        return uri(bytes.take(usize::MAX));
    }
    let replies = ALL[usize::from(what >> 1) % 3];
    let sound = what & 8 == 0;
    let cut = 1 + bytes.below(64) as usize;
    if what & 1 == 0 {
        let said = client_says(&mut bytes, replies, sound);
        let whole = run_server(&said, usize::MAX);
        assert_eq!(whole, run_server(&said, cut), "the server hears something else in pieces of {cut}");
    } else {
        let said = server_says(&mut bytes, replies, sound.then_some(what & 16 == 0));
        let whole = run_client(&said, replies, usize::MAX);
        assert_eq!(whole, run_client(&said, replies, cut), "the client hears something else in pieces of {cut}");
    }
}

/// A URI that is taken says the same when it is written anew.
fn uri(text: &[u8]) {
    if let Ok(uri) = String::from_utf8_lossy(text).parse::<Uri>() {
        assert_eq!(uri.to_string().parse(), Ok(uri), "the URI written anew");
    }
}

/// What a client says: a handshake that is in order or not, and requests.
fn client_says(bytes: &mut Bytes<'_>, replies: Replies, sound: bool) -> Vec<u8> {
    let mut said = Vec::new();
    if sound {
        said.extend(3_u32.to_be_bytes());
        match replies {
            Replies::Simple => {}
            Replies::Structured => encode_option(&mut said, 8, &[]),
            Replies::Extended => encode_option(&mut said, 11, &[]),
        }
        encode_option(&mut said, 10, b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation");
        encode_option(&mut said, 7, b"\0\0\0\x04disk\0\x01\0\x03");
    }
    while !bytes.is_empty() {
        match bytes.below(6) {
            0 => {
                let len = bytes.u8().into();
                said.extend(bytes.take(len));
            }
            1 => {
                let (option, len) = (bytes.pick(&[1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 99]), bytes.u8().into());
                encode_option(&mut said, option, bytes.take(len));
            }
            _ => {
                let command = bytes.pick(&[0_u16, 1, 1, 3, 4, 5, 6, 7, 7, 2, 99]);
                let flags = bytes.pick(&[0_u16, 0, 0, 1, 2, 4, 8, 16, 32, 33]);
                let (cookie, offset) = (bytes.u8().into(), place(bytes));
                let len = if bytes.below(16) == 15 { bytes.number(8) } else { bytes.below(9000) };
                let header = RequestHeader { flags, command, cookie, offset, len };
                header.encode(replies, &mut said);
                let payload = header.payload_bytes(replies).min(PAYLOAD_BYTES_MAX.into()) as usize;
                said.resize(said.len() + payload, 1);
            }
        }
    }
    said
}

/// A place on the export, or beyond it.
fn place(bytes: &mut Bytes<'_>) -> u64 {
    match bytes.below(8) {
        7 => bytes.number(8),
        6 => EXPORT_BYTES.wrapping_sub(bytes.below(4096)),
        _ => bytes.below(1 << 16),
    }
}

/// What a server heard, and what it said.
fn run_server(said: &[u8], cut: usize) -> (Vec<server::Step>, Vec<u8>) {
    let mut out = Vec::new();
    let mut server = Server::new(Security::Off, &mut out);
    let (name, description) = ("disk".to_owned(), "a disk".to_owned());
    let export = Export { name, description, size_bytes: EXPORT_BYTES, flags: !2, sizes: SIZES };
    let (mut from, mut to, mut heard) = (0, 0, Vec::new());
    loop {
        let step = server.step(&said[from..to], std::slice::from_ref(&export), &mut out);
        let here = (to - from) as u64;
        match step {
            server::Step::Need if to == said.len() => return (heard, out),
            server::Step::Need => to = said.len().min(to.saturating_add(cut)),
            server::Step::Payload(_) if here == 0 && to == said.len() => return (heard, out),
            server::Step::Payload(left) => {
                let taken = left.min(here);
                server.payload_taken(taken);
                from += taken as usize;
                if taken == 0 {
                    to = said.len().min(to.saturating_add(cut));
                }
            }
            // A refused payload is passed over in as many steps as pieces come.
            server::Step::Took(took) => {
                assert!(took > 0, "no progress");
                from += took;
            }
            server::Step::Opened { took, .. } | server::Step::Refused { took, .. } => {
                from += took;
                heard.push(without_lengths(step));
            }
            server::Step::Request { took, request } => {
                from += took;
                let end = request.offset.checked_add(request.len);
                assert!(end.is_some_and(|end| end <= EXPORT_BYTES), "{request:?}");
                assert!(request.len > 0 || request.ask == Ask::Flush, "{request:?}");
                heard.push(without_lengths(step));
            }
            server::Step::StartTls(_) => panic!("there is no TLS"),
            server::Step::End => {
                heard.push(step);
                return (heard, out);
            }
        }
        assert!(from <= to, "more was taken than there is");
    }
}

/// What a step means, however many bytes it took.
fn without_lengths(step: server::Step) -> server::Step {
    match step {
        server::Step::Request { request, .. } => server::Step::Request { took: 0, request },
        server::Step::Refused { cookie, offset, refusal, .. } => {
            server::Step::Refused { took: 0, cookie, offset, refusal }
        }
        step => step,
    }
}

/// The requests of the client here.
fn requests() -> [Request; 4] {
    [
        Request::new(0, Ask::READ, 0, 4096),
        Request::new(1, Ask::Read { whole: false }, 1000, 3000),
        Request::new(2, Ask::Flush, 0, 0),
        Request::new(3, Ask::Status { one: false }, 4096, 65536),
    ]
}

/// What a server says: a handshake that is in order (with GO or without) or not, and replies.
fn server_says(bytes: &mut Bytes<'_>, replies: Replies, sound: Option<bool>) -> Vec<u8> {
    let mut said = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    if let Some(go) = sound {
        match replies {
            Replies::Simple => {}
            Replies::Structured => encode_answer(&mut said, 8, 1, &[]),
            Replies::Extended => encode_answer(&mut said, 11, 1, &[]),
        }
        if replies != Replies::Simple {
            encode_answer(&mut said, 10, 4, b"\0\0\0\x05base:allocation");
            encode_answer(&mut said, 10, 1, &[]);
        }
        let size_and_flags = [&EXPORT_BYTES.to_be_bytes()[..], &0xfffd_u16.to_be_bytes()].concat();
        if go {
            encode_answer(&mut said, 7, 3, &[&[0, 0], &size_and_flags[..]].concat());
            encode_answer(&mut said, 7, 1, &[]);
        } else {
            // A server of old, which is given the name.
            encode_answer(&mut said, 7, 1 << 31 | 1, &[]);
            said.extend(size_and_flags);
        }
    }
    while !bytes.is_empty() {
        match bytes.below(8) {
            0 => {
                let len = bytes.u8().into();
                said.extend(bytes.take(len));
            }
            1 => {
                let (option, kind) = (bytes.pick(&[5, 7, 8, 10, 11]), bytes.pick(&[1, 3, 4, 1 << 31 | 1]));
                let len = bytes.u8().into();
                encode_answer(&mut said, option, kind, bytes.take(len));
            }
            2 => {
                let cookie = bytes.below(5);
                SimpleReply { error: bytes.pick(&[0, 0, 5, 22]), cookie }.encode(&mut said);
                let data = bytes.pick(&[0, 3000, 4096]);
                said.resize(said.len() + data, 7);
            }
            _ => chunk(bytes, replies, &mut said),
        }
    }
    said
}

fn chunk(bytes: &mut Bytes<'_>, replies: Replies, said: &mut Vec<u8>) {
    let cookie = bytes.pick(&[0, 0, 1, 1, 2, 3, 3, 4]);
    let offset = requests().get(cookie as usize).map_or(9, |request| request.offset);
    let kind = bytes.pick(&[0_u16, 1, 1, 1, 2, 2, 5, 6, 0x8001, 0x8002, 77]);
    let at = bytes.pick(&[offset, offset + 1000, offset + 2000, offset + 2048, bytes.len() as u64]);
    let payload = match kind {
        1 => [&at.to_be_bytes()[..], &vec![7; bytes.pick(&[1000, 2000, 2048, 3000, 4096, 0])]].concat(),
        2 => [&at.to_be_bytes()[..], &bytes.pick(&[1000_u32, 2000, 2048, 3000, 0]).to_be_bytes()].concat(),
        5 | 6 => {
            let len = bytes.u8().into();
            [&[0, 0, 0, bytes.pick(&[5, 5, 5, 1])], bytes.take(len)].concat()
        }
        _ => {
            let len = bytes.below(24) as usize;
            bytes.take(len).to_vec()
        }
    };
    let done = bytes.below(2) == 0;
    let len = if bytes.below(32) == 31 { bytes.number(4) as u32 } else { payload.len() as u32 };
    ChunkHeader { done, kind, cookie, offset, len }.encode(replies, said);
    said.extend(payload);
}

/// What a client heard of each request, and what ended the conversation.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    /// How often each byte of a read has come.
    come: BTreeMap<u64, Vec<u8>>,
    extents: BTreeMap<u64, Vec<client::Extent>>,
    answers: Vec<(u64, Result<(), client::Failure>)>,
    out: Vec<u8>,
    broken: bool,
}

fn run_client(said: &[u8], replies: Replies, cut: usize) -> Heard {
    let mut client = Client::new(Wanted { replies, ..Wanted::all_of("disk") });
    let (mut from, mut to, mut heard) = (0, 0, Heard::default());
    loop {
        let Ok(step) = client.step(&said[from..to], &mut heard.out) else {
            heard.broken = true;
            return heard;
        };
        let more = said.len().min(to.saturating_add(cut));
        match step {
            client::Step::Need | client::Step::Payload(_) if from == to && to == said.len() => return heard,
            client::Step::Need if to == said.len() => return heard,
            client::Step::Need => to = more,
            client::Step::Payload(_) if from == to => to = more,
            client::Step::Payload(left) => {
                let taken = left.min((to - from) as u64);
                client.payload_taken(taken);
                from += taken as usize;
            }
            client::Step::Took(took) => {
                assert!(took > 0, "no progress");
                from += took;
            }
            client::Step::StartTls(_) => panic!("TLS was not wanted"),
            client::Step::Opened(took) => {
                from += took;
                for request in requests() {
                    // The server may have told that it can't do that.
                    let _ = client.submit(request, &mut heard.out);
                }
            }
            client::Step::Data { took, cookie, at, len } | client::Step::Hole { took, cookie, at, len } => {
                from += took;
                heard.come(cookie, at, len);
            }
            client::Step::Extents { took, cookie, extents, .. } => {
                from += took;
                assert!(extents.iter().all(|extent| extent.bytes > 0), "an empty extent");
                heard.extents.entry(cookie).or_default().extend(extents);
            }
            client::Step::Answer { took, cookie, result } => {
                from += took;
                heard.answer(cookie, result);
            }
        }
        assert!(from <= to, "more was taken than there is");
    }
}

impl Heard {
    fn come(&mut self, cookie: u64, at: u64, len: u32) {
        let request = requests()[cookie as usize];
        let come = self.come.entry(cookie).or_insert_with(|| vec![0; request.len as usize]);
        let start = (at - request.offset) as usize;
        come[start..start + len as usize].iter_mut().for_each(|times| *times += 1);
    }

    fn answer(&mut self, cookie: u64, result: Result<(), client::Failure>) {
        assert!(self.answers.iter().all(|(other, _)| *other != cookie), "{cookie} was answered twice");
        if result.is_ok() && matches!(requests()[cookie as usize].ask, Ask::Read { .. }) {
            let whole = self.come.get(&cookie).is_some_and(|come| come.iter().all(|times| *times == 1));
            assert!(whole, "the read {cookie} is not whole");
        }
        self.answers.push((cookie, result));
    }
}
