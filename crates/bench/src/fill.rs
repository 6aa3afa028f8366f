// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that bench makes: as long as the jobs need, filled where the jobs read, removed at the
//! end.
//!
//! A place that nobody has written takes no time to read, so it would flatter.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flashfront_device::Rng;
use rustix::fs::{Advice, fadvise, statvfs};

use crate::error::BenchError;
use crate::suite::{Suite, Work};

const CHUNK_BYTES: u64 = 1 << 20;

/// A file that is removed when it is dropped.
#[derive(Debug)]
pub struct Made(PathBuf);

impl Made {
    /// Makes a file, and fills it in `ranges`. `watch` hears of bytes written, and ends it with
    /// false.
    ///
    /// # Errors
    /// The file is there already, or there is no room for it; [`BenchError::Interrupted`].
    pub fn new(
        path: &Path,
        bytes: u64,
        ranges: &[Range<u64>],
        watch: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Self, BenchError> {
        let fail = |error: std::io::Error| BenchError::Failed(format!("{}: can't be made: {error}", path.display()));
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(fail)?;
        let made = Self(path.to_owned());
        file.set_len(bytes).map_err(fail)?;
        fill(&file, ranges, watch).map_err(fail)?.then_some(made).ok_or(BenchError::Interrupted)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // Somebody else may have removed it already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Fills ranges with what can't be compressed; false if `watch` ended it.
fn fill(file: &File, ranges: &[Range<u64>], watch: &mut dyn FnMut(u64) -> bool) -> std::io::Result<bool> {
    let mut random = Rng::new(1);
    let mut chunk = vec![0; CHUNK_BYTES as usize];
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            for word in chunk.chunks_exact_mut(8) {
                word.copy_from_slice(&random.next_u64().to_le_bytes());
            }
            let len = CHUNK_BYTES.min(range.end - at);
            file.write_all_at(&chunk[..len as usize], at)?;
            at += len;
            if !watch(len) {
                return Ok(false);
            }
        }
    }
    file.sync_all()?;
    // Reads are to come from the device. Where the kernel keeps the pages nevertheless fio drops
    // them once more.
    let _ = fadvise(file, 0, None, Advice::DontNeed);
    Ok(true)
}

/// What the suite's jobs read, in order, without overlaps.
#[must_use]
pub fn read_ranges(suite: &Suite) -> Vec<Range<u64>> {
    let of = |work: &Work| -> Vec<Range<u64>> {
        match work {
            Work::Fio(jobs) => {
                let reading = jobs.iter().filter(|job| job.read_percent > 0);
                reading.map(|job| job.offset_bytes..job.offset_bytes + job.span_bytes).collect()
            }
            Work::Act(act) => vec![Range { start: 0, end: act.needs_bytes() }],
        }
    };
    let mut all: Vec<Range<u64>> = suite.jobs().flat_map(|job| of(&job.work)).filter(|it| !it.is_empty()).collect();
    all.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in all {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Checks that a folder's file system has room for `bytes`.
///
/// # Errors
/// The file system has less room. The message names a scale at which the room is enough.
pub fn has_room(folder: &Path, bytes: u64, scaled_by: u64) -> Result<(), BenchError> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let room = statvfs(folder).map(|it| it.f_bavail * it.f_frsize);
    let room =
        room.map_err(|error| BenchError::Failed(format!("{}: can't be looked at: {error}", folder.display())))?;
    if room >= bytes {
        return Ok(());
    }
    Err(too_small(&format!("the file system of {}", folder.display()), room, bytes, scaled_by))
}

/// The error of something that is too small for the suite.
#[must_use]
pub fn too_small(what: &str, has: u64, needs: u64, scaled_by: u64) -> BenchError {
    let full = needs.saturating_mul(scaled_by);
    let divisor = full.div_ceil(has.max(1)).next_power_of_two();
    let mib = |bytes: u64| bytes >> 20;
    let hint = if divisor <= 4096 {
        format!("take --scale 1/{divisor} or smaller")
    } else {
        "it is too small for this suite at any scale".to_owned()
    };
    BenchError::Failed(format!(
        "{what} has {} MiB, and the suite needs {} MiB; {hint}",
        mib(has),
        needs.div_ceil(1 << 20)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Scale;
    use crate::suites::find;

    #[test]
    fn ranges_that_touch_are_one() {
        let gib = 1 << 30;
        let suite = find("caches-2015", Scale::FULL, None).unwrap();
        assert_eq!(
            read_ranges(&suite),
            vec![Range { start: gib, end: 9 * gib }],
            "writes go elsewhere, and are not filled"
        );
    }

    #[test]
    fn a_file_is_filled_where_it_is_read_and_goes_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut written = 0;
        let ranges = [4096..8192, (2 << 20)..(4 << 20)];
        let made = Made::new(&path, 5 << 20, &ranges, &mut |bytes| {
            written += bytes;
            true
        });
        let made = made.unwrap();
        let bytes = std::fs::read(made.path()).unwrap();
        assert_eq!((bytes.len(), written), (5 << 20, (2 << 20) + 4096));
        assert!(bytes[..4096].iter().all(|it| *it == 0) && bytes[4096..8192].iter().any(|it| *it != 0));
        assert_ne!(bytes[2 << 20..3 << 20], bytes[3 << 20..4 << 20], "no part is another's copy");
        assert!(Made::new(&path, 1, &[], &mut |_| true).is_err(), "nobody's file is taken");
        drop(made);
        assert!(!path.exists());
        assert!(matches!(
            Made::new(&path, 1 << 20, std::slice::from_ref(&(0..1 << 20)), &mut |_| false),
            Err(BenchError::Interrupted)
        ));
        assert!(!path.exists());
    }

    #[test]
    fn the_scale_that_fits_is_named() {
        let error = too_small("x", 100 << 20, 4 << 30, 1).to_string();
        assert!(error.contains("has 100 MiB") && error.contains("needs 4096 MiB") && error.contains("1/64"), "{error}");
    }
}
