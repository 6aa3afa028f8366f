// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a client is hung up on.

use super::chain::ChainError;
use super::files::FileError;
use super::ring::RingError;

/// Why a client is hung up on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("{0}")]
    Ring(#[from] RingError),
    #[error("a request that can't be followed: {0}")]
    Chain(#[from] ChainError),
    #[error("a request without a place for its status")]
    NoStatus,
    #[error("it said nothing")]
    Silent,
    #[error("shared memory that is gone")]
    Memory,
    #[error("{0}")]
    Files(#[from] FileError),
    #[error("{0}")]
    Message(vhost::vhost_user::Error),
    #[error("{0}")]
    Socket(#[from] std::io::Error),
}
