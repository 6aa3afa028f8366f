// SPDX-License-Identifier: MIT OR Apache-2.0
//! A listening unix socket that is never open to others, not even for a moment.
//!
//! Linux gives a new socket file the mode of the socket itself, so `fchmod` before `bind` leaves no
//! window between creation and chmod. (unix(7) leaves it to the umask, which is the process's and
//! so not ours to change.) A socket on which no process listens was left by a daemon that was
//! killed, and is replaced. Anything else is refused and left alone.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::config::CONTROL_OF_A_SERVICE;

/// Why a socket can't be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another process listens there.
    #[error("{path}: socket in use; stop the daemon that listens there, or choose another path", path = .0.display())]
    InUse(PathBuf),
    /// Something else is there.
    #[error("{path}: exists and is not a socket; choose another path", path = .0.display())]
    NotASocket(PathBuf),
    /// The kernel allows 107 bytes.
    #[error("{path}: {len} bytes are too long for a socket's path (107 at most); choose a shorter one", path = path.display(), len = path.as_os_str().len())]
    TooLong {
        /// The socket.
        path: PathBuf,
    },
    /// The kernel refuses.
    #[error("{path}: can't make the socket: {source}{hint}", path = path.display(), hint = hint(path, source))]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn hint(path: &Path, source: &io::Error) -> &'static str {
    match source.kind() {
        // The user did not name this place.
        io::ErrorKind::PermissionDenied if path == Path::new(CONTROL_OF_A_SERVICE) => {
            "; that is root's place for the control socket, and is taken because XDG_RUNTIME_DIR is not set. Say --control PATH, here and with status, set and drain, or set XDG_RUNTIME_DIR (/run/user/UID where you are logged in)"
        }
        io::ErrorKind::NotFound => "; make its folder first",
        io::ErrorKind::PermissionDenied => "; choose a folder that this user may write to",
        _ => "",
    }
}

/// The file of a listening socket: goes away with it. Drop it after the listener.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Another program listens there from now on.
    left: bool,
}

impl SocketFile {
    /// The file of a socket that is listening already.
    pub(crate) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), left: false }
    }

    /// Leaves the file to another program, which has the socket.
    pub(crate) const fn leave(&mut self) {
        self.left = true;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        // A successor's socket may be there already, so it is removed only if no process listens.
        // (Inode numbers don't tell them apart, as they are reused at once.) If it can't be
        // removed, the next daemon does it.
        let _ = make_room(&self.path);
    }
}

/// Listens at `path` with mode 0600.
///
/// # Errors
/// [`BindError`]; then nothing was changed, but that a stale socket may be gone.
pub fn bind(path: &Path) -> Result<(UnixListener, SocketFile), BindError> {
    let fail = |source: io::Error| BindError::Io { path: path.to_owned(), source };
    let Ok(address) = SocketAddrUnix::new(path) else {
        return Err(BindError::TooLong { path: path.to_owned() });
    };
    make_room(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|errno| fail(errno.into()))?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(|errno| fail(errno.into()))?;
    rustix::net::bind(&socket, &address).map_err(|errno| match errno {
        Errno::ADDRINUSE => BindError::InUse(path.to_owned()),
        errno => fail(errno.into()),
    })?;
    let file = SocketFile::of(path);
    rustix::net::listen(&socket, 64).map_err(|errno| fail(errno.into()))?;
    Ok((UnixListener::from(socket), file))
}

/// Removes a socket on which no process listens.
fn make_room(path: &Path) -> Result<(), BindError> {
    let fail = |source: io::Error| BindError::Io { path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(fail(error)),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(BindError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match connect(path) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(fail),
        Err(Errno::NOENT) => Ok(()),
        // Connected, full queue, another type of socket, no permission: it belongs to another
        // process.
        _ => Err(BindError::InUse(path.to_owned())),
    }
}

/// Tries to connect, without waiting for a place in the queue of a daemon that accepts no client at
/// the moment.
fn connect(path: &Path) -> Result<(), Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &address)
}
