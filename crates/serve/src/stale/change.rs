// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remembers, in the state folder, that an origin was changed behind the backs of its caches.
//!
//! The stale guard sees samples, and after a crash not even these. An origin that is served without
//! its cache changes for certain. Another change may be seen by a start that is about to drop clean
//! data. Both are written down first. The record stays in force for each cache until this cache has
//! durably dropped what it held.
//!
//! A record that may be about an origin is taken to be: an origin without a serial number could be
//! any of its size. That costs a cache its clean data once; the other way old data would be served.
//! `served` is the exception: data that another cache has served.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flashfront_device::real::DeviceFile;
use flashfront_engine::format::OriginRecord;
use serde::{Deserialize, Serialize};

use super::{identity, may_be_same};
use crate::state;

const EXTENSION: &str = "changed";

/// How an origin was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The origin was served without its cache.
    ServedWithoutCache,
    /// A start saw it, and was to drop clean data.
    Seen,
    /// The origin was served with another cache.
    ServedWithAnotherCache,
}

/// An origin that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The path by which the origin was opened then; for messages.
    pub origin: String,
    /// The identity of the origin then; empty if it has none.
    pub identity: String,
    /// The size of the origin.
    pub size_bytes: u64,
    /// How it was changed.
    pub how: How,
    /// When, to the nanosecond; tells one change from the next.
    pub at: String,
    /// The caches that have dropped what they held before it.
    pub settled: Vec<String>,
    /// The file that it was read from.
    #[serde(skip)]
    file: PathBuf,
}

/// A record that can't be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: can't read what is remembered of an origin that was changed behind its cache's back: {source}. Remove the file if no cache of that origin is left, or if the origin is known to be unchanged", path = path.display())]
pub struct ChangeError {
    /// The file, or the state folder.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl Change {
    /// Whether this may be about an origin with one of these identities, at this path if that is
    /// known.
    fn is_about(&self, size_bytes: u64, identities: [&str; 2], path: Option<&str>) -> bool {
        let may_be = |identity: &str| match self.how {
            // Each new cache leaves one of these, so two origins that look alike must not make each
            // other's caches old.
            How::ServedWithAnotherCache if self.identity.is_empty() => path.is_none_or(|path| path == self.origin),
            How::ServedWithAnotherCache => may_be_same(identity, &self.identity),
            _ => identity.is_empty() || self.identity.is_empty() || may_be_same(identity, &self.identity),
        };
        // An origin may have grown since. Without a serial number its size, or its place, must
        // speak for it.
        let is_numbered = !self.identity.is_empty() && !self.identity.starts_with("inode ");
        let is_known = |identity: &str| is_numbered && may_be_same(identity, &self.identity);
        let is_alike = self.size_bytes == size_bytes || path.is_none_or(|path| path == self.origin);
        identities.into_iter().any(|identity| may_be(identity) && (is_alike || is_known(identity)))
    }
}

/// The time of a record.
pub(super) fn now() -> String {
    humantime::format_rfc3339_nanos(SystemTime::now()).to_string()
}

/// Writes durably that an origin is changed from now on, for all caches but those in `settled`.
///
/// # Errors
/// Without a state folder, or when it can't be written.
pub(crate) fn remember(
    state: Option<&Path>,
    origin: &DeviceFile,
    how: How,
    settled: Vec<String>,
) -> io::Result<Change> {
    let path = origin.whole_path()?;
    let (identity, size_bytes) = (identity(origin)?, origin.geometry().size_bytes);
    // A record that counts only without doubt must not replace a record that counts in doubt, too.
    let certain = if how == How::ServedWithAnotherCache { "\0another" } else { "" };
    let key = format!("{identity}\0{size_bytes}\0{path}{certain}");
    let name = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, key.as_bytes());
    let change = Change { origin: path, identity, size_bytes, how, at: now(), settled, file: PathBuf::new() };
    let _lock = state::lock(state)?;
    let file = state::write(state, &format!("{name:016x}.{EXTENSION}"), serde_json::to_string(&change)?)?;
    Ok(Change { file, ..change })
}

/// The changes of an origin that this cache knows nothing of. `now`: the origin's identity; the one
/// in its record may be another, since a copy has another inode. `path`: where it is, without
/// links.
pub(crate) fn remembered(
    state: Option<&Path>,
    now: &str,
    path: Option<&str>,
    record: &OriginRecord,
    cache: &str,
) -> Result<Vec<Change>, ChangeError> {
    Ok(about(&all_remembered(state)?, now, path, record, cache))
}

/// Finds the `changes` that are about an origin, and that this cache knows nothing of.
pub(crate) fn about(
    changes: &[Change],
    now: &str,
    path: Option<&str>,
    record: &OriginRecord,
    cache: &str,
) -> Vec<Change> {
    let settled = |change: &Change| change.settled.iter().any(|it| it == cache);
    let counts = |it: &&Change| !settled(it) && it.is_about(record.size_bytes, [now, &record.identity], path);
    changes.iter().filter(counts).cloned().collect()
}

/// All changes that are remembered.
pub(crate) fn all_remembered(state: Option<&Path>) -> Result<Vec<Change>, ChangeError> {
    let Some(state) = state else { return Ok(Vec::new()) };
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |source| ChangeError { path, source }
    };
    let entries = match fs::read_dir(state) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(fail(state))?,
    };
    let mut changes = Vec::new();
    for entry in entries {
        let file = entry.map_err(fail(state))?.path();
        if file.extension().is_none_or(|it| it != EXTENSION) {
            continue;
        }
        changes.push(read(&file).map_err(fail(&file))?);
    }
    Ok(changes)
}

/// Writes down that this cache holds nothing from before the change any more.
///
/// # Errors
/// When it can't be written: then it is dropped once more at the next start.
pub(crate) fn settle(state: Option<&Path>, change: &Change, cache: &str) -> io::Result<()> {
    let _lock = state::lock(state)?;
    let mut now = read(&change.file)?;
    // Changed once more meanwhile, through another path to it: that is not settled.
    if now.at == change.at {
        now.settled.push(cache.to_owned());
        let name = change.file.file_name().unwrap_or_default().to_string_lossy();
        state::write(state, &name, serde_json::to_string(&now)?)?;
    }
    Ok(())
}

fn read(file: &Path) -> io::Result<Change> {
    let change: Change = serde_json::from_str(&fs::read_to_string(file)?)?;
    Ok(Change { file: file.to_owned(), ..change })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use flashfront_device::real::Access;
    use flashfront_engine::{Mode, OriginId};

    use super::*;

    fn record(identity: &str, size_bytes: u64) -> OriginRecord {
        let (id, mode, name) = (OriginId(0), Mode::Writeback, "data".to_owned());
        OriginRecord { id, mode, size_bytes, name, identity: identity.to_owned(), ..OriginRecord::default() }
    }

    fn change(identity: &str) -> Change {
        Change {
            origin: "/dev/x".to_owned(),
            identity: identity.to_owned(),
            size_bytes: 4096,
            how: How::ServedWithoutCache,
            at: String::new(),
            settled: Vec::new(),
            file: PathBuf::new(),
        }
    }

    #[test]
    fn doubt_is_taken_for_the_same_origin() {
        for (then, now, recorded, same) in [
            ("a", "a", "a", true),
            // A copy, of the one or of the other.
            ("a", "b", "a", true),
            ("b", "b", "a", true),
            // An origin without a serial number could be any.
            ("", "b", "b", true),
            ("a", "", "b", true),
            ("a", "b", "", true),
            ("a", "b", "b", false),
        ] {
            assert_eq!(change(then).is_about(4096, [now, recorded], None), same, "{then} {now} {recorded}");
        }
        assert!(change("a").is_about(8192, ["a", "a"], Some("/dev/y")), "it has grown");
        assert!(change("").is_about(8192, ["", ""], Some("/dev/x")), "at its place it has grown");
        assert!(!change("").is_about(8192, ["", ""], Some("/dev/y")));
    }

    #[test]
    fn another_cache_is_no_reason_for_doubt() {
        let change = |identity| Change { how: How::ServedWithAnotherCache, ..change(identity) };
        for (then, now, recorded, path, same) in [
            ("a", "a", "a", "/dev/y", true),
            ("a", "b", "a", "/dev/y", true),
            ("a", "", "", "/dev/x", false),
            ("", "", "", "/dev/x", true),
            ("", "", "", "/dev/y", false),
        ] {
            assert_eq!(
                change(then).is_about(4096, [now, recorded], Some(path)),
                same,
                "{then} {now} {recorded} {path}"
            );
        }
        assert!(change("").is_about(4096, ["", ""], None));
        assert!(change("a").is_about(8192, ["a", "a"], Some("/dev/y")), "it has grown");
    }

    /// A cache that has not heard of the first one yet must still hear of it, also if the origin
    /// has no number now.
    #[test]
    fn a_certain_record_does_not_replace_one_that_counts_in_doubt() {
        let dir = tempfile::tempdir().unwrap();
        let (path, state) = (dir.path().join("origin"), dir.path().join("state"));
        File::create(&path).unwrap().set_len(4096).unwrap();
        let origin = DeviceFile::open(&path, Access::Exclusive).unwrap();
        let state = Some(state.as_path());
        remember(state, &origin, How::ServedWithoutCache, Vec::new()).unwrap();
        remember(state, &origin, How::ServedWithAnotherCache, vec!["other".to_owned()]).unwrap();
        let known = remembered(state, "", Some("/dev/renamed"), &record("", 4096), "one").unwrap();
        assert_eq!(known.iter().map(|it| it.how).collect::<Vec<_>>(), [How::ServedWithoutCache]);
    }

    #[test]
    fn each_cache_settles_for_itself_and_for_that_change_only() {
        let dir = tempfile::tempdir().unwrap();
        let (path, state) = (dir.path().join("origin"), dir.path().join("state"));
        File::create(&path).unwrap().set_len(4096).unwrap();
        let origin = DeviceFile::open(&path, Access::Exclusive).unwrap();
        let state = Some(state.as_path());
        let now = identity(&origin).unwrap();
        let known = |cache: &str| remembered(state, &now, None, &record(&now, 4096), cache).unwrap();
        assert!(known("one").is_empty(), "no folder, no change");
        let first = remember(state, &origin, How::ServedWithoutCache, Vec::new()).unwrap();
        assert_eq!(known("one"), std::slice::from_ref(&first));
        settle(state, &first, "one").unwrap();
        assert_eq!((known("one").len(), known("other").len()), (0, 1));
        // Once more, while the other is being opened.
        let second = remember(state, &origin, How::ServedWithoutCache, Vec::new()).unwrap();
        settle(state, &first, "other").unwrap();
        assert_eq!((known("one"), known("other")), (vec![second.clone()], vec![second.clone()]));
        assert!(remembered(None, &now, None, &record(&now, 4096), "one").unwrap().is_empty());
        fs::write(&second.file, "{").unwrap();
        let error = remembered(state, &now, None, &record(&now, 4096), "one").unwrap_err().to_string();
        assert!(error.contains("Remove the file"), "{error}");
    }
}
