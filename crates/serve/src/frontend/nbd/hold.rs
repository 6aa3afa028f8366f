// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds the clients of an NBD server at a border of requests, and hands them to another program.
//!
//! A client that is held is read no more, but for the rest of a write that has come in part. Its
//! requests are finished. What is left of its conversation is the protocol's state, bytes that were
//! not looked at, and bytes that its socket has no room for.
//!
//! Inside TLS a conversation has keys, which only the TLS library knows. Such a client keeps the
//! clients where they are, or is closed, as the operator says.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use mio::{Interest, Registry, event::Source};
use serde::{Deserialize, Serialize};

use super::super::holding::Hold;
use super::super::visit::Visit;
use super::super::{Core, Export};
use super::connection::{Connection, Saved};
use super::listen::Acceptor;
use super::listener::Nbd;
use super::options::NbdOptions;
use super::peer::Peer;
use super::stream::{Socket, Stream};
use super::wait::Wait;
use crate::address::Listen;
use crate::report::counted;
use crate::socket::SocketFile;
use crate::upgrade::{Descriptor, Parcel};

/// A listening socket with its clients.
#[derive(Debug, Serialize, Deserialize)]
struct SavedNbd {
    listener: Descriptor,
    clients: Vec<SavedClient>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedClient {
    socket: Descriptor,
    conversation: Saved,
}

impl Nbd {
    /// Listens by the socket of another program, the `nth` of the parcel, and goes on with its
    /// clients.
    ///
    /// # Errors
    /// What came is not what this program understands.
    pub(crate) fn take_over(
        listen: &Listen,
        options: NbdOptions,
        nth: usize,
        exports: &[Export],
        parcel: &Parcel,
    ) -> io::Result<Self> {
        let saved = parcel.state.listeners.get(nth).ok_or(io::ErrorKind::NotFound)?;
        let saved: SavedNbd = serde_json::from_value(saved.clone())?;
        let listener = parcel.descriptor(saved.listener)?;
        let (acceptor, at) = match listen {
            Listen::Unix(path) => {
                let listener = mio::net::UnixListener::from_std(UnixListener::from(listener));
                (Acceptor::Unix { listener, file: SocketFile::of(path) }, listen.clone())
            }
            Listen::Tcp { host, .. } => {
                let listener = std::net::TcpListener::from(listener);
                let port = listener.local_addr()?.port();
                let at = Listen::Tcp { host: host.clone(), port };
                (Acceptor::Tcp(mio::net::TcpListener::from_std(listener)), at)
            }
        };
        let mut nbd = Self::with(acceptor, at, options);
        if saved.clients.len() > nbd.peers.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "more clients than this program takes"));
        }
        for (number, client) in saved.clients.iter().enumerate() {
            let Some(connection) = Connection::take_up(number as u16, &client.conversation, exports, parcel)? else {
                continue;
            };
            let socket = parcel.descriptor(client.socket)?;
            let socket = match listen {
                Listen::Unix(_) => Socket::Unix(mio::net::UnixStream::from_std(UnixStream::from(socket))),
                Listen::Tcp { .. } => Socket::Tcp(mio::net::TcpStream::from_std(std::net::TcpStream::from(socket))),
            };
            let visit = Visit::begin(format!("NBD at {}", nbd.at), socket.peer());
            let mut peer = Peer::new(Stream::Plain(socket), connection, visit, None);
            // Bytes that came before may be a whole request.
            peer.wait = Wait::Own;
            nbd.peers[number] = Some(peer);
        }
        Ok(nbd)
    }

    /// Watches the sockets of clients that were taken over.
    pub(super) fn register_taken_over(&mut self, registry: &Registry) -> io::Result<()> {
        for number in 0..self.peers.len() {
            let Some(token) = self.tokens.get(number + 1) else { continue };
            if let Some(Peer { stream: Some(Stream::Plain(socket)), .. }) = &mut self.peers[number] {
                socket.register(registry, token, Interest::READABLE | Interest::WRITABLE)?;
                self.mark(number as u16);
                self.look = true;
            }
        }
        Ok(())
    }

    /// Says why the clients have to stay in this program.
    pub(super) fn kept_by(&self, forced: bool) -> Option<String> {
        let inside = self.peers.iter().flatten().filter(|peer| is_inside_tls(peer)).count() as u64;
        (inside > 0 && !forced).then(|| {
            format!(
                "NBD at {}: {} inside TLS, whose sessions can't be handed over; say --disconnect to close these connections, so that the clients connect again",
                self.at,
                counted(inside, "client")
            )
        })
    }

    /// Begins no request any more; finishes what was begun.
    pub(super) fn hold_clients(&mut self, forced: bool, core: &mut dyn Core) {
        self.hold = Hold::Begun;
        for number in 0..self.peers.len() as u16 {
            let Some(peer) = &mut self.peers[usize::from(number)] else { continue };
            peer.connection.hold(true);
            if forced && is_inside_tls(peer) {
                peer.connection.finish_up(core);
                peer.wait = Wait::End;
            }
            self.mark(number);
        }
    }

    /// Whether all clients are at a border of requests.
    pub(super) fn are_clients_held(&self) -> bool {
        self.peers.iter().flatten().all(|peer| {
            let sent = !peer.has_output() || !peer.writable;
            peer.connection.is_at_border() && sent && matches!(peer.stream, Some(Stream::Plain(_)))
        })
    }

    /// Goes on with all clients.
    pub(super) fn release_clients(&mut self) {
        self.hold = Hold::No;
        self.look = true;
        for number in 0..self.peers.len() as u16 {
            if let Some(peer) = &mut self.peers[usize::from(number)] {
                peer.connection.hold(false);
                self.mark(number);
            }
        }
    }

    /// Puts copies of all sockets, and all conversations, into the parcel.
    pub(super) fn put_into(&mut self, parcel: &mut Parcel, core: &mut dyn Core) -> io::Result<()> {
        let Some(acceptor) = &self.acceptor else { return Err(io::ErrorKind::NotConnected.into()) };
        let listener = match acceptor {
            Acceptor::Unix { listener, .. } => parcel.put(listener)?,
            Acceptor::Tcp(listener) => parcel.put(listener)?,
            Acceptor::Gate(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        let mut clients = Vec::new();
        for peer in self.peers.iter().flatten() {
            let Some(Stream::Plain(socket)) = &peer.stream else { return Err(io::ErrorKind::NotConnected.into()) };
            let socket = parcel.put(socket)?;
            clients.push(SavedClient { socket, conversation: peer.connection.save(parcel, core) });
        }
        parcel.state.clients += clients.len() as u64;
        parcel.state.listeners.push(serde_json::to_value(SavedNbd { listener, clients })?);
        self.hold = Hold::Handed;
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

/// Whether a client talks inside TLS, or is about to.
fn is_inside_tls(peer: &Peer) -> bool {
    matches!(peer.stream, Some(Stream::Tls(_))) || peer.wait == Wait::Tls
}
