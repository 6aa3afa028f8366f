// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that were read of the kernel and wait for their turn.
//!
//! Several processors note them, and the file has them in the order of their times. A look at all
//! processors sees every request that is older than its beginning. So these are given out, in
//! order; younger ones wait for the next look.

use crate::event::Event;

/// The requests that wait.
#[derive(Debug, Default)]
pub(crate) struct Held {
    events: Vec<Event>,
}

impl Held {
    pub(crate) fn push(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Takes those up to this time, in order.
    pub(crate) fn take_until(&mut self, time_ns: u64) -> std::vec::Drain<'_, Event> {
        // A stable sort: of those at the same time the order of one processor is kept.
        self.events.sort_by_key(|event| event.time_ns);
        let end = self.events.partition_point(|event| event.time_ns <= time_ns);
        self.events.drain(..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(events: impl Iterator<Item = Event>) -> Vec<u64> {
        events.map(|event| event.time_ns).collect()
    }

    #[test]
    fn what_another_processor_noted_earlier_comes_first() {
        let event = |time_ns| Event { time_ns, sector: time_ns, bytes: 512, categories: 0, pid: 0 };
        let mut held = Held::default();
        // A look at two processors that began at 30: 35 was noted meanwhile.
        [10, 20, 35, 5, 30].into_iter().for_each(|time| held.push(event(time)));
        assert_eq!(times(held.take_until(30)), [5, 10, 20, 30]);
        [33, 40].into_iter().for_each(|time| held.push(event(time)));
        assert_eq!(times(held.take_until(u64::MAX)), [33, 35, 40]);
    }
}
