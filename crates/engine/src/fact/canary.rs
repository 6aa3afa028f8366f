// SPDX-License-Identifier: MIT OR Apache-2.0
//! Planted bugs, each the mistake of a tired evening, to prove that the tests would see it.
//!
//! With the feature `canary` one of them can be chosen when an engine is made; `cargo x torture
//! --canaries` demands that each is caught. Without it [`Options::planted`] is `false` at compile
//! time and nothing of them is left. No release build can have the feature: it needs
//! `debug_assertions`.

#[cfg(all(feature = "canary", not(debug_assertions)))]
compile_error!("the feature `canary` plants bugs: it is for tests only, never for a release build");

macro_rules! canaries {
    ($($name:ident, $text:literal, $summary:literal;)*) => {
        /// A planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[cfg_attr(not(feature = "canary"), expect(unreachable_pub, reason = "public with the feature"))]
        pub enum Canary {
            $(#[doc = $summary] $name,)*
        }

        #[cfg(feature = "canary")]
        impl Canary {
            /// All of them: what to choose, its name, what it does.
            pub const ALL: &'static [(Self, &'static str, &'static str)] = &[$((Self::$name, $text, $summary),)*];
        }
    };
}

canaries! {
    AcknowledgedEarly, "acknowledged-early", "FLUSH and FUA are acknowledged before their commit is durable";
    CleanEarly, "clean-early", "destaged blocks are clean before the origin's flush";
    CleanWithoutLook, "clean-without-look", "a block rewritten during its destage becomes clean all the same";
    FillOverNewer, "fill-over-newer", "a read that missed puts its block over a newer write";
    NotInvalidated, "not-invalidated", "a direct write does not record that the cached blocks are void";
    DirtyDropped, "dirty-dropped", "a direct write drops the dirty blocks of its range instead of destaging them first";
    OriginAhead, "origin-ahead", "a block is destaged before its commit is durable";
    FillNotFlushed, "fill-not-flushed", "promoted blocks count as proven before the origin has flushed them";
    ChecksumIgnored, "checksum-ignored", "what is read from the cache device is not verified";
    TornReplayed, "torn-replayed", "replay goes on past a torn commit";
    OneLaneFlushed, "one-lane-flushed", "FLUSH waits for the first lane only";
    FreedWhileRead, "freed-while-read", "a segment is written anew while somebody reads from it";
    MirrorUnrecorded, "mirror-unrecorded", "writes count before it is recorded that a member of the mirror failed";
    StaleInRam, "stale-in-ram", "the RAM front keeps the old bytes of slots that are written anew";
    CongestedDirty, "congested-dirty", "while the cache device is slow, dirty blocks too are read from the origin";
    StaleNeighbour, "stale-neighbour", "what is read beside a miss is put over a newer write";
    JoinedVoid, "joined-void", "who asks for a block that was written while it was read beside a miss gets what that read brings";
    StaleInWindow, "stale-in-window", "the window keeps the old bytes of blocks that are written to the origin";
    InheritedFlushed, "inherited-flushed", "what a daemon before wrote past its log counts as flushed";
    MessageLost, "message-lost", "a message to a lane is lost now and then";
    MessageDoubled, "message-doubled", "a message of a lane comes twice now and then";
    MessageOvertakes, "message-overtakes", "a message comes before others that the same sender sent earlier";
    ShownLost, "shown-lost", "what a lane shows is lost now and then, until it shows something else";
    ShownAfter, "shown-after", "what a lane shows comes after the messages of its step";
    RestEarly, "rest-early", "the engine opens, drains and stops while messages of lanes are on their way";
    CoveredLate, "covered-late", "a flush of the cache device covers what a lane wrote until it hears of the flush";
    GrantTwice, "grant-twice", "a grant of destage counts twice: its lane starts two runs";
    GrantLost, "grant-lost", "a lane gives a grant of destage back, and uses it all the same";
    CancelledAnswered, "cancelled-answered", "a piece that waited and was given up is answered once more";
    IdReused, "id-reused", "a new volume gets the id of one that was removed";
    GrownEarly, "grown-early", "clients may write to the new part of a volume before the table with its size is durable";
    EraUncut, "era-uncut", "destage is ordered, but a FLUSH ends no era: one batch has what came before it and after it";
    EraUnseen, "era-unseen", "an era is on its origin as soon as no lane shows that it needs anything, however late that is shown";
    EraEarly, "era-early", "an era begins before the log says which are on the origin, so that a restart sends older ones again";
    RemovedAcknowledges, "removed-acknowledges", "a cache device that was replaced or removed acknowledges, and the one that stays does not";
    MaxIgnored, "max-ignored", "a volume may have more than its largest part";
    MinIgnored, "min-ignored", "reclaim drops blocks of a volume that has less than its smallest part";
    GroupNewer, "group-newer", "a group of eras takes versions of blocks that are newer than its last era";
    GroupFlushed, "group-flushed", "the origin is flushed while only a part of a group of eras is there";
    GroupUnnoted, "group-unnoted", "a group of eras begins before the log says how far it goes, so that a restart sends fewer";
    MovedClean, "moved-clean", "dirty blocks that reclaim moves count as clean in their new place";
    EndForgotten, "end-forgotten", "while a cache's end is emptied, dirty blocks that are to be moved out of it are forgotten";
    EndRefilled, "end-refilled", "clients write into the end of a cache that has been emptied";
    WeightsIgnored, "weights-ignored", "volumes with weights get no part of the cache by them";
}
