// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints and reads sizes and counts as people write them, for messages, tables and files of all
//! crates.
//!
//! Three forms of a size are printed:
//!
//! | form | example | for |
//! |---|---|---|
//! | [`Size`]'s `Display` | 1537 KiB | what can be written into a configuration again |
//! | [`Size::told`] | 1.50 GiB (1610612737 bytes) | messages in which each byte may matter |
//! | [`bytes`] | 1.50 GiB | tables and figures |
//!
//! The crate bytesize reads sizes, and prints them in messages. The other two forms are ours. What
//! bytesize prints can't be read back without loss. It fixes the digits behind the point; columns
//! need a number of digits in all (9.77 GiB, 977 GiB). indicatif does as bytesize does.
#![forbid(unsafe_code)]

mod size;

pub use size::{Size, SizeError};

/// The size in binary units, with three digits: 9.77 GiB, 97.7 GiB, 977 GiB.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    // 999.95 would print as 1000.0.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = match (unit, value) {
        (0, _) => 0,
        (_, value) if value >= 99.95 => 0,
        (_, value) if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A count with its thousands apart.
#[must_use]
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a number with its noun, as in "1 place", "2 places".
#[must_use]
pub fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_bytes_where_the_size_is_not_exact() {
        for (value, text) in
            [(513, "513 B"), (1 << 30, "1 GiB"), (3 << 29, "1536 MiB"), ((3 << 29) + 1, "1.50 GiB (1610612737 bytes)")]
        {
            assert_eq!(Size(value).told(), text);
        }
    }

    #[test]
    fn sizes_have_three_digits() {
        for (value, text) in [
            (0, "0 B"),
            (512, "512 B"),
            (1023, "1.00 KiB"),
            (4096, "4.00 KiB"),
            (10 << 20, "10.0 MiB"),
            (256 << 20, "256 MiB"),
            (1 << 40, "1.00 TiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn counts_are_grouped() {
        for (value, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(value), text);
        }
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0, 1, 2].map(|it| counted(it, "place")), ["0 places", "1 place", "2 places"]);
    }
}
