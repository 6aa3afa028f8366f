// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of CI's steps, and which of them run side by side.

/// The track in which a step runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Track {
    /// The step runs alone: it keeps every processor busy, or ends within seconds.
    Alone,
    /// The step runs in the first track, after the steps of this track that come before it.
    First,
    /// The step runs in the second track, beside the steps of the first.
    Second,
}

impl Track {
    /// The track's name in `--list`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::First => "first",
            Self::Second => "second",
        }
    }
}

/// A step of CI: its name, its track, and the arguments of cargo.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) track: Track,
    pub(super) cargo: &'static [&'static str],
}

const FORMAT: Step = Step { name: "format", track: Track::Alone, cargo: &["fmt", "--all", "--check"] };
const TIDY: Step = Step { name: "tidy", track: Track::Alone, cargo: &["x", "tidy"] };
const CLIPPY: Step = Step {
    name: "clippy",
    track: Track::Alone,
    cargo: &["clippy", "--quiet", "--workspace", "--all-targets", "--test", "e2e", "--", "-D", "warnings"],
};

/// All steps, the cheap ones first.
///
/// The release binary is built in the second track, while the first runs tests that wait for
/// devices. The end-to-end tests follow it there: they wait for daemons and clients, beside the
/// sweep and torture, which need processors alone.
pub(super) const STEPS: [Step; 17] = [
    FORMAT,
    TIDY,
    Step { name: "no-std", track: Track::Alone, cargo: &["x", "no-std"] },
    CLIPPY,
    Step { name: "build of the tests", track: Track::Alone, cargo: &["x", "test", "--no-run"] },
    Step { name: "unit, property, conformance", track: Track::First, cargo: &["x", "test"] },
    Step { name: "crash sweep", track: Track::First, cargo: &["x", "sweep"] },
    Step { name: "crash sweep of volumes in object stores", track: Track::First, cargo: &["x", "sweep", "--objects"] },
    Step { name: "torture, fresh seeds", track: Track::First, cargo: &["x", "torture", "--seconds", "60"] },
    Step {
        name: "torture of volumes in object stores",
        track: Track::First,
        cargo: &["x", "torture", "--objects", "--seconds", "5"],
    },
    Step { name: "planted bugs are caught", track: Track::First, cargo: &["x", "torture", "--canaries"] },
    Step {
        name: "planted bugs of object stores are caught",
        track: Track::First,
        cargo: &["x", "torture", "--canaries", "--objects"],
    },
    Step { name: "fuzz", track: Track::First, cargo: &["x", "fuzz", "--seconds", "12", "--unguided"] },
    Step {
        name: "release build",
        track: Track::Second,
        cargo: &["build", "--quiet", "--release", "-p", "flashfront-cli"],
    },
    // Four tests at a time: they wait for devices and clients most of their time (a processor works
    // for 323 s of their 1,708 s).
    Step { name: "end to end", track: Track::Second, cargo: &["x", "e2e", "--test-threads=4"] },
    Step { name: "Debian package", track: Track::Second, cargo: &["x", "package", "--check"] },
    Step { name: "book", track: Track::Second, cargo: &["x", "book"] },
];

/// The steps that a contributor runs between two edits.
pub(super) const QUICK: [Step; 4] = [
    FORMAT,
    TIDY,
    CLIPPY,
    Step { name: "unit tests without the slow ones", track: Track::Alone, cargo: &["x", "test", "--quick"] },
];
