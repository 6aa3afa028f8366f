// SPDX-License-Identifier: MIT OR Apache-2.0
//! An I/O on its way through the kernel, as a state machine that both backends drive.
//!
//! A backend carries out [`Job::step`] and passes the outcome to [`Job::advance`], until that says
//! how it ended. Everything the kernel may do short of success is handled here, once: short
//! transfers go on with the rest, EINTR and EAGAIN are tried again. Zeroes that keep their space
//! fall back from ZERO_RANGE to writing zeroes; zeroes that need none try a hole before that. A
//! discard falls back from a hole to BLKDISCARD.
//!
//! A job owns what the kernel uses (file and memory chunk), so dropping devices, arena or reactor
//! in any order leaves the kernel nothing dangling.
#![expect(unsafe_code, reason = "advances a raw pointer within its buffer, and writes a list there")]

use std::ptr::NonNull;
use std::sync::{Arc, LazyLock};

use flashfront_engine::{DeviceError, Op, Token};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::aligned::AlignedBuf;
use super::error::device_error;
use super::file::DeviceFile;
use crate::{Arena, Chunk, DeviceIo};

/// EINTR and EAGAIN are tried again this many times; a device that goes on is broken.
const RETRIES_MAX: u32 = 1000;
/// The most bytes of a write of zeroes. A read or write by the engine is no longer than a buffer.
const ZERO_BYTES: u64 = 1 << 20;
static ZEROES: LazyLock<AlignedBuf> = LazyLock::new(|| AlignedBuf::new(ZERO_BYTES as usize));

/// The work of a single system call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Read {
        offset: u64,
        len: u32,
        to: NonNull<u8>,
    },
    Write {
        offset: u64,
        len: u32,
        from: NonNull<u8>,
    },
    SyncData,
    Fallocate {
        mode: FallocateFlags,
        offset: u64,
        len: u64,
    },
    /// The ioctl that only a thread can wait for.
    BlkDiscard {
        offset: u64,
        len: u64,
    },
    /// Finds holes, which only a thread can wait for either.
    Map {
        offset: u64,
        len: u64,
        into: NonNull<u8>,
        room: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Read,
    Write,
    Flush,
    PunchDiscard,
    BlkDiscard,
    ZeroRange,
    PunchZero,
    WriteZeroes,
    Map,
}

/// An I/O in flight.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) file: Arc<DeviceFile>,
    /// The device's number in its reactor.
    pub(super) device: u32,
    /// Whether the file is registered with the ring under that number.
    pub(super) fixed_file: bool,
    pub(super) token: Token,
    /// The chunk of `at`, and its number in the arena.
    pub(super) chunk: Option<(u32, Arc<Chunk>)>,
    way: Way,
    offset: u64,
    /// The bytes that are left to do.
    len: u64,
    at: NonNull<u8>,
    /// Bytes of memory at `at` for a list.
    room: u32,
    retries: u32,
}

// SAFETY: `at` points into `chunk`, which the job keeps alive and which is `Send`.
unsafe impl Send for Job {}

impl Job {
    pub(super) fn new(file: &Arc<DeviceFile>, device: u32, fixed_file: bool, io: &DeviceIo, arena: &Arena) -> Self {
        let way = match io.op {
            Op::Read => Way::Read,
            Op::Write => Way::Write,
            Op::Flush => Way::Flush,
            Op::Discard => Way::PunchDiscard,
            Op::Zero => Way::ZeroRange,
            Op::Punch => Way::PunchZero,
            Op::Map => Way::Map,
        };
        let memory = io.span.filter(|_| matches!(way, Way::Read | Way::Write | Way::Map)).map(|span| {
            let (number, chunk) = arena.chunk_of(span.buf());
            (arena.ptr(span), (number, chunk))
        });
        Self {
            file: file.clone(),
            device,
            fixed_file,
            token: io.token,
            way,
            offset: io.offset,
            len: io.len,
            at: memory.as_ref().map_or(NonNull::dangling(), |(at, _)| *at),
            chunk: memory.map(|(_, chunk)| chunk),
            room: io.span.map_or(0, |span| span.len),
            retries: 0,
        }
    }

    /// Returns the next step.
    pub(super) fn step(&self) -> Step {
        let (offset, len) = (self.offset, self.len);
        let part = |max: u64| u32::try_from(len.min(max)).expect("the maximum fits");
        match self.way {
            Way::Read => Step::Read { offset, len: part(1 << 30), to: self.at },
            Way::Write => Step::Write { offset, len: part(1 << 30), from: self.at },
            Way::Flush => Step::SyncData,
            Way::PunchDiscard | Way::PunchZero => {
                Step::Fallocate { mode: FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len }
            }
            Way::ZeroRange => {
                Step::Fallocate { mode: FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, offset, len }
            }
            Way::BlkDiscard => Step::BlkDiscard { offset, len },
            Way::Map => Step::Map { offset, len, into: self.at, room: self.room },
            Way::WriteZeroes => Step::Write { offset, len: part(ZERO_BYTES), from: NonNull::from(&ZEROES[0]) },
        }
    }

    /// Whether the range may hold anything afterwards: a discard, not zeroes.
    pub(super) const fn discards(&self) -> bool {
        matches!(self.way, Way::PunchDiscard | Way::BlkDiscard)
    }

    /// Lets `put` write a list of extents of the job's range where the job wants it.
    pub(super) fn note<E>(&mut self, put: impl FnOnce(&mut [u8], u64) -> Result<(), E>) -> Result<(), E> {
        if self.way != Way::Map {
            return Ok(());
        }
        // SAFETY: `room` bytes at `at` are in the job's chunk; until the job is done they are its
        // alone.
        let into = unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.room as usize) };
        put(into, self.len)
    }

    /// Takes the outcome of the step: how the I/O ended, or `None` if there is a next step.
    pub(super) fn advance(&mut self, outcome: Result<u32, Errno>) -> Option<Result<(), DeviceError>> {
        match outcome {
            Ok(bytes) => self.progress(bytes),
            Err(Errno::INTR | Errno::AGAIN) if self.retries < RETRIES_MAX => {
                self.retries += 1;
                None
            }
            Err(errno) => {
                // EINVAL: a kernel or file system that knows fallocate but not this mode of it.
                // EREMOTEIO: a disk that does not know the command, which the kernel learns by
                // that.
                let unknown = matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::REMOTEIO);
                let next = match self.way {
                    Way::PunchZero if unknown => Way::ZeroRange,
                    Way::ZeroRange if unknown => Way::WriteZeroes,
                    Way::PunchDiscard if unknown && self.file.is_block_device() => Way::BlkDiscard,
                    Way::PunchDiscard if unknown => return Some(Err(DeviceError::Unsupported)),
                    _ => return Some(Err(device_error(errno))),
                };
                self.way = next;
                None
            }
        }
    }

    fn progress(&mut self, bytes: u32) -> Option<Result<(), DeviceError>> {
        if !matches!(self.way, Way::Read | Way::Write | Way::WriteZeroes) {
            return Some(Ok(()));
        }
        // Direct I/O can only go on at a block border. No progress at all means the file has
        // become shorter under us (its size was checked on opening).
        let block = self.file.geometry().logical_block_bytes;
        let bytes = bytes - bytes % block;
        if bytes == 0 {
            return Some(Err(DeviceError::Io));
        }
        self.offset += u64::from(bytes);
        self.len -= u64::from(bytes);
        if self.chunk.is_some() {
            // SAFETY: the kernel moved no more than was asked for, so this is at most one past the
            // end of the buffer. That is within or at the end of its chunk.
            self.at = unsafe { self.at.add(bytes as usize) };
        }
        (self.len == 0).then_some(Ok(()))
    }

    /// Starts at the last resort of a discard or zero, which the file systems of a test machine
    /// never need.
    #[cfg(test)]
    pub(super) fn last_resort(&mut self) {
        self.way = match self.way {
            Way::PunchDiscard => Way::BlkDiscard,
            Way::ZeroRange | Way::PunchZero => Way::WriteZeroes,
            way => way,
        };
    }
}

#[cfg(test)]
mod tests;
