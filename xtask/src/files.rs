// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text files of the repository.
//!
//! Every file that git knows or would add is one of them.

use std::path::Path;
use std::process::Command;

use crate::run::{Failed, root, stdout_of};

/// A file of the repository: its path from the root, and its text.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    #[cfg(test)]
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }
}

/// Reads all text files that are in git or would be added to it.
pub(crate) fn files() -> Result<Vec<File>, Failed> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let list = stdout_of(Command::new("git").args(list).current_dir(root()))?;
    let mut files: Vec<File> = list
        .lines()
        .filter(|path| !path.ends_with("Cargo.lock") && Path::new(path).is_relative())
        // Deleted but not yet so in git, or not text: nothing to say about it.
        .filter_map(|path| Some(File { path: path.into(), text: std::fs::read_to_string(root().join(path)).ok()? }))
        .collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
