// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace of the block layer has several events for each request. The action says which counts.

/// The event that counts as the request, of those that a request causes (blktrace and blkparse
/// only).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Q: as it was asked for. What a cache would see.
    #[default]
    Queue,
    /// D: as the disk got it, after merging.
    Issue,
    /// C: as the disk completed it.
    Complete,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 3] = [Self::Queue, Self::Issue, Self::Complete];

    /// Its name, as that of blktrace's `-a`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Issue => "issue",
            Self::Complete => "complete",
        }
    }
}
