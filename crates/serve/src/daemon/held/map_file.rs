// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file with pages of maps of volumes in object stores (ADR 0081), if the operator wants one.
//!
//! Whatever is wrong with it, the daemon serves, and says so.

use flashfront_device::real::MapFile;

use crate::config::Config;
use crate::state;

/// The name in the state folder.
const NAME: &str = "map-pages";

/// Begins to open the file.
pub(super) fn open(config: &Config) -> Option<MapFile> {
    let size_bytes = config.map_file_bytes.0;
    if size_bytes == 0 {
        return None;
    }
    let path = match (&config.map_file, &config.state) {
        (Some(path), _) => path.clone(),
        (None, Some(state)) => {
            // If there is no folder, the file can't be had, and that is told.
            let _ = state::make_folder(state);
            state.join(NAME)
        }
        (None, None) => {
            tracing::warn!("there is no state folder, so no page of a map is kept; name a file with map_file");
            return None;
        }
    };
    // The log goes where this thread's goes.
    let log = tracing::dispatcher::get_default(Clone::clone);
    let tell = move |why: &str| tracing::dispatcher::with_default(&log, || tracing::warn!("{why}"));
    let opened = MapFile::open(&path, size_bytes, Box::new(tell));
    opened.inspect_err(|error| tracing::warn!("{}: {error}; no page of a map is kept", path.display())).ok()
}
