// SPDX-License-Identifier: MIT OR Apache-2.0
//! A size is written by people, and printed without loss.
//!
//! The crate bytesize reads sizes. `Display` is ours, since what bytesize prints is rounded.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a size; write a number and a unit, as in \"512 KiB\", \"4M\" (= 4 MiB) or \"1.5 GiB\"")]
pub struct SizeError(String);

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let error = || SizeError(text.to_owned());
        let trimmed = text.trim();
        // A lone letter is binary, as in fio, qemu-img and LVM; bytesize would take it as decimal.
        let lone = trimmed
            .strip_suffix(['k', 'K', 'm', 'M', 'g', 'G', 't', 'T', 'p', 'P'])
            .is_some_and(|rest| rest.trim_end().ends_with(|c: char| c.is_ascii_digit()));
        let spelled = if lone { format!("{trimmed}iB") } else { trimmed.to_owned() };
        if !spelled.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(error());
        }
        let size = spelled.parse::<bytesize::ByteSize>().map_err(|_| error())?.0;
        // No file can have this size; bytesize makes the largest number of all that is larger.
        if i64::try_from(size).is_ok() { Ok(Self(size)) } else { Err(error()) }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let exact = units.into_iter().find(|(shift, _)| self.0 != 0 && self.0.trailing_zeros() >= *shift);
        match exact {
            Some((shift, unit)) => write!(f, "{} {unit}", self.0 >> shift),
            None => write!(f, "{} B", self.0),
        }
    }
}

impl Size {
    /// The size for people: three digits with a unit, and the bytes behind them where that is not
    /// exact.
    #[must_use]
    pub fn told(self) -> String {
        let exact = self.to_string();
        if !exact.ends_with(" B") && exact.len() <= "1234 MiB".len() || self.0 < 1024 {
            return exact;
        }
        format!("{:.2} ({} bytes)", bytesize::ByteSize(self.0), self.0)
    }
}

impl TryFrom<String> for Size {
    type Error = SizeError;

    fn try_from(text: String) -> Result<Self, SizeError> {
        text.parse()
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.to_string()
    }
}
