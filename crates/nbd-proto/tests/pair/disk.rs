// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server of RAM: what it is told is written, read, zeroed; requests are answered last first.

use flashfront_nbd_proto::server::{Export, Extent, Part, Reply, Security, Server, Step};
use flashfront_nbd_proto::wire::{Errno, Replies, export_flag};
use flashfront_nbd_proto::{Ask, BlockSizes, Request, server};

pub(crate) const DISK_BYTES: usize = 4096;
/// Reads and extents are told in parts that end at multiples of this.
const PART_BYTES: u64 = 512;
/// A range that can't be read.
pub(crate) const BAD: u64 = 3584;

/// The server's end of a connection.
pub(crate) struct Disk {
    pub(crate) server: Server,
    exports: [Export; 1],
    content: Vec<u8>,
    /// Requests that are not carried out, and the payload of writes.
    queue: Vec<(Request, Vec<u8>)>,
    pub(crate) opened: bool,
    pub(crate) ended: bool,
}

impl Disk {
    pub(crate) fn new(security: Security, out: &mut Vec<u8>) -> Self {
        let flags = export_flag::SEND_FLUSH
            | export_flag::SEND_FUA
            | export_flag::SEND_TRIM
            | export_flag::SEND_WRITE_ZEROES
            | export_flag::SEND_FAST_ZERO
            | export_flag::CAN_MULTI_CONN;
        let sizes = BlockSizes { minimum: 1, preferred: 512, maximum: 1 << 20 };
        let export =
            Export { name: "ram".into(), description: "RAM".into(), size_bytes: DISK_BYTES as u64, flags, sizes };
        Self {
            server: Server::new(security, out),
            exports: [export],
            content: (0..DISK_BYTES).map(|at| if (1024..2048).contains(&at) { 0 } else { at as u8 | 1 }).collect(),
            queue: Vec::new(),
            opened: false,
            ended: false,
        }
    }

    /// Takes what has come, as far as it means something. Tells whether TLS is to begin.
    pub(crate) fn take(&mut self, input: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
        loop {
            match self.server.step(input, &self.exports, out) {
                Step::Need => return false,
                Step::Took(took) => drop(input.drain(..took)),
                Step::StartTls(took) => {
                    input.drain(..took);
                    return true;
                }
                Step::Opened { took, export } => {
                    assert_eq!(export, 0);
                    self.opened = true;
                    input.drain(..took);
                }
                Step::Request { took, request } => {
                    input.drain(..took);
                    self.queue.push((request, Vec::new()));
                }
                Step::Refused { took, cookie, offset, refusal } => {
                    input.drain(..took);
                    self.reply(cookie, offset).failed(refusal, None, out);
                }
                Step::Payload(_) if input.is_empty() => return false,
                Step::Payload(left) => {
                    let here = left.min(input.len() as u64);
                    let (_, payload) = self.queue.last_mut().expect("a write");
                    payload.extend(input.drain(..here as usize));
                    self.server.payload_taken(here);
                }
                Step::End => {
                    self.ended = true;
                    return false;
                }
            }
        }
    }

    /// Carries out what is complete, in the order of arrival; the answers come last first.
    pub(crate) fn carry_out(&mut self, out: &mut Vec<u8>) {
        let complete =
            |(request, payload): &(Request, Vec<u8>)| request.ask != Ask::Write || payload.len() as u64 == request.len;
        let count = self.queue.iter().take_while(|it| complete(it)).count();
        let mut answers = Vec::new();
        for (request, payload) in self.queue.drain(..count).collect::<Vec<_>>() {
            let mut answer = Vec::new();
            self.answer(request, &payload, &mut answer);
            answers.push(answer);
        }
        answers.into_iter().rev().for_each(|answer| out.extend(answer));
    }

    fn reply(&self, cookie: u64, offset: u64) -> Reply {
        Reply { replies: self.server.replies(), cookie, offset }
    }

    fn answer(&mut self, request: Request, payload: &[u8], out: &mut Vec<u8>) {
        let Request { cookie, ask, offset, len, .. } = request;
        let reply = self.reply(cookie, offset);
        let range = offset as usize..(offset + len) as usize;
        match ask {
            Ask::Read { whole } => self.read(reply, offset, len, whole, out),
            Ask::Write => {
                self.content[range].copy_from_slice(payload);
                reply.done(out);
            }
            Ask::Zeroes { fast: true, .. } => {
                reply.failed(server::Refusal(Errno::ENOTSUP, "no faster than a write"), None, out);
            }
            Ask::Trim | Ask::Zeroes { .. } => {
                self.content[range].fill(0);
                reply.done(out);
            }
            Ask::Flush | Ask::Cache => reply.done(out),
            Ask::Status { one } => {
                let parts = parts(offset, len);
                let mut extents: Vec<Extent> = Vec::new();
                for (start, bytes) in parts {
                    let hole = self.is_zero(start, bytes);
                    match extents.last_mut() {
                        Some(last) if last.hole == hole => last.bytes += bytes,
                        _ => extents.push(Extent { bytes, hole }),
                    }
                }
                extents.truncate(if one { 1 } else { usize::MAX });
                reply.extents(&extents, out);
            }
        }
    }

    /// The second half goes before the first where parts may come in any order.
    fn read(&self, reply: Reply, offset: u64, len: u64, whole: bool, out: &mut Vec<u8>) {
        let refusal = server::Refusal(Errno::EIO, "this part is bad");
        if offset + len > BAD {
            return reply.failed(refusal, Some(BAD.max(offset)), out);
        }
        let mut parts = if whole { vec![(offset, len)] } else { parts(offset, len) };
        let chunks = reply.replies != Replies::Simple;
        if chunks && !whole {
            let half = parts.len() / 2;
            parts.rotate_left(half);
        }
        let count = parts.len();
        for (nth, (start, bytes)) in parts.into_iter().enumerate() {
            let part = Part { start, bytes: bytes as u32, first: nth == 0, last: nth + 1 == count };
            if chunks && !whole && self.is_zero(start, bytes) {
                reply.hole(part, out);
            } else {
                reply.data(part, out);
                out.extend(&self.content[start as usize..][..bytes as usize]);
            }
        }
    }

    fn is_zero(&self, start: u64, bytes: u64) -> bool {
        self.content[start as usize..][..bytes as usize].iter().all(|byte| *byte == 0)
    }
}

fn parts(offset: u64, len: u64) -> Vec<(u64, u64)> {
    let mut parts = Vec::new();
    let mut at = offset;
    while at < offset + len {
        let end = ((at / PART_BYTES + 1) * PART_BYTES).min(offset + len);
        parts.push((at, end - at));
        at = end;
    }
    parts
}
