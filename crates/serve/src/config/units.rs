// SPDX-License-Identifier: MIT OR Apache-2.0
//! The values people write in a configuration: a share or a size, spans of time.
//!
//! Text in, number out, and back without loss: what `Display` prints `FromStr` reads. The same
//! types serve the flags, the TOML file and the control protocol, so that one spelling works
//! everywhere.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use flashfront_units::Size;
use serde::{Deserialize, Serialize};

/// Why a value can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// The text is neither a share nor a size.
    #[error("`{0}` is neither a share from 1% to 100% nor a size; write \"50%\" or \"20 GiB\"")]
    DirtyLimit(String),
    /// The text is not a budget of writes.
    #[error("`{0}` is no budget of writes a day; write a size (\"200 GiB\"), drive writes (\"0.5 DWPD\"), or \"none\"")]
    FlashBudget(String),
    /// The text is no limit of a volume's own.
    #[error(
        "`{0}` is neither a share from 1% to 100%, nor a size, nor \"none\"; write \"10%\", \"20 GiB\" or \"none\""
    )]
    OwnPart(String),
    /// The text is no size of a volume's own.
    #[error("`{0}` is neither a size, nor \"none\"; write \"8 MiB\", \"0B\" or \"none\"")]
    OwnSize(String),
    /// The text is no weight of a volume.
    #[error("`{0}` is neither a whole number from 1 to 10000, nor \"none\"; write 100 or \"none\"")]
    OwnWeight(String),
    /// The text is no dirty age of a volume's own.
    #[error("`{0}` is neither a span of time from 1ms to 49days, nor \"none\"; write \"30s\", \"5min\" or \"none\"")]
    OwnAge(String),
    /// The text is not a span of time.
    #[error("`{0}` is not a span of time; write a number and a unit, as in \"30s\", \"5min\" or \"1h\"")]
    Age(String),
}

/// Makes `Serialize` and `Deserialize` go through `Display` and `FromStr`.
macro_rules! as_text {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = UnitError;

            fn try_from(text: String) -> Result<Self, UnitError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

pub(super) use as_text;

as_text!(DirtyLimit);
as_text!(Age);
as_text!(FlashBudget);

/// The part of the cache that may be dirty: a share of the cache, or a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DirtyLimit {
    /// Percent of the blocks the cache has room for, 1 to 100.
    Percent(u8),
    /// A size.
    Size(Size),
}

impl DirtyLimit {
    /// The limit in blocks for a cache with room for `capacity` blocks; at least one.
    #[must_use]
    pub fn blocks(self, capacity: u64) -> u64 {
        let blocks = match self {
            Self::Percent(percent) => (u128::from(capacity) * u128::from(percent) / 100) as u64,
            Self::Size(size) => size.0 / flashfront_engine::BLOCK_BYTES,
        };
        blocks.clamp(1, capacity.max(1))
    }
}

impl FromStr for DirtyLimit {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError::DirtyLimit(text.to_owned());
        if let Some(percent) = text.trim().strip_suffix('%') {
            let percent = percent.trim().parse().map_err(|_| error())?;
            return if (1..=100).contains(&percent) { Ok(Self::Percent(percent)) } else { Err(error()) };
        }
        let size: Size = text.parse().map_err(|_| error())?;
        if size.0 < flashfront_engine::BLOCK_BYTES { Err(error()) } else { Ok(Self::Size(size)) }
    }
}

impl fmt::Display for DirtyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Size(size) => size.fmt(f),
        }
    }
}

/// The bytes that may be written to the cache device in a day.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum FlashBudget {
    /// There is no limit.
    None,
    /// The bytes in a day.
    Size(Size),
    /// A multiple of the cache device's size ("drive writes per day"), more than 0.
    DriveWrites(f64),
}

impl FlashBudget {
    /// The bytes for a cache device of that size.
    #[must_use]
    pub fn bytes(self, cache_bytes: u64) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Size(size) => Some(size.0),
            Self::DriveWrites(times) => Some((times * cache_bytes as f64).max(1.0) as u64),
        }
    }
}

impl FromStr for FlashBudget {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError::FlashBudget(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        if lower == "none" {
            return Ok(Self::None);
        }
        if let Some(times) = lower.strip_suffix("dwpd") {
            let times: f64 = times.trim().parse().map_err(|_| error())?;
            return if times > 0.0 && times <= 1000.0 { Ok(Self::DriveWrites(times)) } else { Err(error()) };
        }
        let size: Size = text.parse().map_err(|_| error())?;
        if size.0 == 0 { Err(error()) } else { Ok(Self::Size(size)) }
    }
}

impl fmt::Display for FlashBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Size(size) => size.fmt(f),
            Self::DriveWrites(times) => write!(f, "{times} DWPD"),
        }
    }
}

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Age(pub Duration);

impl FromStr for Age {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        humantime::parse_duration(text.trim()).map(Self).map_err(|_| UnitError::Age(text.to_owned()))
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}
