// SPDX-License-Identifier: MIT OR Apache-2.0
//! The real NBD front-end on a real unix socket, before a disk that carries requests out when told
//! to.
//!
//! One thread, no clock: what happens is decided by the input alone. Kept from run to run, as a
//! daemon is.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use flashfront_device::Arena;
use flashfront_engine::{
    Buf, Extent, MAP_BYTES, Memory, OriginId, Request, RequestError, RequestOp, SECTOR_BYTES, Span, Time, put_extents,
};
use flashfront_serve::frontend::nbd::{BUFFER_BYTES_MIN, Listen, Nbd, NbdOptions};
use flashfront_serve::frontend::{Core, Export, Frontend, TokenRange};
use mio::{Events, Poll};
use tempfile::TempDir;

/// Clients that are served; the next is hung up on.
const CONNECTIONS_MAX: u16 = 4;
/// Size of each export. Reads of the longest kind fit.
pub(super) const EXPORT_BYTES: u64 = 40 << 20;
/// What of it is really kept; the rest takes writes and forgets them.
const KEPT_BYTES: usize = 64 << 10;
/// Turns after which a server that has nothing new to do should be at rest.
const TURNS_MAX: u32 = 20_000;

/// Carries requests out.
pub(super) struct Disk {
    arena: Arena,
    pub(super) exports: Vec<Export>,
    kept: Vec<u8>,
    queue: Vec<Request>,
    /// All requests fail.
    pub(super) broken: bool,
}

impl Core for Disk {
    fn exports(&self) -> &[Export] {
        &self.exports
    }

    fn memory(&mut self) -> &mut dyn Memory {
        &mut self.arena
    }

    fn alloc(&mut self, bytes: u32, _origin: OriginId) -> Option<Buf> {
        assert!(bytes > 0 && bytes.is_multiple_of(4096) && bytes <= 1 << 20, "a buffer of {bytes} bytes");
        self.arena.try_alloc(bytes)
    }

    fn free(&mut self, buf: Buf) {
        self.arena.free(buf);
    }

    fn submit(&mut self, request: Request) {
        assert!(request.id.0 < 1 << 32 && self.queue.iter().all(|other| other.id != request.id), "{request:?}");
        let export = &self.exports[request.origin.0 as usize];
        if request.op != RequestOp::Flush {
            let end = request.lba.0.checked_add(request.sectors).expect("it ends somewhere");
            assert!(request.sectors > 0 && end * SECTOR_BYTES <= export.size_bytes, "{request:?}");
            let reads = matches!(request.op, RequestOp::Read | RequestOp::Prefetch | RequestOp::Map);
            assert!(!export.read_only || reads, "{request:?} of what is read only");
            if let RequestOp::WriteBytes { head, tail } = request.op {
                let (kept, all) = (u64::from(head) + u64::from(tail), request.sectors * SECTOR_BYTES);
                assert!(head < 512 && tail < 512 && kept > 0 && kept < all, "{request:?}");
            }
        }
        self.queue.push(request);
    }
}

impl Disk {
    fn carry_out(&mut self, request: &Request) -> Result<(), RequestError> {
        let at = (request.lba.0 * SECTOR_BYTES) as usize;
        let len = (request.sectors * SECTOR_BYTES) as usize;
        let kept = KEPT_BYTES.saturating_sub(at).min(len);
        let span = request.buf.map(|buf| Span::new(buf, (at % 4096) as u32, len as u32));
        if self.broken {
            return Err(RequestError::Io);
        }
        match (request.op, span) {
            (RequestOp::Map, Some(span)) => {
                // Every third block, of nearly all that was asked for.
                let extents = (0..len as u64).step_by(4096).map(|at| Extent { bytes: 4096, hole: at % 12288 == 0 });
                let list = Span::new(span.buf(), 0, MAP_BYTES);
                put_extents(self.arena.bytes_mut(list), extents);
            }
            (RequestOp::WriteBytes { head, tail }, Some(span)) if kept == len => {
                let range = usize::from(head)..len - usize::from(tail);
                self.kept[at..at + len][range.clone()].copy_from_slice(&self.arena.bytes(span)[range]);
            }
            (RequestOp::Read, Some(span)) if kept > 0 => {
                self.arena.bytes_mut(span)[..kept].copy_from_slice(&self.kept[at..at + kept]);
            }
            (RequestOp::Write, Some(span)) if kept > 0 => {
                self.kept[at..at + kept].copy_from_slice(&self.arena.bytes(span)[..kept]);
            }
            (op, span) if op.has_payload() => assert!(span.is_some(), "{request:?} has no buffer"),
            (RequestOp::Discard | RequestOp::WriteZeroes { .. }, None) if kept > 0 => {
                self.kept[at..at + kept].fill(0);
            }
            (_, span) => assert!(span.is_none(), "{request:?} has a buffer"),
        }
        Ok(())
    }
}

/// A server.
pub(super) struct Server {
    nbd: Nbd,
    poll: Poll,
    events: Events,
    pub(super) disk: Disk,
    pub(super) now: Time,
    socket: PathBuf,
    _folder: TempDir,
}

impl Server {
    pub(super) fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("flashfront-fuzz-").tempdir().expect("a folder for a socket");
        let socket = folder.path().join("s");
        let options = NbdOptions { connections_max: CONNECTIONS_MAX, ..NbdOptions::default() };
        let mut nbd = Nbd::bind(&Listen::Unix(socket.clone()), options).expect("a socket in a new folder");
        let poll = Poll::new().expect("a poller");
        let tokens = TokenRange { first: 0, count: nbd.tokens_max() };
        nbd.register(poll.registry(), tokens).expect("the poller takes a socket");
        let disk = Disk {
            // The least that is promised to be enough, so that clients have to wait for each other.
            arena: Arena::with_reserve(BUFFER_BYTES_MIN + (4 << 20), 4 << 20),
            exports: Vec::new(),
            kept: vec![0; KEPT_BYTES],
            queue: Vec::new(),
            broken: false,
        };
        Self { nbd, poll, events: Events::with_capacity(64), disk, now: Time(0), socket, _folder: folder }
    }

    /// Offers so many exports.
    pub(super) fn offer(&mut self, count: u16, block_bytes: u32, read_only: bool) {
        let export = |nth: u32| {
            let name = if nth == 0 { "disk".to_owned() } else { format!("disk{nth}") };
            Export { block_bytes, read_only, ..Export::new(&name, OriginId(nth), EXPORT_BYTES) }
        };
        self.disk.exports = (0..u32::from(count)).map(export).collect();
    }

    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        let client = UnixStream::connect(&self.socket)?;
        client.set_nonblocking(true)?;
        Ok(client)
    }

    /// Takes a turn of the loop; says whether something happened in it, or there is more to do.
    pub(super) fn turn(&mut self) -> bool {
        match self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            result => result.expect("the poller works"),
        }
        for event in &self.events {
            self.nbd.ready(event, self.poll.registry(), &mut self.disk);
        }
        let more = self.nbd.turn_end(self.now, self.poll.registry(), &mut self.disk);
        more || !self.events.is_empty()
    }

    /// Carries out so many requests, the last ones first if they are to be out of order.
    pub(super) fn answer(&mut self, count: usize, reversed: bool) {
        for _ in 0..count.min(self.disk.queue.len()) {
            let at = if reversed { self.disk.queue.len() - 1 } else { 0 };
            let request = self.disk.queue.remove(at);
            let result = self.disk.carry_out(&request);
            self.nbd.reply(request.id, result, &mut self.disk);
        }
    }

    /// Goes on until nothing happens any more.
    pub(super) fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            let busy = self.turn() || !self.disk.queue.is_empty();
            self.answer(usize::MAX, false);
            if !busy {
                return;
            }
        }
        panic!("the server is busy, and nobody asks for anything");
    }

    /// All clients have left: nothing of them may.
    pub(super) fn expect_rest(&self) {
        assert_eq!(self.nbd.connections(), 0, "clients have left, but are not forgotten");
        assert_eq!(self.disk.arena.allocated_bytes(), 0, "buffers leaked");
        assert!(self.disk.queue.is_empty());
    }
}
