// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remembers, in the state folder, by which cache an origin was served last, and in which of its
//! openings.
//!
//! A cache that comes back after another one was made for its origin can't know that: after a crash
//! it compares no content. A copy of a cache can't know that the cache itself was served on,
//! either. The copy has the same name, and a lower epoch (test:
//! `an_older_copy_of_a_cache_is_not_believed`).
//!
//! A copy that was made while the cache was served has
//! the same epoch. So the clean end of an opening is remembered, too. A cache of this epoch that
//! was not closed is a copy from before that (test: `a_copy_of_a_served_cache_is_not_believed`).
//!
//! The number of an opening is in one file for each cache. So a start writes one file, however many
//! origins were served by that cache before.
//!
//! A record is found by the origin's serial number, or else by its path too. So no origin is taken
//! for another: here that would be a false alarm at each start of two caches (see `change` for the
//! opposite). An origin that has grown is the same origin.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flashfront_device::real::DeviceFile;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::change::now;
use super::{ChangeError, identity};
use crate::state;

/// The cache that an origin was served by last.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Served {
    /// The path by which the origin was opened then; for people.
    pub(crate) origin: String,
    /// The cache's UUID.
    pub(crate) cache: String,
    /// The number of the cache's last opening; 0 if it was not written down.
    #[serde(default)]
    pub(crate) epoch: u64,
    /// When it began; for people.
    #[serde(default)]
    pub(crate) at: String,
    /// Whether that opening ended by a clean stop.
    #[serde(skip)]
    pub(crate) ended: bool,
}

/// The last opening of a cache.
#[derive(Debug, Serialize, Deserialize)]
struct Opening {
    epoch: u64,
    at: String,
    /// Whether this opening ended by a clean stop.
    #[serde(default)]
    ended: bool,
}

/// The cache that an origin was served by last; `None` if nothing is known of that.
///
/// # Errors
/// When it is remembered, and can't be read.
pub(crate) fn served_by(state: Option<&Path>, origin: &DeviceFile) -> Result<Option<Served>, ChangeError> {
    // Whoever serves a snapshot changes nothing, so other caches of it stay right.
    let Some(state) = state.filter(|_| !origin.is_snapshot()) else { return Ok(None) };
    let fail = |path: PathBuf| move |source| ChangeError { path, source };
    let path = state.join(name(origin).map_err(fail(origin.path().to_owned()))?);
    let Some(mut served) = read::<Served>(&path).map_err(fail(path.clone()))? else { return Ok(None) };
    let path = state.join(name_of_opening(&served.cache));
    let opening = read::<Opening>(&path).map_err(fail(path.clone()))?;
    if let Some(Opening { epoch, at, ended }) = opening.filter(|opening| opening.epoch >= served.epoch) {
        (served.epoch, served.at, served.ended) = (epoch, at, ended);
    }
    Ok(Some(served))
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => Ok(Some(serde_json::from_str(&other?)?)),
    }
}

/// Remembers it durably of all these origins, and that the cache was opened.
///
/// # Errors
/// Without a state folder, or when it can't be written.
pub(crate) fn remember_served(
    state: Option<&Path>,
    origins: &[Arc<DeviceFile>],
    cache: &str,
    epoch: u64,
) -> io::Result<()> {
    let opening = Opening { epoch, at: now(), ended: false };
    let mut records = vec![(name_of_opening(cache), serde_json::to_string(&opening)?)];
    for origin in origins {
        let (name, path) = (name(origin)?, origin.whole_path()?);
        // A record that can't be read is written anew.
        let known = state.and_then(|state| read::<Served>(&state.join(&name)).ok()?);
        if known.is_some_and(|known| known.cache == cache && known.origin == path) {
            continue;
        }
        let served = Served { origin: path, cache: cache.to_owned(), epoch, at: opening.at.clone(), ended: false };
        records.push((name, serde_json::to_string(&served)?));
    }
    state::write_all(state, &records)
}

/// Remembers durably that this opening of the cache ended by a clean stop.
///
/// # Errors
/// Without a state folder, or when it can't be read or written.
pub(crate) fn remember_ended(state: Option<&Path>, cache: &str, epoch: u64) -> io::Result<()> {
    let name = name_of_opening(cache);
    let known = state.and_then(|state| read::<Opening>(&state.join(&name)).transpose()).transpose()?;
    // Nobody relies on an opening that was not written down.
    let Some(opening) = known.filter(|opening| opening.epoch == epoch) else { return Ok(()) };
    state::write_all(state, &[(name, serde_json::to_string(&Opening { ended: true, ..opening })?)])
}

fn name_of_opening(cache: &str) -> String {
    format!("{cache}.epoch")
}

fn name(origin: &DeviceFile) -> io::Result<String> {
    let identity = identity(origin)?;
    // The inode of a file is one of its file system's only.
    let path = match origin.identity().serial {
        Some(_) => String::new(),
        None => origin.whole_path()?,
    };
    let key = format!("{identity}\0{path}");
    Ok(format!("{:016x}.served", crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, key.as_bytes())))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    use flashfront_device::real::Access;

    use super::*;

    #[test]
    fn the_last_cache_is_known_for_each_origin() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let origin = |name: &str| {
            let path = dir.path().join(name);
            File::create(&path).unwrap().set_len(4096).unwrap();
            Arc::new(DeviceFile::open(&path, Access::Exclusive).unwrap())
        };
        let (one, other) = (origin("one"), origin("other"));
        let (state, by) =
            (Some(state.as_path()), |it| served_by(Some(&dir.path().join("state")), it).unwrap().map(|it| it.cache));
        assert_eq!(by(&one), None, "no folder, no record");
        for cache in ["a", "b"] {
            remember_served(state, std::slice::from_ref(&one), cache, 1).unwrap();
            assert_eq!((by(&one).as_deref(), by(&other)), (Some(cache), None));
        }
        assert_eq!(served_by(None, &one).unwrap(), None);
        // The next openings of that cache leave the records of its origins as they are.
        let both = [Arc::clone(&one), Arc::clone(&other)];
        remember_served(state, &both, "b", 2).unwrap();
        let record = state.unwrap().join(name(&one).unwrap());
        let before = fs::metadata(&record).unwrap().ino();
        remember_served(state, &both, "b", 3).unwrap();
        assert_eq!(fs::metadata(&record).unwrap().ino(), before);
        let epoch = |it| served_by(state, it).unwrap().map(|it| it.epoch);
        assert_eq!((epoch(&one), epoch(&other)), (Some(3), Some(3)));
        // The clean end of an opening is known until the next one.
        let ended = |it| served_by(state, it).unwrap().map(|it| it.ended);
        remember_ended(state, "b", 2).unwrap();
        assert_eq!(ended(&one), Some(false), "it is another opening");
        remember_ended(state, "b", 3).unwrap();
        assert_eq!((ended(&one), ended(&other)), (Some(true), Some(true)));
        remember_served(state, &both, "b", 4).unwrap();
        assert_eq!((ended(&one), epoch(&one)), (Some(false), Some(4)));
        // Another cache takes one of them.
        remember_served(state, std::slice::from_ref(&one), "a", 2).unwrap();
        remember_served(state, std::slice::from_ref(&other), "b", 5).unwrap();
        assert_eq!((by(&one).as_deref(), epoch(&one), epoch(&other)), (Some("a"), Some(2), Some(5)));
        assert!(remember_served(None, std::slice::from_ref(&one), "a", 1).unwrap_err().to_string().contains("--state"));
        fs::write(state.unwrap().join(name(&one).unwrap()), "{").unwrap();
        assert!(served_by(state, &one).unwrap_err().to_string().contains("Remove the file"));
    }
}
