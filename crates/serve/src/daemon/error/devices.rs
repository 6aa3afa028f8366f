// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of devices that belong to different caches, or are not apart from each other.

use std::path::PathBuf;

use flashfront_engine::format::PairingError;

use crate::mixup::Mixup;

/// Why devices can't be used together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DevicesError {
    /// Devices are not what they are named as.
    #[error(transparent)]
    Mixup(#[from] Mixup),
    /// Two cache devices are no pair, or one of them is no whole cache.
    #[error("{path}{and}: {error}. {advice}", path = path.display(), and = other.as_ref().map_or_else(String::new, |it| format!(", {}", it.display())))]
    Pairing {
        /// The cache device.
        path: PathBuf,
        /// The second one, if it was given.
        other: Option<PathBuf>,
        /// The fault of the pair.
        error: PairingError,
        /// The advice for the operator.
        advice: &'static str,
    },
    /// A mirror was named, but the cache has none.
    #[error("{path}: this cache has no mirror; serve it without --mirror, and make one with `flashfront mirror add`", path = path.display())]
    NotMirrored {
        /// The cache device that is there.
        path: PathBuf,
    },
}
