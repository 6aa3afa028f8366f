// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remembers, outside of the cache device, that it failed and could not be marked.
//!
//! A cache device that failed must not be replayed when it comes back, say after a power cycle: its log
//! holds blocks that clients have written to the origin since. The mark is in its superblock, if that can
//! still be written; else there is a file named by the cache's UUID in the state folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use flashfront_engine::format::Superblock;

use crate::state;

/// Where such files are: `$STATE_DIRECTORY` (systemd), `/var/lib/flashfront` for root, else
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
    state::write(state, &name(superblock), &format!("{blocks_dirty}\n"))
}

/// The number of dirty blocks that a remembered failure left; `None` if there is none.
pub(crate) fn recorded(state: Option<&Path>, superblock: &Superblock) -> Option<u64> {
    let text = fs::read_to_string(state?.join(name(superblock))).ok()?;
    // A file that is cut short says at least that there was a failure.
    Some(text.trim().parse().unwrap_or(superblock.dirty_blocks.max(1)))
}

/// Forgets it: the operator has decided, or the mark is in the superblock.
pub(crate) fn forget(state: Option<&Path>, superblock: &Superblock) {
    if let Some(state) = state {
        // That there is none is the usual case.
        let _ = fs::remove_file(state.join(name(superblock)));
    }
}
