// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the devices of a daemon are devices apart.

use std::path::Path;

use super::error::DevicesError;
use crate::mixup::Mixup;
use crate::storage;

/// Refuses two paths that lead to the same bytes.
pub(super) fn check_apart<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<(), DevicesError> {
    let paths: Vec<&Path> = paths.collect();
    for (nth, one) in paths.iter().enumerate() {
        for other in &paths[nth + 1..] {
            if let Some(shared) = storage::shared(one, other) {
                return Err(Mixup::SameDevice { one: (*one).into(), other: (*other).into(), shared }.into());
            }
        }
    }
    Ok(())
}
