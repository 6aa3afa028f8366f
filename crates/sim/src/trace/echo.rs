// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds requests that were traced twice, because two stacked layers were traced.
//!
//! The lower layer repeats the upper layer's request within microseconds. An equal request that
//! comes within the window is the echo of the first. The next equal request is new. A client that
//! really asks twice within the window is taken for an echo too. So this is only for traces that
//! are known to be doubled.

use std::collections::{HashMap, VecDeque};

use super::record::{Op, Record};

/// The requests within the window that have had no echo.
#[derive(Debug)]
pub struct Echoes {
    window_ns: u64,
    heard: HashMap<Key, u64>,
    order: VecDeque<(u64, Key)>,
}

type Key = (u32, Op, u64, u32);

impl Echoes {
    /// Finds echoes that come within `window_ns` of their request.
    #[must_use]
    pub fn within(window_ns: u64) -> Self {
        Self { window_ns, heard: HashMap::new(), order: VecDeque::new() }
    }

    /// Whether this record repeats a record within the window. Records without time never do. `now`
    /// is the record's time, so that it never goes back.
    pub fn is_echo(&mut self, record: &Record, now: u64) -> bool {
        if record.time_ns.is_none() {
            return false;
        }
        while let Some((at, key)) = self.order.front().copied() {
            if now.saturating_sub(at) <= self.window_ns {
                break;
            }
            self.order.pop_front();
            // The request may have had its echo, and been sent again.
            if self.heard.get(&key) == Some(&at) {
                self.heard.remove(&key);
            }
        }
        let key = (record.device, record.op, record.sector, record.sectors);
        if self.heard.remove(&key).is_some() {
            return true;
        }
        self.heard.insert(key, now);
        self.order.push_back((now, key));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_is_the_same_and_soon() {
        let mut echoes = Echoes::within(20);
        let record = |time, sector| Record { time_ns: Some(time), op: Op::Read, device: 1, sector, sectors: 8 };
        let heard =
            [record(0, 5), record(3, 5), record(4, 6), record(5, 5), record(25, 5), record(26, 5), record(47, 5)];
        assert_eq!(
            heard.map(|it| echoes.is_echo(&it, it.time_ns.unwrap())),
            [false, true, false, false, true, false, false]
        );
        let write = Record { op: Op::Write, ..record(48, 5) };
        assert!(!echoes.is_echo(&write, 48) && echoes.is_echo(&write, 48));
        assert!(!echoes.is_echo(&Record { time_ns: None, ..write }, 49));
        echoes.is_echo(&record(1000, 1), 1000);
        assert_eq!((echoes.heard.len(), echoes.order.len()), (1, 1), "what is past is forgotten");
    }
}
