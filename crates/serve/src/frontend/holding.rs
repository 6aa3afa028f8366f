// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far clients are held.

/// How far clients are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Hold {
    /// Clients are served.
    #[default]
    No,
    /// No request is begun, and no client is accepted.
    Begun,
    /// Copies of everything are in a parcel, so nothing may change any more.
    Handed,
}
