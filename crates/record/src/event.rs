// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request as an event Q of blktrace: `struct blk_io_trace` of linux/blktrace_api.h, version 7.
//!
//! Q is the request as it was asked for, before the block layer merges and splits. A cache in front
//! of the device would see the same. Each request has exactly one Q for a disk, also if it came
//! through a partition. D and C depend on the scheduler and on the disk's limits.

/// Bytes of an event without its payload.
pub(crate) const EVENT_BYTES: usize = 48;
/// The first four bytes: a magic of three, and the version.
pub(crate) const MAGIC: u32 = 0x6561_7407;

/// The number of Q.
const QUEUE: u32 = 1;
/// The bits with an action's number; the bit above says that the payload begins with a cgroup.
const NUMBER: u32 = 0xff;

// Categories: the upper half of an action.
pub(crate) const READ: u32 = 1 << 16;
pub(crate) const WRITE: u32 = 1 << 17;
pub(crate) const FLUSH: u32 = 1 << 18;
pub(crate) const SYNC: u32 = 1 << 19;
const QUEUED: u32 = 1 << 20;
const NOTIFY: u32 = 1 << 26;
pub(crate) const AHEAD: u32 = 1 << 27;
pub(crate) const META: u32 = 1 << 28;
pub(crate) const DISCARD: u32 = 1 << 29;
pub(crate) const FUA: u32 = 1 << 31;

/// A request that moves more is none: what is longer gives space back, or writes zeroes.
/// `flashfront_sim::trace::DATA_SECTORS_MAX` is the same.
const DATA_BYTES_MAX: u32 = 1 << 30;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Write,
    Discard,
    Flush,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The time by the clock CLOCK_MONOTONIC, or by the daemon's.
    pub(crate) time_ns: u64,
    pub(crate) sector: u64,
    pub(crate) bytes: u32,
    /// The categories; only those named here.
    pub(crate) categories: u32,
    pub(crate) pid: u32,
}

impl Event {
    /// Returns the operation; `None`: it is not recorded.
    pub(crate) fn op(&self) -> Option<Op> {
        let has = |category| self.categories & category != 0;
        match self.bytes {
            0 if has(FLUSH) => Some(Op::Flush),
            0 => None,
            _ if has(DISCARD) => Some(Op::Discard),
            bytes if has(WRITE) => Some(if bytes > DATA_BYTES_MAX { Op::Discard } else { Op::Write }),
            bytes if has(READ) && bytes <= DATA_BYTES_MAX => Some(Op::Read),
            _ => None,
        }
    }

    /// Appends it as blktrace writes it: the `nth` event of the only processor, of the device
    /// `major << 20 | minor`.
    pub(crate) fn put(&self, op: Op, nth: u32, device: u32, into: &mut Vec<u8>) {
        let more = if op == Op::Discard { WRITE | DISCARD } else { 0 };
        let action = QUEUE | QUEUED | self.categories | more;
        put(&Fields { event: self, action, nth, device, payload: &[] }, into);
    }

    /// The request of an action of the kernel's; `None` if that is no Q.
    pub(crate) fn of_action(action: u32) -> Option<u32> {
        let kept = READ | WRITE | FLUSH | SYNC | AHEAD | META | DISCARD | FUA;
        (action & NUMBER == QUEUE && action & NOTIFY == 0).then_some(action & kept)
    }
}

/// Whether an action is about the trace itself, and no event of the device.
pub(crate) const fn is_note(action: u32) -> bool {
    action & NOTIFY != 0
}

/// Whether an action says which name a process has, which is its payload.
pub(crate) const fn names_a_process(action: u32) -> bool {
    is_note(action) && action & NUMBER == 0
}

/// Appends the name of a process, as blktrace does before its first request.
pub(crate) fn put_name(pid: u32, name: &[u8], time_ns: u64, nth: u32, device: u32, into: &mut Vec<u8>) {
    let event = Event { time_ns, sector: 0, bytes: 0, categories: 0, pid };
    let mut payload = [0; 16];
    let len = name.len().min(15);
    payload[..len].copy_from_slice(&name[..len]);
    put(&Fields { event: &event, action: NOTIFY, nth, device, payload: &payload }, into);
}

struct Fields<'a> {
    event: &'a Event,
    action: u32,
    nth: u32,
    device: u32,
    payload: &'a [u8],
}

fn put(fields: &Fields<'_>, into: &mut Vec<u8>) {
    let Fields { event, action, nth, device, payload } = fields;
    into.extend_from_slice(&MAGIC.to_le_bytes());
    into.extend_from_slice(&nth.to_le_bytes());
    into.extend_from_slice(&event.time_ns.to_le_bytes());
    into.extend_from_slice(&event.sector.to_le_bytes());
    for word in [event.bytes, *action, event.pid, *device, 0] {
        into.extend_from_slice(&word.to_le_bytes());
    }
    into.extend_from_slice(&[0, 0]);
    into.extend_from_slice(&(payload.len() as u16).to_le_bytes());
    into.extend_from_slice(payload);
}
