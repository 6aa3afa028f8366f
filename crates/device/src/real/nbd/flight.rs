// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is under way on a connection: the pieces to be sent, the tasks without an answer, and how a
//! connection ends.
#![expect(unsafe_code, reason = "payload lies in memory that tasks own")]

use std::io::{self, ErrorKind};
use std::ptr::NonNull;

use flashfront_nbd_proto::client::{self, Broken};
use flashfront_nbd_proto::wire::Errno as NbdErrno;
use rustix::io::Errno;

use crate::real::remote::{Task, Wish};

/// The longest header of a request.
pub(super) const HEADER_BYTES: usize = 32;

/// Why a connection is of no use any more.
#[derive(Debug)]
pub(super) enum Lost {
    Io(io::Error),
    Broken(Broken),
    /// The server says that it is about to end.
    Ending,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) if error.kind() == ErrorKind::UnexpectedEof => {
                f.write_str("the server closed the connection")
            }
            Self::Io(error) => write!(f, "the connection failed: {error}"),
            Self::Broken(broken) => broken.fmt(f),
            Self::Ending => f.write_str("the server says that it is ending"),
        }
    }
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A piece of what is to be sent.
#[derive(Debug)]
pub(super) enum Piece {
    Header([u8; HEADER_BYTES], usize),
    /// The payload of the task with this cookie.
    Payload(u64, NonNull<u8>, usize),
}

/// A task whose answer has not come, or whose payload is not sent.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) task: Box<dyn Task>,
    /// Bytes of the part that was asked for.
    pub(super) bytes: u64,
    pub(super) at: Option<NonNull<u8>>,
    pub(super) sent: bool,
    pub(super) answer: Option<Result<u32, Errno>>,
    pub(super) extents: Vec<client::Extent>,
    /// Nobody waits for it any more.
    pub(super) forgotten: bool,
    /// Changes that were acknowledged when it began.
    pub(super) covers: u64,
}

/// A request of a task, with what the thread knows of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) wish: Wish,
    pub(super) fua: bool,
    pub(super) cookie: u64,
    /// Changes that were acknowledged by now.
    pub(super) covers: u64,
}

/// A task whose answer is complete.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) task: Box<dyn Task>,
    pub(super) outcome: Result<u32, Errno>,
    /// As in [`Named`].
    pub(super) covers: u64,
}

impl Piece {
    /// The bytes on the wire.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Header(bytes, len) => &bytes[..*len],
            // SAFETY: the memory belongs to a flight that is not over before this is sent.
            Self::Payload(_, at, len) => unsafe { std::slice::from_raw_parts(at.as_ptr(), *len) },
        }
    }
}

/// The kernel's word for an error of the protocol's.
pub(super) fn errno(error: NbdErrno) -> Errno {
    match error {
        NbdErrno::EPERM => Errno::ROFS,
        NbdErrno::ENOSPC => Errno::NOSPC,
        NbdErrno::EINVAL => Errno::INVAL,
        NbdErrno::ENOTSUP => Errno::OPNOTSUPP,
        _ => Errno::IO,
    }
}
