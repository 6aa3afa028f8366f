// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds paths to the same bytes where each should be a device of its own: a cache and its origin,
//! two origins.
//!
//! It asks before the devices are opened, whose locks would only say "busy".

use std::path::Path;

use flashfront_device::real::{Shared, Storage};

/// How both paths lead to the same bytes, if they do.
pub(crate) fn shared(one: &Path, other: &Path) -> Option<Shared> {
    Storage::behind(one)?.shared_with(&Storage::behind(other)?)
}

/// Warns of a mirror on the disk that the cache is on.
pub(crate) fn same_disk(cache: &Path, mirror: &Path) -> Option<String> {
    let (one, other) = (Storage::behind(cache)?, Storage::behind(mirror)?);
    let disk = one.neighbour_of(&other)?.display();
    let (cache, mirror) = (cache.display(), mirror.display());
    Some(format!("{cache} and {mirror} are both on {disk}: if that fails, the mirror is gone with the cache"))
}

/// The ways in a message; nothing if both paths name the device itself.
pub(crate) fn in_brackets(shared: &Shared) -> String {
    let ways = shared.to_string();
    if ways.is_empty() { ways } else { format!(" ({ways})") }
}
