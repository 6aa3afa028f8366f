// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stored extents that were read last. A read of a few sectors fetches a whole extent: its
//! neighbours are likely to be read next.

use std::collections::VecDeque;
use std::sync::Arc;

/// An object and a place in it.
type Place = (u32, u32);

#[derive(Debug)]
pub(super) struct Recent {
    extents: VecDeque<(Place, Arc<Vec<u8>>)>,
    bytes: usize,
    bytes_max: usize,
}

impl Recent {
    pub(super) const fn new(bytes_max: usize) -> Self {
        Self { extents: VecDeque::new(), bytes: 0, bytes_max }
    }

    pub(super) fn get(&self, place: Place) -> Option<&[u8]> {
        self.extents.iter().find(|it| it.0 == place).map(|it| it.1.as_slice())
    }

    /// Keeps an extent in place of the oldest ones.
    pub(super) fn add(&mut self, place: Place, bytes: Arc<Vec<u8>>) {
        if self.get(place).is_some() || bytes.len() > self.bytes_max {
            return;
        }
        self.bytes += bytes.len();
        self.extents.push_back((place, bytes));
        while self.bytes > self.bytes_max
            && let Some((_, oldest)) = self.extents.pop_front()
        {
            self.bytes -= oldest.len();
        }
    }
}
