// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the volumes are that a verb is about: at a running daemon, or in a stopped cache.

use std::path::PathBuf;

use clap::Args;
use flashfront_serve::failure;
use flashfront_serve::offline::{Volumes, VolumesError};

use crate::status::Socket;

/// A running daemon, or a stopped cache.
#[derive(Debug, Args)]
pub(super) struct Place {
    #[command(flatten)]
    socket: Socket,
    /// The cache device of a cache that no daemon serves now.
    #[arg(long, value_name = "PATH", conflicts_with = "control")]
    cache: Option<PathBuf>,
    /// The second cache device, if there are two.
    #[arg(long, value_name = "PATH", requires = "cache")]
    mirror: Option<PathBuf>,
    /// Folder for the memory of failed cache devices, as of `serve`; for --cache.
    #[arg(long, value_name = "DIR", requires = "cache")]
    state: Option<PathBuf>,
}

impl Place {
    /// The control socket of the daemon.
    pub(super) fn socket(&self) -> PathBuf {
        self.socket.path()
    }

    /// The stopped cache, if one is named; `writable`: it is to be changed.
    pub(super) fn stopped(&self, writable: bool) -> Result<Option<Volumes>, VolumesError> {
        let state = self.state.clone().or_else(failure::state_path);
        let open = |cache: &PathBuf| Volumes::open(cache, self.mirror.as_deref(), state.as_deref(), writable);
        self.cache.as_ref().map(open).transpose()
    }
}
