// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a device as slow as another kind: completions are held back until that kind would be done.
//!
//! The inner device does the I/O at once and really; only the news of it is late. If the inner
//! device is the slower one, its own completion is what counts. Works in real time (`flashfront
//! try` puts an HDD's pace on a file) and in virtual time alike, and has no randomness.

use std::collections::BTreeMap;

use flashfront_engine::{Time, Token};

use crate::sim::{Model, ModelIo, ModelSpec};
use crate::{Arena, Device, DeviceIo, Done, Geometry};

#[derive(Debug)]
struct Held {
    token: Token,
    /// When the model says it is done; not known yet while it queues.
    due: Option<Time>,
    done: Option<Done>,
}

/// A device with the pace of another kind.
pub struct Delay<D> {
    inner: D,
    model: Box<dyn Model>,
    rotational: bool,
    /// I/Os by number of submission. There are few more than the queue depth.
    held: BTreeMap<u64, Held>,
    submitted: u64,
    ended: Vec<(Time, u64)>,
    fetched: Vec<Done>,
}

impl<D: Device> Delay<D> {
    /// Puts the pace of `spec` on a device.
    #[must_use]
    pub fn new(inner: D, spec: ModelSpec) -> Self {
        Self::beginning_of(inner, spec, 0)
    }

    /// Delays as if the device were the beginning of a disk of `size_bytes`.
    ///
    /// The time of a seek goes by its share of the whole disk. So a small file as a disk of its own
    /// would have seeks as long as a large one. A larger device counts with its own size.
    #[must_use]
    pub fn beginning_of(inner: D, spec: ModelSpec, size_bytes: u64) -> Self {
        let size_bytes = inner.geometry().size_bytes.max(size_bytes);
        let (model, rotational) = (spec.build(size_bytes), spec.rotational());
        Self { inner, model, rotational, held: BTreeMap::new(), submitted: 0, ended: Vec::new(), fetched: Vec::new() }
    }

    /// The device behind.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The device behind, to change.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }
}

impl<D: Device> Device for Delay<D> {
    fn submit(&mut self, now: Time, io: DeviceIo, arena: &mut Arena) {
        self.geometry().check(&io);
        self.submitted += 1;
        self.held.insert(self.submitted, Held { token: io.token, due: None, done: None });
        let DeviceIo { op, offset, len, .. } = io;
        self.model.submit(now, ModelIo { number: self.submitted, op, offset, len });
        self.inner.submit(now, io, arena);
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn poll(&mut self, now: Time, arena: &mut Arena, done: &mut Vec<Done>) {
        self.inner.poll(now, arena, &mut self.fetched);
        for fetched in self.fetched.drain(..) {
            let mut open = self.held.values_mut().filter(|held| held.done.is_none());
            let held = open.find(|held| held.token == fetched.token).expect("a completion belongs to an I/O held");
            held.done = Some(fetched);
        }
        self.model.advance(now, &mut self.ended);
        for (at, number) in self.ended.drain(..) {
            let held = self.held.get_mut(&number).expect("the model ends each I/O once");
            held.due = Some(at);
        }
        let mut over: Vec<_> = self
            .held
            .extract_if(.., |_, held| held.due.is_some() && held.done.is_some())
            .filter_map(|(number, held)| Some((held.due?, number, held.done?)))
            .collect();
        over.sort_unstable_by_key(|(due, number, _)| (*due, *number));
        done.extend(over.into_iter().map(|(.., done)| done));
    }

    fn next_event(&self) -> Option<Time> {
        [self.inner.next_event(), self.model.next_event()].into_iter().flatten().min()
    }

    fn geometry(&self) -> Geometry {
        Geometry { rotational: Some(self.rotational), ..self.inner.geometry() }
    }
}

#[cfg(test)]
mod tests;
