// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront set`: changes a running daemon, and says so in the log with the old value and the
//! new one.

use flashfront_engine::{BLOCK_BYTES, Control, Input, Mode};

use super::{Daemon, limit};
use crate::config::{DirtyLimit, Size};
use crate::control::Response;

/// What is to be changed; what is absent stays.
pub(super) struct Changes {
    /// Of which volume; of all if it is absent.
    pub(super) volume: Option<String>,
    pub(super) mode: Option<Mode>,
    pub(super) dirty_limit: Option<DirtyLimit>,
    pub(super) sequential_bypass: Option<Size>,
}

impl Daemon<'_> {
    pub(super) fn set(&mut self, changes: Changes) -> Response {
        let Changes { volume, mode, dirty_limit, sequential_bypass } = changes;
        let named = |at: &usize| volume.as_ref().is_none_or(|name| *name == self.config.volumes[*at].name);
        let volumes: Vec<usize> = (0..self.config.volumes.len()).filter(named).collect();
        if volumes.is_empty() {
            let known: Vec<&str> = self.config.volumes.iter().map(|volume| volume.name.as_str()).collect();
            let message = format!("no volume of that name; there are: {}", known.join(", "));
            return Response::Error { message };
        }
        // Everything is checked before anything is changed.
        let limit = dirty_limit.map(|asked| limit::blocks(asked, self.pump.engine().superblock()));
        let limit = match limit.transpose() {
            Ok(limit) => limit,
            Err(error) => return Response::Error { message: error.to_string() },
        };
        if let Some(mode) = mode {
            for at in volumes {
                let record = &self.pump.engine().superblock().origins[at];
                let (origin, before) = (record.id, record.mode);
                tell(&format!("volume {}: mode", self.config.volumes[at].name), before, mode);
                self.pump.apply(Input::Control(Control::SetMode { origin, mode }));
            }
        }
        if let Some(blocks) = limit {
            let limit = |daemon: &Self| Size(daemon.pump.engine().status().dirty_limit_blocks * BLOCK_BYTES);
            let before = limit(self);
            self.pump.apply(Input::Control(Control::SetDirtyLimit { blocks }));
            tell("dirty limit", before, limit(self));
        }
        if let Some(size) = sequential_bypass {
            tell("sequential bypass", self.sequential_bypass, size);
            self.sequential_bypass = size;
            self.pump.apply(Input::Control(Control::SetSequentialBypass { bytes: size.0 }));
        }
        Response::Done
    }
}

fn tell<T: std::fmt::Display>(what: &str, before: T, after: T) {
    tracing::info!("set by the operator: {what} from {before} to {after}");
}
