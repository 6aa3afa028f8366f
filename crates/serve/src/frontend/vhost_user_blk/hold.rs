// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds the guests of a vhost-user-blk server between two requests, and hands them to another
//! program (ADR 0070).
//!
//! A guest that is held is not looked at: kicks, messages and requests wait in its rings and in its
//! socket. What was taken is finished, and made durable. What is left of a conversation is the
//! socket, the guest's memory, and the place in each ring.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use flashfront_engine::OriginId;
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
pub(crate) struct SavedServer {
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

/// Deals the sockets of another program out to the places where this one is to listen.
///
/// A volume that was renamed keeps the sockets that its guests know. Each socket goes to one place
/// of the volume in the same folder: to the place of its own path if there is one.
///
/// # Errors
/// What came is not what this program understands.
pub(crate) fn deal(places: &[(PathBuf, OriginId)], parcel: &Parcel) -> io::Result<Vec<Option<SavedServer>>> {
    let saved = parcel.state.vhost_user_blk.iter().cloned().map(serde_json::from_value::<SavedServer>);
    let mut saved = saved.collect::<Result<Vec<_>, _>>()?;
    let mut dealt: Vec<_> = places.iter().map(|_| None).collect();
    for of_its_own_path in [true, false] {
        for (dealt, (path, origin)) in dealt.iter_mut().zip(places).filter(|(dealt, _)| dealt.is_none()) {
            let fits = |saved: &SavedServer| match of_its_own_path {
                true => saved.path == *path,
                false => saved.path.parent() == path.parent(),
            };
            let found = saved.iter().position(|saved| saved.origin == origin.0 && fits(saved));
            *dealt = found.map(|at| saved.swap_remove(at));
        }
    }
    Ok(dealt)
}

impl VhostUserBlk {
    /// Listens by the socket of another program, and goes on with its clients.
    ///
    /// # Errors
    /// What came is not what this program understands.
    pub(crate) fn take_over(saved: &SavedServer, export: &Export, durable: bool, parcel: &Parcel) -> io::Result<Self> {
        let door = Door::take_over(&saved.path, parcel.descriptor(saved.listener)?);
        let mut server = Self::with(door, export.origin, durable).map_err(io::Error::other)?;
        if saved.clients.len() > server.peers.len() {
            return Err(io::Error::other("more clients than this program has places for"));
        }
        for (number, client) in saved.clients.iter().enumerate() {
            server.peers[number] = Some(server.take_in(number as u16, client, export, parcel)?);
        }
        Ok(server)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Which socket each place gets, of those of a program that listened at `saved`.
    fn dealt(saved: &[(&str, u32)], places: &[(&str, u32)]) -> Vec<Option<String>> {
        let mut parcel = Parcel::default();
        for (path, origin) in saved {
            let saved = SavedServer { path: path.into(), origin: *origin, listener: 0, clients: Vec::new() };
            parcel.state.vhost_user_blk.push(serde_json::to_value(saved).unwrap());
        }
        let places: Vec<_> = places.iter().map(|(path, origin)| (path.into(), OriginId(*origin))).collect();
        let dealt = deal(&places, &parcel).unwrap().into_iter();
        dealt.map(|saved| saved.map(|saved| saved.path.display().to_string())).collect()
    }

    #[test]
    fn each_socket_goes_to_one_place_of_its_volume() {
        let some = |path: &str| Some(path.to_owned());
        // Two listeners for each volume in one folder; a volume was renamed.
        let saved = [("/run/a-data", 0), ("/run/b-data", 0), ("/run/a-home", 1), ("/run/b-home", 1)];
        let places = [("/run/a-disk", 0), ("/run/b-disk", 0), ("/run/a-home", 1), ("/run/b-home", 1)];
        let mut got = dealt(&saved, &places);
        assert_eq!(got.split_off(2), [some("/run/a-home"), some("/run/b-home")]);
        got.sort();
        assert_eq!(got, [some("/run/a-data"), some("/run/b-data")]);
        // A socket of its own path is not for another place, whichever comes first.
        let places = [("/run/new", 0), ("/run/b-data", 0)];
        assert_eq!(dealt(&saved[..2], &places), [some("/run/a-data"), some("/run/b-data")]);
        // Volumes that have changed names, another folder, and a place more than before.
        let saved = [("/run/one", 0), ("/run/two", 1)];
        assert_eq!(dealt(&saved, &[("/run/two", 0), ("/run/one", 1)]), [some("/run/one"), some("/run/two")]);
        assert_eq!(dealt(&saved, &[("/other/one", 0), ("/run/x", 1), ("/run/y", 1)]), [None, some("/run/two"), None]);
    }
}
