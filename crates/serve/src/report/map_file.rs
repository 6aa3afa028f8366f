// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of `status` about the file with pages of maps of volumes in object stores.

use flashfront_device::real::MapFileFigures;
use serde::{Deserialize, Serialize};

/// The file with pages of maps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapFileReport {
    /// Where it is.
    pub path: String,
    /// Bytes that it may have.
    pub size_bytes: u64,
    /// Pages in it.
    pub pages: u64,
    /// Bytes of these.
    pub page_bytes: u64,
    /// GETs of pages that the file has saved since the start.
    pub saved_gets: u64,
    /// GETs of pages that the store had to answer.
    pub missed_gets: u64,
    /// Whether it keeps pages: not before it was read, and not when it can't be had.
    pub is_ready: bool,
    /// Why it keeps none.
    pub off: Option<String>,
}

impl From<&MapFileFigures> for MapFileReport {
    fn from(it: &MapFileFigures) -> Self {
        Self {
            path: it.path.display().to_string(),
            size_bytes: it.size_bytes,
            pages: it.pages,
            page_bytes: it.page_bytes,
            saved_gets: it.saved_gets,
            missed_gets: it.missed_gets,
            is_ready: it.is_ready,
            off: it.off.clone(),
        }
    }
}
