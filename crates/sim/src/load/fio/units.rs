// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads sizes and times as fio writes them (fio's HOWTO, "Parameter types"; checked against fio
//! 3.33).
//!
//! No crate reads them: fio's `k` is 1024 or 1000, as the option `kb_base` says, and its `Ki` is
//! the other one. A time without a unit is in seconds or microseconds, as the option has it.

/// The value of `k`, which fio's `kb_base` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KbBase {
    /// International: k is 1000, Ki is 1024.
    International,
    /// fio's default, the other way round: k is 1024, and Ki is 1000.
    Compatible,
}

impl KbBase {
    /// As `kb_base` has it.
    pub(super) fn read(text: &str) -> Option<Self> {
        match text {
            "1024" => Some(Self::Compatible),
            "1000" => Some(Self::International),
            _ => None,
        }
    }
}

/// A number and what follows it.
fn split(text: &str) -> Option<(u64, &str)> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let end = digits.find(|it: char| !it.is_digit(radix)).unwrap_or(digits.len());
    let number = u64::from_str_radix(&digits[..end], radix).ok()?;
    Some((number, digits[end..].trim()))
}

/// Bytes: `4k`, `128K`, `8g`, `1GiB`, `4096`.
pub(super) fn bytes(text: &str, base: KbBase) -> Option<u64> {
    let (number, suffix) = split(text)?;
    let suffix = suffix.to_ascii_lowercase();
    let (letter, rest) = (suffix.chars().next(), suffix.get(1..).unwrap_or(""));
    let power = match letter {
        None => return Some(number),
        Some('b') if rest.is_empty() => return Some(number),
        Some('k') => 1,
        Some('m') => 2,
        Some('g') => 3,
        Some('t') => 4,
        Some('p') => 5,
        Some(_) => return None,
    };
    let international = base == KbBase::International;
    let unit: u64 = match rest {
        "" | "b" => {
            if international {
                1000
            } else {
                1024
            }
        }
        "i" | "ib" => {
            if international {
                1024
            } else {
                1000
            }
        }
        _ => return None,
    };
    number.checked_mul(unit.pow(power))
}

/// Nanoseconds: `30` (seconds), `30s`, `5m`, `24h`, `500ms`.
pub(super) fn ns(text: &str) -> Option<u64> {
    time(text, 1_000_000_000)
}

/// Nanoseconds of a time that without a unit is in microseconds.
pub(super) fn ns_of_us(text: &str) -> Option<u64> {
    time(text, 1_000)
}

fn time(text: &str, without_unit: u64) -> Option<u64> {
    let (number, suffix) = split(text)?;
    let unit: u64 = match suffix.to_ascii_lowercase().as_str() {
        "" => without_unit,
        "s" => 1_000_000_000,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// A switch: without a value it is on.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "" => Some(true),
        _ => text.parse::<u64>().ok().map(|it| it != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_k_is_what_fio_takes_it_for() {
        use KbBase::{Compatible, International};
        for (text, compatible, international) in [
            ("4k", 4096, 4000),
            ("4K", 4096, 4000),
            ("4kb", 4096, 4000),
            // fio --showcmd of bs=4KiB says 4000B.
            ("4KiB", 4000, 4096),
            ("8g", 8 << 30, 8_000_000_000),
            ("1Ti", 1_000_000_000_000, 1 << 40),
            ("512", 512, 512),
            ("512b", 512, 512),
            ("0x1000", 4096, 4096),
        ] {
            assert_eq!(bytes(text, Compatible), Some(compatible), "{text}");
            assert_eq!(bytes(text, International), Some(international), "{text}");
        }
        for text in ["", "k", "4x", "4kk", "50%", "-1", "1.5g", "99999999999t"] {
            assert_eq!(bytes(text, Compatible), None, "{text}");
        }
    }

    #[test]
    fn a_time_without_a_unit_is_seconds() {
        for (text, seconds) in [("30", 30), ("30s", 30), ("5m", 300), ("24h", 86_400), ("1d", 86_400)] {
            assert_eq!(ns(text), Some(seconds * 1_000_000_000), "{text}");
        }
        assert_eq!((ns("500ms"), ns("7us"), ns_of_us("7")), (Some(500_000_000), Some(7_000), Some(7_000)));
        assert_eq!((ns("5min"), ns(""), ns("999999999d")), (None, None, None));
    }
}
