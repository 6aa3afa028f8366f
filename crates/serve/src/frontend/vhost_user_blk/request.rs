// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a virtio-blk request from a chain, and checks it against the volume.
//!
//! Everything that reaches the engine has passed here. So the rest of the front-end may count on
//! ranges inside the volume: whole sectors, not empty and not too long. Payload is in the guest's
//! memory. The protocol does not say how header, payload and status are cut into descriptors. No
//! cut is expected here (test: `how_a_request_is_cut_makes_no_difference`).

use flashfront_engine::{Lba, RequestOp, SECTOR_BYTES};
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_ID_BYTES, VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH,
    VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
};
use vm_memory::{Bytes, GuestAddress};

use super::super::Export;
use super::chain::{Chain, Segment, take_front, take_last, total};
use super::guest::Guest;
use super::limits::{PAYLOAD_BYTES_MAX, RANGE_SECTORS_MAX, RANGES_MAX};

const HEADER_BYTES: u32 = 16;
const RANGE_BYTES: u32 = 16;
/// VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP: the range's space may be given back.
const UNMAP: u32 = 1;

/// How a request ended, as the guest is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Done = 0,
    Failed = VIRTIO_BLK_S_IOERR as u8,
    Unsupported = VIRTIO_BLK_S_UNSUPP as u8,
}

/// A range of a discard or write-zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) op: RequestOp,
    pub(super) lba: Lba,
    pub(super) sectors: u64,
}

/// A request that is in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Fill the writable parts from the volume.
    Read {
        offset: u64,
        len: u32,
    },
    /// Store the readable parts.
    Write {
        offset: u64,
        len: u32,
    },
    Flush,
    /// Discard or zero what was put into the list of ranges.
    Ranges,
    /// Put the volume's name into the writable parts.
    Name,
}

/// Reads and checks a request. Leaves its payload in `chain`, and the ranges of a discard in
/// `ranges`.
///
/// Also returns the place of the status; without such a place the guest can't be told.
pub(super) fn parse(
    guest: &Guest,
    export: &Export,
    chain: &mut Chain,
    ranges: &mut Vec<Range>,
) -> Option<(GuestAddress, Result<Ask, Status>)> {
    let status = take_last(&mut chain.writable).filter(|at| guest.holds(*at, 1))?;
    Some((status, ask(guest, export, chain, ranges)))
}

fn ask(guest: &Guest, export: &Export, chain: &mut Chain, ranges: &mut Vec<Range>) -> Result<Ask, Status> {
    let mut header = [0; HEADER_BYTES as usize];
    gather(guest, &mut chain.readable, &mut header)?;
    let (kind, sector) = (le32(&header[0..4]), le64(&header[8..16]));
    match kind {
        VIRTIO_BLK_T_IN => {
            let len = payload(guest, &chain.writable)?;
            Ok(Ask::Read { offset: inside(export, sector, u64::from(len) / SECTOR_BYTES)?, len })
        }
        VIRTIO_BLK_T_OUT => {
            let len = payload(guest, &chain.readable)?;
            writable(export)?;
            Ok(Ask::Write { offset: inside(export, sector, u64::from(len) / SECTOR_BYTES)?, len })
        }
        VIRTIO_BLK_T_FLUSH => Ok(Ask::Flush),
        VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES => {
            writable(export)?;
            read_ranges(guest, export, chain, kind == VIRTIO_BLK_T_DISCARD, ranges)?;
            Ok(Ask::Ranges)
        }
        VIRTIO_BLK_T_GET_ID if total(&chain.writable) == u64::from(VIRTIO_BLK_ID_BYTES) => Ok(Ask::Name),
        VIRTIO_BLK_T_GET_ID => Err(Status::Failed),
        _ => Err(Status::Unsupported),
    }
}

fn writable(export: &Export) -> Result<(), Status> {
    if export.read_only { Err(Status::Failed) } else { Ok(()) }
}

/// The offset of a range that is inside the volume.
fn inside(export: &Export, sector: u64, sectors: u64) -> Result<u64, Status> {
    let end = sector.checked_add(sectors).and_then(|end| end.checked_mul(SECTOR_BYTES));
    let block_sectors = u64::from(export.block_bytes) / SECTOR_BYTES;
    let aligned = sector.is_multiple_of(block_sectors) && sectors.is_multiple_of(block_sectors);
    match end {
        Some(end) if end <= export.size_bytes && sectors > 0 && aligned => Ok(sector * SECTOR_BYTES),
        _ => Err(Status::Failed),
    }
}

/// The length of payload that is whole sectors, not too long, and in the guest's memory.
fn payload(guest: &Guest, segments: &[Segment]) -> Result<u32, Status> {
    let bytes = total(segments);
    let there = segments.iter().all(|segment| guest.holds(segment.at, u64::from(segment.len)));
    match u32::try_from(bytes) {
        Ok(bytes) if there && bytes <= PAYLOAD_BYTES_MAX && u64::from(bytes).is_multiple_of(SECTOR_BYTES) => Ok(bytes),
        _ => Err(Status::Failed),
    }
}

fn read_ranges(
    guest: &Guest,
    export: &Export,
    chain: &mut Chain,
    discard: bool,
    ranges: &mut Vec<Range>,
) -> Result<(), Status> {
    ranges.clear();
    let bytes = total(&chain.readable);
    let count = bytes / u64::from(RANGE_BYTES);
    if !bytes.is_multiple_of(u64::from(RANGE_BYTES)) || count == 0 || count > u64::from(RANGES_MAX) {
        return Err(Status::Failed);
    }
    for _ in 0..count {
        let mut range = [0; RANGE_BYTES as usize];
        gather(guest, &mut chain.readable, &mut range)?;
        let (sector, sectors, flags) = (le64(&range[0..8]), le32(&range[8..12]), le32(&range[12..16]));
        // A discard says by itself that the space may go; the flag is not for it.
        if flags & !(if discard { 0 } else { UNMAP }) != 0 {
            return Err(Status::Unsupported);
        }
        if sectors > RANGE_SECTORS_MAX {
            return Err(Status::Failed);
        }
        let sectors = u64::from(sectors);
        inside(export, sector, sectors)?;
        let op = if discard { RequestOp::Discard } else { RequestOp::WriteZeroes { may_discard: flags & UNMAP != 0 } };
        ranges.push(Range { op, lba: Lba(sector), sectors });
    }
    Ok(())
}

/// Copies the first bytes of `from`, and takes them away.
fn gather(guest: &Guest, from: &mut Vec<Segment>, into: &mut [u8]) -> Result<(), Status> {
    let (mut done, mut failed) = (0, false);
    let whole = take_front(from, into.len() as u32, |segment| {
        let here = &mut into[done..done + segment.len as usize];
        failed |= guest.memory().read_slice(here, segment.at).is_err();
        done += segment.len as usize;
    });
    if whole && !failed { Ok(()) } else { Err(Status::Failed) }
}

fn le32(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn le64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
