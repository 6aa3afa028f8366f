// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends replies to the clients of the NBD server, and parts with clients that are done with.

use std::io;

use mio::{Registry, event::Source};

use super::super::Core;
use super::super::holding::Hold;
use super::listener::Nbd;
use super::stream::Stream;
use super::wait::Wait;

impl Nbd {
    /// Sends what is queued, as far as the socket takes it.
    pub(super) fn transmit(&mut self, number: u16, core: &mut dyn Core) {
        let Some(peer) = &mut self.peers[usize::from(number)] else {
            return;
        };
        let Some(stream) = &mut peer.stream else {
            return;
        };
        while peer.writable && self.hold != Hold::Handed {
            let sent = if stream.holds_output() {
                peer.connection.moved();
                stream.flush()
            } else if peer.connection.can_send() {
                let visit = &mut peer.visit;
                let send = |bytes: &usize| visit.send(*bytes as u64);
                peer.connection.transmit(core, |from| stream.send(from).inspect(send))
            } else {
                return;
            };
            match sent {
                Ok(true) => {}
                Ok(false) => peer.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => peer.writable = false,
                Err(_) => {
                    self.hang_up(number, core);
                    return;
                }
            }
        }
    }

    /// Goes on inside TLS with a client that asked for it and has been told so.
    pub(super) fn enter_tls(&mut self, number: u16, core: &mut dyn Core) {
        let Some(peer) = &mut self.peers[usize::from(number)] else {
            return;
        };
        if peer.wait != Wait::Tls || peer.has_output() {
            return;
        }
        let (Some(tls), Some(Stream::Plain(socket))) = (&self.options.tls, peer.stream.take()) else {
            return self.hang_up(number, core);
        };
        match tls.start(socket) {
            Ok(stream) => {
                peer.stream = Some(Stream::Tls(Box::new(stream)));
                peer.connection.enter_tls();
                peer.connection.hold(self.hold != Hold::No);
                peer.wait = Wait::Input;
            }
            Err(_) => self.hang_up(number, core),
        }
    }

    /// Gives up the place of a client that is done with.
    pub(super) fn reap(&mut self, number: u16, registry: &Registry) {
        let place = &mut self.peers[usize::from(number)];
        if let Some(peer) = place
            && peer.is_over()
        {
            if let Some(stream) = &mut peer.stream {
                // After a hand-over another program goes on with the session, at a later record.
                if self.hold != Hold::Handed {
                    stream.say_goodbye();
                }
                // The socket is closed next, which does the same.
                drop(stream.socket_mut().deregister(registry));
            }
            *place = None;
        }
    }

    /// Whether the next turn has something to do for a client without any event.
    pub(super) fn has_work(&self, number: u16) -> bool {
        self.peers[usize::from(number)].as_ref().is_some_and(|peer| {
            let holds = peer.stream.as_ref().is_some_and(Stream::holds_output);
            let can_send = self.hold != Hold::Handed && peer.writable && (peer.connection.can_send() || holds);
            can_send || peer.is_over()
        })
    }
}
