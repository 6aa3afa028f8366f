// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds the clients of an NBD server at a border of requests, and hands them to another program.
//!
//! A client that is held is read no more, but for the rest of a write that has come in part. Its
//! requests are finished. What is left of its conversation is the protocol's state, bytes that were
//! not looked at, and bytes that its socket has no room for.
//!
//! Inside TLS a conversation has keys, and bytes below it, which go along. A handshake of TLS is
//! waited for, as the rest of a write is. Programs before version 5 of the hand-over can't go on
//! with that, so an operator may have clients inside TLS closed.

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
use super::tls::{SavedTls, TlsStream};
use super::wait::Wait;
use super::way::Place;
use crate::address::Listen;
use crate::socket::SocketFile;
use crate::upgrade::{Descriptor, Parcel};

/// A listening socket with its clients.
#[derive(Debug, Serialize, Deserialize)]
struct SavedNbd {
    /// The address, by which front-ends in other threads find where their clients belong.
    at: String,
    listener: Descriptor,
    clients: Vec<SavedClient>,
}

/// A client's socket, and its conversation.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedClient {
    socket: Descriptor,
    conversation: Saved,
    /// What lies below the conversation, inside TLS.
    #[serde(default)]
    tls: Option<SavedTls>,
}

/// The address of another program, and its clients.
pub(super) struct HandedOver {
    pub(super) acceptor: Acceptor,
    /// The address, with the port.
    pub(super) at: Listen,
    pub(super) clients: Vec<SavedClient>,
}

impl HandedOver {
    /// Takes the `nth` address of NBD out of the parcel.
    pub(super) fn unpack(listen: &Listen, options: &NbdOptions, nth: usize, parcel: &Parcel) -> io::Result<Self> {
        let saved = parcel.state.listeners.get(nth).ok_or(io::ErrorKind::NotFound)?;
        let SavedNbd { listener, clients, .. } = serde_json::from_value(saved.clone())?;
        if clients.len() > usize::from(options.connections_max) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "more clients than this program takes"));
        }
        let listener = parcel.descriptor(listener)?;
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
        Ok(Self { acceptor, at, clients })
    }
}

/// Puts a listening socket into the parcel, still without clients.
pub(super) fn put_listener(acceptor: &Acceptor, at: &Listen, parcel: &mut Parcel) -> io::Result<()> {
    let listener = match acceptor {
        Acceptor::Unix { listener, .. } => parcel.put(listener)?,
        Acceptor::Tcp(listener) => parcel.put(listener)?,
        // The gate has put its own in.
        Acceptor::Gate(_) => return Ok(()),
    };
    let saved = SavedNbd { at: at.to_string(), listener, clients: Vec::new() };
    parcel.state.listeners.push(serde_json::to_value(saved)?);
    Ok(())
}

/// So long a TLS handshake may go on while clients are held. Healthy ones take milliseconds.
const HANDSHAKE_HELD_NS: u64 = 500_000_000;

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
        let HandedOver { acceptor, at, clients } = HandedOver::unpack(listen, &options, nth, parcel)?;
        let mut nbd = Self::with(acceptor, at, options);
        clients.iter().try_for_each(|client| nbd.take_up(client, None, exports, parcel))?;
        Ok(nbd)
    }

    /// Goes on with a client of another program. There must be a place for it. A client whose
    /// volume is gone is let go, and so is one without the certificate that is demanded now.
    pub(super) fn take_up(
        &mut self,
        client: &SavedClient,
        place: Option<Place>,
        exports: &[Export],
        parcel: &Parcel,
    ) -> io::Result<()> {
        let number = self.peers.iter().position(Option::is_none).ok_or(io::ErrorKind::InvalidData)?;
        let Some(connection) = Connection::take_up(number as u16, &client.conversation, exports, parcel)? else {
            return Ok(());
        };
        let takes = |saved| self.options.tls.as_ref().is_some_and(|tls| tls.takes(saved));
        if !client.tls.as_ref().is_none_or(takes) {
            tracing::info!("NBD at {}: let go of a client inside TLS that has shown no certificate", self.at);
            return Ok(());
        }
        let socket = parcel.descriptor(client.socket)?;
        let socket = match self.at {
            Listen::Unix(_) => Socket::Unix(mio::net::UnixStream::from_std(UnixStream::from(socket))),
            Listen::Tcp { .. } => Socket::Tcp(mio::net::TcpStream::from_std(std::net::TcpStream::from(socket))),
        };
        let visit = Visit::begin(format!("NBD at {}", self.at), socket.peer());
        let stream = match &client.tls {
            None => Stream::Plain(socket),
            Some(saved) => Stream::Tls(Box::new(TlsStream::take_up(socket, saved, parcel)?)),
        };
        let readable = stream.may_have_more();
        let mut peer = Peer::new(stream, connection, visit, place);
        peer.readable = readable;
        // Bytes that came before may be a whole request.
        peer.wait = Wait::Own;
        self.peers[number] = Some(peer);
        Ok(())
    }

    /// Watches the sockets of clients that were taken over.
    pub(super) fn register_taken_over(&mut self, registry: &Registry) -> io::Result<()> {
        for number in 0..self.peers.len() {
            let Some(token) = self.tokens.get(number + 1) else { continue };
            if let Some(Peer { stream: Some(stream), .. }) = &mut self.peers[number] {
                stream.socket_mut().register(registry, token, Interest::READABLE | Interest::WRITABLE)?;
                self.mark(number as u16);
                self.look = true;
            }
        }
        Ok(())
    }

    /// Begins no request any more; finishes what was begun.
    pub(super) fn hold_clients(&mut self, forced: bool, core: &mut dyn Core) {
        self.hold = Hold::Begun;
        // Whoever reaches the port can begin a handshake, and must not keep the hold from its end.
        (self.shaken_until, self.look) = (Some(core.now().plus_ns(HANDSHAKE_HELD_NS)), true);
        for number in 0..self.peers.len() as u16 {
            let Some(peer) = &mut self.peers[usize::from(number)] else { continue };
            // Until then nothing but TLS is said.
            peer.connection.hold(peer.wait != Wait::Tls);
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
            let stands = peer.stream.as_ref().is_some_and(|stream| !stream.is_handshaking());
            peer.connection.is_at_border() && sent && stands && peer.wait != Wait::Tls
        })
    }

    /// Goes on with all clients.
    pub(super) fn release_clients(&mut self) {
        self.hold = Hold::No;
        self.shaken_until = None;
        self.look = true;
        for number in 0..self.peers.len() as u16 {
            if let Some(peer) = &mut self.peers[usize::from(number)] {
                peer.connection.hold(false);
                self.mark(number);
            }
        }
    }

    /// Puts copies of all sockets, and all conversations, into the parcel. Clients that the gate
    /// has accepted, and nobody has taken, are among them.
    pub(super) fn put_into(&mut self, parcel: &mut Parcel, core: &mut dyn Core) -> io::Result<()> {
        let security = self.security();
        let Some(acceptor) = &mut self.acceptor else { return Err(io::ErrorKind::NotConnected.into()) };
        put_listener(acceptor, &self.at, parcel)?;
        let mut clients = Vec::new();
        for peer in self.peers.iter().flatten() {
            let Some(stream) = &peer.stream else { return Err(io::ErrorKind::NotConnected.into()) };
            let socket = parcel.put(stream.socket())?;
            let tls = match stream {
                Stream::Plain(_) => None,
                Stream::Tls(stream) => Some(stream.save(parcel)?),
            };
            clients.push(SavedClient { socket, conversation: peer.connection.save(parcel, core), tls });
        }
        if let Acceptor::Gate(handed) = acceptor {
            for accepted in handed.look() {
                let socket = parcel.put(&accepted.socket)?;
                let conversation = Connection::new(0, security).save(parcel, core);
                clients.push(SavedClient { socket, conversation, tls: None });
            }
        }
        parcel.state.clients += clients.len() as u64;
        let at = self.at.to_string();
        let mut listeners = parcel.state.listeners.iter_mut();
        let ours = listeners.find(|saved| saved["at"] == *at).and_then(|saved| saved["clients"].as_array_mut());
        let ours = ours.ok_or(io::ErrorKind::NotFound)?;
        for client in clients {
            ours.push(serde_json::to_value(client)?);
        }
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
