// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of the NBD server.

use super::tls::Tls;

/// Options of the NBD server that an operator may choose.
#[derive(Clone, Debug)]
pub struct NbdOptions {
    /// Serve TCP on addresses other than loopback, without TLS.
    pub insecure: bool,
    /// Serve inside TLS: over TCP always, over a unix socket if the client asks for it.
    pub tls: Option<Tls>,
    /// Clients at a time; more are hung up on.
    pub connections_max: u16,
    /// The export that [`Frontend::uri`](crate::frontend::Frontend::uri) names. The empty name is
    /// the default export.
    pub uri_export: String,
}

impl Default for NbdOptions {
    fn default() -> Self {
        Self { insecure: false, tls: None, connections_max: 64, uri_export: String::new() }
    }
}
