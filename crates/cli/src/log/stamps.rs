// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time at the beginning of a line, and whether it is needed: the journal adds a time of its
//! own.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// The time in UTC with milliseconds, as RFC 3339 has it.
pub(super) struct Stamps;

impl FormatTime for Stamps {
    fn format_time(&self, to: &mut Writer<'_>) -> fmt::Result {
        write!(to, "{}", humantime::format_rfc3339_millis(SystemTime::now()))
    }
}

/// Whether the journal reads what is written to stderr.
pub(super) fn stderr_is_the_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let stderr = io::stderr().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    stderr.is_ok_and(|it| is_stream(&stream, it.dev(), it.ino()))
}

/// Whether the journal reads a stream. systemd.exec(5): the variable holds its device and inode in
/// decimal, and programs inherit it whose stderr leads elsewhere.
fn is_stream(journal: &str, device: u64, inode: u64) -> bool {
    journal.split_once(':').is_some_and(|(of, number)| of.parse() == Ok(device) && number.parse() == Ok(inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_known_by_device_and_inode() {
        assert!(is_stream("9:123456", 9, 123_456));
        for other in ["9:123457", "8:123456", "9", "", "9:", ":", "9:123456:1"] {
            assert!(!is_stream(other, 9, 123_456), "{other}");
        }
    }

    #[test]
    fn a_stamp_has_milliseconds() {
        let mut text = String::new();
        Stamps.format_time(&mut Writer::new(&mut text)).unwrap();
        // 2026-11-28T05:50:00.123Z
        assert_eq!((text.len(), &text[10..11], &text[19..20], &text[23..]), (24, "T", ".", "Z"), "{text}");
    }
}
