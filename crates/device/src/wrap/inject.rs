// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a device faulty: errors, timeouts, rot, lies, and its absence, as ordered by [`Faults`].
//!
//! Works around any device, in virtual and in real time; without orders it changes nothing. Memory
//! stays safe whatever is ordered: an I/O that the inner device has begun is never reported
//! before it has ended there. Misdirected, lost and flipped writes do real harm to what is on the
//! device; rot does none (see [`Fault::Rot`]).

mod faults;
mod spec;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use flashfront_engine::{Buf, DeviceError, Memory, Op, Span, Time, Token};

pub use faults::{ALWAYS_PPM, Fault, Faults, Rule};
pub use spec::SpecError;

use crate::arena::Grip;
use crate::{Arena, Device, DeviceIo, Done, Geometry};

/// The time until the error of an I/O that is not done at all: nothing fails in no time.
const ERROR_NS: u64 = 100_000;

/// An I/O at the inner device, and what is done when that has ended.
#[derive(Clone, Debug)]
struct Flying {
    io: DeviceIo,
    /// A byte of the range, and the bits of it that flip when it is read.
    flip: Option<(u64, u8)>,
    /// The memory that is written or read instead of the caller's.
    copy: Option<Buf>,
    /// The memory that the device reads into.
    landing: Option<Grip>,
    /// The memory that what is read goes to in the end.
    into: Option<Grip>,
    /// The end is not reported before this moment.
    due: Time,
    /// Reported instead of success.
    error: Option<DeviceError>,
}

/// An I/O that is not begun yet.
#[derive(Clone, Debug)]
struct Hung {
    due: Time,
    io: DeviceIo,
    /// The memory that it was given.
    memory: Option<Grip>,
}

/// A device with faults.
#[derive(Clone, Debug)]
pub struct Inject<D> {
    inner: D,
    /// The faults ordered for it.
    pub faults: Faults,
    flying: BTreeMap<Token, Flying>,
    hung: Vec<Hung>,
    held: Vec<(Time, u64, Done)>,
    /// Orders completions of the same moment.
    number: u64,
    /// When a device that is gone for a time comes back.
    back: Option<Time>,
    fetched: Vec<Done>,
}

impl<D> Inject<D> {
    /// A device that these faults are ordered for.
    #[must_use]
    pub fn new(inner: D, faults: Faults) -> Self {
        let (flying, held, fetched) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { inner, faults, flying, hung: Vec::new(), held, number: 0, back: None, fetched }
    }

    /// The device behind.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The device behind, to change.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// Puts these faults around another device, with nothing in flight: after a power cut, say.
    #[must_use]
    pub fn around(&self, inner: D) -> Self {
        Self { back: self.back, ..Self::new(inner, self.faults.clone()) }
    }

    fn hold(&mut self, due: Time, token: Token, result: Result<(), DeviceError>) {
        self.number += 1;
        self.held.push((due, self.number, Done { token, result }));
    }
}

impl<D: Device> Inject<D> {
    fn come_back(&mut self, now: Time) {
        if self.back.is_some_and(|back| back <= now) {
            self.back = None;
            self.faults.return_device();
        }
    }

    fn pass(&mut self, now: Time, io: DeviceIo, flying: Flying, arena: &mut Arena) {
        if matches!(io.op, Op::Write | Op::Zero | Op::Punch | Op::Discard) {
            self.faults.renewed(io.offset..io.offset + io.len);
        }
        let landing = io.span.filter(|_| io.op == Op::Read).map(|span| arena.grip(span));
        self.flying.insert(io.token, Flying { landing, ..flying });
        self.inner.submit(now, io, arena);
    }

    fn meet(&mut self, now: Time, io: DeviceIo, fault: Fault, bytes: &std::ops::Range<u64>, arena: &mut Arena) {
        let soon = now.plus_ns(ERROR_NS);
        let flying = Flying { io, flip: None, copy: None, landing: None, into: None, due: now, error: None };
        match fault {
            Fault::Error(error) => self.hold(soon, io.token, Err(error)),
            Fault::Gone { for_ns } => {
                self.faults.lose_device();
                self.back = for_ns.map(|ns| now.plus_ns(ns));
                self.hold(soon, io.token, Err(DeviceError::Gone));
            }
            Fault::Timeout { hold_ns } => {
                let due = now.plus_ns(hold_ns.max(ERROR_NS));
                if self.faults.rng().below(2) == 0 {
                    self.hold(due, io.token, Err(DeviceError::Io));
                } else {
                    self.pass(now, io, Flying { due, error: Some(DeviceError::Io), ..flying }, arena);
                }
            }
            Fault::Stall { hold_ns } => self.pass(now, io, Flying { due: now.plus_ns(hold_ns), ..flying }, arena),
            Fault::Hang { hold_ns } => {
                let memory = io.span.map(|span| arena.grip(span));
                self.hung.push(Hung { due: now.plus_ns(hold_ns), io, memory });
            }
            Fault::Short => {
                let block = u64::from(self.geometry().logical_block_bytes);
                let len = self.faults.rng().below(io.len / block) * block;
                if len == 0 {
                    self.hold(soon, io.token, Err(DeviceError::Io));
                    return;
                }
                let span = io.span.map(|span| Span::new(span.buf(), span.offset(), len as u32));
                let part = DeviceIo { len, span, ..io };
                self.pass(now, part, Flying { io: part, error: Some(DeviceError::Io), ..flying }, arena);
            }
            Fault::Flip => {
                let bit = self.faults.any_bit(bytes);
                match (io.op, io.span) {
                    (Op::Write, Some(span)) => match arena.try_alloc(span.len) {
                        Some(copy) => {
                            arena.copy(span, copy, 0);
                            let span = Span::new(copy, 0, span.len);
                            arena.bytes_mut(span)[(bit.0 - io.offset) as usize] ^= bit.1;
                            let copied = DeviceIo { span: Some(span), ..io };
                            self.pass(now, copied, Flying { copy: Some(copy), ..flying }, arena);
                        }
                        // No memory to flip it in: it passes unharmed.
                        None => self.pass(now, io, flying, arena),
                    },
                    _ => self.pass(now, io, Flying { flip: Some(bit), ..flying }, arena),
                }
            }
            Fault::Rot => {
                let (byte, bit) = self.faults.any_bit(bytes);
                self.faults.rot(byte, bit);
                self.pass(now, io, flying, arena);
            }
            Fault::Misdirect => {
                let Geometry { size_bytes, logical_block_bytes, .. } = self.geometry();
                let block = u64::from(logical_block_bytes);
                let offset = self.faults.rng().below((size_bytes - io.len) / block + 1) * block;
                let elsewhere = DeviceIo { offset, ..io };
                self.pass(now, elsewhere, Flying { io: elsewhere, ..flying }, arena);
            }
            Fault::Lost => self.hold(soon, io.token, Ok(())),
        }
    }

    /// Begins what has hung for long enough: with a copy, since the caller may have given it up and
    /// its buffer away.
    fn begin_hung(&mut self, now: Time, arena: &mut Arena) {
        let over: Vec<_> = self.hung.extract_if(.., |hung| hung.due <= now).collect();
        for Hung { io, memory, .. } in over {
            let copy = memory.as_ref().map(|_| arena.try_alloc(io.len as u32));
            if self.faults.gone() || copy == Some(None) {
                self.hold(now.plus_ns(ERROR_NS), io.token, Err(DeviceError::Gone));
                continue;
            }
            let copy = copy.flatten();
            let span = copy.map(|copy| Span::new(copy, 0, io.len as u32));
            let flying = Flying {
                io: DeviceIo { span, ..io },
                flip: None,
                copy,
                landing: None,
                into: None,
                due: now,
                error: None,
            };
            match (io.op, memory, span) {
                (Op::Write, Some(memory), Some(span)) => memory.read(arena.bytes_mut(span)),
                (Op::Read | Op::Map, memory, _) => {
                    self.pass(now, flying.io, Flying { into: memory, ..flying }, arena);
                    continue;
                }
                _ => {}
            }
            self.pass(now, flying.io, flying, arena);
        }
        self.inner.kick();
    }

    fn ended(&mut self, now: Time, done: Done, arena: &mut Arena) {
        let mut flying = self.flying.remove(&done.token).expect("a completion belongs to an I/O in flight");
        let Flying { io, due, error, .. } = flying;
        if let (Some(landing), Ok(())) = (&mut flying.landing, done.result) {
            let rotten = self.faults.rotten_in(io.offset..io.offset + io.len);
            let wrong: Vec<(u64, u8)> = rotten.chain(flying.flip).collect();
            if !wrong.is_empty() {
                let mut bytes = vec![0; io.len as usize];
                landing.read(&mut bytes);
                wrong.iter().for_each(|(byte, bits)| bytes[(byte - io.offset) as usize] ^= bits);
                landing.write(&bytes);
            }
        }
        if let (Some(mut memory), Some(span)) = (flying.into, io.span) {
            memory.write(arena.bytes(span));
        }
        if let Some(copy) = flying.copy {
            arena.free(copy);
        }
        let result = match error {
            _ if self.faults.gone() => Err(DeviceError::Gone),
            Some(error) => done.result.and(Err(error)),
            None => done.result,
        };
        self.hold(due.max(now), done.token, result);
    }
}

impl<D: Device> Device for Inject<D> {
    fn submit(&mut self, now: Time, io: DeviceIo, arena: &mut Arena) {
        self.geometry().check(&io);
        self.come_back(now);
        if self.faults.gone() {
            self.hold(now.plus_ns(ERROR_NS), io.token, Err(DeviceError::Gone));
            return;
        }
        match self.faults.next(now, &io) {
            Some((fault, bytes)) => self.meet(now, io, fault, &bytes, arena),
            None => self.pass(
                now,
                io,
                Flying { io, flip: None, copy: None, landing: None, into: None, due: now, error: None },
                arena,
            ),
        }
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn poll(&mut self, now: Time, arena: &mut Arena, done: &mut Vec<Done>) {
        self.come_back(now);
        if self.hung.iter().any(|hung| hung.due <= now) {
            self.begin_hung(now, arena);
        }
        let mut fetched = std::mem::take(&mut self.fetched);
        self.inner.poll(now, arena, &mut fetched);
        for it in fetched.drain(..) {
            self.ended(now, it, arena);
        }
        self.fetched = fetched;
        let mut over: Vec<_> = self.held.extract_if(.., |(due, ..)| *due <= now).collect();
        over.sort_unstable_by_key(|(due, number, _)| (*due, *number));
        done.extend(over.into_iter().map(|(.., done)| done));
    }

    fn next_event(&self) -> Option<Time> {
        let hung = self.hung.iter().map(|hung| hung.due);
        self.held.iter().map(|(due, ..)| *due).chain(hung).chain(self.inner.next_event()).min()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
}
