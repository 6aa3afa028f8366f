// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket between a daemon and its successor: lines of JSON, and descriptors.
//!
//! Lines are read byte by byte, as descriptors come with the bytes behind them. They are few.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};

use super::offer::Offer;

/// The longest line.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Descriptors that go with one byte. The kernel takes 253.
const BATCH: usize = 64;

/// What the daemon says to its successor.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum Order {
    /// What the daemon is, to be judged.
    Offer { offer: Box<Offer> },
    /// Everything follows: so many descriptors, the state's own among them.
    Take { descriptors: usize },
    /// Serve the clients. From here on the daemon never takes them back.
    Go,
}

/// What the successor says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(crate) enum News {
    /// The new program waits for the state.
    Waits { version: String },
    /// The cache is open, and no client was touched yet.
    Opened,
    /// The new program serves, and clients waited for so long.
    Serves { paused_ms: u64 },
    /// The new program can't go on; nothing was touched.
    Fails { why: String },
    /// Another program has taken the place of this one. Only a front hears that.
    Succeeded { pid: i32 },
}

/// An end of the socket.
#[derive(Debug)]
pub(crate) struct Channel(UnixStream);

impl Channel {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self(stream)
    }

    /// Hears nothing that is not there already.
    pub(crate) fn hear_at_once<T: for<'de> Deserialize<'de>>(&mut self) -> io::Result<T> {
        self.0.set_nonblocking(true)?;
        let heard = self.hear();
        self.0.set_nonblocking(false)?;
        heard
    }

    /// Waits no longer than this for anything that comes.
    pub(super) fn patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(patience)
    }

    pub(crate) fn say<T: Serialize>(&mut self, what: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        self.0.write_all(&line)
    }

    /// Hears a line; `UnexpectedEof` if the other end has gone.
    pub(super) fn hear<T: for<'de> Deserialize<'de>>(&mut self) -> io::Result<T> {
        let mut line = Vec::new();
        let mut byte = [0];
        loop {
            self.0.read_exact(&mut byte)?;
            if byte == *b"\n" {
                return Ok(serde_json::from_slice(&line)?);
            }
            line.push(byte[0]);
            if line.len() > LINE_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }

    /// Sends descriptors; they stay open here.
    pub(super) fn send(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        for batch in descriptors.chunks(BATCH) {
            let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !ancillary.push(SendAncillaryMessage::ScmRights(batch)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            rustix::net::sendmsg(&self.0, &[IoSlice::new(b"+")], &mut ancillary, SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }

    /// Takes so many descriptors.
    pub(super) fn receive(&self, count: usize) -> io::Result<Vec<OwnedFd>> {
        let mut all = Vec::new();
        while all.len() < count {
            let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            let got = rustix::net::recvmsg(
                self.0.as_fd(),
                &mut [IoSliceMut::new(&mut byte)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            )?;
            if got.bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let before = all.len();
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    all.extend(descriptors);
                }
            }
            if all.len() == before {
                // As when this process may have no more of them open.
                return Err(io::Error::other("descriptors were lost on their way (too many open files?)"));
            }
        }
        Ok(all)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn lines_and_descriptors_come_in_their_order() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut here, mut there) = (Channel::new(here), Channel::new(there));
        let files: Vec<_> = (0..150).map(|_| tempfile::tempfile().unwrap()).collect();
        let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        here.say(&Order::Take { descriptors: 150 }).unwrap();
        here.send(&borrowed).unwrap();
        here.say(&Order::Go).unwrap();
        assert_eq!(there.hear::<Order>().unwrap(), Order::Take { descriptors: 150 });
        let came = there.receive(150).unwrap();
        for (file, came) in files.iter().zip(&came) {
            let of = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
            assert_eq!(of(file.as_fd()), of(came.as_fd()));
            assert_ne!(file.as_raw_fd(), came.as_raw_fd());
        }
        assert_eq!(there.hear::<Order>().unwrap(), Order::Go);
        drop(here);
        assert_eq!(there.hear::<Order>().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
