// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fields of a line are bytes here: nothing is copied, allocated or taken for UTF-8.
//!
//! The crate csv is not used. No format quotes its fields, half of them separate fields by blanks,
//! and csv copies each line into a record of its own.

use super::report::Reason;

/// Nanoseconds of the units that traces count time in.
pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const MILLISECOND: u64 = 1_000_000;
pub(super) const MICROSECOND: u64 = 1_000;

/// The rest of a line.
pub(super) struct Fields<'a> {
    rest: Option<&'a [u8]>,
    /// None: any run of blanks.
    separator: Option<u8>,
}

impl<'a> Fields<'a> {
    /// Fields between blanks.
    pub(super) fn blanks(line: &'a [u8]) -> Self {
        Self { rest: Some(line.trim_ascii()), separator: None }
    }

    /// Fields between commas or the like; blanks around them don't count.
    pub(super) fn separated(line: &'a [u8], by: u8) -> Self {
        Self { rest: Some(line), separator: Some(by) }
    }

    pub(super) fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let Some(separator) = self.separator else {
            if rest.is_empty() {
                return None;
            }
            let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
            self.rest = Some(rest[end..].trim_ascii_start());
            return Some(&rest[..end]);
        };
        let end = rest.iter().position(|it| *it == separator);
        self.rest = end.map(|end| &rest[end + 1..]);
        Some(rest[..end.unwrap_or(rest.len())].trim_ascii())
    }

    pub(super) fn word(&mut self, name: &'static str) -> Result<&'a [u8], Reason> {
        self.next().filter(|it| !it.is_empty()).ok_or(Reason::Missing(name))
    }

    pub(super) fn number(&mut self, name: &'static str) -> Result<u64, Reason> {
        number(self.word(name)?, name)
    }

    pub(super) fn number32(&mut self, name: &'static str) -> Result<u32, Reason> {
        u32::try_from(self.number(name)?).map_err(|_| Reason::TooLarge(name))
    }

    /// A time in units of so many nanoseconds, with or without a fraction.
    pub(super) fn time(&mut self, unit_ns: u64) -> Result<u64, Reason> {
        time(self.word(TIME)?, unit_ns)
    }

    /// Nothing may follow.
    pub(super) fn end(&mut self) -> Result<(), Reason> {
        if self.next().is_none() { Ok(()) } else { Err(Reason::Extra) }
    }
}

const TIME: &str = "time";

/// A number of decimal digits and nothing else.
pub(super) fn number(word: &[u8], name: &'static str) -> Result<u64, Reason> {
    if word.is_empty() {
        return Err(Reason::NotNumber(name));
    }
    let mut value = 0_u64;
    for byte in word {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Reason::NotNumber(name));
        }
        value = value.checked_mul(10).and_then(|it| it.checked_add(digit.into())).ok_or(Reason::TooLarge(name))?;
    }
    Ok(value)
}

/// A time in units of so many nanoseconds; digits below a nanosecond are cut off.
pub(super) fn time(word: &[u8], unit_ns: u64) -> Result<u64, Reason> {
    let point = word.iter().position(|it| *it == b'.');
    let (whole, fraction) = point.map_or((word, &[][..]), |at| (&word[..at], &word[at + 1..]));
    let mut value = number(whole, TIME)?.checked_mul(unit_ns).ok_or(Reason::TooLarge(TIME))?;
    let mut worth = unit_ns;
    for byte in fraction {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Reason::NotNumber(TIME));
        }
        worth /= 10;
        value = value.checked_add(u64::from(digit) * worth).ok_or(Reason::TooLarge(TIME))?;
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact() {
        assert_eq!(time(b"3600.714306389", SECOND), Ok(3_600_714_306_389));
        assert_eq!(time(b"26.214000", MILLISECOND), Ok(26_214_000));
        assert_eq!(time(b"0.1234567891", SECOND), Ok(123_456_789));
        assert_eq!(time(b"128166372003061629", 100), Ok(12_816_637_200_306_162_900));
        assert_eq!(time(b"7.", SECOND), Ok(7 * SECOND));
        for bad in ["", ".5", "1.x", "-1", "1e3"] {
            assert_eq!(time(bad.as_bytes(), SECOND), Err(Reason::NotNumber(TIME)), "{bad}");
        }
        assert_eq!(time(b"18446744074", SECOND), Err(Reason::TooLarge(TIME)));
        assert_eq!(number(b"18446744073709551615", "n"), Ok(u64::MAX));
        assert_eq!(number(b"18446744073709551616", "n"), Err(Reason::TooLarge("n")));
    }

    #[test]
    fn fields_end_where_the_line_does() {
        let mut fields = Fields::blanks(b"  1\t 22  \r");
        assert_eq!((fields.next(), fields.next(), fields.next()), (Some(&b"1"[..]), Some(&b"22"[..]), None));
        let mut fields = Fields::separated(b"1 , ,3", b',');
        assert_eq!(fields.number("a"), Ok(1));
        assert_eq!(fields.number("b"), Err(Reason::Missing("b")));
        assert_eq!(fields.end(), Err(Reason::Extra));
        assert_eq!(fields.end(), Ok(()));
    }
}
