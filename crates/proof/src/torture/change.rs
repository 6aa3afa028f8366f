// SPDX-License-Identifier: MIT OR Apache-2.0
//! A change takes a part of a plan away, or makes it less. A failing life is told by its seed and
//! its changes.

use std::fmt;

use super::extra::Extra;

/// The parts of a plan that can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The plan's `generations`.
    Generations,
    /// The plan's `requests`.
    Requests,
    /// The number of clients.
    Clients,
    /// All clients' depth.
    Depth,
    /// The plan's `control_every`.
    Controls,
    /// All clients' discards and zeroes.
    Specials,
    /// The plan's `pause_every`.
    Pauses,
    /// The plan's `kills`.
    Kills,
    /// The plan's `fickle`.
    Fickle,
    /// Whether the cache is on two devices.
    Mirror,
    /// Bytes of the RAM front.
    RamFront,
    /// Whether lanes work apart; only 0 makes a difference.
    Apart,
    /// Whether messages are on their way for a while.
    Mail,
    /// Blocks of a read around a miss.
    ReadAround,
    /// Whether destage is ordered.
    Ordered,
    /// Whether what lies between two flushes of an origin is there as a whole or not at all.
    Whole,
    /// Bytes that may be written to flash in a day. Only 0, which means no bound, makes a
    /// difference.
    Budget,
    /// All of the plan's `extras`. Only 0 makes a difference, as for each single extra.
    Extras,
    /// An extra of the life.
    Extra(Extra),
    /// The plan's `breaks_every`.
    Breaks,
    /// The plan's `faults_every`; 0 = no trouble at all.
    Faults,
}

/// A change of a plan. Its text is, for example, `requests=20`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub(super) what: What,
    pub(super) value: u64,
}

const WHATS: [(&str, What); 20] = [
    ("generations", What::Generations),
    ("requests", What::Requests),
    ("clients", What::Clients),
    ("depth", What::Depth),
    ("controls", What::Controls),
    ("specials", What::Specials),
    ("pauses", What::Pauses),
    ("kills", What::Kills),
    ("fickle", What::Fickle),
    ("mirror", What::Mirror),
    ("ram-front", What::RamFront),
    ("apart", What::Apart),
    ("mail", What::Mail),
    ("read-around", What::ReadAround),
    ("ordered", What::Ordered),
    ("whole", What::Whole),
    ("budget", What::Budget),
    ("extras", What::Extras),
    ("breaks", What::Breaks),
    ("faults", What::Faults),
];

/// The parts of a plan that can be changed, with their names.
fn names() -> impl Iterator<Item = (&'static str, What)> {
    WHATS.into_iter().chain(Extra::ALL.into_iter().map(|(extra, name)| (name, What::Extra(extra))))
}

impl Change {
    /// The part of a plan that is changed.
    #[must_use]
    pub const fn what(&self) -> What {
        self.what
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = names().find(|(_, what)| *what == self.what).map_or("", |(name, _)| name);
        write!(f, "{name}={}", self.value)
    }
}

impl std::str::FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').and_then(|(name, value)| {
            let what = names().find(|(it, _)| *it == name)?.1;
            Some(Self { what, value: value.parse().ok()? })
        });
        let names = names().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
        parts.ok_or_else(|| format!("`{text}` is no change of a plan; one is NAME=NUMBER, names are {names}"))
    }
}
