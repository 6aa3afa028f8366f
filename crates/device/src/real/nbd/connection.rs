// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection: requests out, answers in, payload between the socket and its own memory.
//!
//! Payload is received straight into the memory of its task, and sent straight from there. A task
//! stays here until its payload is sent and its answer has come, so that its memory is there.
#![expect(unsafe_code, reason = "payload lies in memory that tasks own")]

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use flashfront_nbd_proto::client::{self, Broken, Client, ExportInfo, Misuse, Step};
use flashfront_nbd_proto::wire::Errno as NbdErrno;
use flashfront_nbd_proto::{Ask, Request};
use rustix::io::Errno;

use super::flight::{Answered, Flight, HEADER_BYTES, Lost, Named, Piece, errno};
use super::stream::Stream;
use crate::real::aligned::AlignedBuf;
use crate::real::remote::{Call, Task};

/// Received with one system call, beside payload.
const INPUT_BYTES: usize = 256 << 10;
const _: () = assert!(INPUT_BYTES >= client::INPUT_BYTES_MIN);
/// Pieces that are sent with one system call.
const SLICES_MAX: usize = 64;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    protocol: Client,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    /// What the handshake has to say.
    greeting: Vec<u8>,
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that were sent.
    sent: usize,
    flights: HashMap<u64, Flight>,
    /// The place of the payload that is being received.
    sink: Option<NonNull<u8>>,
}

// SAFETY: all memory that is pointed to is owned by the tasks in `flights`, which are `Send`.
unsafe impl Send for Connection {}

impl Connection {
    pub(super) fn new(stream: Stream, protocol: Client) -> Self {
        Self {
            stream,
            protocol,
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            greeting: Vec::new(),
            pieces: VecDeque::new(),
            sent: 0,
            flights: HashMap::new(),
            sink: None,
        }
    }

    /// The next step of the handshake.
    pub(super) fn shake_hands(&mut self, deadline: Instant) -> io::Result<Result<Step, Broken>> {
        loop {
            let step = match self.protocol.step(&self.input[self.start..self.end], &mut self.greeting) {
                Ok(step) => step,
                Err(broken) => return Ok(Err(broken)),
            };
            while !self.greeting.is_empty() {
                match self.stream.send(&[IoSlice::new(&self.greeting)]) {
                    Ok(bytes) => drop(self.greeting.drain(..bytes)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => self.stream.wait(true, deadline)?,
                    Err(error) => return Err(error),
                }
            }
            self.stream.flush()?;
            match step {
                Step::Took(took) | Step::StartTls(took) | Step::Opened(took) => self.start += took,
                _ if self.fill()? => continue,
                _ => {
                    self.stream.wait(false, deadline)?;
                    continue;
                }
            }
            return Ok(Ok(step));
        }
    }

    /// Goes on inside TLS.
    #[cfg(feature = "tls")]
    pub(super) fn inside<E>(mut self, start: impl FnOnce(Stream) -> Result<Stream, E>) -> Result<Self, E> {
        self.stream = start(self.stream)?;
        self.protocol.enter_tls(&mut self.greeting);
        Ok(self)
    }

    /// What the server says of its export.
    pub(super) fn info(&self) -> ExportInfo {
        *self.protocol.info().expect("bug: a connection before its handshake is over")
    }

    /// Requests that are not over.
    pub(super) fn flights(&self) -> usize {
        self.flights.len()
    }

    pub(super) fn has_output(&self) -> bool {
        !self.pieces.is_empty() || self.stream.holds_output()
    }

    /// Sends a task's next request with the next [`Connection::move_bytes`]. A task that the server
    /// would refuse comes back at once.
    pub(super) fn submit(&mut self, task: Box<dyn Task>, named: Named) -> Result<(), Answered> {
        let Named { wish, fua, cookie, covers } = named;
        let request = Request { cookie, ask: wish.ask, offset: wish.offset, len: wish.bytes, fua };
        let mut header = Vec::with_capacity(HEADER_BYTES);
        if let Err(misuse) = self.protocol.submit(request, &mut header) {
            let errno = match misuse {
                Misuse::NotOffered => Errno::OPNOTSUPP,
                Misuse::ReadOnly => Errno::ROFS,
                _ => Errno::IO,
            };
            return Err(Answered { task, outcome: Err(errno), covers });
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes[..header.len()].copy_from_slice(&header);
        self.pieces.push_back(Piece::Header(bytes, header.len()));
        let payload = wish.at.filter(|_| wish.ask == Ask::Write);
        if let Some(at) = payload {
            self.pieces.push_back(Piece::Payload(cookie, at, wish.bytes as usize));
        }
        let (sent, extents) = (payload.is_none(), Vec::new());
        let (bytes, at, answer, forgotten) = (wish.bytes, wish.at, None, false);
        let flight = Flight { task, bytes, at, sent, answer, extents, forgotten, covers };
        self.flights.insert(cookie, flight);
        Ok(())
    }

    /// Sends and receives whatever can be without waiting. What is answered goes to `answered`.
    pub(super) fn move_bytes(&mut self, answered: &mut Vec<Answered>) -> Result<(), Lost> {
        self.send(answered)?;
        self.receive(answered)?;
        // Answers may have made room.
        self.send(answered)
    }

    fn send(&mut self, answered: &mut Vec<Answered>) -> Result<(), Lost> {
        while !self.pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut skip = self.sent;
            let count = self.pieces.len().min(SLICES_MAX);
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                *slice = IoSlice::new(&piece.bytes()[skip..]);
                skip = 0;
            }
            match self.stream.send(&slices[..count]) {
                Ok(0) => return Err(io::Error::from(ErrorKind::WriteZero).into()),
                Ok(bytes) => self.advance(bytes, answered),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.stream.flush()?)
    }

    /// Notes that `bytes` more bytes are sent.
    fn advance(&mut self, bytes: usize, answered: &mut Vec<Answered>) {
        self.sent += bytes;
        while let Some(piece) = self.pieces.front()
            && self.sent >= piece.bytes().len()
        {
            self.sent -= piece.bytes().len();
            if let Some(Piece::Payload(cookie, ..)) = self.pieces.pop_front() {
                self.flights.entry(cookie).and_modify(|flight| flight.sent = true);
                self.end_if_over(cookie, answered);
            }
        }
    }

    fn receive(&mut self, answered: &mut Vec<Answered>) -> Result<(), Lost> {
        loop {
            let step = self.protocol.step(&self.input[self.start..self.end], &mut self.greeting);
            match step.map_err(Lost::Broken)? {
                Step::Need => {
                    if !self.fill()? {
                        return Ok(());
                    }
                }
                Step::Payload(left) => {
                    if !self.take_payload(left as usize)? {
                        return Ok(());
                    }
                }
                Step::Data { took, cookie, at, .. } => {
                    self.start += took;
                    self.sink = Some(self.place(cookie, at));
                }
                Step::Hole { took, cookie, at, len } => {
                    self.start += took;
                    let place = self.place(cookie, at);
                    // SAFETY: the protocol lets through only what lies in the range of the read,
                    // for which the flight has memory.
                    unsafe { std::ptr::write_bytes(place.as_ptr(), 0, len as usize) };
                }
                Step::Extents { took, cookie, extents, .. } => {
                    self.start += took;
                    self.flights.entry(cookie).and_modify(|flight| flight.extents.extend(extents));
                }
                Step::Answer { took, cookie, result } => {
                    self.start += took;
                    let outcome = match result {
                        Err(failure) if failure.errno == NbdErrno::ESHUTDOWN => return Err(Lost::Ending),
                        Err(failure) => Err(errno(failure.errno)),
                        Ok(()) => Ok(()),
                    };
                    if let Some(flight) = self.flights.get_mut(&cookie) {
                        flight.answer = Some(outcome.map(|()| flight.bytes as u32));
                    }
                    self.end_if_over(cookie, answered);
                }
                Step::Took(took) | Step::Opened(took) | Step::StartTls(took) => self.start += took,
            }
        }
    }

    fn end_if_over(&mut self, cookie: u64, answered: &mut Vec<Answered>) {
        let is_over = self.flights.get(&cookie).is_some_and(|flight| flight.sent && flight.answer.is_some());
        if is_over && let Some(flight) = self.flights.remove(&cookie) {
            let Flight { mut task, answer, extents, covers, .. } = flight;
            let mut outcome = answer.unwrap_or(Err(Errno::IO));
            if outcome.is_ok()
                && let Err(errno) = task.note_extents(&extents)
            {
                outcome = Err(errno);
            }
            answered.push(Answered { task, outcome, covers });
        }
    }

    /// The memory for byte `at` of the export, which the read with this cookie asks for.
    fn place(&self, cookie: u64, at: u64) -> NonNull<u8> {
        let flight = self.flights.get(&cookie).expect("the protocol knows its requests");
        let request = self.protocol.request(cookie).expect("a part of a read comes before its end");
        let memory = flight.at.expect("a read has memory");
        // SAFETY: the protocol lets through only what lies in the range of the read.
        unsafe { memory.add((at - request.offset) as usize) }
    }

    /// Receives some bytes more; false if there are none now.
    fn fill(&mut self) -> io::Result<bool> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let bytes = received(&mut self.stream, &mut [IoSliceMut::new(&mut self.input[self.end..])])?;
        self.end += bytes.unwrap_or(0);
        Ok(bytes.is_some())
    }

    /// Takes payload, of which `left` bytes are to come; false if there is none now.
    fn take_payload(&mut self, left: usize) -> io::Result<bool> {
        let mut place = self.sink.expect("payload follows the header of its part");
        let here = (self.end - self.start).min(left);
        // SAFETY: the part lies in the memory of a flight, and `left` bytes of it are free.
        let into = unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), left) };
        into[..here].copy_from_slice(&self.input[self.start..self.start + here]);
        self.start += here;
        let mut taken = here;
        let mut came = true;
        if here < left {
            // The input is empty. What follows the payload comes with the same system call.
            let mut slices = [IoSliceMut::new(&mut into[here..]), IoSliceMut::new(&mut self.input)];
            let bytes = received(&mut self.stream, &mut slices)?;
            came = bytes.is_some();
            let bytes = bytes.unwrap_or(0);
            let of_payload = bytes.min(left - here);
            (self.start, self.end) = (0, bytes - of_payload);
            taken += of_payload;
        }
        // SAFETY: no further than the end of the part.
        place = unsafe { place.add(taken) };
        self.sink = Some(place);
        self.protocol.payload_taken(taken as u64);
        Ok(came)
    }

    /// Reads a range and waits, before the connection has any task.
    pub(super) fn read_now(&mut self, offset: u64, into: &mut [u8], deadline: Instant) -> Result<(), Lost> {
        let (answer, answers) = std::sync::mpsc::channel();
        let (ask, bytes) = (Ask::READ, into.len() as u64);
        let call = Call { ask, offset, bytes, memory: AlignedBuf::new(into.len()), answer, _alive: Arc::default() };
        let mut task: Box<dyn Task> = Box::new(call);
        let wish = task.next(bytes);
        let mut answered: Vec<Answered> =
            self.submit(task, Named { wish, fua: false, cookie: 0, covers: 0 }).err().into_iter().collect();
        while answered.is_empty() {
            self.move_bytes(&mut answered)?;
            if answered.is_empty() {
                self.stream.wait(self.has_output(), deadline)?;
            }
        }
        answered.into_iter().for_each(|Answered { task, outcome, .. }| drop(task.advance(outcome)));
        match answers.recv() {
            Ok((Ok(()), memory)) => {
                into.copy_from_slice(&memory[..into.len()]);
                Ok(())
            }
            Ok((Err(errno), _)) => Err(Lost::Io(errno.into())),
            Err(_) => Err(Lost::Io(Errno::IO.into())),
        }
    }

    /// Gives all tasks back that somebody waits for, in the order in which they were given.
    pub(super) fn into_tasks(self) -> Vec<(Box<dyn Task>, u64)> {
        let mut flights: Vec<(u64, Flight)> = self.flights.into_iter().collect();
        flights.sort_unstable_by_key(|(cookie, _)| *cookie);
        let wanted = flights.into_iter().filter(|(_, flight)| !flight.forgotten);
        wanted.map(|(_, flight)| (flight.task, flight.covers)).collect()
    }

    /// Nobody waits for the tasks of an owner any more: they are not to be sent again.
    pub(super) fn forget(&mut self, owner: usize) {
        let all = self.flights.values_mut().filter(|flight| flight.task.owner() == owner);
        all.for_each(|flight| flight.forgotten = true);
    }

    /// Tells the server that nothing more comes.
    pub(super) fn say_goodbye(&mut self) {
        let mut goodbye = Vec::new();
        self.protocol.disconnect(&mut goodbye);
        // A server that does not take it learns of the end by the end of the connection.
        let _ = self.stream.send(&[IoSlice::new(&goodbye)]).and_then(|_| self.stream.flush());
    }

    /// Waits until the server hangs up, or the time is over.
    pub(super) fn wait_for_end(&mut self, deadline: Instant) {
        loop {
            match received(&mut self.stream, &mut [IoSliceMut::new(&mut self.input)]) {
                Ok(Some(_)) => {}
                Ok(None) if self.stream.wait(false, deadline).is_ok() => {}
                _ => return,
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Receives; `None` if there is nothing now. The end of the stream is an error.
fn received(stream: &mut Stream, into: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
    loop {
        match stream.receive(into) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => return Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
