// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the devices of a daemon are devices apart.

use std::path::Path;

use flashfront_device::real::Storage;

use super::error::DevicesError;
use crate::mixup::Mixup;

/// Refuses two paths that lead to the same bytes.
pub(super) fn check_apart<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<(), DevicesError> {
    let paths: Vec<&Path> = paths.collect();
    let all: Vec<_> = paths.iter().map(|path| Storage::behind(path)).collect();
    match Storage::first_shared(&all) {
        Some((one, other, shared)) => {
            Err(Mixup::SameDevice { one: paths[one].into(), other: paths[other].into(), shared }.into())
        }
        None => Ok(()),
    }
}
