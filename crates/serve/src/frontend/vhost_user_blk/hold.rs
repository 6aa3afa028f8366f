// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds the guests of a vhost-user-blk server between two requests, and hands them to another
//! program (ADR 0070).
//!
//! A guest that is held is not looked at: kicks, messages and requests wait in its rings and in its
//! socket. What was taken is finished, and made durable. What is left of a conversation is the
//! socket, the guest's memory, and the place in each ring.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::Export;
use super::super::holding::Hold;
use super::super::visit::{self, Visit};
use super::door::Door;
use super::listener::VhostUserBlk;
use super::messages::Talk;
use super::peer::Peer;
use super::session::SavedSession;
use super::unflushed::Unflushed;
use super::work::Work;
use crate::upgrade::{Descriptor, Parcel};

/// A listening socket with its clients.
#[derive(Debug, Serialize, Deserialize)]
struct SavedServer {
    path: PathBuf,
    /// The volume's origin.
    origin: u32,
    listener: Descriptor,
    clients: Vec<SavedClient>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedClient {
    socket: Descriptor,
    /// The client has sent a whole message.
    spoke: bool,
    session: SavedSession,
}

impl VhostUserBlk {
    /// Listens by the socket of another program, and goes on with its clients. A volume that was
    /// renamed keeps the socket that its guests know. None: that program had no socket for the
    /// volume in this folder.
    ///
    /// # Errors
    /// What came is not what this program understands.
    pub(crate) fn take_over(path: &Path, export: &Export, durable: bool, parcel: &Parcel) -> io::Result<Option<Self>> {
        let saved = parcel.state.vhost_user_blk.iter().cloned().map(serde_json::from_value::<SavedServer>);
        let saved = saved.collect::<Result<Vec<_>, _>>()?.into_iter();
        let beside = |saved: &SavedServer| saved.path.parent() == path.parent() && saved.origin == export.origin.0;
        let Some(saved) = saved.filter(beside).min_by_key(|saved| saved.path != path) else { return Ok(None) };
        let door = Door::take_over(&saved.path, parcel.descriptor(saved.listener)?);
        let mut server = Self::with(door, export.origin, durable).map_err(io::Error::other)?;
        if saved.clients.len() > server.peers.len() {
            return Err(io::Error::other("more clients than this program has places for"));
        }
        for (number, client) in saved.clients.iter().enumerate() {
            server.peers[number] = Some(server.take_in(number as u16, client, export, parcel)?);
        }
        Ok(Some(server))
    }

    fn take_in(&self, number: u16, client: &SavedClient, export: &Export, parcel: &Parcel) -> io::Result<Peer> {
        let socket = UnixStream::from(parcel.descriptor(client.socket)?);
        let place = format!("vhost-user-blk at {}", self.door.path().display());
        let mut visit = Visit::begin(place, visit::peer(&socket));
        if !visit.open(export) {
            return Err(io::Error::other("its volume is being removed"));
        }
        let debt = Unflushed::new(self.daemon, self.durable);
        let talk = Talk::take_over(socket, export.clone(), debt, self.closing.clone(), &client.session, parcel);
        let mut talk = talk.map_err(io::Error::other)?;
        talk.spoke = client.spoke;
        Ok(Peer::new(talk, Work::new(number), visit))
    }

    /// Takes nothing of any client any more; finishes what was taken.
    pub(super) fn hold_clients(&mut self) {
        self.door.hold(true);
        self.hold = Hold::Begun;
    }

    /// Whether all clients are between two requests, and nothing is owed to them.
    pub(super) fn are_clients_held(&self) -> bool {
        self.hold != Hold::No && self.peers.iter().flatten().all(Peer::is_at_border)
    }

    /// Goes on with all clients.
    pub(super) fn release_clients(&mut self) {
        self.door.hold(false);
        self.hold = Hold::No;
        self.peers.iter_mut().flatten().for_each(|peer| peer.settled = false);
    }

    /// Puts copies of all sockets, and all conversations, into the parcel.
    pub(super) fn put_into(&mut self, parcel: &mut Parcel) -> io::Result<()> {
        let listener = self.door.listener().ok_or(io::ErrorKind::NotConnected)?;
        let listener = parcel.put(listener)?;
        let mut clients = Vec::new();
        for peer in self.peers.iter().flatten() {
            let talk = peer.talk.as_ref().ok_or(io::ErrorKind::NotConnected)?;
            let (socket, session) = talk.save(parcel)?;
            clients.push(SavedClient { socket, spoke: talk.spoke, session });
        }
        parcel.state.clients += clients.len() as u64;
        let saved = SavedServer { path: self.door.path().to_owned(), origin: self.origin.0, listener, clients };
        parcel.state.vhost_user_blk.push(serde_json::to_value(saved)?);
        self.hold = Hold::Handed;
        Ok(())
    }
}
