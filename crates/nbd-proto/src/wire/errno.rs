// SPDX-License-Identifier: MIT OR Apache-2.0
//! Error numbers of replies.

use std::fmt;

/// An error number of a reply (those of Linux, by the protocol).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(pub u32);

impl Errno {
    /// The export is read-only.
    pub const EPERM: Self = Self(1);
    /// A device failed.
    pub const EIO: Self = Self(5);
    /// The request makes no sense.
    pub const EINVAL: Self = Self(22);
    /// A write past the end.
    pub const ENOSPC: Self = Self(28);
    /// An answer in one chunk would be too long.
    pub const EOVERFLOW: Self = Self(75);
    /// Zeroing would not be faster than writing.
    pub const ENOTSUP: Self = Self(95);
    /// The server is stopping.
    pub const ESHUTDOWN: Self = Self(108);
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::EPERM => f.write_str("EPERM"),
            Self::EIO => f.write_str("EIO"),
            Self::EINVAL => f.write_str("EINVAL"),
            Self::ENOSPC => f.write_str("ENOSPC"),
            Self::EOVERFLOW => f.write_str("EOVERFLOW"),
            Self::ENOTSUP => f.write_str("ENOTSUP"),
            Self::ESHUTDOWN => f.write_str("ESHUTDOWN"),
            Self(number) => write!(f, "error {number}"),
        }
    }
}
