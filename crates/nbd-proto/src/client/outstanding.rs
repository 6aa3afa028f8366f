// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request that is not answered: what has come of its answer, and whether that is all of it.

use std::fmt;
use std::ops::Range;

use crate::request::{Ask, Request};
use crate::wire::Errno;

/// Parts of a read that may come out of order, at most. Servers send a few large ones in order.
const GAPS_MAX: usize = 4096;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The number, for programs.
    pub errno: Errno,
    /// The place on the export, if the server told one.
    pub at: Option<u64>,
    /// The server's words; perhaps none.
    pub text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.errno.fmt(f)
    }
}

/// A request without its answer.
#[derive(Debug)]
pub(super) struct Outstanding {
    request: Request,
    /// Bytes of a read that have come, as offsets on the export: in order, and not side by side.
    come: Vec<Range<u64>>,
    /// The number of each context whose extents have come.
    told: Vec<u32>,
    /// The first failure.
    failure: Option<Failure>,
}

impl Outstanding {
    pub(super) fn new(request: Request) -> Self {
        Self { request, come: Vec::new(), told: Vec::new(), failure: None }
    }

    pub(super) fn request(&self) -> &Request {
        &self.request
    }

    pub(super) fn is_read(&self) -> bool {
        matches!(self.request.ask, Ask::Read { .. })
    }

    pub(super) fn is_status(&self) -> bool {
        matches!(self.request.ask, Ask::Status { .. })
    }

    /// A part of a read comes: it must be in the range, and new.
    pub(super) fn data(&mut self, at: u64, len: u64) -> Result<(), &'static str> {
        let Request { offset, len: all, .. } = self.request;
        let end = at.checked_add(len).filter(|end| at >= offset && *end <= offset + all && len > 0);
        let end = end.ok_or("a chunk outside its request")?;
        let next = self.come.partition_point(|range| range.start < at);
        let before = next.checked_sub(1).map(|before| &self.come[before]);
        let meets =
            before.is_some_and(|before| before.end > at) || self.come.get(next).is_some_and(|it| it.start < end);
        if meets {
            return Err("the same part of a read twice");
        }
        if self.request.ask == (Ask::Read { whole: true }) && len != all {
            return Err("a read in parts that was to come whole");
        }
        let joins_before = before.is_some_and(|before| before.end == at);
        let joins_next = self.come.get(next).is_some_and(|it| it.start == end);
        match (joins_before, joins_next) {
            (true, true) => self.come[next - 1].end = self.come.remove(next).end,
            (true, false) => self.come[next - 1].end = end,
            (false, true) => self.come[next].start = at,
            (false, false) => self.come.insert(next, at..end),
        }
        if self.come.len() > GAPS_MAX { Err("a read in too many parts") } else { Ok(()) }
    }

    /// Extents of a context come.
    pub(super) fn extents(&mut self, id: u32) -> Result<(), &'static str> {
        if self.told.contains(&id) {
            return Err("the extents of a context twice");
        }
        self.told.push(id);
        Ok(())
    }

    /// The server says that the request failed. The first failure counts.
    pub(super) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// The answer is complete, says the server. How the request went; or what is missing.
    pub(super) fn end(self, contexts: usize) -> Result<Result<(), Failure>, &'static str> {
        if let Some(failure) = self.failure {
            return Ok(Err(failure));
        }
        let Request { ask, offset, len, .. } = self.request;
        match ask {
            Ask::Read { .. } if self.come.as_slice() != std::slice::from_ref(&(offset..offset + len)) => {
                Err("a reply with another amount of data than was asked for")
            }
            Ask::Status { .. } if self.told.len() != contexts => Err("a reply without the extents of a context"),
            _ => Ok(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(whole: bool) -> Outstanding {
        Outstanding::new(Request { cookie: 1, ask: Ask::Read { whole }, offset: 100, len: 50, fua: false })
    }

    #[test]
    fn a_read_is_whole_when_each_byte_has_come_once() {
        let mut it = read(false);
        for (at, len) in [(120, 10), (100, 5), (140, 10), (130, 10), (105, 15)] {
            assert_eq!(it.data(at, len), Ok(()), "{at}");
        }
        assert_eq!(it.end(0), Ok(Ok(())));
        let mut it = read(false);
        assert_eq!(it.data(100, 20), Ok(()));
        assert_eq!(it.data(130, 20), Ok(()));
        assert!(it.end(0).is_err(), "there is a gap");
    }

    #[test]
    fn what_comes_twice_or_from_elsewhere_is_refused() {
        for (at, len) in [(99, 2), (149, 2), (200, 1), (u64::MAX, 2), (110, 0), (119, 2), (129, 5), (110, 40), (122, 1)]
        {
            let mut it = read(false);
            assert_eq!(it.data(120, 10), Ok(()));
            assert!(it.data(at, len).is_err(), "{at} {len}");
        }
        assert!(read(true).data(100, 49).is_err());
        assert_eq!(read(true).data(100, 50), Ok(()));
    }
}
