// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront set`: changes a running daemon, and says so in the log with the old value and the
//! new one.

use flashfront_engine::{BLOCK_BYTES, Control, Input, Mode};

use super::limit;
use crate::config::{Config, ConfigError, DirtyLimit, Size, is_for_disposable};
use crate::control::Response;
use crate::pump::Pump;

/// Changes of a running daemon; a value that is absent stays.
pub(super) struct Changes {
    /// The volume that is changed; all volumes if it is absent.
    pub(super) volume: Option<String>,
    pub(super) mode: Option<Mode>,
    pub(super) dirty_limit: Option<DirtyLimit>,
    pub(super) sequential_bypass: Option<Size>,
}

/// Changes the engine; `sequential_bypass` is the value that is in force, and gets the new one.
pub(super) fn set(config: &Config, pump: &mut Pump, sequential_bypass: &mut Size, changes: Changes) -> Response {
    let Changes { volume, mode, dirty_limit, sequential_bypass: bypass } = changes;
    let named = |at: &usize| volume.as_ref().is_none_or(|name| *name == config.volumes[*at].name);
    let volumes: Vec<usize> = (0..config.volumes.len()).filter(named).collect();
    if volumes.is_empty() {
        let known: Vec<&str> = config.volumes.iter().map(|volume| volume.name.as_str()).collect();
        let message = format!("no volume of that name; there are: {}", known.join(", "));
        return Response::Error { message };
    }
    // Everything is checked before anything is changed.
    if let Some(mode) = mode.filter(|mode| config.disposable_cache.is_some() && !is_for_disposable(*mode)) {
        return Response::Error { message: ConfigError::DisposableMode(mode).to_string() };
    }
    let limit = dirty_limit.map(|asked| limit::blocks(asked, pump.engine().superblock()));
    let limit = match limit.transpose() {
        Ok(limit) => limit,
        Err(error) => return Response::Error { message: error.to_string() },
    };
    if let Some(mode) = mode {
        for at in volumes {
            let origin = config.volumes[at].id;
            let before = pump.engine().status().origins.iter().find(|it| it.id == origin).map(|it| it.mode);
            let Some(before) = before else { continue };
            tell(&format!("volume {}: mode", config.volumes[at].name), before, mode);
            pump.apply(Input::Control(Control::SetMode { origin, mode }));
        }
    }
    if let Some(blocks) = limit {
        let limit = |pump: &Pump| Size(pump.engine().status().dirty_limit_blocks * BLOCK_BYTES);
        let before = limit(pump);
        pump.apply(Input::Control(Control::SetDirtyLimit { blocks }));
        tell("dirty limit", before, limit(pump));
    }
    if let Some(size) = bypass {
        tell("sequential bypass", *sequential_bypass, size);
        *sequential_bypass = size;
        pump.apply(Input::Control(Control::SetSequentialBypass { bytes: size.0 }));
    }
    Response::Done
}

fn tell<T: std::fmt::Display>(what: &str, before: T, after: T) {
    tracing::info!("set by the operator: {what} from {before} to {after}");
}
