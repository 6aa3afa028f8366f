// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads what blkparse prints, in its default format.
//!
//! `8,16  5  2  0.000001850 18615  Q  RS 1444645666 + 256 [java]`: device, CPU, sequence,
//! time in s, pid, event, what, sector + sectors. "What" has one letter of R, W, D (discard),
//! N (nothing), before it F for a flush, behind it flags. A flush alone has no sector.

use super::events::{DATALESS, PASSTHROUGH, kind_of_letters, letters_of, operation};
use super::{BLANK, Format, Item, Lines, Parser, record};
use crate::trace::head::Fit;
use crate::trace::report::Reason;
use crate::trace::text::{Fields, SECOND, number};
use crate::trace::{Action, Op};

pub(super) const FORMATS: [Format; 1] = [Format {
    name: "blkparse",
    summary: "what blkparse prints, in its default format",
    lookalikes: &[],
    // Whichever events it has: those that are asked for may be none of them, which is better said
    // than not recognised.
    fit: |head| Fit::shape(Action::ALL.iter().any(|action| head.has_lines_of(Blkparse::new(*action)))),
    parser: |action| Parser::Lines(Box::new(Blkparse::new(action))),
}];

const SUMMARY: &str = "blkparse's summary";

struct Blkparse {
    letters: &'static [u8],
    /// The totals at the end have begun.
    summary: bool,
}

impl Blkparse {
    fn new(action: Action) -> Self {
        Self { letters: letters_of(action), summary: false }
    }
}

impl Lines for Blkparse {
    fn line(&mut self, line: &[u8]) -> Result<Item, Reason> {
        let mut fields = Fields::blanks(line);
        let Some(first) = fields.next() else { return Ok(Item::Skipped(BLANK)) };
        // `CPU5 (8,16):`, `Total (8,16):`, and before all `Input file sda.blktrace.0 added`.
        self.summary |= (first.starts_with(b"CPU") || first == b"Total") && line.trim_ascii_end().ends_with(b":");
        self.summary |= !first[0].is_ascii_digit() && is_process(line);
        if (self.summary && !first[0].is_ascii_digit()) || first == b"Input" {
            return Ok(Item::Skipped(SUMMARY));
        }
        let device = device(first)?;
        fields.number("cpu")?;
        fields.number("sequence")?;
        let time_ns = fields.time(SECOND)?;
        fields.number("pid")?;
        let letters = fields.word("event")?;
        if letters != self.letters {
            return kind_of_letters(letters).map(Item::Skipped).ok_or(Reason::Unknown("event"));
        }
        let what = fields.word("operation")?;
        let flush = what[0] == b'F';
        let op = operation(what);
        // With -t the time since it was queued stands in brackets before the process, or the error.
        let sector = fields.next().filter(|it| !b"[(".contains(&it[0]));
        match (sector, fields.next()) {
            (Some(sector), Some(b"+")) => {
                let sector = number(sector, "sector")?;
                let sectors = fields.number("length")?;
                let Some(op) = op else { return Ok(Item::Skipped(DATALESS)) };
                record(Some(time_ns), op, device, sector, sectors)
            }
            (Some(_), Some(word)) if word[0] == b'(' && !flush => Ok(Item::Skipped(PASSTHROUGH)),
            // A completion of nothing has a sector, and its error in brackets.
            (Some(sector), word) if word.is_none_or(|it| !b"[(".contains(&it[0])) => {
                number(sector, "sector").and(Err(Reason::Missing("length")))
            }
            _ if flush => record(Some(time_ns), Op::Flush, device, 0, 0),
            (Some(_), _) => Ok(Item::Skipped(PASSTHROUGH)),
            _ => Ok(Item::Skipped(DATALESS)),
        }
    }
}

/// `fio (4253)` or `fio (4253, ...)`: with -s the totals of each process come before all others.
fn is_process(line: &[u8]) -> bool {
    let inner = line.trim_ascii_end().strip_suffix(b")").map(|it| it.strip_suffix(b", ...").unwrap_or(it));
    let pid = inner.and_then(|it| it.iter().rposition(|it| *it == b'(').map(|at| &it[at + 1..]));
    pid.is_some_and(|it| number(it, "pid").is_ok())
}

/// `8,16` as Linux numbers it.
fn device(word: &[u8]) -> Result<u32, Reason> {
    let mut fields = Fields::separated(word, b',');
    let (major, minor) = (fields.number("device")?, fields.number("device")?);
    fields.end()?;
    if major >= 1 << 12 || minor >= 1 << 20 {
        return Err(Reason::TooLarge("device"));
    }
    Ok((major << 20 | minor) as u32)
}
