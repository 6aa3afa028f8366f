// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hooks by which the caller of a daemon takes part in its life.

use flashfront_device::Device;

use super::reload_handle::ReloadHandle;
use super::stop::StopHandle;
use crate::upgrade::Predecessor;

/// Changes a device into a slower or faultier one.
pub type Wrap = Box<dyn Fn(Box<dyn Device>) -> Box<dyn Device> + Send>;

/// Is told the URIs.
pub type Ready = Box<dyn FnOnce(&[String]) + Send>;

/// Hooks of a daemon's caller.
#[derive(Default)]
pub struct Hooks {
    /// Called once with the URIs when clients may connect.
    pub ready: Option<Ready>,
    /// Asks for a stop.
    pub stop: StopHandle,
    /// Brings a changed configuration.
    pub reload: ReloadHandle,
    /// The daemon whose place this one takes.
    pub predecessor: Option<Predecessor>,
    /// Called with the process that takes this one's place, right before it serves; with this
    /// process, if that came to nothing.
    pub successor: Option<Box<dyn Fn(u32) + Send>>,
    /// Wraps the cache device.
    pub wrap_cache: Option<Wrap>,
    /// Wraps the mirror.
    pub wrap_mirror: Option<Wrap>,
    /// Wraps each origin.
    pub wrap_origin: Option<Wrap>,
}
