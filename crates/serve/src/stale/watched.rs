// SPDX-License-Identifier: MIT OR Apache-2.0
//! An origin whose samples are recorded: holds back a write to a sampled place until the record
//! allows for it.
//!
//! The record begins at the first write of an opening, which waits for that. An origin that is
//! never written costs neither RAM nor a file (`openings`). All other I/O passes at once. A thread
//! writes the record. So a slow state folder holds up nothing but such writes, which are destage or
//! go past the cache. A record that can't be written is removed, and nothing is held back any more.
//! Then a start after a crash can compare only clean blocks of the cache.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::time::Duration;

use flashfront_device::real::DeviceFile;
use flashfront_device::{Arena, Device, DeviceIo, Done, Geometry, Hang};
use flashfront_engine::{Memory, Op, OriginId, Span, Time, Token};

use super::keeper::{Keeper, News, create, give_up};
use super::record::{Owner, RecordFile, Sample, crc};
use super::samples::{Change, Samples};
use super::sampling::sample;

/// An origin whose samples are to be recorded before the first write to it.
pub(crate) struct Watch {
    pub(super) state: Option<PathBuf>,
    pub(super) origin: Arc<DeviceFile>,
    pub(super) id: OriginId,
    pub(super) owner: Owner,
    /// How long the origin may take to answer.
    pub(super) limit: Option<Duration>,
    pub(super) begun: Option<(Samples, RecordFile)>,
}

impl Watch {
    /// An origin, in the opening with this number.
    pub(crate) fn new(
        state: Option<&Path>,
        origin: &Arc<DeviceFile>,
        id: OriginId,
        (uuid, epoch): ([u8; 16], u64),
        limit: Option<Duration>,
    ) -> Self {
        let state = state.map(Path::to_owned);
        Self { state, origin: Arc::clone(origin), id, owner: Owner { uuid, epoch }, limit, begun: None }
    }

    /// Begins the record now, since nothing else says what the origin holds.
    ///
    /// # Errors
    /// When the origin can't be read, or the record not written.
    pub(crate) fn begin(mut self) -> io::Result<Self> {
        let samples = sample(&self.origin)?;
        self.begun = Some(create(self.state.as_deref(), self.id, self.owner, samples)?);
        Ok(self)
    }

    /// Puts it around the origin. `wake` makes the pump turn.
    pub(crate) fn around(self, inner: Box<dyn Device>, name: String, wake: impl Fn() + Send + 'static) -> Watched {
        let (held, flying, flushes) = (VecDeque::new(), BTreeMap::new(), BTreeMap::new());
        let is_begun = self.begun.is_some();
        let record = Record::Unwritten(Box::new(Keeper { watch: self, name, wake: Box::new(wake) }));
        let mut watched =
            Watched { inner, record, is_saving: false, is_due: false, held, flying, flushes, fetched: Vec::new() };
        if is_begun {
            watched.begin();
        }
        watched
    }
}

/// The link to the thread that writes records.
struct Link {
    records: Sender<Vec<Sample>>,
    news: Receiver<News>,
}

/// The record of an origin's samples.
enum Record {
    /// The origin was not written yet, and has none.
    Unwritten(Box<Keeper>),
    /// The thread samples the origin. All that changes the origin waits for that.
    Beginning(Link),
    Kept(Link, Box<Samples>),
    /// None is kept any more.
    Over,
}

/// An origin with a record of its samples.
pub(crate) struct Watched {
    inner: Box<dyn Device>,
    record: Record,
    is_saving: bool,
    /// A record is to be written, now or after the one that is being written.
    is_due: bool,
    /// Writes that wait for a record: for the one being written, and for one after it.
    held: VecDeque<DeviceIo>,
    /// Writes to sampled places that have begun, with the hashes of their data.
    flying: BTreeMap<Token, Vec<(usize, Option<u64>)>>,
    /// Flushes in flight, with their numbers.
    flushes: BTreeMap<Token, u64>,
    fetched: Vec<Done>,
}

impl Watched {
    /// Starts the thread, which begins the record.
    fn begin(&mut self) {
        let Record::Unwritten(keeper) = std::mem::replace(&mut self.record, Record::Over) else { return };
        let ((records, to_write), (sender, news)) = (mpsc::channel(), mpsc::channel());
        let (name, state) = (keeper.name.clone(), keeper.watch.state.clone());
        let (id, uuid) = (keeper.watch.id, keeper.watch.owner.uuid);
        let thread = std::thread::Builder::new().name("samples".to_owned());
        match thread.spawn(move || keeper.keep(to_write, &sender)) {
            Ok(_) => self.record = Record::Beginning(Link { records, news }),
            Err(error) => give_up(&name, state.as_deref(), id, &uuid, &error),
        }
    }

    /// Sends a record to be written, at once or after the current one.
    fn save(&mut self) {
        self.is_due = true;
        let Record::Kept(link, samples) = &mut self.record else { return };
        if !self.is_saving {
            // The thread ends only after its last answer, which tells why.
            (self.is_due, self.is_saving) = (false, true);
            let _ = link.records.send(samples.save());
        }
    }

    /// Whether a change of the origin may go on at once: the durable record allows for it.
    fn may_change(&mut self, io: &DeviceIo, change: Change, arena: &Arena) -> bool {
        if matches!(self.record, Record::Unwritten(_)) {
            self.begin();
        }
        let samples = match &mut self.record {
            Record::Over => return true,
            Record::Unwritten(_) | Record::Beginning(_) => return false,
            Record::Kept(_, samples) => samples,
        };
        if samples.touched(io.offset, io.len).is_empty() {
            return true;
        }
        let content = |offset: u64, len: u32| match io.span {
            Some(span) if io.op == Op::Write => {
                let from = span.offset() + (offset - io.offset) as u32;
                crc(arena.bytes(Span::new(span.buf(), from, len)))
            }
            _ => crc(&vec![0; len as usize]),
        };
        let (must_wait, brought) = samples.begin((io.offset, io.len), change, content);
        self.flying.insert(io.token, brought);
        if must_wait {
            self.save();
        }
        !must_wait
    }

    /// Hears what the thread has told; false: nothing.
    fn hear(&mut self, now: Time, arena: &mut Arena) -> bool {
        let link = match &self.record {
            Record::Beginning(link) => link,
            Record::Kept(link, _) if self.is_saving => link,
            _ => return false,
        };
        let news = match link.news.try_recv() {
            Err(TryRecvError::Empty) => return false,
            // A thread that is gone without an answer: a bug, which must not hold up writes for
            // ever.
            Err(TryRecvError::Disconnected) => News::Over,
            Ok(news) => news,
        };
        self.is_saving = false;
        let waiting = std::mem::take(&mut self.held);
        let before = std::mem::replace(&mut self.record, Record::Over);
        match (news, before) {
            (News::Begun(samples), Record::Beginning(link)) => {
                self.record = Record::Kept(link, Box::new(samples));
                for io in waiting {
                    if change_of(io.op).is_some_and(|change| !self.may_change(&io, change, arena)) {
                        self.held.push_back(io);
                    } else {
                        self.inner.submit(now, io, arena);
                    }
                }
            }
            (News::Saved, Record::Kept(link, mut samples)) => {
                samples.saved();
                for io in waiting {
                    if samples.allows(&self.flying[&io.token]) {
                        self.inner.submit(now, io, arena);
                    } else {
                        self.held.push_back(io);
                    }
                }
                self.record = Record::Kept(link, samples);
            }
            // Nothing is held back any more.
            _ => {
                (self.flying, self.flushes) = (BTreeMap::new(), BTreeMap::new());
                waiting.into_iter().for_each(|io| self.inner.submit(now, io, arena));
            }
        }
        if self.is_due || !self.held.is_empty() {
            self.save();
        }
        self.inner.kick();
        true
    }
}

/// The change that an I/O makes, if it makes one.
fn change_of(op: Op) -> Option<Change> {
    match op {
        Op::Read | Op::Map | Op::Flush => None,
        Op::Write | Op::Zero | Op::Punch => Some(Change::Content),
        Op::Discard => Some(Change::Undefined),
    }
}

impl Device for Watched {
    fn submit(&mut self, now: Time, io: DeviceIo, arena: &mut Arena) {
        if change_of(io.op).is_some_and(|change| !self.may_change(&io, change, arena)) {
            self.held.push_back(io);
            return;
        }
        if let (Op::Flush, Record::Kept(_, samples)) = (io.op, &mut self.record) {
            self.flushes.insert(io.token, samples.flush_began());
        }
        self.inner.submit(now, io, arena);
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn poll(&mut self, now: Time, arena: &mut Arena, done: &mut Vec<Done>) {
        while self.hear(now, arena) {}
        self.inner.poll(now, arena, &mut self.fetched);
        let mut is_news = false;
        if let Record::Kept(_, samples) = &mut self.record {
            for it in &self.fetched {
                if let Some(brought) = self.flying.remove(&it.token) {
                    samples.end(&brought, it.result.is_ok());
                }
                if let Some(number) = self.flushes.remove(&it.token) {
                    is_news |= samples.flush_ended(number, it.result.is_ok());
                }
            }
        }
        done.append(&mut self.fetched);
        if is_news {
            self.save();
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.inner.next_event()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn hang(&self) -> Option<Hang> {
        self.inner.hang()
    }
}

#[cfg(test)]
mod tests;
