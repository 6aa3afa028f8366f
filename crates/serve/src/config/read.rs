// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the configuration file, which is text of a bounded length. (A pipe does as well.)

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flashfront_units::Size;

/// The longest configuration file: a thousand times that of a daemon with many volumes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Why a configuration file is no text.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file can't be read.
    #[error("the configuration file {path} can't be read: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A folder is no file.
    #[error("the configuration file {path} is a folder; name the file in it", path = .0.display())]
    Folder(PathBuf),
    /// The file is longer than any configuration.
    #[error("the configuration file {path} has more than {most}; that is no configuration", path = .0.display(), most = Size(FILE_BYTES_MAX))]
    TooLong(PathBuf),
    /// The file has bytes that are no text.
    #[error("the configuration file {path} is no text in UTF-8: see line {line}", path = path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The first line that is no text.
        line: usize,
    },
}

impl FileError {
    /// Whether the file may be another one later: it may be on a mount that is still to come.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Read { .. })
    }
}

/// Reads the file as text.
pub(super) fn text(path: &Path) -> Result<String, FileError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|source| match source.kind() {
        ErrorKind::IsADirectory => FileError::Folder(path.to_owned()),
        _ => FileError::Read { path: path.to_owned(), source },
    })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(FileError::TooLong(path.to_owned()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        FileError::NotText { path: path.to_owned(), line }
    })
}
