// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds the clients of all front-ends, and hands them to another program.

use std::io;

use super::Pump;
use crate::upgrade::Parcel;

impl Pump {
    /// Says why clients can't be handed over, if they can't.
    pub(crate) fn clients_stay(&self) -> Option<String> {
        self.frontends.iter().find_map(|(frontend, _)| frontend.stays())
    }

    /// Begins no request of a client any more; what was begun is finished. `forced`:
    /// connections inside TLS are closed.
    pub(crate) fn hold_clients(&mut self, forced: bool) {
        for at in 0..self.frontends.len() {
            let (frontend, mut desk, _) = self.desk(at);
            frontend.hold(forced, &mut desk);
        }
    }

    /// Whether all that was begun is finished.
    pub(crate) fn are_clients_held(&self) -> bool {
        self.requests.is_empty() && self.frontends.iter().all(|(frontend, _)| frontend.held())
    }

    /// The addresses of clients of which something is not finished.
    pub(crate) fn not_held(&self) -> Vec<String> {
        self.frontends.iter().filter(|(frontend, _)| !frontend.held()).map(|(frontend, _)| frontend.uri()).collect()
    }

    /// Goes on with clients that were held.
    pub(crate) fn release_clients(&mut self) {
        for (frontend, _) in &mut self.frontends {
            frontend.release();
        }
    }

    /// Puts copies of all sockets and conversations into a parcel.
    pub(crate) fn hand_over(&mut self, parcel: &mut Parcel) -> io::Result<()> {
        for at in 0..self.frontends.len() {
            let (frontend, mut desk, _) = self.desk(at);
            frontend.hand_over(parcel, &mut desk)?;
        }
        Ok(())
    }

    /// Leaves the listening sockets to another program.
    pub(crate) fn leave_sockets(&mut self) {
        for (frontend, _) in &mut self.frontends {
            frontend.leave();
        }
    }
}
