// SPDX-License-Identifier: MIT OR Apache-2.0
//! Planted bugs, to prove that torture would see them. Without the feature `canary` nothing of them
//! is left.

#[cfg(all(feature = "canary", not(debug_assertions)))]
compile_error!("the feature `canary` plants bugs: it is for tests only, never for a release build");

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "canary"), expect(unreachable_pub, reason = "public with the feature"))]
pub enum Canary {
    /// A manifest is created before its objects are there.
    ManifestEarly,
    /// A manifest ends between two flushes, although each is to be there as a whole.
    FlushTorn,
    /// Collection deletes an object of which something is live.
    LiveDeleted,
    /// A writer that finds its number taken goes on.
    FenceIgnored,
    /// Objects are deleted although a snapshot needs them.
    SnapshotForgotten,
    /// What was read is not verified.
    ChecksumIgnored,
    /// A page of the map is left to the store before the store has it.
    PageUnsent,
    /// Changes of a page of the map are forgotten when the page is fetched.
    ChangesLost,
    /// A checkpoint ends although pages have changed since it passed them.
    PageForgotten,
    /// What is in use is counted twice when a page is fetched.
    UsesTwice,
    /// What changes lie over is forgotten, although a page in the store names it.
    CoveredForgotten,
    /// Changes that were stored are taken for all of them, although others came later.
    ChangesStale,
    /// A writer that opens the volume does not mind that another one came since it looked.
    AfterIgnored,
    /// The last manifest does not say that a cache holds writes.
    OweForgotten,
}

#[cfg(feature = "canary")]
mod planted {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::Canary;

    static PLANTED: AtomicUsize = AtomicUsize::new(usize::MAX);

    impl Canary {
        /// All of them, with their names.
        pub const ALL: &'static [(Self, &'static str)] = &[
            (Self::ManifestEarly, "manifest-early"),
            (Self::FlushTorn, "flush-torn"),
            (Self::LiveDeleted, "live-deleted"),
            (Self::FenceIgnored, "fence-ignored"),
            (Self::SnapshotForgotten, "snapshot-forgotten"),
            (Self::ChecksumIgnored, "checksum-ignored"),
            (Self::PageUnsent, "page-unsent"),
            (Self::ChangesLost, "changes-lost"),
            (Self::PageForgotten, "page-forgotten"),
            (Self::UsesTwice, "uses-twice"),
            (Self::CoveredForgotten, "covered-forgotten"),
            (Self::ChangesStale, "changes-stale"),
            (Self::AfterIgnored, "after-ignored"),
            (Self::OweForgotten, "owe-forgotten"),
        ];
    }

    /// Plants a bug in all volumes of this process, or none.
    pub fn plant(canary: Option<Canary>) {
        let number = canary.and_then(|canary| Canary::ALL.iter().position(|it| it.0 == canary));
        PLANTED.store(number.unwrap_or(usize::MAX), Ordering::SeqCst);
    }

    pub(crate) fn planted(canary: Canary) -> bool {
        Canary::ALL.get(PLANTED.load(Ordering::SeqCst)).is_some_and(|it| it.0 == canary)
    }
}

#[cfg(feature = "canary")]
pub use planted::plant;
#[cfg(feature = "canary")]
pub(crate) use planted::planted;

/// Says whether a bug is planted: never.
#[cfg(not(feature = "canary"))]
pub(crate) const fn planted(_: Canary) -> bool {
    false
}
