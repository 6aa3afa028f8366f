// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a client can't go on, and why it does not send a request.

/// Why the conversation is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The server did not speak the protocol. No byte that follows can be trusted.
    #[error("NBD server broke the protocol: {0}")]
    Protocol(&'static str),
    /// The server does not want this client.
    #[error("NBD server refused the export {name:?} (answer {kind:#x}): {text}")]
    Refused {
        /// The name asked for.
        name: String,
        /// The kind of answer.
        kind: u32,
        /// The server's words.
        text: String,
    },
}

/// Why a request can't be sent. Nothing was sent; the conversation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// There is no export yet, or no more.
    #[error("an NBD request before the handshake is over, or after the end")]
    NotOpen,
    /// Another request has this cookie.
    #[error("the NBD request {0} is under way already")]
    Cookie(u64),
    /// The server can't do that.
    #[error("the NBD server does not offer this command or flag")]
    NotOffered,
    /// The export takes no writes.
    #[error("the NBD export is read-only")]
    ReadOnly,
    /// The range is empty, or ends behind the export; or a flush has one.
    #[error("the range of the NBD request is not one of the export's")]
    Range,
    /// The range does not keep to the smallest block size.
    #[error("the range of the NBD request is not a multiple of the export's smallest block size, {0} bytes")]
    Unaligned(u32),
    /// The payload is too long, or the length does not fit in a header without extensions.
    #[error("the NBD request is too long: at most {0} bytes")]
    TooLong(u64),
}
