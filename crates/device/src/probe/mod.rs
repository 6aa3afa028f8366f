// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the contents of a disk, so that `format` never destroys a file system by mistake.
//!
//! Contents with a magic number are recognised by it, in the first and the last 512 KiB. Other data
//! is at least seen (`blank`). Finding something is a reason to stop and ask. Nothing is written.
//!
//! This is made by hand because libblkid, which knows more, is a library in C.

mod blank;
mod checks;
mod table;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::real::DeviceFile;

pub use blank::{first_data, void};

/// Everything recognised lies this close to the start or the end (ZFS: two labels of 256 KiB).
const WINDOW_BYTES: u64 = 512 << 10;
/// Bytes around a bad sector that are given up.
const STEP_BYTES: usize = 4096;

/// Something that was recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The name, with the label and UUID if it has them: `ext4 file system "home" (1d3c...)`.
    pub what: String,
    /// The place of its magic number.
    pub offset: u64,
}

/// Looks at a file or block device that may be in use.
///
/// # Errors
/// As opening it.
pub fn probe(path: &Path) -> io::Result<Vec<Found>> {
    let file = File::open(path)?;
    let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))?;
    Ok(look(size, |offset, out| file.read_exact_at(out, offset)))
}

/// Looks at an open device.
#[must_use]
pub fn probe_device(device: &DeviceFile) -> Vec<Found> {
    look(device.geometry().size_bytes, |offset, out| device.read_at(offset, out))
}

/// Looks at the contents of a disk.
///
/// A part that can't be read may be anything, so it is told, too. A bad sector must not keep an
/// operator from destroying contents that he knows.
fn look(size: u64, read: impl Fn(u64, &mut [u8]) -> io::Result<()>) -> Vec<Found> {
    let mut found = Vec::new();
    let mut window = |start: u64, end: u64| -> Vec<u8> {
        let mut bytes = vec![0; (end - start) as usize];
        if read(start, &mut bytes).is_ok() {
            return bytes;
        }
        let mut bad: Option<Found> = None;
        for (nth, part) in bytes.chunks_mut(STEP_BYTES).enumerate() {
            let offset = start + (nth * STEP_BYTES) as u64;
            if let Err(error) = read(offset, part) {
                part.fill(0);
                bad.get_or_insert_with(|| Found { what: format!("what can't be read ({error})"), offset });
            }
        }
        found.extend(bad);
        bytes
    };
    let tail_start = size.saturating_sub(WINDOW_BYTES);
    let (head, tail) = (window(0, size.min(WINDOW_BYTES)), window(tail_start, size));
    let disk = Disk { size, head, tail, tail_start };
    table::look(&disk, &mut found);
    checks::look(&disk, &mut found);
    found.sort_by_key(|found| found.offset);
    found
}

/// The parts of a disk that are looked at.
struct Disk {
    size: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
    tail_start: u64,
}

impl Disk {
    /// The bytes there, if they were read.
    fn bytes(&self, offset: u64, len: u64) -> Option<&[u8]> {
        let part = |window: &'_ [u8], start: u64| -> Option<std::ops::Range<usize>> {
            let from = offset.checked_sub(start)?;
            let to = from.checked_add(len)?;
            (to <= window.len() as u64).then_some(from as usize..to as usize)
        };
        match part(&self.head, 0) {
            Some(range) => self.head.get(range),
            None => self.tail.get(part(&self.tail, self.tail_start)?),
        }
    }

    fn is(&self, offset: u64, magic: &[u8]) -> bool {
        self.bytes(offset, magic.len() as u64) == Some(magic)
    }

    fn u32(&self, offset: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(offset, 4)?.try_into().ok()?))
    }

    fn u64(&self, offset: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(offset, 8)?.try_into().ok()?))
    }

    /// The text there, up to its first zero byte; `None` if it is empty or not printable.
    fn text(&self, offset: u64, len: u64) -> Option<String> {
        let bytes = self.bytes(offset, len)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let text = std::str::from_utf8(&bytes[..end]).ok()?.trim();
        (!text.is_empty() && !text.chars().any(char::is_control)).then(|| text.to_owned())
    }

    fn uuid(&self, offset: u64) -> Option<String> {
        let bytes = self.bytes(offset, 16)?;
        let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let uuid = [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]].map(hex).join("-");
        bytes.iter().any(|byte| *byte != 0).then_some(uuid)
    }
}

/// `name "label" (uuid)`, of which the latter two may be missing.
fn named(name: &str, label: Option<String>, uuid: Option<String>) -> String {
    let label = label.map(|label| format!(" \"{label}\"")).unwrap_or_default();
    let uuid = uuid.map(|uuid| format!(" ({uuid})")).unwrap_or_default();
    format!("{name}{label}{uuid}")
}

#[cfg(test)]
mod tests;
