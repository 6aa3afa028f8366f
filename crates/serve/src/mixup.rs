// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices that an operator has mixed up: whatever the command, it refuses them in these words.

use std::path::PathBuf;

use flashfront_device::real::Shared;

use crate::storage;

/// Devices that are not what they are named as.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Mixup {
    /// Two of cache, mirror and origins are one, or use the same bytes.
    #[error("{one} and {other} are the same device{}; a cache needs a device of its own, and so does each origin", storage::in_brackets(shared), one = one.display(), other = other.display())]
    SameDevice {
        /// A device.
        one: PathBuf,
        /// Another one.
        other: PathBuf,
        /// How both lead to the same bytes.
        shared: Shared,
    },
    /// The origin is a cache; `--force` does not overrule that.
    #[error(
        "{origin} holds a Flashfront cache; are --cache and --origin swapped? If it is to be an origin, take that cache off first, with `flashfront detach`",
        origin = .0.display()
    )]
    OriginIsCache(PathBuf),
}
