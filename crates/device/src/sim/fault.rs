// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults that a test orders: the nth I/O, a range, or everything fails.

use std::ops::Range;

use flashfront_engine::{DeviceError, Op};

use crate::DeviceIo;

/// The faults ordered for a device.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    nth: Vec<(u64, Option<Op>, DeviceError)>,
    ranges: Vec<(Range<u64>, Option<Op>, DeviceError)>,
    gone: bool,
}

impl Faults {
    /// The `nth` I/O submitted from now on (0 = the next one) fails once; with an `op`, only I/Os
    /// of that kind count.
    pub fn fail_nth(&mut self, nth: u64, op: Option<Op>, error: DeviceError) {
        self.nth.push((nth, op, error));
    }

    /// Every I/O that touches these bytes fails, until [`Faults::heal`]; with an `op`, only I/Os of that kind.
    pub fn fail_range(&mut self, bytes: Range<u64>, op: Option<Op>, error: DeviceError) {
        self.ranges.push((bytes, op, error));
    }

    /// The device is gone: every I/O fails with [`DeviceError::Gone`], also those in flight.
    pub fn lose_device(&mut self) {
        self.gone = true;
    }

    /// Takes all orders back.
    pub fn heal(&mut self) {
        *self = Self::default();
    }

    pub(super) fn gone(&self) -> bool {
        self.gone
    }

    /// How an I/O being submitted is going to fail, if it is.
    pub(super) fn next(&mut self, io: &DeviceIo) -> Option<DeviceError> {
        let mut hit = None;
        self.nth.retain_mut(|(left, op, error)| {
            if op.is_some_and(|op| op != io.op) {
                return true;
            }
            if *left == 0 {
                hit = Some(*error);
                return false;
            }
            *left -= 1;
            true
        });
        let touches = |range: &Range<u64>| io.offset < range.end && range.start < io.offset + io.len;
        let ranges = &mut self.ranges.iter();
        let in_range = ranges.find(|(range, op, _)| touches(range) && op.is_none_or(|op| op == io.op));
        hit.or(in_range.map(|(.., error)| *error))
    }
}
