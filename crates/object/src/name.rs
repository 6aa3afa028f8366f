// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of objects within a volume's prefix.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The number of an object with data or a checkpoint. No two writers use the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The opening.
    pub epoch: u32,
    /// A count within the volume's history.
    pub sequence: u64,
}

/// The name of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// The list of what counts.
    Manifest(u64),
    /// A batch of writes.
    Data(Stamp),
    /// A checkpoint of the map.
    Map(Stamp),
    /// What somebody beside the writer wants.
    Wish(u64),
}

/// An object of a volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The prefix of another volume, of which this one is a clone; `None`: this one's own.
    pub source: Option<Arc<str>>,
    /// The object.
    pub name: Name,
}

impl From<Name> for Key {
    fn from(name: Name) -> Self {
        Self { source: None, name }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manifest(number) => write!(f, "manifest/{number:016x}"),
            Self::Wish(number) => write!(f, "wish/{number:016x}"),
            Self::Data(stamp) => write!(f, "data/{:08x}-{:016x}", stamp.epoch, stamp.sequence),
            Self::Map(stamp) => write!(f, "map/{:08x}-{:016x}", stamp.epoch, stamp.sequence),
        }
    }
}

/// The text names no object of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no name of an object of a volume")]
pub struct NotAName;

impl FromStr for Name {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        let (kind, rest) = text.split_once('/').ok_or(NotAName)?;
        let number = |text: &str| u64::from_str_radix(text, 16).map_err(|_| NotAName);
        let stamp = || {
            let (epoch, sequence) = rest.split_once('-').ok_or(NotAName)?;
            let epoch = u32::from_str_radix(epoch, 16).map_err(|_| NotAName)?;
            Ok(Stamp { epoch, sequence: number(sequence)? })
        };
        let name = match kind {
            "manifest" => Self::Manifest(number(rest)?),
            "wish" => Self::Wish(number(rest)?),
            "data" => Self::Data(stamp()?),
            "map" => Self::Map(stamp()?),
            _ => return Err(NotAName),
        };
        // Only what this program would have written: no signs, no other lengths.
        if name.to_string() == text { Ok(name) } else { Err(NotAName) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let stamp = Stamp { epoch: 7, sequence: 0xabc };
        for name in [Name::Manifest(1), Name::Wish(u64::MAX), Name::Data(stamp), Name::Map(stamp)] {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        for text in ["manifest/1", "manifest/+000000000000001", "data/00000001", "other/0000000000000001", ""] {
            assert_eq!(text.parse::<Name>(), Err(NotAName), "{text}");
        }
    }
}
