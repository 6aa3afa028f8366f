// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders that acts make in their targets: marked as ours, and gone when the suite is over.
//!
//! A folder without the mark is never removed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::BenchError;

/// The file that says that a folder is ours.
const MARK: &str = "made-by-flashfront-bench";

/// The folders of a suite.
#[derive(Debug, Default)]
pub(crate) struct Folders(Mutex<BTreeSet<PathBuf>>);

impl Folders {
    /// Makes a folder, in place of a folder that an earlier bench left there.
    pub(crate) fn make(&self, folder: &Path) -> Result<(), BenchError> {
        self.remove(folder)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned());
        let made = fs::create_dir(folder).and_then(|()| fs::write(folder.join(MARK), ""));
        made.map_err(|error| failed(folder, &error))
    }

    /// Removes a folder if it is one of ours; it may be gone already.
    pub(crate) fn remove(&self, folder: &Path) -> Result<(), BenchError> {
        match fs::symlink_metadata(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found.map_err(|error| failed(folder, &error))?,
        };
        if !folder.join(MARK).is_file() {
            return Err(BenchError::Failed(format!(
                "{}: there is a folder that was not made by flashfront bench; move it away",
                folder.display()
            )));
        }
        fs::remove_dir_all(folder).map_err(|error| failed(folder, &error))?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(folder);
        Ok(())
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        let left = std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        for folder in left {
            // The next bench tries again.
            let _ = self.remove(&folder);
        }
    }
}

fn failed(folder: &Path, error: &io::Error) -> BenchError {
    BenchError::Failed(format!("{}: {error}", folder.display()))
}
