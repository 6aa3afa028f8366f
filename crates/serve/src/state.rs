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

/// Writes files whole and durably. A power cut meanwhile may leave some of them as they were.
///
/// The file system is asked once for all of them, since to make each durable by itself takes
/// milliseconds.
///
/// # Errors
/// Without a state folder, or when it can't be written.
pub(crate) fn write_all(state: Option<&Path>, files: &[(String, String)]) -> io::Result<()> {
    if let [(name, content)] = files {
        return write(state, name, content).map(drop);
    }
    let state = state.ok_or_else(none)?;
    make_folder(state)?;
    let fresh = |name: &str| state.join(format!("{name}.new"));
    for (name, content) in files {
        fs::write(fresh(name), content)?;
    }
    let folder = File::open(state)?;
    rustix::fs::syncfs(&folder)?;
    for (name, _) in files {
        fs::rename(fresh(name), state.join(name))?;
    }
    folder.sync_all()
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
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
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
        let several = [("y".to_owned(), "1".to_owned()), ("x".to_owned(), "2".to_owned())];
        write_all(Some(&state), &several).unwrap();
        let read = |name: &str| fs::read_to_string(state.join(name)).unwrap();
        assert_eq!((read("y"), read("x")), ("1".to_owned(), "2".to_owned()));
        assert_eq!(fs::read_dir(&state).unwrap().count(), 2, "nothing else is left");
        assert!(write_all(None, &several).is_err());
        assert!(write(None, "x", "").unwrap_err().to_string().contains("--state"));
        // A file where the folder should be.
        assert!(write(Some(&state.join("x")), "y", "").is_err());
    }
}
