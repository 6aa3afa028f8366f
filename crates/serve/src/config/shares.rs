// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator says of a volume's part of the cache, and of its limits.
//!
//! The table of volumes holds bytes. A share of the cache becomes bytes when it is said, so that it
//! stays what it was if the cache grows.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

use flashfront_engine::BLOCK_BYTES;
use flashfront_engine::format::{Shares, Superblock};
use serde::{Deserialize, Serialize};

use super::units::as_text;
use super::{Age, DirtyLimit, Size, UnitError};

/// A limit of a volume's own: a share of the cache, a size, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OwnPart(pub Option<DirtyLimit>);

/// A span of time of a volume's own, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OwnAge(pub Option<Age>);

/// A size of a volume's own, or none: then the cache's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OwnSize(pub Option<Size>);

/// A weight of a volume, or none. A file may say the number without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WeightSaid", into = "String")]
pub struct OwnWeight(pub Option<NonZeroU16>);

/// A weight as a file says it.
#[derive(Deserialize)]
#[serde(untagged)]
enum WeightSaid {
    Number(i64),
    Text(String),
}

as_text!(OwnPart);
as_text!(OwnSize);
as_text!(OwnAge);

/// The word for a limit that a volume does not have.
const NONE: &str = "none";
/// The largest weight.
const WEIGHT_MAX: u16 = 10_000;

impl TryFrom<WeightSaid> for OwnWeight {
    type Error = UnitError;

    fn try_from(said: WeightSaid) -> Result<Self, UnitError> {
        match said {
            WeightSaid::Number(number) => number.to_string().parse(),
            WeightSaid::Text(text) => text.parse(),
        }
    }
}

impl From<OwnWeight> for String {
    fn from(weight: OwnWeight) -> Self {
        weight.to_string()
    }
}

impl FromStr for OwnWeight {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text.trim() == NONE {
            return Ok(Self(None));
        }
        let weight = text.trim().parse().ok().filter(|it: &NonZeroU16| it.get() <= WEIGHT_MAX);
        weight.map(|it| Self(Some(it))).ok_or_else(|| UnitError::OwnWeight(text.to_owned()))
    }
}

impl fmt::Display for OwnWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(weight) => weight.fmt(f),
            None => f.write_str(NONE),
        }
    }
}

impl FromStr for OwnPart {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text.trim() == NONE {
            return Ok(Self(None));
        }
        text.parse().map(|part| Self(Some(part))).map_err(|_| UnitError::OwnPart(text.to_owned()))
    }
}

impl FromStr for OwnSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text.trim() == NONE {
            return Ok(Self(None));
        }
        text.parse().map(|size| Self(Some(size))).map_err(|_| UnitError::OwnSize(text.to_owned()))
    }
}

impl fmt::Display for OwnSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(size) => size.fmt(f),
            None => f.write_str(NONE),
        }
    }
}

impl FromStr for OwnAge {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text.trim() == NONE {
            return Ok(Self(None));
        }
        // The table of volumes has room for so many milliseconds.
        let fits = |age: &Age| (1..=u128::from(u32::MAX)).contains(&age.0.as_millis());
        let age = text.parse().ok().filter(fits).ok_or_else(|| UnitError::OwnAge(text.to_owned()))?;
        Ok(Self(Some(age)))
    }
}

impl fmt::Display for OwnPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(part) => part.fmt(f),
            None => f.write_str(NONE),
        }
    }
}

impl fmt::Display for OwnAge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(age) => age.fmt(f),
            None => f.write_str(NONE),
        }
    }
}

impl OwnPart {
    /// The bytes in a cache of so many blocks; 0 stands for no limit.
    fn bytes(self, capacity: u64) -> u64 {
        self.0.map_or(0, |part| part.blocks(capacity) * BLOCK_BYTES)
    }
}

/// What is said of a volume's shares and limits; what is not said stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharesAsked {
    /// The part of the cache that others leave to it.
    #[serde(default)]
    pub share_min: Option<OwnPart>,
    /// The largest part of the cache that it may have.
    #[serde(default)]
    pub share_max: Option<OwnPart>,
    /// What it gets of the cache beside other volumes with a weight.
    #[serde(default)]
    pub weight: Option<OwnWeight>,
    /// The most of its data that may be dirty.
    #[serde(default)]
    pub dirty_limit: Option<OwnPart>,
    /// How long its data may stay dirty.
    #[serde(default)]
    pub dirty_age: Option<OwnAge>,
    /// Streams longer than this bypass the cache.
    #[serde(default)]
    pub sequential_bypass: Option<OwnSize>,
    /// How much is read at once from a slow origin, if a part of it is missed.
    #[serde(default)]
    pub read_around: Option<OwnSize>,
}

impl SharesAsked {
    /// Whether anything is said.
    #[must_use]
    pub fn is_some(&self) -> bool {
        *self != Self::default()
    }

    /// The limits of a volume that has these now, in the cache of that superblock.
    #[must_use]
    pub fn of(self, now: Shares, superblock: &Superblock) -> Shares {
        let bytes = |part: OwnPart| part.bytes(superblock.cache_blocks());
        let ms = |age: OwnAge| age.0.map_or(0, |age| u32::try_from(age.0.as_millis()).unwrap_or(u32::MAX));
        Shares {
            min_bytes: self.share_min.map_or(now.min_bytes, bytes),
            max_bytes: self.share_max.map_or(now.max_bytes, bytes),
            weight: self.weight.map_or(now.weight, |own| own.0.map_or(0, NonZeroU16::get)),
            dirty_limit_bytes: self.dirty_limit.map_or(now.dirty_limit_bytes, bytes),
            dirty_age_ms: self.dirty_age.map_or(now.dirty_age_ms, ms),
            bypass_bytes: self.sequential_bypass.map_or(now.bypass_bytes, |own| own.0.map(|size| size.0)),
            read_around_bytes: self.read_around.map_or(now.read_around_bytes, |own| own.0.map(fitting)),
        }
    }
}

impl fmt::Display for SharesAsked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = [
            self.share_min.map(|part| ["smallest", "part", &part.to_string()].join(" ")),
            self.share_max.map(|part| ["largest", "part", &part.to_string()].join(" ")),
            self.weight.map(|weight| ["weight", &weight.to_string()].join(" ")),
            self.dirty_limit.map(|part| ["dirty limit", &part.to_string()].join(" ")),
            self.dirty_age.map(|age| ["dirty age", &age.to_string()].join(" ")),
            self.sequential_bypass.map(|size| ["sequential", "bypass", &size.to_string()].join(" ")),
            self.read_around.map(|size| ["read", "around", &size.to_string()].join(" ")),
        ];
        f.write_str(&said.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// A width of reads as the table has it. What has no place there is refused as too large.
fn fitting(size: Size) -> u32 {
    u32::try_from(size.0).unwrap_or(u32::MAX)
}

/// The limits that a volume has, for the log and for people. `None`: it has none of its own.
#[must_use]
pub fn told(shares: Shares) -> Option<String> {
    let size = |bytes: u64| Some(OwnPart(Some(DirtyLimit::Size(Size(bytes))))).filter(|_| bytes > 0);
    let age = Duration::from_millis(shares.dirty_age_ms.into());
    let asked = SharesAsked {
        share_min: size(shares.min_bytes),
        share_max: size(shares.max_bytes),
        weight: NonZeroU16::new(shares.weight).map(|weight| OwnWeight(Some(weight))),
        dirty_limit: size(shares.dirty_limit_bytes),
        dirty_age: Some(OwnAge(Some(Age(age)))).filter(|_| !age.is_zero()),
        sequential_bypass: shares.bypass_bytes.map(|bytes| OwnSize(Some(Size(bytes)))),
        read_around: shares.read_around_bytes.map(|bytes| OwnSize(Some(Size(bytes.into())))),
    };
    asked.is_some().then(|| asked.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offline::superblock_in_ram;

    #[test]
    fn what_is_printed_is_read_and_what_makes_no_sense_is_refused() {
        for text in ["none", "50%", "20 GiB"] {
            assert_eq!(text.parse::<OwnPart>().unwrap().to_string().parse(), text.parse::<OwnPart>());
        }
        for text in ["none", "30s", "1h"] {
            assert_eq!(text.parse::<OwnAge>().unwrap().to_string(), text);
        }
        for text in ["none", "1", "10000"] {
            assert_eq!(text.parse::<OwnWeight>().unwrap().to_string(), text);
        }
        for text in ["", "0", "10001", "2.5", "-1", "heavy"] {
            assert_eq!(text.parse::<OwnWeight>(), Err(UnitError::OwnWeight(text.to_owned())));
        }
        for text in ["", "0%", "101%", "nothing", "-1"] {
            assert_eq!(text.parse::<OwnPart>(), Err(UnitError::OwnPart(text.to_owned())));
        }
        for text in ["", "0s", "90days", "soon"] {
            assert_eq!(text.parse::<OwnAge>(), Err(UnitError::OwnAge(text.to_owned())));
        }
    }

    #[test]
    fn what_is_not_said_stays() {
        let superblock = superblock_in_ram(64 << 20, Vec::new()).unwrap();
        let said = |text: &str| SharesAsked { dirty_limit: Some(text.parse().unwrap()), ..SharesAsked::default() };
        let now = Shares { dirty_age_ms: 7, dirty_limit_bytes: 9, weight: 1, ..Shares::default() };
        assert_eq!(SharesAsked::default().of(now, &superblock), now);
        assert_eq!(said("none").of(now, &superblock), Shares { dirty_limit_bytes: 0, ..now });
        let half = said("50%").of(now, &superblock).dirty_limit_bytes;
        let all = said("100%").of(now, &superblock).dirty_limit_bytes;
        assert_eq!(half, all / 2 / 4096 * 4096);
        assert_eq!(told(Shares { dirty_limit_bytes: 0, ..now }).unwrap(), "weight 1, dirty age 7ms");
        let none = SharesAsked { weight: Some(OwnWeight(None)), ..SharesAsked::default() };
        assert_eq!(none.of(now, &superblock), Shares { weight: 0, ..now });
        let parts = Shares { min_bytes: 1 << 20, max_bytes: 3 << 20, ..Shares::default() };
        assert_eq!(told(parts).unwrap(), "smallest part 1 MiB, largest part 3 MiB");
        let none = SharesAsked { share_min: Some(OwnPart(None)), ..SharesAsked::default() };
        assert_eq!(none.of(parts, &superblock), Shares { min_bytes: 0, ..parts });
        assert_eq!(told(Shares::default()), None);
    }
}
