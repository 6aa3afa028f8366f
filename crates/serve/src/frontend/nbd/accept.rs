// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts requests that are in order: takes their buffers, and hands their pieces to the engine.

use flashfront_engine::{RequestOp, SECTOR_BYTES};
use flashfront_nbd_proto::server::Refusal;
use flashfront_nbd_proto::wire::Errno;
use flashfront_nbd_proto::{Ask, Request};

use super::asked::Order;
use super::payload::Payload;
use super::reply::{finish, refuse};
use super::requests::Requests;
use super::wait::Wait;
use super::{read, status, zeroes};
use crate::frontend::Core;

/// How a request begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Begun {
    /// The request must wait, and be accepted again.
    Must(Wait),
    /// The engine has the request, or its reply is queued.
    Goes,
    /// The payload of a write comes next.
    Receives(Payload),
}

impl From<Option<Wait>> for Begun {
    fn from(wait: Option<Wait>) -> Self {
        wait.map_or(Self::Goes, Self::Must)
    }
}

/// Starts a request that is in order; or tells what it must wait for.
pub(super) fn accept(requests: &mut Requests, request: &Request, core: &mut dyn Core, may_alloc: bool) -> Begun {
    let Request { cookie, ask, offset, len, fua } = *request;
    match ask {
        Ask::Read { .. } | Ask::Cache => read::start(requests, request, core, may_alloc).into(),
        Ask::Write => {
            let place = requests.insert(request);
            requests.table.get_mut(place).receiving = true;
            Begun::Receives(Payload::new(place, offset, len))
        }
        Ask::Flush => {
            let place = requests.insert(request);
            requests.submit(Order { place, slot: 0, op: RequestOp::Flush, sectors: 0..0, buf: None, fua }, core);
            Begun::Goes
        }
        Ask::Trim => {
            let place = requests.insert(request);
            // A sector in part keeps what it has.
            let sectors = offset.div_ceil(SECTOR_BYTES)..(offset + len) / SECTOR_BYTES;
            if sectors.is_empty() {
                finish(requests, place, core);
            } else {
                requests.submit(Order { place, slot: 0, op: RequestOp::Discard, sectors, buf: None, fua }, core);
            }
            Begun::Goes
        }
        // Dirty blocks of the range are written to the origin before that. How long it takes can't
        // be known.
        Ask::Zeroes { fast: true, .. } => {
            let refusal = Refusal(Errno::ENOTSUP, "zeroing may take as long as writing");
            refuse(requests, cookie, offset, refusal, core);
            Begun::Goes
        }
        Ask::Zeroes { may_discard, .. } => zeroes::start(requests, request, may_discard, core, may_alloc).into(),
        Ask::Status { .. } => status::start(requests, request, core, may_alloc).into(),
    }
}
