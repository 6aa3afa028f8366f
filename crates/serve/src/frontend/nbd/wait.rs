// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a connection does not go on.

/// Why a connection does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Bytes of the client are needed.
    Input,
    /// The connection's own replies must be made and sent first.
    Own,
    /// Buffers are needed.
    Room,
    /// The replies must be sent, and then TLS begins
    /// ([`Connection::enter_tls`](super::connection::Connection::enter_tls)).
    Tls,
    /// The replies must be sent; then the connection is over.
    End,
}
