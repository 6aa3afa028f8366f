// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disposable cache devices of which no cache may, or can, be made.

use std::path::PathBuf;

use flashfront_engine::BLOCK_BYTES;

use crate::config::Size;
use crate::offline::FormatError;
use crate::report::counted;

/// Why a start makes no new cache of a disposable cache device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DisposableError {
    /// The cache holds what its origin does not have.
    #[error(
        "{path}: {why}, but it holds {} ({}) that its origin does not have, so it is not formatted. Write that with `flashfront destage`, or give it up with `flashfront format --force`",
        counted(*dirty, "dirty block"), Size(dirty * BLOCK_BYTES), path = path.display()
    )]
    Dirty {
        /// The cache device.
        path: PathBuf,
        /// Why it can't be used as it is.
        why: String,
        /// Dirty blocks.
        dirty: u64,
    },
    /// The device holds something that may be worth keeping.
    #[error(
        "{path} holds something: {found}. If that may be destroyed, now and at every later start, name the device once more: --disposable-cache={path}",
        path = path.display()
    )]
    Occupied {
        /// The cache device.
        path: PathBuf,
        /// What lies on it.
        found: String,
    },
    /// The new cache could not be made.
    #[error(transparent)]
    Format(#[from] FormatError),
}
