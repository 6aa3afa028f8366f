// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path of a device for readers in other folders: operators, and the next start.

use flashfront_device::real::{DeviceFile, is_uri};

/// A path that means the same to a reader in another folder.
pub(super) fn whole(device: &DeviceFile) -> String {
    let path = device.path();
    if is_uri(path) {
        return path.display().to_string();
    }
    std::path::absolute(path).as_deref().unwrap_or(path).display().to_string()
}
