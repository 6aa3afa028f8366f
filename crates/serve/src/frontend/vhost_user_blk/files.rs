// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks at the files that come with a message, before the message is read.
//!
//! A file of the client's choice may be on a file system of its own making (FUSE), which need never
//! answer. To poll it, to touch its mapping, to ask for its length, or to close it could take for
//! ever. The pump has one thread. So nothing is asked here that a file system would have to answer.
//! Eventfds are known by the kernel's name for them. Memory is known by its seals, which only
//! memfds and the files of tmpfs and hugetlbfs have. Any other file is closed elsewhere
//! (`closing`), and the message is never read. Test: `hostile_files_are_refused`.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use vhost::vhost_user::message::MAX_MSG_SIZE;

use super::closing::Closing;
use super::limits::HEADER_BYTES;

/// Files that the `vhost` crate takes with one message.
const FILES_MAX: usize = 32;

/// The advice for the user.
const MEMORY: &str = "give the guest its memory from a memfd, or a file of tmpfs or hugetlbfs (QEMU: memory-backend-memfd, or memory-backend-file in /dev/shm)";

/// The fault of a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("it sent {0:?}, which is neither an eventfd nor memory that always answers; {MEMORY}")]
    Strange(String),
    #[error("it sent {0:?} as kick, call or error of a queue; send an eventfd, as QEMU and libblkio do")]
    NoEventfd(String),
    #[error("it sent {0:?} as memory; {MEMORY}")]
    NoMemory(String),
    #[error("it sent more than {FILES_MAX} files with a message, or more than this daemon may open (LimitNOFILE)")]
    Many,
    #[error("it sent a message in pieces, with files before the last of them; send it as a whole")]
    Cut,
}

/// statfs(2).
const HUGETLBFS: u64 = 0x9584_58f6;
/// Looks at the files of the next message. All its `bytes`, with the header, are in the socket, and
/// stay there.
pub(super) fn look(socket: &UnixStream, bytes: usize, closing: &Closing) -> io::Result<Result<(), FileError>> {
    let mut into = [0; HEADER_BYTES + MAX_MSG_SIZE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut into[..bytes])], &mut control, flags)
    });
    let received = received.map_err(io::Error::from)?;
    let rights = control.drain().filter_map(|ancillary| match ancillary {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files: Vec<OwnedFd> = rights.flatten().collect();
    // The kernel shows the first files in the socket, and no bytes after those that came with them.
    // They may belong to a later message. So only files that are never right are looked for here.
    let strange = |file: &OwnedFd| !is_eventfd(file.as_fd()) && !is_memory(file.as_fd());
    let refused = if received.flags.contains(ReturnFlags::CTRUNC) {
        Some(FileError::Many)
    } else if received.bytes < bytes {
        Some(FileError::Cut)
    } else {
        files.iter().find(|file| strange(file)).map(|file| FileError::Strange(name(file.as_fd())))
    };
    match refused {
        // Eventfds and memory have nothing to be written back.
        None => Ok(Ok(())),
        Some(error) => {
            closing.close(files);
            Ok(Err(error))
        }
    }
}

/// A file that is to be a kick, call or error.
pub(super) fn eventfd(file: File) -> Result<File, FileError> {
    if is_eventfd(file.as_fd()) { Ok(file) } else { Err(FileError::NoEventfd(name(file.as_fd()))) }
}

/// A file that is to be memory.
pub(super) fn memory(file: File) -> Result<File, FileError> {
    if is_memory(file.as_fd()) { Ok(file) } else { Err(FileError::NoMemory(name(file.as_fd()))) }
}

/// Returns the unit of a memory's size: 1, or the bytes of a huge page.
pub(super) fn page_bytes(memory: &File) -> io::Result<u64> {
    let stat = rustix::fs::fstatfs(memory)?;
    Ok(if stat.f_type as u64 & 0xffff_ffff == HUGETLBFS { stat.f_bsize as u64 } else { 1 })
}

/// No file has this name: names of files begin with a slash.
fn is_eventfd(file: BorrowedFd<'_>) -> bool {
    name(file) == "anon_inode:[eventfd]"
}

/// fcntl(2): of other files F_GET_SEALS is an error.
fn is_memory(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok()
}

/// Returns the kernel's name for a file; needs no file system but /proc.
fn name(file: BorrowedFd<'_>) -> String {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    link.map_or_else(|error| format!("a file without a name (/proc: {error})"), |link| link.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eventfds_and_memory_are_known_from_other_files() {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let memfd = rustix::fs::memfd_create("anon_inode:[eventfd]", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let (pipe, _end) = std::io::pipe().unwrap();
        let (socket, _other) = UnixStream::pair().unwrap();
        let disk = File::open("/proc/version").unwrap();
        let seen = |file: BorrowedFd<'_>| (is_eventfd(file), is_memory(file));
        assert_eq!(seen(event.as_fd()), (true, false));
        assert_eq!(seen(memfd.as_fd()), (false, true), "whatever its name");
        assert_eq!(seen(pipe.as_fd()), (false, false));
        assert_eq!(seen(socket.as_fd()), (false, false));
        assert_eq!(seen(disk.as_fd()), (false, false));
        let said = memory(disk).unwrap_err().to_string();
        assert!(said.contains("\"/proc/version\"") && said.contains("memory-backend-memfd"), "{said}");
        assert!(eventfd(File::from(memfd)).is_err());
    }
}
