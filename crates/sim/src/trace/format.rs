// SPDX-License-Identifier: MIT OR Apache-2.0
//! A format describes itself, and is listed in the registry. Detection finds which of them a trace
//! has.
//!
//! A format is one file with `FORMATS` (its variants) and one word in `formats!`. That word gives
//! `--format` its name, the help its line, detection a candidate, and the conformance tests a case.

use super::action::Action;
use super::head::{Fit, Head};
use super::item::{Binary, Item, Lines, Parser};
use super::record::{DATA_SECTORS_MAX, Op, PLACE_SECTORS_MAX, Record, SECTOR_BYTES, SECTOR_MAX};
use super::report::Reason;

/// A format of traces.
#[derive(Debug)]
pub struct Format {
    /// The name, for `--format`.
    pub name: &'static str,
    /// A line on what it is.
    pub summary: &'static str,
    /// Formats of the same shape in other units, itself among them: which of them a trace has is a
    /// guess. None if the trace tells.
    pub lookalikes: &'static [&'static str],
    /// How well it fits these first bytes.
    pub(super) fit: fn(&Head<'_>) -> Fit,
    /// Builds the parser. Of formats with several events for a request, those of this action count.
    pub(super) parser: fn(Action) -> Parser,
}

/// Declares the formats: the modules, and the list.
macro_rules! formats {
    ($($module:ident),+ $(,)?) => {
        $(mod $module;)+

        static ALL: &[&[Format]] = &[$(&$module::FORMATS),+];
    };
}

formats! {
    blktrace, blkparse, biosnoop, fio, vscsi, msr, spc, systor, alibaba, tencent, fiu, blkreplay, disksim, arc, blocks,
    oracle_general,
}
mod error;
mod events;

pub use error::FormatError;
pub(crate) use events::is_event;

impl Format {
    /// All formats.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        ALL.iter().copied().flatten()
    }

    /// Finds the format of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|format| format.name == name)
    }

    /// Whether it has several events for a request, of which [`Action`] says which counts.
    #[must_use]
    pub fn has_actions(&self) -> bool {
        ["blktrace", "blkparse"].contains(&self.name)
    }

    /// The only one that fits best.
    pub(super) fn of(head: &Head<'_>) -> Result<&'static Self, FormatError> {
        let fits: Vec<(Fit, &'static Self)> = Self::all().map(|format| ((format.fit)(head), format)).collect();
        let best = fits.iter().map(|(fit, _)| *fit).max().unwrap_or(Fit::No);
        let mut candidates = fits.iter().filter(|(fit, _)| *fit == best && best > Fit::No).map(|(_, format)| *format);
        match (candidates.next(), candidates.next()) {
            (None, _) => Err(FormatError::of(head)),
            (Some(only), None) => Ok(only),
            (Some(one), Some(other)) => Err(FormatError::Ambiguous(one.name, other.name)),
        }
    }
}

/// Words for what several formats skip.
const BLANK: &str = "blank lines";
const COMMENT: &str = "comments";
const HEADER: &str = "header lines";
const EMPTY: &str = "requests of no length";

/// A request in sectors. All formats of disks make their records here, so that all have the same
/// limits.
fn record(time_ns: Option<u64>, op: Op, device: u32, sector: u64, sectors: u64) -> Result<Item, Reason> {
    match named(time_ns, op, device, sector, sectors)? {
        Item::Record(_) if sector + sectors > PLACE_SECTORS_MAX => Err(Reason::TooLarge("place")),
        item => Ok(item),
    }
}

/// A request whose place is the name of an object, which may be any number.
fn named(time_ns: Option<u64>, op: Op, device: u32, sector: u64, sectors: u64) -> Result<Item, Reason> {
    if sectors == 0 && op != Op::Flush {
        return Ok(Item::Skipped(EMPTY));
    }
    let sectors_max = if op == Op::Discard { u32::MAX.into() } else { DATA_SECTORS_MAX };
    if sectors > sectors_max {
        return Err(Reason::TooLarge("length"));
    }
    if sector > SECTOR_MAX - sectors {
        return Err(Reason::TooLarge("place"));
    }
    Ok(Item::Record(Record { time_ns, op, device, sector, sectors: sectors as u32 }))
}

/// A request in bytes: all sectors that it touches.
fn record_of_bytes(time_ns: Option<u64>, op: Op, device: u32, offset: u64, bytes: u64) -> Result<Item, Reason> {
    let end = offset.checked_add(bytes).ok_or(Reason::TooLarge("place"))?;
    let first = offset / SECTOR_BYTES;
    let sectors = if bytes == 0 { 0 } else { end.div_ceil(SECTOR_BYTES) - first };
    record(time_ns, op, device, first, sectors)
}

/// R or W, or the words.
fn read_or_write(word: &[u8]) -> Result<Op, Reason> {
    match word {
        b"R" | b"r" => Ok(Op::Read),
        b"W" | b"w" => Ok(Op::Write),
        _ if word.eq_ignore_ascii_case(b"read") => Ok(Op::Read),
        _ if word.eq_ignore_ascii_case(b"write") => Ok(Op::Write),
        _ => Err(Reason::Unknown("operation")),
    }
}

/// Finds the blank lines, the comments, and a first line with the names of the columns.
#[derive(Default)]
struct Prelude {
    over: bool,
}

impl Prelude {
    fn skips(&mut self, line: &[u8]) -> Option<Item> {
        let Some(first) = line.iter().find(|it| !it.is_ascii_whitespace()) else { return Some(Item::Skipped(BLANK)) };
        if *first == b'#' {
            return Some(Item::Skipped(COMMENT));
        }
        let header = !self.over && first.is_ascii_alphabetic() && !line.iter().any(u8::is_ascii_digit);
        self.over = true;
        header.then_some(Item::Skipped(HEADER))
    }
}

/// A little-endian number of a record.
fn le<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(value)
}
