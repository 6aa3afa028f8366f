// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request of the block layer on its way through the pump.
//!
//! A request that is dropped unanswered stays with the driver, which fails it, or gives it to the
//! next daemon.

use std::cell::RefCell;
use std::rc::Rc;

use flashfront_engine::{OriginId, RequestError, RequestOp, SECTOR_BYTES, Time};

use super::super::Core;
use super::super::inlet::{Ask, Want};
use super::abi::{Description, op};
use super::queue::Payloads;

/// Results that are to be given back, by their tags.
pub(super) type Results = Rc<RefCell<Vec<(u16, i32)>>>;

/// A request.
#[derive(Debug)]
pub(super) struct UblkAsk {
    pub(super) tag: u16,
    pub(super) want: Want,
    /// When it was fetched.
    pub(super) since: Time,
    pub(super) payloads: Rc<Payloads>,
    pub(super) results: Results,
}

/// Reads a request for the volume of an origin; `None`: an operation that was never offered.
pub(super) fn want(description: &Description, origin: OriginId) -> Option<Want> {
    let flags = description.op_flags;
    let op = match flags & op::MASK {
        op::READ => RequestOp::Read,
        op::WRITE => RequestOp::Write,
        op::FLUSH => RequestOp::Flush,
        op::DISCARD => RequestOp::Discard,
        op::WRITE_ZEROES => RequestOp::WriteZeroes { may_discard: flags & op::NOUNMAP == 0 },
        _ => return None,
    };
    // Beyond what can be addressed is beyond the volume.
    let offset = description.first_sector.saturating_mul(SECTOR_BYTES);
    let len = u64::from(description.sectors) * SECTOR_BYTES;
    Some(Want { origin, op, offset, len, fua: flags & op::FUA != 0, zeroed: false })
}

impl Ask for UblkAsk {
    fn want(&self) -> Want {
        self.want
    }

    fn since(&self, _core: &dyn Core) -> Time {
        self.since
    }

    fn fill(&mut self, at: usize, into: &mut [u8]) -> Result<(), RequestError> {
        self.payloads.read(self.tag, at, into).map_err(|_| RequestError::Io)
    }

    fn answer(self, result: Result<&[&[u8]], RequestError>) {
        let copied = result.and_then(|parts| {
            let mut at = 0;
            for part in parts {
                self.payloads.write(self.tag, at, part).map_err(|_| RequestError::Io)?;
                at += part.len();
            }
            Ok(())
        });
        let payload = matches!(self.want.op, RequestOp::Read | RequestOp::Write);
        let result = match copied {
            Ok(()) if payload => self.want.len as i32,
            Ok(()) => 0,
            Err(RequestError::Invalid) => -libc::EINVAL,
            Err(RequestError::NoSpace) => -libc::ENOSPC,
            Err(RequestError::ReadOnly) => -libc::EROFS,
            Err(RequestError::Io | RequestError::Stopping) => -libc::EIO,
        };
        self.results.borrow_mut().push((self.tag, result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_block_layer_are_understood() {
        let of =
            |op_flags, first_sector| want(&Description { op_flags, sectors: 8, first_sector, addr: 0 }, OriginId(0));
        let plain =
            Want { origin: OriginId(0), op: RequestOp::Write, offset: 512, len: 4096, fua: false, zeroed: false };
        assert_eq!(of(op::WRITE, 1), Some(plain));
        assert_eq!(of(op::WRITE | op::FUA, 1), Some(Want { fua: true, ..plain }));
        // REQ_FAILFAST_* and the like mean nothing here.
        assert_eq!(of(op::WRITE | 7 << 8, 1), Some(plain));
        let zeroes = |may_discard| Some(Want { op: RequestOp::WriteZeroes { may_discard }, ..plain });
        assert_eq!(of(op::WRITE_ZEROES, 1), zeroes(true));
        assert_eq!(of(op::WRITE_ZEROES | op::NOUNMAP, 1), zeroes(false));
        // WRITE_SAME, and reports of zones.
        assert_eq!((of(4, 1), of(18, 1)), (None, None));
        assert_eq!(of(op::READ, u64::MAX / 2).map(|want| want.offset), Some(u64::MAX), "refused as past the end");
    }
}
