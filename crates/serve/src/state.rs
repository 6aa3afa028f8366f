// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state folder: small files about devices that can't carry a mark themselves.
//!
//! What is written here is whole and durable when the call returns, or not there at all.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Writes a file whole, or not at all.
///
/// # Errors
/// Without a state folder, or when it can't be written.
pub(crate) fn write(state: Option<&Path>, name: &str, content: impl AsRef<[u8]>) -> io::Result<PathBuf> {
    let state = state.ok_or_else(none)?;
    make_folder(state)?;
    let (path, fresh) = (state.join(name), state.join(format!("{name}.new")));
    let mut file = File::create(&fresh)?;
    file.write_all(content.as_ref())?;
    file.sync_all()?;
    fs::rename(&fresh, &path)?;
    File::open(state)?.sync_all()?;
    Ok(path)
}

/// Keeps other processes from changing what is read and then written, until it is dropped.
///
/// # Errors
/// Without a state folder, or when it can't be locked.
pub(crate) fn lock(state: Option<&Path>) -> io::Result<File> {
    let state = state.ok_or_else(none)?;
    make_folder(state)?;
    let folder = File::open(state)?;
    folder.lock()?;
    Ok(folder)
}

fn none() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "there is no state folder; give --state DIR, or set HOME")
}

/// Creates folders as `create_dir_all` does, durably.
fn make_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_folder(parent)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_folders_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/b");
        for text in ["one", "two"] {
            let path = write(Some(&state), "x", text).unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "nothing else is left");
        drop(lock(Some(&state)).unwrap());
        assert!(write(None, "x", "").unwrap_err().to_string().contains("--state"));
        // A file where the folder should be.
        assert!(write(Some(&state.join("x")), "y", "").is_err());
    }
}
