// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remembers, outside of the cache device, that it failed and could not be marked.
//!
//! A cache device that failed must not be replayed when it comes back, say after a power cycle. Its
//! log holds blocks that clients have written to the origin since. The mark is in its superblock,
//! if that can still be written. Else there is a file in the state folder, named by the cache's
//! UUID.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use flashfront_engine::format::Superblock;

use crate::state;

/// The folder of such files: `$STATE_DIRECTORY` (systemd), `/var/lib/flashfront` for root, else
/// `$XDG_STATE_HOME/flashfront` or `~/.local/state/flashfront`.
#[must_use]
pub fn state_path() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(given) = variable("STATE_DIRECTORY") {
        return Some(given);
    }
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/flashfront"));
    }
    let base = variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    base.map(|base| base.join("flashfront"))
}

fn name(superblock: &Superblock) -> String {
    let uuid: String = superblock.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{uuid}.failed")
}

/// Remembers it durably, with the number of dirty blocks that the cache held then.
///
/// # Errors
/// Without a state folder, or when it can't be written.
pub(crate) fn record(state: Option<&Path>, superblock: &Superblock, blocks_dirty: u64) -> io::Result<PathBuf> {
    state::write(state, &name(superblock), format!("{blocks_dirty}\n"))
}

/// Whether the cache device failed can't be told.
#[derive(Debug, thiserror::Error)]
#[error("{path}: can't read whether the cache device failed in an earlier run ({source}), and a failed cache must not be replayed. {advice}", path = path.display(), advice = advice(source))]
pub struct FailureReadError {
    /// The file in the state folder.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotADirectory => "The state folder must be a folder: name it with --state DIR",
        io::ErrorKind::InvalidData => {
            "Write the number of dirty blocks that it held then into it, 1 if nobody knows; or remove it, if you know that the device did not fail since it was last served"
        }
        _ => {
            "Make it readable for this user; or remove it, if you know that the device did not fail since it was last served"
        }
    }
}

/// The number of dirty blocks that a remembered failure left; `None` if there is none.
///
/// # Errors
/// When a record may be there and can't be read: that is no word that there is none.
pub(crate) fn recorded(state: Option<&Path>, superblock: &Superblock) -> Result<Option<u64>, FailureReadError> {
    let Some(state) = state else { return Ok(None) };
    let path = state.join(name(superblock));
    let room = u64::from(superblock.lanes) * u64::from(superblock.slots());
    let dirty = |text: &str| text.trim().parse().ok().filter(|dirty| *dirty <= room);
    let no_number = || io::Error::new(io::ErrorKind::InvalidData, "it holds no number of blocks of this cache");
    match fs::read_to_string(&path).and_then(|text| dirty(&text).ok_or_else(no_number)) {
        Ok(dirty) => Ok(Some(dirty)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(FailureReadError { path, source }),
    }
}

/// Marks a superblock that could not be marked on the device: what is done with the cache offline
/// depends on it as well.
///
/// # Errors
/// As of [`recorded`].
pub(crate) fn mark(state: Option<&Path>, superblock: &mut Superblock) -> Result<(), FailureReadError> {
    // Also if it is marked: the record is of the end of that run, the mark may be of its failure,
    // before more was destaged.
    if let Some(dirty) = recorded(state, superblock)? {
        (superblock.clean, superblock.failed, superblock.dirty_blocks) = (false, true, dirty);
    }
    Ok(())
}

/// Forgets it: the operator has decided, or the mark is in the superblock.
pub(crate) fn forget(state: Option<&Path>, superblock: &Superblock) {
    let Some(state) = state else { return };
    let path = state.join(name(superblock));
    let removed = match fs::remove_file(&path) {
        // The usual case.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        other => other.and_then(|()| File::open(state)?.sync_all()),
    };
    if let Err(error) = removed {
        tracing::warn!(
            "{}: can't be removed durably ({error}); as long as it is there, the cache counts as failed",
            path.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_place_of_the_state_folder_is_not_to_be_removed() {
        let said = |kind: io::ErrorKind| FailureReadError { path: "/c.img/x".into(), source: kind.into() }.to_string();
        let file = said(io::ErrorKind::NotADirectory);
        assert!(file.contains("--state DIR") && !file.contains("remove"), "{file}");
        assert!(said(io::ErrorKind::PermissionDenied).contains("Make it readable"));
    }
}
