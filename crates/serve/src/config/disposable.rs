// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the operator says of a cache device whose content may be gone at every start.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

/// The operator's word that the content of the cache device is worth nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposable {
    /// An empty device, or a cache of ours without dirty data, may be formatted.
    OwnOrEmpty,
    /// Whatever lies on this device may be formatted, but for dirty data that is known to be there.
    /// The path names the device once more, in full.
    Whatever(PathBuf),
}

impl Disposable {
    /// From the command line: a path is the device once more.
    #[must_use]
    pub fn of_flag(path: Option<PathBuf>) -> Self {
        path.map_or(Self::OwnOrEmpty, Self::Whatever)
    }

    /// The device that may hold anything, if the operator has named one.
    #[must_use]
    pub fn named(&self) -> Option<&Path> {
        match self {
            Self::OwnOrEmpty => None,
            Self::Whatever(path) => Some(path),
        }
    }
}

/// The key as it is written: `true`, `false`, or the device.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Switch(bool),
    Device(PathBuf),
}

pub(super) fn disposable_option<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Disposable>, D::Error> {
    let written = Written::deserialize(from)
        .map_err(|_| serde::de::Error::custom("disposable_cache is true, false, or the cache device once more"))?;
    Ok(match written {
        Written::Switch(false) => None,
        Written::Switch(true) => Some(Disposable::OwnOrEmpty),
        Written::Device(path) => Some(Disposable::Whatever(path)),
    })
}
