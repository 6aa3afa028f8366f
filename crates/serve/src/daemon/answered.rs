// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work on devices at a start and at a stop, for which each device has the time that the config
//! gives it.

use std::path::Path;
use std::time::Duration;

use flashfront_device::real::{Silent, asking, watched};

use super::error::ServeError;
use crate::config::Config;

impl From<Silent> for ServeError {
    fn from(Silent { path, limit }: Silent) -> Self {
        Self::Silent { path, limit }
    }
}

/// Does this, unless a device of the config does not answer in time. The log goes where this
/// thread's goes.
pub(super) fn answered<T: Send + 'static>(
    config: &Config,
    work: impl FnOnce(&Config) -> T + Send + 'static,
) -> Result<T, Silent> {
    let (limits, config) = (config.clone(), config.clone());
    let log = tracing::dispatcher::get_default(Clone::clone);
    let limit = move |path: &Path| limits.timeout_of(path);
    watched(limit, move || tracing::dispatcher::with_default(&log, || work(&config)))
}

/// Looks whether the origins are there at all, so that no later look at their paths sleeps.
pub(super) fn find(config: &Config) {
    for path in config.volumes.iter().map(|volume| &volume.origin) {
        // An origin with a fault is told of when it is opened.
        let _ = asking(path, || std::fs::metadata(path));
    }
}

impl Config {
    /// The time that the device at this path has to answer; `None`: for ever.
    pub(super) fn timeout_of(&self, path: &Path) -> Option<Duration> {
        match self.volumes.iter().find(|volume| volume.origin == path) {
            Some(volume) => self.timeout_of_origin(volume),
            None => self.timeout_of_cache(path),
        }
    }
}
