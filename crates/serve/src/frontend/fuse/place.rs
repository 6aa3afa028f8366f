// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder that is mounted over: whether it may be, and clearing it after a crash.
//!
//! A killed daemon leaves its mount behind, and every access to it fails with ENOTCONN. Only such a
//! mount is cleared, and only if it is ours by its source. Anything else that is in the way is left
//! alone.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::SOURCE;
use super::session::Session;
use crate::mounts::unescape;

/// How long a live mount of ours may still be there: a killed daemon's ends a moment after the
/// daemon.
const LEAVING_WAIT: Duration = Duration::from_secs(2);
const LEAVING_STEP: Duration = Duration::from_millis(10);

/// Why a folder can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// The folder can't be looked at.
    #[error("{folder}: {error}; give --fuse an empty folder that is there", folder = folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The place is a file, or has files.
    #[error("{folder}: {what}; give --fuse an empty folder, since what is in it could not be reached", folder = folder.display())]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
        /// The kind of thing that it is.
        what: &'static str,
    },
    /// Another daemon's.
    #[error("{folder}: a flashfront serves there; stop it, or choose another folder", folder = .0.display())]
    InUse(PathBuf),
    /// A dead mount of another program.
    #[error("{folder}: mounted by {source_name}, which is gone; `umount {folder}` first", folder = folder.display())]
    Dead {
        /// The folder.
        folder: PathBuf,
        /// The source, by its name in the table of mounts.
        source_name: String,
    },
    /// The kernel refuses.
    #[error(
        "{folder}: can't mount: {error}; FUSE needs /dev/fuse (modprobe fuse), and without root the program fusermount3",
        folder = folder.display()
    )]
    Mount {
        /// The folder.
        folder: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another program's mount can't be gone on with.
    #[error("{folder}: can't go on with the mount of the daemon before this one: {error}", folder = folder.display())]
    TakeOver {
        /// The folder.
        folder: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A leftover can't be cleared.
    #[error("{folder}: the mount that a killed flashfront left can't be cleared: {error}; `umount --lazy {folder}` as its owner", folder = folder.display())]
    Stale {
        /// The folder.
        folder: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Makes sure that the folder may be mounted over; its whole path.
pub(super) fn prepare(folder: &Path) -> Result<PathBuf, PlaceError> {
    let failed = |error: io::Error| PlaceError::Folder { folder: folder.to_owned(), error };
    let whole = whole_path(folder).map_err(failed)?;
    let end = Instant::now() + LEAVING_WAIT;
    loop {
        let mounted = mounted_at(&whole).map_err(failed)?;
        let ours = mounted.as_deref() == Some(SOURCE);
        // Reading it and not only looking at it: the kernel remembers how a dead one looked.
        match fs::read_dir(&whole) {
            Err(error) if is_dead(&error) => {
                if !ours {
                    let source_name = mounted.unwrap_or_else(|| "a program".to_owned());
                    return Err(PlaceError::Dead { folder: whole, source_name });
                }
                detach(&whole).map_err(|error| PlaceError::Stale { folder: whole.clone(), error })?;
                tracing::info!("{}: cleared the mount that a killed daemon left", whole.display());
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(PlaceError::NotEmpty { folder: whole, what: "no folder" });
            }
            Err(error) => return Err(failed(error)),
            Ok(_) if ours && Instant::now() < end => std::thread::sleep(LEAVING_STEP),
            Ok(_) if ours => return Err(PlaceError::InUse(whole)),
            Ok(mut entries) => {
                let what = "not empty";
                return if entries.next().is_none() {
                    Ok(whole)
                } else {
                    Err(PlaceError::NotEmpty { folder: whole, what })
                };
            }
        }
    }
}

/// Ends a session of ours.
pub(super) fn take_away(folder: &Path, session: Session) -> io::Result<()> {
    // By force: queued requests fail instead of waiting for a dead daemon. Lazily: an open file is
    // no reason to leave a dead folder behind. Only a folder that still is ours: another mount may
    // lie over it.
    if mounted_at(folder)?.as_deref() != Some(SOURCE) {
        // Dropped, it would unmount what is there.
        session.leave();
        return Ok(());
    }
    match unmount(folder, UnmountFlags::FORCE | UnmountFlags::DETACH) {
        // Not root: fuser asks fusermount3 for a mount of its own.
        Err(Errno::PERM) => {
            drop(session);
            if mounted_at(folder)?.as_deref() == Some(SOURCE) { detach(folder) } else { Ok(()) }
        }
        other => Ok(other?),
    }
}

/// Takes a dead mount away.
fn detach(folder: &Path) -> io::Result<()> {
    match unmount(folder, UnmountFlags::DETACH) {
        Err(Errno::PERM) => {}
        other => return Ok(other?),
    }
    let mut fusermount = Command::new("fusermount3");
    fusermount.args(["-u", "-z", "--"]).arg(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if fusermount.status()?.success() { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Whether this is the error of a FUSE mount whose program is gone.
fn is_dead(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Resolves links, as the table of mounts does. The folder itself may be dead, so its parent is
/// asked.
pub(super) fn whole_path(folder: &Path) -> io::Result<PathBuf> {
    match folder.canonicalize() {
        Err(error) if is_dead(&error) => {
            let absolute = std::path::absolute(folder)?;
            match (absolute.parent(), absolute.file_name()) {
                (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
                _ => Err(error),
            }
        }
        other => other,
    }
}

/// The source of the FUSE mount at this very path, if one is (the topmost).
fn mounted_at(folder: &Path) -> io::Result<Option<String>> {
    Ok(topmost(&String::from_utf8_lossy(&fs::read("/proc/self/mountinfo")?), folder))
}

/// proc_pid_mountinfo(5): ID parent device root PLACE options [tags] - TYPE SOURCE options; blanks
/// in octal.
fn topmost(table: &str, folder: &Path) -> Option<String> {
    let here = |line: &&str| line.split(' ').nth(4).is_some_and(|at| unescape(at) == folder.as_os_str().as_bytes());
    let line = table.lines().rfind(here)?;
    let (_, rest) = line.split_once(" - ")?;
    let mut words = rest.split(' ');
    let (kind, source) = (words.next()?, words.next()?);
    (kind == "fuse" || kind.starts_with("fuse.")).then(|| source.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_counts() {
        let table = "36 35 0:31 / /srv/two\\040words rw - fuse.sshfs host: rw\n\
                     37 35 0:32 / /srv/plain rw - ext4 /dev/sda1 rw\n\
                     38 36 0:33 / /srv/two\\040words rw shared:1 - fuse flashfront rw,user_id=0\n\
                     39 35 0:34 / /srv/two\\040wordsandmore rw - fuse.x other rw\n";
        assert_eq!(topmost(table, Path::new("/srv/two words")).as_deref(), Some("flashfront"));
        assert_eq!(topmost(table, Path::new("/srv/plain")), None);
        assert_eq!(topmost(table, Path::new("/srv")), None);
    }

    #[test]
    fn what_is_in_the_way_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let said = |path: &Path| prepare(path).unwrap_err().to_string();
        assert!(said(&dir.path().join("absent")).contains("that is there"));
        let file = dir.path().join("file");
        fs::write(&file, b"kept").unwrap();
        assert!(said(&file).contains("no folder"));
        assert!(said(dir.path()).contains("not empty"));
        fs::remove_file(&file).unwrap();
        assert_eq!(prepare(dir.path()).unwrap(), dir.path().canonicalize().unwrap());
    }
}
