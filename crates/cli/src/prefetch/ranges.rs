// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of a volume: as an operator writes them, and as they are gone through.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use flashfront_engine::BLOCK_BYTES;
use flashfront_serve::config::Size;

/// A range as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    from: Size,
    to: Option<Size>,
}

/// The text is no range.
#[derive(Debug)]
pub(super) struct AskedError(String);

impl fmt::Display for AskedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        write!(
            f,
            "`{text}` is no range; write its first byte and the one behind its end, as in \"1GiB..3GiB\", \"0..20G\" or \"5GiB..\""
        )
    }
}

impl std::error::Error for AskedError {}

impl FromStr for Asked {
    type Err = AskedError;

    fn from_str(text: &str) -> Result<Self, AskedError> {
        let error = || AskedError(text.to_owned());
        let (from, to) = text.split_once("..").ok_or_else(error)?;
        let size = |text: &str| match text.trim() {
            "0" => Ok(Size(0)),
            text => text.parse().map_err(|_| error()),
        };
        let from = if from.trim().is_empty() { Size(0) } else { size(from)? };
        let to = if to.trim().is_empty() { None } else { Some(size(to)?) };
        if to.is_some_and(|to| to <= from) { Err(error()) } else { Ok(Self { from, to }) }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.from)?;
        self.to.map_or(Ok(()), |to| write!(f, "{to}"))
    }
}

impl Asked {
    /// The bytes, in a volume of that size; `None`: it ends before.
    pub(super) fn within(self, size: u64) -> Option<Range<u64>> {
        let end = self.to.map_or(size, |to| to.0);
        (self.from.0 < end && end <= size).then_some(self.from.0..end)
    }
}

/// Ranges of whole blocks, in order and without overlaps.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Joins ranges of bytes. What lies behind the volume's end is left out.
    pub(super) fn new(mut found: Vec<Range<u64>>, size: u64) -> Self {
        found.sort_unstable_by_key(|it| it.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for Range { start, end } in found {
            let start = start / BLOCK_BYTES * BLOCK_BYTES;
            let end = end.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(size).min(size);
            match joined.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ if start < end => joined.push(start..end),
                _ => {}
            }
        }
        Self(joined)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|it| it.end - it.start).sum()
    }

    /// Parts of at most so many bytes.
    pub(super) fn parts(&self, bytes: u64) -> impl Iterator<Item = Range<u64>> {
        let cut = move |it: &Range<u64>| {
            let (start, end) = (it.start, it.end);
            (start..end).step_by(bytes as usize).map(move |from| from..end.min(from + bytes))
        };
        self.0.iter().flat_map(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_held_against_the_volume() {
        let within = |text: &str| text.parse::<Asked>().unwrap().within(1 << 30);
        assert_eq!(within("0..1GiB"), Some(0..1 << 30));
        assert_eq!(within("512M.."), Some(512 << 20..1 << 30));
        assert_eq!(within(".."), Some(0..1 << 30));
        assert_eq!(within("0..1025MiB"), None);
        assert_eq!(within("1GiB.."), None);
        for text in ["", "1GiB", "2M..1M", "1M..1M", "a..b", "-1..5"] {
            assert!(text.parse::<Asked>().is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_are_joined_and_cut() {
        let size = 100 << 10;
        let ranges = Ranges::new(vec![90_000..200_000, 10..20, 4096..5000, 8000..8200, 300_000..400_000], size);
        assert_eq!(ranges, Ranges(vec![0..12_288, 86_016..size]));
        assert_eq!(ranges.bytes(), 12_288 + size - 86_016);
        let parts: Vec<Range<u64>> = ranges.parts(8192).collect();
        assert_eq!(parts, [0..8192, 8192..12_288, 86_016..94_208, 94_208..size]);
    }
}
