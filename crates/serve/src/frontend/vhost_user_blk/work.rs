// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requests of one client, from the guest's rings to the engine and back.
//!
//! A read goes by a buffer of the arena into the guest's memory, a write the other way. So the
//! engine's data can't change under its hands, as a guest's memory could at any time. A client that
//! is gone is not written to any more: the next one may have taken its requests up again.

use std::collections::VecDeque;

use flashfront_device::Share;
use flashfront_engine::{Lba, REQUEST_BYTES_MAX, Request, RequestError, RequestOp, SECTOR_BYTES, Span, Time};
use virtio_bindings::bindings::virtio_blk::VIRTIO_BLK_ID_BYTES;
use vm_memory::Bytes;

use super::super::Core;
use super::super::piece::{Piece, PieceId};
use super::broken::Broken;
use super::call::Calls;
use super::chain::{Segment, expect};
use super::jobs::Jobs;
use super::limits::CONNECTION_BYTES_MAX;
use super::payload::{copy_in, copy_out};
use super::request::{Ask, Range, Status, parse};
use super::session::Session;

/// Requests taken from one ring before the others have their turn, and before the client is told of
/// answers. It takes the first answers back, and asks again, while the others are carried out.
const TURN_REQUESTS: usize = 16;

/// The requests of one client.
#[derive(Debug)]
pub(super) struct Work {
    connection: u16,
    jobs: Jobs,
    /// Requests with pieces that have no buffer yet, in their order.
    stalled: VecDeque<u16>,
    /// Requests that are over, to be given back to the client.
    done: Vec<u16>,
    /// Bytes of buffers held.
    held_bytes: u64,
    /// Payload that came from the client, and that went to it.
    moved: (u64, u64),
    /// Pieces that wait for their origin, and for a buffer that may wait first.
    parked: VecDeque<(u16, u16)>,
}

impl Work {
    pub(super) fn new(connection: u16) -> Self {
        Self {
            connection,
            jobs: Jobs::default(),
            stalled: VecDeque::new(),
            done: Vec::new(),
            held_bytes: 0,
            moved: (0, 0),
            parked: VecDeque::new(),
        }
    }

    /// Bytes of payload that came from the client, and that went to it.
    pub(super) const fn moved(&self) -> (u64, u64) {
        self.moved
    }

    /// Requests that are not answered.
    pub(super) fn in_flight(&self) -> usize {
        self.jobs.len()
    }

    /// Whether it could go on if there were buffers.
    pub(super) fn wants_room(&self) -> bool {
        !self.stalled.is_empty() && self.held_bytes + REQUEST_BYTES_MAX <= CONNECTION_BYTES_MAX
    }

    /// Requests that wait for buffers.
    pub(super) fn stalled(&self) -> usize {
        self.stalled.len()
    }

    /// Takes new requests from the rings that were kicked. True if there is something to be carried
    /// out.
    ///
    /// `may_alloc`: no other client has waited longer for buffers. `awake`: this will be called
    /// again at once, so that the guest need not kick.
    pub(super) fn pull(
        &mut self,
        session: &mut Session,
        core: &mut dyn Core,
        may_alloc: bool,
        awake: bool,
    ) -> Result<bool, Broken> {
        let mut any = false;
        for ring in 0..session.rings.len() {
            let mut heads = [0; TURN_REQUESTS];
            let most = TURN_REQUESTS.min(self.jobs.room());
            let taken = session.rings[ring].take(session.guest.memory(), &mut heads[..most], awake)?;
            expect(&session.guest, session.rings[ring].table().0, &heads[..taken]);
            for &head in &heads[..taken] {
                let place = self.accept(session, ring, head, core.now())?;
                // Requests that wait are first, also if they wait for this client's own share.
                let may_alloc = may_alloc && self.stalled.is_empty();
                self.hand_over(place, session, core, may_alloc)?;
            }
            any |= taken > 0;
        }
        Ok(any)
    }

    /// Goes on with requests that had no buffers.
    pub(super) fn resume(&mut self, session: &mut Session, core: &mut dyn Core) -> Result<(), Broken> {
        while let Some(place) = self.stalled.pop_front() {
            self.hand_over(place, session, core, true)?;
            if self.stalled.back() == Some(&place) {
                // It still waits, and is the first to go on.
                self.stalled.rotate_right(1);
                break;
            }
        }
        Ok(())
    }

    /// Notes a request, and what it asks for.
    fn accept(&mut self, session: &mut Session, ring: usize, head: u16, since: Time) -> Result<u16, Broken> {
        let place = self.jobs.take();
        let job = self.jobs.get_mut(place);
        let (table, size) = session.rings[ring].table();
        let followed = job.chain.follow(session.guest.memory(), table, size, head).map_err(Broken::Chain);
        let parsed = followed.and_then(|()| {
            parse(&session.guest, &session.export, &mut job.chain, &mut job.ranges).ok_or(Broken::NoStatus)
        });
        let (status, asked) = match parsed {
            Ok(parsed) => parsed,
            Err(broken) => {
                self.jobs.give_back(place);
                return Err(broken);
            }
        };
        (job.ring, job.head, job.status) = (Some(ring), head, status);
        (job.next, job.unanswered, job.parked, job.fua) = (0, 0, 0, session.writes_through());
        job.since = since;
        (job.ended, job.ask) = match asked {
            Ok(ask) => (Status::Done, ask),
            Err(status) => (status, Ask::Name),
        };
        job.pieces = match job.ask {
            _ if job.ended != Status::Done => 0,
            Ask::Read { offset, len } | Ask::Write { offset, len } => Piece::count(offset, len),
            Ask::Flush if session.debt().0.is_lost() => {
                job.ended = Status::Failed;
                0
            }
            Ask::Flush => {
                job.writes = session.debt().0.writes();
                1
            }
            Ask::Ranges => job.ranges.len() as u16,
            Ask::Name => {
                job.ended = name(session, &job.chain.writable);
                0
            }
        };
        job.bufs.clear();
        job.bufs.resize(usize::from(job.pieces), None);
        Ok(place)
    }

    /// Makes durable what was acknowledged, unasked: the next daemon will not owe it. False if
    /// nothing is owed.
    pub(super) fn settle(&mut self, session: &mut Session, core: &mut dyn Core) -> Result<bool, Broken> {
        let (debt, _) = session.debt();
        if !debt.is_owed() || self.jobs.is_full() {
            return Ok(false);
        }
        let place = self.jobs.take();
        let job = self.jobs.get_mut(place);
        (job.ring, job.ask, job.ended, job.writes) = (None, Ask::Flush, Status::Done, debt.writes());
        (job.next, job.pieces, job.unanswered, job.parked, job.fua) = (0, 1, 0, 0, false);
        job.since = core.now();
        job.bufs.clear();
        job.bufs.push(None);
        self.hand_over(place, session, core, true)?;
        Ok(true)
    }

    /// Hands a request's pieces to the engine, as far as there are buffers; answers it if there is
    /// nothing to do.
    fn hand_over(
        &mut self,
        place: u16,
        session: &mut Session,
        core: &mut dyn Core,
        may_alloc: bool,
    ) -> Result<(), Broken> {
        while !self.jobs.get_mut(place).is_handed_over() {
            let index = self.jobs.get_mut(place).next;
            let share = if may_alloc { self.share_for(place, index) } else { Err(()) };
            let begun = match share {
                Ok(share) => self.begin(place, index, share, session, core)?,
                Err(()) if self.jobs.get_mut(place).piece(index).is_none() => {
                    self.begin(place, index, None, session, core)?
                }
                Err(()) => false,
            };
            if !begun {
                self.stalled.push_back(place);
                return Ok(());
            }
            self.jobs.get_mut(place).next = index + 1;
        }
        if self.jobs.get_mut(place).is_done() { self.finish(place, session) } else { Ok(()) }
    }

    /// Says of which share the buffer of a piece must be; an error: the piece must wait.
    ///
    /// Beyond half of what a client may hold only requests that end by themselves go on.
    fn share_for(&mut self, place: u16, index: u16) -> Result<Option<Share>, ()> {
        let bytes = self.jobs.get_mut(place).piece(index).map_or(0, |piece| u64::from(piece.buf_bytes()));
        match self.held_bytes + bytes {
            _ if self.held_bytes == 0 || bytes == 0 => Ok(None),
            held if held > CONNECTION_BYTES_MAX => Err(()),
            held => Ok((held > CONNECTION_BYTES_MAX / 2).then_some(Share::Passing)),
        }
    }

    /// Hands a piece to the engine; false if there is no buffer of this share for it.
    fn begin(
        &mut self,
        place: u16,
        index: u16,
        share: Option<Share>,
        session: &mut Session,
        core: &mut dyn Core,
    ) -> Result<bool, Broken> {
        let job = self.jobs.get_mut(place);
        let origin = session.export.origin;
        let (op, lba, sectors, buf) = match job.ask {
            Ask::Read { offset, len } | Ask::Write { offset, len } => {
                let piece = Piece::of(offset, len, index);
                let bytes = piece.buf_bytes();
                let buf = match share {
                    Some(share) => core.alloc_of(share, bytes, origin),
                    None => core.alloc(bytes, origin),
                };
                let Some(buf) = buf else { return Ok(false) };
                self.held_bytes += u64::from(bytes);
                job.bufs[usize::from(index)] = Some(buf);
                let op = if matches!(job.ask, Ask::Read { .. }) { RequestOp::Read } else { RequestOp::Write };
                if op == RequestOp::Write {
                    self.moved.0 += u64::from(piece.len);
                    let into = core.memory().bytes_mut(Span::new(buf, piece.buf_offset(), piece.len));
                    let skip = (piece.offset - offset) as u32;
                    let copied = copy_in(session.guest.memory(), job.payload(), skip, into);
                    debug_assert!(copied, "the payload was looked at, and memory waits for requests");
                    // Zeroes stand where memory is gone: the guest never wrote those.
                    if !copied || session.is_hit() {
                        return self.forsake(place, index, core).map(|()| false);
                    }
                }
                (op, Lba(piece.offset / SECTOR_BYTES), u64::from(piece.len) / SECTOR_BYTES, Some(buf))
            }
            Ask::Ranges => {
                let Range { op, lba, sectors } = job.ranges[usize::from(index)];
                (op, lba, sectors, None)
            }
            Ask::Flush | Ask::Name => (RequestOp::Flush, Lba(0), 0, None),
        };
        job.unanswered += 1;
        core.submit(Request {
            id: PieceId { connection: self.connection, place, piece: index }.encode(),
            origin,
            op,
            lba,
            sectors,
            buf,
            fua: job.fua && !matches!(op, RequestOp::Read | RequestOp::Flush),
            since: job.since,
            continues: index > 0 && buf.is_some(),
        });
        Ok(true)
    }

    /// The engine was not asked for a piece that would have to wait: it waits here, without a
    /// buffer.
    pub(super) fn refused(&mut self, id: PieceId, core: &mut dyn Core) {
        let job = self.jobs.get_mut(id.place);
        job.unanswered -= 1;
        let (piece, buf) = (job.piece(id.piece), job.bufs[usize::from(id.piece)].take());
        if let (Some(piece), Some(buf)) = (piece, buf) {
            self.held_bytes -= u64::from(piece.buf_bytes());
            core.free(buf);
        }
        if job.ended == Status::Done {
            job.parked += 1;
            self.parked.push_back((id.place, id.piece));
        } else if job.is_done() {
            self.done.push(id.place);
        }
    }

    /// Whether requests are over that the client is not told of.
    pub(super) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Pieces that wait here.
    pub(super) fn parked(&self) -> usize {
        self.parked.len()
    }

    /// Tries the first parked piece with a buffer of this share. Returns whether the engine has it
    /// now.
    pub(super) fn resume_parked(
        &mut self,
        share: Share,
        session: &mut Session,
        core: &mut dyn Core,
    ) -> Result<bool, Broken> {
        let Some((place, index)) = self.parked.pop_front() else { return Ok(false) };
        let fits = match self.share_for(place, index) {
            Ok(None) => true,
            Ok(Some(only)) => only == share,
            Err(()) => false,
        };
        if fits && self.begin(place, index, Some(share), session, core)? {
            self.jobs.get_mut(place).parked -= 1;
            return Ok(true);
        }
        match share {
            // The next one is tried the next time.
            Share::Passing => self.parked.push_back((place, index)),
            _ => self.parked.push_front((place, index)),
        }
        Ok(false)
    }

    /// Forgets the parked pieces of a request, which are not wanted any more.
    fn drop_parked(&mut self, place: u16) {
        if self.jobs.get_mut(place).parked > 0 {
            self.parked.retain(|(parked, _)| *parked != place);
            self.jobs.get_mut(place).parked = 0;
        }
    }

    /// The payload of a request's next piece is gone with its client: no more of it is handed over.
    fn forsake(&mut self, place: u16, index: u16, core: &mut dyn Core) -> Result<(), Broken> {
        self.drop_parked(place);
        let job = self.jobs.get_mut(place);
        if let (Some(piece), Some(buf)) = (job.piece(index), job.bufs[usize::from(index)].take()) {
            self.held_bytes -= u64::from(piece.buf_bytes());
            core.free(buf);
        }
        // Pieces before it may still be answered.
        (job.next, job.ended) = (job.pieces, Status::Failed);
        if job.unanswered == 0 {
            self.jobs.give_back(place);
        }
        Err(Broken::Memory)
    }

    /// The engine's answer to one piece.
    fn reply(
        &mut self,
        id: PieceId,
        result: Result<(), RequestError>,
        session: Option<&mut Session>,
        core: &mut dyn Core,
    ) {
        let job = self.jobs.get_mut(id.place);
        job.unanswered -= 1;
        if result.is_err() {
            job.ended = Status::Failed;
            // The rest would be for nothing.
            job.next = job.pieces;
            if self.stalled.contains(&id.place) {
                self.stalled.retain(|&stalled| stalled != id.place);
            }
            self.drop_parked(id.place);
        }
        let job = self.jobs.get_mut(id.place);
        if let (Ask::Read { offset, len } | Ask::Write { offset, len }, Some(buf)) =
            (job.ask, job.bufs[usize::from(id.piece)].take())
        {
            let piece = Piece::of(offset, len, id.piece);
            if let Some(session) = &session
                && result.is_ok()
                && matches!(job.ask, Ask::Read { .. })
            {
                self.moved.1 += u64::from(piece.len);
                let from = core.memory().bytes(Span::new(buf, piece.buf_offset(), piece.len));
                let skip = (piece.offset - offset) as u32;
                let copied = copy_out(session.guest.memory(), job.payload(), skip, from);
                debug_assert!(copied, "the payload was looked at, and memory waits for requests");
            }
            self.held_bytes -= u64::from(piece.buf_bytes());
            core.free(buf);
        }
        if job.is_done() {
            self.done.push(id.place);
        }
    }

    /// Takes the engine's answers: copies the payload of all, then gives all back, one after the
    /// other. No `session`: the client is gone.
    ///
    /// To give a request back writes to cache lines that the client looks at. That takes long, and
    /// delays everything that waits for it, as locking the session does. Once for each answer it
    /// took a tenth of the time of a read from the RAM front.
    pub(super) fn answer(
        &mut self,
        answers: &mut Vec<(PieceId, Result<(), RequestError>)>,
        mut session: Option<&mut Session>,
        core: &mut dyn Core,
    ) -> Result<(), Broken> {
        for (id, result) in answers.drain(..) {
            self.reply(id, result, session.as_deref_mut(), core);
        }
        let mut broken = None;
        let mut done = std::mem::take(&mut self.done);
        for place in done.drain(..) {
            let Some(session) = &mut session else {
                self.jobs.give_back(place);
                continue;
            };
            if let Err(error) = self.finish(place, session) {
                broken.get_or_insert(error);
            }
        }
        // Its memory serves again.
        self.done = done;
        broken.map_or(Ok(()), Err)
    }

    /// Answers a request.
    fn finish(&mut self, place: u16, session: &mut Session) -> Result<(), Broken> {
        let job = self.jobs.get_mut(place);
        let (ring, head, status, ended) = (job.ring, job.head, job.status, job.ended);
        if ended == Status::Done {
            let (debt, inflight) = session.debt();
            match job.ask {
                Ask::Write { .. } | Ask::Ranges if !job.fua => debt.acknowledge(inflight),
                Ask::Flush => debt.pay(job.writes, inflight),
                _ => {}
            }
        } else if ring.is_none() {
            // The guest did not ask for this FLUSH, and its own would not fail for the same again.
            session.debt().0.lose();
        }
        let written = match job.ask {
            Ask::Read { len, .. } if ended == Status::Done => len + 1,
            Ask::Name if ended == Status::Done => VIRTIO_BLK_ID_BYTES + 1,
            _ => 1,
        };
        self.jobs.give_back(place);
        let Some(ring) = ring else {
            return Ok(());
        };
        let memory = session.guest.memory();
        memory.write_obj(ended as u8, status).map_err(|_| Broken::Memory)?;
        Ok(session.rings[ring].give_back(memory, head, written)?)
    }

    /// Tells the guest of the requests it got back.
    pub(super) fn tell(&mut self, session: &mut Session, calls: &Calls) -> Result<(), Broken> {
        for ring in session.rings.iter_mut().filter(|ring| ring.is_untold()) {
            ring.tell(session.guest.memory(), calls)?;
        }
        Ok(())
    }

    /// The client is gone: drops all that is not the engine's at the moment.
    pub(super) fn abort(&mut self) {
        let parked: Vec<u16> = std::mem::take(&mut self.parked).into_iter().map(|(place, _)| place).collect();
        for place in parked {
            let job = self.jobs.get_mut(place);
            job.parked -= 1;
            if job.is_done() {
                self.jobs.give_back(place);
            }
        }
        for place in std::mem::take(&mut self.stalled) {
            let job = self.jobs.get_mut(place);
            job.next = job.pieces;
            if job.unanswered == 0 {
                self.jobs.give_back(place);
            }
        }
    }
}

/// Writes the volume's name, as far as there is room for it.
fn name(session: &Session, into: &[Segment]) -> Status {
    let mut name = [0; VIRTIO_BLK_ID_BYTES as usize];
    let from = session.export.name.as_bytes();
    let len = from.len().min(name.len());
    name[..len].copy_from_slice(&from[..len]);
    if copy_out(session.guest.memory(), into, 0, &name) { Status::Done } else { Status::Failed }
}
