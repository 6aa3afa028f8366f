// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remembers, in the state folder, which openings of a cache in a row have kept records of samples
//! there.
//!
//! An origin gets a record of its samples before its first write of an opening (`watched`). An
//! origin without a record of these openings was not written in them. So it holds what its record
//! in the superblock says, if the first of them began with that. One small file says so for all
//! origins, so idle volumes cost a start nothing (test:
//! `an_origin_that_was_never_written_is_compared`).

use std::fs::{self, File};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::state;
use crate::uuid::uuid_text;

/// How a start found the origins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The origins are what the superblock says.
    AsRecorded,
    /// The last daemon died, and the origins are what it may have left.
    AsLeft,
    /// An origin was changed.
    Changed,
}

/// Openings in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Openings {
    pub(super) first: u64,
    pub(super) last: u64,
    /// The first of them found the origins as the superblock says.
    pub(super) as_recorded: bool,
}

fn name(uuid: &[u8; 16]) -> String {
    format!("{}.openings", uuid_text(uuid))
}

/// Remembers durably that this opening keeps records of samples. Says whether an origin without a
/// record is known, too.
///
/// # Errors
/// Without a state folder, or when it can't be written.
pub(crate) fn remember_opening(state: Option<&Path>, uuid: &[u8; 16], epoch: u64, found: Found) -> io::Result<bool> {
    let before = load(state, uuid).filter(|it| it.last == epoch || it.last + 1 == epoch);
    let openings = match (found, before) {
        (Found::AsLeft, Some(before)) => Openings { last: epoch, ..before },
        _ => Openings { first: epoch, last: epoch, as_recorded: found == Found::AsRecorded },
    };
    state::write(state, &name(uuid), serde_json::to_string(&openings)?)?;
    Ok(openings.as_recorded)
}

/// The openings that are remembered; `None` if there are none that can be read.
pub(super) fn load(state: Option<&Path>, uuid: &[u8; 16]) -> Option<Openings> {
    serde_json::from_str(&fs::read_to_string(state?.join(name(uuid))).ok()?).ok()
}

/// Forgets the openings, durably: some origin was written, and has no record.
pub(crate) fn forget(state: &Path, uuid: &[u8; 16]) -> io::Result<()> {
    match fs::remove_file(state.join(name(uuid))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => other?,
    }
    File::open(state)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use flashfront_device::real::{Access, DeviceFile};
    use flashfront_engine::format::OriginRecord;

    use super::*;
    use crate::stale::record::{Owner, RecordFile};
    use crate::stale::{Sampled, compare_samples, record};

    const UUID: [u8; 16] = [7; 16];

    /// An origin of 4 MiB, with what the superblock says of it.
    fn origin(folder: &Path) -> (DeviceFile, OriginRecord) {
        let path = folder.join("origin");
        File::create(&path).unwrap().set_len(4 << 20).unwrap();
        let origin = DeviceFile::open(&path, Access::Exclusive).unwrap();
        let mut known = OriginRecord { size_bytes: 4 << 20, ..OriginRecord::default() };
        record(&origin, &mut known).unwrap();
        (origin, known)
    }

    fn overwrite(folder: &Path, byte: u8) {
        File::options().write(true).open(folder.join("origin")).unwrap().write_all_at(&[byte; 512], 1024).unwrap();
    }

    #[test]
    fn an_origin_that_was_never_written_is_compared() {
        let dir = tempfile::tempdir().unwrap();
        let (origin, known) = origin(dir.path());
        let folder = dir.path().join("state");
        let state = Some(folder.as_path());
        let compared = |epoch| compare_samples(state, &origin, &known, &UUID, epoch);
        assert!(matches!(compared(1), Sampled::Unknown { .. }), "no folder");
        assert!(remember_opening(state, &UUID, 1, Found::AsRecorded).unwrap());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "one file for all origins");
        assert_eq!(compared(1), Sampled::Same);
        // The next opening was cut off before the superblock was written, and came again.
        for _ in 0..2 {
            assert!(remember_opening(state, &UUID, 2, Found::AsLeft).unwrap());
            assert_eq!((compared(1), compared(2)), (Sampled::Same, Sampled::Same));
        }
        overwrite(dir.path(), 1);
        assert_eq!(compared(2), Sampled::Changed { offset: None });
        // An opening that kept its records elsewhere.
        assert!(matches!(compared(3), Sampled::Unknown { .. }));
        assert!(!remember_opening(state, &UUID, 4, Found::AsLeft).unwrap(), "one of the openings is not known");
        assert!(matches!(compared(4), Sampled::Unknown { .. }));
        assert!(!remember_opening(state, &UUID, 5, Found::Changed).unwrap());
        assert!(matches!(compared(5), Sampled::Unknown { .. }));
    }

    #[test]
    fn the_record_of_any_of_these_openings_counts_and_no_older_one() {
        let dir = tempfile::tempdir().unwrap();
        let (origin, known) = origin(dir.path());
        let folder = dir.path().join("state");
        let state = Some(folder.as_path());
        let compared = |epoch| compare_samples(state, &origin, &known, &UUID, epoch);
        // A daemon has written the origin in opening 2, and sampled it before.
        overwrite(dir.path(), 1);
        remember_opening(state, &UUID, 2, Found::AsRecorded).unwrap();
        RecordFile::create(state, known.id, Owner { uuid: UUID, epoch: 2 }, &[], 100).unwrap();
        assert_eq!(compared(2), Sampled::Same, "the record allows for anything");
        remember_opening(state, &UUID, 3, Found::AsLeft).unwrap();
        assert_eq!(compared(3), Sampled::Same, "not written since");
        // A clean stop: the superblock says all, and the record is over.
        remember_opening(state, &UUID, 4, Found::AsRecorded).unwrap();
        assert_eq!(compared(4), Sampled::Changed { offset: None });
        // Samples that can't be kept: nothing is believed any more.
        forget(&folder, &UUID).unwrap();
        assert!(matches!(compared(4), Sampled::Unknown { .. }));
    }
}
