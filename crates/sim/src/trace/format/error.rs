// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors say why the format of a trace can't be told, and what to do about it.

use std::fmt::{self, Display};

use super::Format;
use crate::trace::head::Head;

/// The format of a trace can't be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatError {
    /// None fits.
    Unknown,
    /// There is nothing in it.
    Empty,
    /// There is nothing but blank lines in it.
    Blank,
    /// The trace is what bpftrace's `biosnoop.bt` prints, which has no sectors.
    NoSectors,
    /// The file is packed, as this, which is not unpacked here; and what prints what is in it.
    Packed(&'static str, &'static str),
    /// More than one does; two of them.
    Ambiguous(&'static str, &'static str),
}

/// What files that are packed have at which place; what that is, and what unpacks it.
const PACKED: [(usize, &[u8], &str, &str); 6] = [
    (0, b"BZh", "bzip2", "bzcat FILE"),
    (0, b"PK\x03\x04", "zip", "unzip -p FILE"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z", "7z x -so FILE"),
    (0, b"\x04\x22\x4d\x18", "lz4", "lz4cat FILE"),
    (0, b"Rar!", "rar", "unrar p -inul FILE"),
    // POSIX ustar and GNU; gzip and the like around it are unpacked by then.
    (257, b"ustar", "tar", "tar -xOf FILE"),
];

impl FormatError {
    /// The error of a trace that no format fits.
    pub(super) fn of(head: &Head<'_>) -> Self {
        let packed =
            PACKED.iter().find(|(at, magic, ..)| head.bytes.get(*at..).is_some_and(|it| it.starts_with(magic)));
        match packed {
            Some((_, _, what, how)) => Self::Packed(what, how),
            None if head.bytes.windows(8).any(|it| it == b"TIME(ms)") => Self::NoSectors,
            None if head.whole && head.bytes.is_empty() => Self::Empty,
            None if head.whole && head.bytes.trim_ascii().is_empty() => Self::Blank,
            None => Self::Unknown,
        }
    }
}

impl Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => return write!(f, "the trace is empty"),
            Self::Blank => return write!(f, "the trace has nothing but blank lines"),
            Self::NoSectors => {
                return write!(
                    f,
                    "bpftrace's biosnoop.bt prints when a request ended, and not which sectors it asked for; \
                     take BCC's `biosnoop` (Debian: bpfcc-tools, biosnoop-bpfcc) or blktrace"
                );
            }
            Self::Packed(what, how) => {
                return write!(f, "a file of {what}, which isn't unpacked here; `{how} > TRACE` gives what is in it");
            }
            Self::Unknown => write!(f, "the trace has none of the known formats, or none that shows in its beginning")?,
            Self::Ambiguous(one, other) => write!(f, "the trace may be {one} or {other}")?,
        }
        write!(f, "; say which with --format:")?;
        Format::all().try_for_each(|format| write!(f, " {}", format.name))
    }
}

impl std::error::Error for FormatError {}
