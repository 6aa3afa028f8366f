// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words and times that both programs of an upgrade share.

use serde::{Deserialize, Serialize};

/// The environment variable that says what a `serve` is started for.
pub(super) const ROLE: &str = "FLASHFRONT_UPGRADE";
/// The role of a program that takes a daemon's place; its stdin is the socket to that daemon.
pub(super) const SUCCEEDS: &str = "succeed";

/// The version of the hand-over that this program speaks. A change that an older program would
/// misunderstand raises it.
pub(crate) const HAND_OVER: u32 = 5;
/// The version before, in which no client is inside TLS. All else is the same.
pub(crate) const HAND_OVER_WITHOUT_TLS: u32 = 4;

/// How an upgrade went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upgraded {
    /// The version that served before.
    pub from: String,
    /// The version that serves now.
    pub to: String,
    /// The process that serves now.
    pub pid: u32,
    /// The clients that were handed over.
    pub clients: u64,
    /// For how long clients waited: from the first that was held to the moment when all were
    /// served.
    pub paused_ms: u64,
}

/// The version of this program.
pub(crate) fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// The time of the clock that all processes of a machine share.
pub(crate) fn shared_clock_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// How long ago a moment of that clock is.
pub(crate) fn ms_since(moment_ns: u64) -> u64 {
    shared_clock_ns().saturating_sub(moment_ns) / 1_000_000
}
