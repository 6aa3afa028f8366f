// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a daemon tells a new program before anything is touched.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a running daemon is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// The version of the hand-over.
    pub(crate) hand_over: u32,
    /// The version of the program.
    pub(crate) version: String,
    /// The format version of the cache device; none without a cache.
    pub(crate) format: Option<u32>,
    /// The cache device, as it is named.
    pub(crate) cache: PathBuf,
    /// Its mirror.
    #[serde(default)]
    pub(crate) mirror: Option<PathBuf>,
    /// The cache device that the daemon was started with, if the cache has moved since.
    #[serde(default)]
    pub(crate) moved_from: Option<PathBuf>,
    /// The control socket.
    pub(crate) control: PathBuf,
    /// The places where clients connect.
    pub(crate) listeners: Vec<String>,
    /// The HTTP port.
    pub(crate) http: Option<String>,
    /// Whether there is TLS.
    pub(crate) tls: bool,
    /// The volumes and their origins, in order, if there is no cache that knows them.
    pub(crate) volumes: Vec<String>,
    /// The names of the volumes of a cache that knows its volumes.
    #[serde(default)]
    pub(crate) known: Vec<String>,
}
