// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything that a daemon hands to its successor: sockets, and the state of each conversation.
//!
//! The state is JSON, so that versions can differ. Bytes that are on their way stand behind it, in
//! a file in RAM. The daemon keeps the parcel until the successor serves: with it the daemon itself
//! can serve on.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

use super::channel::{Channel, Order};

/// A place in the list of descriptors.
pub(crate) type Descriptor = usize;

/// A run of the bytes that were on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bytes {
    at: usize,
    len: usize,
}

/// The state, without bytes and descriptors.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// The program that served before.
    pub(crate) version: String,
    /// When clients were told to wait, by the clock that all processes share.
    pub(crate) held_ns: u64,
    /// The sockets of operators.
    pub(crate) control: Option<Descriptor>,
    pub(crate) http: Option<Descriptor>,
    /// The socket to the process that the first daemon's starter knows.
    pub(crate) front: Option<Descriptor>,
    /// What an operator has set, if the configuration has another value.
    pub(crate) sequential_bypass: Option<u64>,
    pub(crate) dirty_limit_blocks: Option<u64>,
    pub(crate) draining: bool,
    /// The listeners of NBD with their clients, each as its front-end has written it, in the order
    /// of the configuration.
    pub(crate) listeners: Vec<serde_json::Value>,
    /// The sockets of vhost-user-blk with their clients, each as its front-end has written it.
    #[serde(default)]
    pub(crate) vhost_user_blk: Vec<serde_json::Value>,
    /// The mounts of FUSE with the files that are open, each as its front-end has written it.
    #[serde(default)]
    pub(crate) fuse: Vec<serde_json::Value>,
    /// The figures since the start, as the daemon has written them. Older daemons hand none over.
    #[serde(default)]
    pub(crate) figures: Option<Bytes>,
    /// How many clients there are.
    pub(crate) clients: u64,
}

/// The state, the bytes and the descriptors.
#[derive(Default)]
pub struct Parcel {
    pub(crate) state: State,
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

/// The bytes are clients', and keys are among them: they are not shown.
impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Parcel {
    /// Puts a descriptor in, as a copy.
    pub(crate) fn put(&mut self, descriptor: impl AsFd) -> io::Result<Descriptor> {
        self.descriptors.push(descriptor.as_fd().try_clone_to_owned()?);
        Ok(self.descriptors.len() - 1)
    }

    /// Returns a copy of a descriptor.
    pub(crate) fn descriptor(&self, place: Descriptor) -> io::Result<OwnedFd> {
        self.descriptors.get(place).ok_or(io::ErrorKind::InvalidData)?.try_clone()
    }

    /// Puts bytes in, which `fill` appends.
    pub(crate) fn put_bytes(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Bytes {
        let at = self.bytes.len();
        fill(&mut self.bytes);
        Bytes { at, len: self.bytes.len() - at }
    }

    pub(crate) fn bytes(&self, of: Bytes) -> io::Result<&[u8]> {
        let end = of.at.checked_add(of.len).ok_or(io::ErrorKind::InvalidData)?;
        self.bytes.get(of.at..end).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    pub(super) fn send(&self, channel: &mut Channel) -> io::Result<()> {
        let mut file = File::from(rustix::fs::memfd_create("flashfront-upgrade", MemfdFlags::CLOEXEC)?);
        let state = serde_json::to_vec(&self.state)?;
        file.write_all(&(state.len() as u64).to_le_bytes())?;
        file.write_all(&state)?;
        file.write_all(&self.bytes)?;
        let all: Vec<_> = [file.as_fd()].into_iter().chain(self.descriptors.iter().map(AsFd::as_fd)).collect();
        channel.say(&Order::Take { descriptors: all.len() })?;
        channel.send(&all)
    }

    pub(super) fn receive(channel: &mut Channel) -> io::Result<Self> {
        let bad = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let Order::Take { descriptors: count } = channel.hear()? else { return Err(bad("no state")) };
        let mut descriptors = channel.receive(count)?;
        if descriptors.is_empty() {
            return Err(bad("no state"));
        }
        let mut file = File::from(descriptors.remove(0));
        let mut all = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_end(&mut all)?;
        let Some((len, rest)) = all.split_first_chunk::<8>() else { return Err(bad("a state without length")) };
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| bad("a state of no length"))?;
        let Some((state, bytes)) = rest.split_at_checked(len) else { return Err(bad("a state that is cut off")) };
        Ok(Self { state: serde_json::from_slice(state)?, bytes: bytes.to_vec(), descriptors })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_parcel_comes_as_it_was_sent() {
        let mut parcel = Parcel::default();
        let (mut one, other) = UnixStream::pair().unwrap();
        let place = parcel.put(&other).unwrap();
        parcel.put_bytes(|out| out.extend(b"before"));
        let bytes = parcel.put_bytes(|out| out.extend(vec![7; 1 << 20]));
        parcel.state = State { version: "9".to_owned(), control: Some(place), ..State::default() };
        let (here, there) = UnixStream::pair().unwrap();
        parcel.send(&mut Channel::new(here)).unwrap();
        drop((parcel, other));
        let came = Parcel::receive(&mut Channel::new(there)).unwrap();
        assert_eq!((came.state.version.as_str(), came.bytes(bytes).unwrap().len()), ("9", 1 << 20));
        assert!(came.bytes(bytes).unwrap().iter().all(|byte| *byte == 7));
        let mut other = UnixStream::from(came.descriptor(came.state.control.unwrap()).unwrap());
        other.write_all(b"x").unwrap();
        one.read_exact(&mut [0]).unwrap();
        assert!(came.descriptor(1).is_err() && came.bytes(Bytes { at: 1 << 20, len: usize::MAX }).is_err());
    }

    #[test]
    fn a_state_that_is_no_state_is_refused() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut here = Channel::new(here);
        here.say(&Order::Go).unwrap();
        let mut there = Channel::new(there);
        assert!(Parcel::receive(&mut there).is_err());
        drop(here);
        assert_eq!(Parcel::receive(&mut there).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
