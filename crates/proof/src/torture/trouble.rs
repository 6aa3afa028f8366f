// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders faults at random, of the kinds that a plan allows.
//!
//! Each fault ends by itself, after a number of hits or a time, so that nobody waits for ever. The
//! oracle is told what the engine may legitimately do after each fault. docs/internals/testing.md
//! has the table.

use flashfront_device::sim::Break;
use flashfront_device::wrap::{ALWAYS_PPM, Fault, Rule};
use flashfront_device::{Device, Rng};
use flashfront_engine::{DeviceError, Op};

use super::pick::pick;
use super::plan::Trouble;
use crate::client::Client;
use crate::sweep::FATES;

/// The longest time that an origin is gone or an I/O is held back. It is longer than a SCSI
/// timeout.
pub(super) const LONG_NS: u64 = 60_000_000_000;

/// Orders a fault on this member of a mirrored cache. While the other member is well, no client may
/// notice anything, even if this member rots.
pub(super) fn order_on(member: u8, may_rot: bool, rng: &mut Rng, client: &mut Client) {
    let size_bytes = client.world.cache.geometry().size_bytes;
    let rule = match rng.below(8) {
        0 => None,
        1..=3 => Some(error(rng, size_bytes, Some(Op::Read))),
        // Lost writes are not ordered: a member that lies about writes leaves a log that is not
        // opened.
        4 if may_rot => Some(rule(rng, Fault::Rot, Some(Op::Read), size_bytes)),
        _ => {
            let op = [Op::Write, Op::Flush][rng.below(2) as usize];
            Some(error(rng, size_bytes, Some(op)))
        }
    };
    let Some(disk) = client.world.member_mut(member) else { return };
    match rule {
        Some(rule) => disk.faults.order(rule),
        None => disk.faults.lose_device(),
    }
}

/// Orders a fault on one of the devices.
pub(super) fn order(trouble: Trouble, rng: &mut Rng, client: &mut Client) {
    let devices = client.world.origins.len() as u64 + 1;
    let device = rng.below(devices) as usize;
    match (trouble, device.checked_sub(1)) {
        (Trouble::None, _) => {}
        (Trouble::CacheLies, _) => {
            let rule = lie(rng, client.world.cache.geometry().size_bytes);
            // From now on, nothing is certain that a power cut leaves in the log.
            client.oracle.distrust();
            client.world.cache.faults.order(rule);
        }
        (_, Some(origin)) => {
            let rule = error(rng, client.world.spec.origins[origin].size_bytes, None);
            client.world.origins[origin].faults.order(rule);
        }
        (Trouble::CacheDies, None) if rng.below(4) == 0 => {
            // Data that found no place in the log may reach the origin, and be older again after
            // the next opening. No flush of that data is ever acknowledged.
            client.oracle.forgive_time_travel();
            if rng.below(4) == 0 {
                client.world.cache.faults.lose_device();
            } else {
                let op = [Op::Write, Op::Flush][rng.below(2) as usize];
                let rule = error(rng, client.world.cache.geometry().size_bytes, Some(op));
                client.world.cache.faults.order(rule);
            }
        }
        (_, None) => {
            let rule = error(rng, client.world.cache.geometry().size_bytes, Some(Op::Read));
            client.world.cache.faults.order(rule);
        }
    }
}

/// Orders that an origin's connection breaks. Its server dies, with a fate for what was unflushed,
/// or lives and is asked again.
pub(super) fn break_connection(rng: &mut Rng, client: &mut Client) {
    let origin = rng.below(client.world.origins.len() as u64) as usize;
    let dies = FATES.get(rng.below(6) as usize).map(|it| it.1);
    let longest_ns = pick(rng, &[1_000_000, 1_000_000_000, LONG_NS / 2]);
    let away_ns = rng.below(longest_ns);
    let broken = Break { after: 1 + rng.below(8), dies, away_ns, seed: rng.next_u64() };
    client.world.origins[origin].inner_mut().order(broken);
}

/// Makes a fault that the engine is told of.
fn error(rng: &mut Rng, size_bytes: u64, op: Option<Op>) -> Rule {
    let any = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::Zero];
    let kinds = if rng.below(4) == 0 { 5 } else { 3 };
    let op = op.unwrap_or(any[rng.below(kinds) as usize]);
    let hold_ns = rng.below(LONG_NS);
    let fault = match rng.below(10) {
        0 if op != Op::Read => Fault::Error(DeviceError::NoSpace),
        1 if matches!(op, Op::Discard | Op::Zero) => Fault::Error(DeviceError::Unsupported),
        2 if rng.below(2) == 0 => Fault::Hang { hold_ns },
        2 => Fault::Timeout { hold_ns },
        3 => Fault::Stall { hold_ns },
        4 if op != Op::Flush => Fault::Short,
        5 if op != Op::Read => Fault::Gone { for_ns: Some(hold_ns) },
        _ => Fault::Error(DeviceError::Io),
    };
    rule(rng, fault, Some(op), size_bytes)
}

/// Makes a fault that the engine is not told of.
fn lie(rng: &mut Rng, size_bytes: u64) -> Rule {
    let (fault, op) = match rng.below(8) {
        0 | 1 => (Fault::Rot, Op::Read),
        2 => (Fault::Flip, Op::Read),
        3 => (Fault::Flip, Op::Write),
        4 => (Fault::Misdirect, Op::Read),
        5 => (Fault::Misdirect, Op::Write),
        6 => (Fault::Lost, Op::Flush),
        _ => (Fault::Lost, Op::Write),
    };
    rule(rng, fault, Some(op), size_bytes)
}

/// Makes a rule for the nth I/O, for some I/Os, or for all in a range. It hits a few times.
fn rule(rng: &mut Rng, fault: Fault, op: Option<Op>, size_bytes: u64) -> Rule {
    let rule = Rule { op, ..Rule::always(fault) };
    let times = 1 + rng.below(4);
    match rng.below(4) {
        0 if op != Some(Op::Flush) => {
            let start = rng.below(size_bytes);
            Rule { bytes: Some(start..start + (1 << (9 + rng.below(10)))), times: 1 + rng.below(20), ..rule }
        }
        1 => Rule { chance_ppm: ALWAYS_PPM / 10, times: 1 + rng.below(10), ..rule },
        _ => Rule { after: rng.below(8), times, ..rule },
    }
}
