// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives the socket of the vhost-user-blk server to another program.
//!
//! Clients are not handed over. A client that is cut off keeps its requests in memory of its own
//! (`inflight`). It gives them to the program that it finds when it connects again.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use flashfront_engine::OriginId;

use super::super::Frontend;
use super::door::Door;
use super::listener::VhostUserBlk;
use crate::report::counted;
use crate::socket::BindError;
use crate::upgrade::Parcel;

impl VhostUserBlk {
    /// Listens by the socket of another program, whose clients connect again.
    ///
    /// # Errors
    /// See [`BindError`].
    pub(crate) fn take_over(
        path: &Path,
        origin: OriginId,
        durable: bool,
        listener: OwnedFd,
    ) -> Result<Self, BindError> {
        Self::with(Door::take_over(path, listener), origin, durable)
    }

    /// Says why the clients have to stay in this program.
    pub(super) fn kept_by(&self, forced: bool) -> Option<String> {
        let clients = self.clients() as u64;
        (clients > 0 && !forced).then(|| {
            format!(
                "vhost-user-blk at {}: {}; say --disconnect to close these connections: QEMU with reconnect=1 connects again, and its guest waits",
                self.door.path().display(),
                counted(clients, "client")
            )
        })
    }

    /// Accepts no client any more. `forced`: as at a stop, clients' requests are finished, and then
    /// their connections are closed.
    pub(super) const fn hold_clients(&mut self, forced: bool) {
        self.door.hold(true);
        self.stopping = forced;
    }

    /// Accepts clients again.
    pub(super) const fn release_clients(&mut self) {
        self.door.hold(false);
        self.stopping = false;
    }

    /// Puts a copy of the listening socket into the parcel.
    pub(super) fn put_into(&self, parcel: &mut Parcel) -> io::Result<()> {
        let listener = self.door.listener().ok_or(io::ErrorKind::NotConnected)?;
        let listener = parcel.put(listener)?;
        parcel.state.vhost_user_blk.push((self.door.path().to_owned(), listener));
        Ok(())
    }
}
