// SPDX-License-Identifier: MIT OR Apache-2.0
//! An origin whose samples are recorded: holds back a write to a sampled place until the record
//! allows for it.
//!
//! All other I/O passes at once. A thread writes the record. So a slow state folder holds up
//! nothing but such writes, which are destage or go past the cache. A record that can't be written
//! is removed, and nothing is held back any more. Then a start after a crash can compare only clean
//! blocks of the cache.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};

use flashfront_device::real::{DeviceFile, ReadAt};
use flashfront_device::{Arena, Device, DeviceIo, Done, Geometry, Hang};
use flashfront_engine::{Memory, Op, OriginId, Span, Time, Token};

use super::record::{Owner, RecordFile, Sample, crc};
use super::samples::{Change, Samples};

/// Looked at at once.
const PLACE_BYTES: u64 = 4096;
/// A superblock that is torn between two of these is still told.
const SECTOR_BYTES: u64 = 512;
/// Read at once.
const READ_BYTES: u64 = 1 << 20;

/// The record of an origin's samples, before the daemon's first write to it.
pub(crate) struct Watch {
    samples: Samples,
    file: RecordFile,
}

impl Watch {
    /// Samples the origin and makes that durable, for the opening with this number.
    ///
    /// # Errors
    /// When the origin can't be read, or the record not written.
    pub(crate) fn begin(
        state: Option<&Path>,
        origin: &DeviceFile,
        id: OriginId,
        uuid: [u8; 16],
        epoch: u64,
    ) -> io::Result<Self> {
        // Writes of the daemon before this one may be in a volatile cache, and undone by a power
        // cut.
        origin.sync()?;
        let found = take(origin)?;
        let mut samples = Samples::new(found);
        let (first, bytes) = (samples.save(), samples.record_bytes_max());
        let file = RecordFile::create(state, id, Owner { uuid, epoch }, &first, bytes)?;
        samples.saved();
        Ok(Self { samples, file })
    }

    /// Puts it around the origin. `wake` makes the pump turn.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn around(
        self,
        inner: Box<dyn Device>,
        name: String,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Watched> {
        let Self { samples, mut file } = self;
        let (records, to_write) = mpsc::channel::<Vec<Sample>>();
        let (written, results) = mpsc::channel();
        let write = move || {
            for record in to_write {
                let result = file.save(&record);
                let is_over = result.is_err();
                if let Err(error) = &result {
                    give_up(&name, &file, error);
                }
                // A daemon that has ended meanwhile doesn't need it.
                let _ = written.send(result.is_ok());
                wake();
                if is_over {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("samples".to_owned()).spawn(write)?;
        let link = Some(Link { records, results });
        let (held, flying, flushes) = (VecDeque::new(), BTreeMap::new(), BTreeMap::new());
        Ok(Watched {
            inner,
            samples,
            link,
            is_saving: false,
            is_due: false,
            held,
            flying,
            flushes,
            fetched: Vec::new(),
        })
    }
}

fn give_up(name: &str, file: &RecordFile, error: &io::Error) {
    let removed = file.remove();
    tracing::warn!(
        "{name}: can't record samples of it in the state folder ({error}); after a crash only what the cache has of it will be compared"
    );
    if let Err(error) = removed {
        tracing::error!(
            "{name}: nor can the record be removed ({error}); after a crash the next start may take this origin for changed: remove *.samples from the state folder first"
        );
    }
}

/// Reads the sampled places of an origin, and says which are vital.
fn take(origin: &DeviceFile) -> io::Result<Vec<(Sample, bool)>> {
    let ranges = flashfront_device::real::sampled(origin)?;
    let mut found = Vec::new();
    for (ranges, unit, vital) in [(ranges.vital, SECTOR_BYTES, true), (ranges.others, PLACE_BYTES, false)] {
        for (start, end) in ranges {
            for from in (start..end).step_by(READ_BYTES as usize) {
                let mut bytes = vec![0; (end - from).min(READ_BYTES) as usize];
                // A place that can't be read is no sample.
                if origin.read_at(from, &mut bytes).is_err() {
                    continue;
                }
                for (nth, part) in bytes.chunks(unit as usize).enumerate() {
                    let offset = from + nth as u64 * unit;
                    found.push((Sample { offset, len: part.len() as u32, hashes: vec![crc(part)] }, vital));
                }
            }
        }
    }
    found.sort_by_key(|(sample, _)| sample.offset);
    Ok(found)
}

/// Finds the first place that holds nothing of what the record allows.
pub(super) fn changed(size: u64, read: &mut ReadAt<'_>, samples: &[Sample]) -> Option<u64> {
    // Read by runs of neighbours.
    let is_next = |one: &Sample, next: &Sample| one.offset + u64::from(one.len) == next.offset;
    for run in samples.chunk_by(is_next) {
        for part in run.chunks((READ_BYTES / PLACE_BYTES) as usize) {
            let start = part[0].offset;
            let end = part.last().map_or(start, |it| it.offset.saturating_add(u64::from(it.len)));
            if end > size {
                return Some(start);
            }
            let mut bytes = vec![0; (end - start) as usize];
            // A bad sector proves nothing.
            if read(start, &mut bytes).is_err() {
                continue;
            }
            for it in part {
                let held = &bytes[(it.offset - start) as usize..][..it.len as usize];
                if !it.hashes.contains(&crc(held)) {
                    return Some(it.offset);
                }
            }
        }
    }
    None
}

/// The thread that writes records.
struct Link {
    records: Sender<Vec<Sample>>,
    results: Receiver<bool>,
}

/// An origin with a record of its samples.
pub(crate) struct Watched {
    inner: Box<dyn Device>,
    samples: Samples,
    /// The link to the thread; none: no record is kept any more.
    link: Option<Link>,
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
    /// Sends a record to be written, at once or after the current one.
    fn save(&mut self) {
        self.is_due = true;
        let Some(link) = self.link.as_ref().filter(|_| !self.is_saving) else { return };
        // The thread ends only after its last answer, which tells why.
        (self.is_due, self.is_saving) = (false, true);
        let _ = link.records.send(self.samples.save());
    }

    /// A record is durable, or will never be: writes that waited for it go on.
    fn saved(&mut self, now: Time, ok: bool, arena: &mut Arena) {
        self.is_saving = false;
        if ok {
            self.samples.saved();
        } else {
            self.link = None;
        }
        let waiting = std::mem::take(&mut self.held);
        for io in waiting {
            if self.link.is_some() && !self.samples.allows(&self.flying[&io.token]) {
                self.held.push_back(io);
            } else {
                self.inner.submit(now, io, arena);
            }
        }
        if self.is_due || !self.held.is_empty() {
            self.save();
        }
        self.inner.kick();
    }
}

impl Device for Watched {
    fn submit(&mut self, now: Time, io: DeviceIo, arena: &mut Arena) {
        let change = match io.op {
            Op::Read | Op::Map | Op::Flush => None,
            Op::Write | Op::Zero | Op::Punch => Some(Change::Content),
            Op::Discard => Some(Change::Undefined),
        };
        if let Some(change) = change.filter(|_| self.link.is_some())
            && !self.samples.touched(io.offset, io.len).is_empty()
        {
            let content = |offset: u64, len: u32| match io.span {
                Some(span) if io.op == Op::Write => {
                    let from = span.offset() + (offset - io.offset) as u32;
                    crc(arena.bytes(Span::new(span.buf(), from, len)))
                }
                _ => crc(&vec![0; len as usize]),
            };
            let (must_wait, brought) = self.samples.begin((io.offset, io.len), change, content);
            self.flying.insert(io.token, brought);
            if must_wait {
                self.held.push_back(io);
                self.save();
                return;
            }
        }
        if io.op == Op::Flush {
            self.flushes.insert(io.token, self.samples.flush_began());
        }
        self.inner.submit(now, io, arena);
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn poll(&mut self, now: Time, arena: &mut Arena, done: &mut Vec<Done>) {
        while self.is_saving {
            let result = self.link.as_ref().map_or(Ok(false), |link| link.results.try_recv());
            match result {
                Ok(ok) => self.saved(now, ok, arena),
                // A thread that is gone without an answer: a bug, which must not hold up writes for
                // ever.
                Err(TryRecvError::Disconnected) => self.saved(now, false, arena),
                Err(TryRecvError::Empty) => break,
            }
        }
        self.inner.poll(now, arena, &mut self.fetched);
        let mut is_news = false;
        for it in &self.fetched {
            if let Some(brought) = self.flying.remove(&it.token) {
                self.samples.end(&brought, it.result.is_ok());
            }
            if let Some(number) = self.flushes.remove(&it.token) {
                is_news |= self.samples.flush_ended(number, it.result.is_ok());
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
