// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon whose place this program takes, as this program sees it.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::channel::{Channel, News, Order};
use super::offer::Offer;
use super::parcel::Parcel;
use super::role::{ROLE, SUCCEEDS, ms_since, version};

/// A running daemon that waits for this program.
#[derive(Debug)]
pub struct Predecessor {
    channel: Channel,
}

impl Predecessor {
    /// The daemon that has started this program to take its place, if one has.
    ///
    /// # Errors
    /// Stdin is no socket to a daemon.
    pub fn of_this_process() -> io::Result<Option<Self>> {
        if std::env::var_os(ROLE).is_none_or(|role| role != SUCCEEDS) {
            return Ok(None);
        }
        let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
        let stream = UnixStream::from(socket);
        // A file or a terminal has no peer.
        stream.peer_addr()?;
        Ok(Some(Self { channel: Channel::new(stream) }))
    }

    /// Hears what the daemon is, and lets `judge` say why this program can't go on with that. Waits
    /// for everything, and returns the parcel.
    pub(crate) fn take_over(&mut self, judge: impl FnOnce(&Offer) -> Option<String>) -> Result<Parcel, String> {
        let gone = |error: io::Error| format!("the daemon has handed nothing over: {error}");
        let Order::Offer { offer } = self.channel.hear().map_err(gone)? else {
            return Err("the daemon has offered nothing".to_owned());
        };
        if let Some(why) = judge(&offer) {
            return Err(why);
        }
        tracing::info!("upgrade: {} is ready to take over from {}", version(), offer.version);
        self.channel.say(&News::Waits { version: version() }).map_err(gone)?;
        Parcel::receive(&mut self.channel).map_err(gone)
    }

    /// The cache is open: waits for the daemon's word. A daemon that has died has nothing to say,
    /// and its clients are this program's. One that can't be understood lives, and keeps them: keys
    /// of TLS must not be used twice.
    pub(crate) fn wait_for_go(&mut self) -> Result<(), String> {
        match self.channel.say(&News::Opened).and_then(|()| self.channel.hear()) {
            Ok(Order::Go) => Ok(()),
            Ok(other) => Err(format!("the daemon says {other:?}, which was not its turn")),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(format!("the daemon can't be understood: {error}"))
            }
            Err(error) => {
                tracing::warn!(
                    "upgrade: the daemon has ended before its clients were taken over: {error}; serving them"
                );
                Ok(())
            }
        }
    }

    /// This program serves, since now. Returns the way to the front, which is told of a later
    /// upgrade.
    pub(crate) fn serves(mut self, parcel: &Parcel) -> Channel {
        let paused_ms = ms_since(parcel.state.held_ns);
        tracing::info!(
            "upgrade: {} serves in the place of {}; clients waited {paused_ms} ms",
            version(),
            parcel.state.version
        );
        if let Err(error) = self.channel.say(&News::Serves { paused_ms }) {
            tracing::warn!("upgrade: the daemon before this one can't be told: {error}");
        }
        let front = parcel.state.front.and_then(|place| parcel.descriptor(place).ok());
        front.map_or(self.channel, |front| Channel::new(UnixStream::from(front)))
    }

    /// This program can't take over, and has touched nothing. A daemon that has gone is no error.
    pub fn fails(&mut self, why: String) {
        let _ = self.channel.say(&News::Fails { why });
    }
}
