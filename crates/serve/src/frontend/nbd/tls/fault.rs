// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a TLS session can't go on after its handshake, and the alert that says so to the client.

/// Why a session can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("a record was damaged or changed on its way")]
    Damaged,
    #[error("a record is longer than TLS allows")]
    TooLong,
    #[error("a record has no place after the handshake")]
    OutOfPlace,
    #[error("a message of TLS can't be read")]
    Unreadable,
    #[error("too many records without content")]
    Flood,
    #[error("the client gave it up, with alert {0} of TLS")]
    GivenUp(u8),
    #[error("its keys have encrypted all that they may, and TLS 1.2 has no others; it may connect again")]
    UsedUp,
}

impl Fault {
    /// The number of the alert, if the client is to be told.
    pub(super) fn alert(self) -> Option<u8> {
        match self {
            Self::Damaged => Some(20),
            Self::TooLong => Some(22),
            Self::OutOfPlace | Self::Flood => Some(10),
            Self::Unreadable => Some(50),
            Self::GivenUp(_) | Self::UsedUp => None,
        }
    }
}
