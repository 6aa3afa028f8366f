// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a bench did not go on.

/// Why a bench did not go on.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The order makes no sense, whatever this machine has.
    #[error("{0}")]
    Wrong(String),
    /// Something on this machine failed, or is not as it must be.
    #[error("{0}")]
    Failed(String),
    /// The user asked for an end. Finished runs are kept.
    #[error("interrupted")]
    Interrupted,
}
