// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sockets of operators: the control socket, and the HTTP port if there is one.

use std::io;

use super::error::ServeError;
use crate::config::Config;
use crate::control::{Caller, Server};
use crate::history::SharedHistory;
use crate::http::Http;
use crate::upgrade::Parcel;

/// The sockets of operators. Dropping them closes them.
pub(super) struct Doors {
    control: Server,
    http: Option<Http>,
}

impl Doors {
    /// Listens; with a parcel by the sockets that are in it.
    pub(super) fn open(
        config: &Config,
        caller: Caller,
        history: &SharedHistory,
        parcel: Option<&Parcel>,
    ) -> Result<Self, ServeError> {
        let taken = |place: Option<_>| parcel.and_then(|parcel| Some((parcel, place?)));
        let control = match taken(parcel.and_then(|parcel| parcel.state.control)) {
            Some((parcel, place)) => Server::take_over(&config.control, caller.clone(), parcel, place)?,
            None => Server::start(&config.control, caller.clone())?,
        };
        let http = match (config.http, taken(parcel.and_then(|parcel| parcel.state.http))) {
            (Some(address), Some((parcel, place))) => {
                Some(Http::take_over(address, caller, history.clone(), parcel, place)?)
            }
            (Some(address), None) => Some(Http::start(address, caller, history.clone())?),
            (None, _) => None,
        };
        if let Some(http) = &http {
            tracing::info!("dashboard at http://{0}/, metrics at http://{0}/metrics", http.address());
        }
        Ok(Self { control, http })
    }

    /// Whether there is an HTTP port, which shows the history.
    pub(super) fn has_http(&self) -> bool {
        self.http.is_some()
    }

    /// Puts copies of the sockets into a parcel.
    pub(super) fn hand_over(&self, parcel: &mut Parcel) -> io::Result<()> {
        parcel.state.control = Some(self.control.hand_over(parcel)?);
        parcel.state.http = self.http.as_ref().map(|http| http.hand_over(parcel)).transpose()?;
        Ok(())
    }

    /// Ends all threads, and leaves the sockets to another program.
    pub(super) fn leave(self) {
        self.control.leave();
    }
}
