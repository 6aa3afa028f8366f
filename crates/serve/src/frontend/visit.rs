// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client's stay, for the log of `flashfront -v serve`: the client, the volume, the time, and the
//! bytes.
//!
//! The end is told when a [`Visit`] is dropped, so that no way to part with a client can forget it.

use std::fmt;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::Export;
use super::guests::Guest;

/// A client.
#[derive(Debug)]
pub(in crate::frontend) struct Visit {
    /// The front-end and its address.
    place: String,
    /// The client, as far as it is known.
    who: String,
    volume: Option<String>,
    /// Counts the client among those of the volume.
    guest: Option<Guest>,
    began: Instant,
    /// Bytes from the client, and to it.
    received: u64,
    sent: u64,
}

impl Visit {
    pub(in crate::frontend) fn begin(place: String, who: String) -> Self {
        tracing::debug!("{place}: a client came: {who}");
        Self { place, who, volume: None, guest: None, began: Instant::now(), received: 0, sent: 0 }
    }

    /// Whether it is not known yet what the client came for.
    pub(in crate::frontend) const fn is_aimless(&self) -> bool {
        self.volume.is_none()
    }

    /// The client opens a volume. False: the volume is being removed.
    #[must_use]
    pub(in crate::frontend) fn open(&mut self, export: &Export) -> bool {
        let volume = &export.name;
        tracing::debug!("{}: {} opened volume {volume}", self.place, self.who);
        self.volume = Some(volume.clone());
        self.guest = export.guests.enter();
        self.guest.is_some()
    }

    /// The client, as far as it is known.
    #[cfg(feature = "fuse")]
    pub(in crate::frontend) fn who(&self) -> &str {
        &self.who
    }

    /// Counts bytes from the client.
    pub(in crate::frontend) const fn receive(&mut self, bytes: u64) {
        self.received += bytes;
    }

    /// Counts bytes to the client.
    pub(in crate::frontend) const fn send(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// Returns the sentence for the end.
    fn end(&self, stayed: Duration) -> String {
        let Self { place, who, received, sent, .. } = self;
        let volume = self.volume.as_ref().map_or_else(|| "no volume".to_owned(), |name| format!("volume {name}"));
        let stayed = humantime::format_duration(Duration::from_millis(stayed.as_millis() as u64));
        let [received, sent] = [received, sent].map(|bytes| flashfront_units::bytes(*bytes));
        format!("{place}: {who} left {volume} after {stayed}, {received} received from it, {sent} sent")
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        tracing::debug!("{}", self.end(self.began.elapsed()));
    }
}

/// The process at the other end of a unix socket, as the kernel knows it.
pub(in crate::frontend) fn peer(socket: impl AsFd) -> String {
    match rustix::net::sockopt::socket_peercred(socket) {
        Ok(it) => process(it.uid.as_raw(), it.pid.as_raw_nonzero().get()),
        Err(error) => format!("unknown ({error})"),
    }
}

/// A process by its user and its number.
pub(in crate::frontend) fn process(uid: u32, pid: impl fmt::Display) -> String {
    format!("uid {uid}, pid {pid}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use flashfront_engine::OriginId;

    use super::*;

    #[test]
    fn the_end_tells_all_of_a_visit() {
        let (here, _there) = UnixStream::pair().unwrap();
        let who = peer(&here);
        let uid = rustix::process::getuid().as_raw();
        assert_eq!(who, format!("uid {uid}, pid {}", std::process::id()));
        let mut visit = Visit::begin("NBD at unix:/s".to_owned(), who.clone());
        assert!(visit.end(Duration::ZERO).contains("left no volume"));
        let export = Export::new("data", OriginId(0), 512);
        assert!(visit.open(&export));
        assert_eq!(export.guests.count(), 1);
        visit.receive(3 << 20);
        visit.send(512);
        let end = visit.end(Duration::from_millis(61_002));
        assert_eq!(
            end,
            format!("NBD at unix:/s: {who} left volume data after 1m 1s 2ms, 3.00 MiB received from it, 512 B sent")
        );
        drop(visit);
        assert_eq!(export.guests.count(), 0);
    }
}
