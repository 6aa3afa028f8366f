// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another thread shows the progress of a replay, and may order it to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// How far a replay is, and whether it is to go on.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Whether the replay is to end as soon as it can, without figures.
    pub stop: Arc<AtomicBool>,
    /// Bytes of RAM that what a policy foresees takes so far; 0 if none does.
    pub foresight_bytes: Arc<AtomicU64>,
    /// Bytes of the file read, over all readings of it.
    pub bytes: Arc<AtomicU64>,
    /// The number of readings of the file.
    pub readings: Arc<AtomicU64>,
}
