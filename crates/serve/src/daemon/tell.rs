// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine has to tell, as the operator's log.

use flashfront_engine::{DeviceId, Event, OriginId};

use super::Daemon;

impl Daemon<'_> {
    /// Writes the operator's log.
    pub(super) fn tell(&mut self, event: Event) {
        self.log(event);
        // Several I/Os fail with the device; what follows from that is told once.
        if matches!(event, Event::DeviceFailed { device: DeviceId::Cache, .. })
            && !self.failure_told
            && self.pump.engine().status().cache_failed
        {
            self.failure_told = true;
            tracing::error!(
                "{}: the cache device failed, and nothing new is trusted to it. What it can still be read of is being served, and destaged: run `flashfront drain`, then stop, and do not serve this cache again",
                self.config.cache.display()
            );
        }
    }

    fn log(&self, event: Event) {
        let name = |id: OriginId| {
            let at = self.pump.engine().superblock().origins.iter().position(|record| record.id == id);
            at.map_or("?", |at| self.config.volumes[at].name.as_str())
        };
        match event {
            Event::Corrupt { key, dirty: false } => tracing::warn!(
                "volume {}: sector {} was corrupt on the cache device; read from the origin instead",
                name(key.origin),
                key.block.0 * 8
            ),
            Event::Corrupt { key, dirty: true } => tracing::error!(
                "volume {}: the 8 sectors from {} are LOST: dirty, and corrupt on the cache device. Reads of them fail until they are written anew; `flashfront status` lists them",
                name(key.origin),
                key.block.0 * 8
            ),
            Event::DeviceFailed { device, op, offset, error } => {
                tracing::error!("{device:?}: {op:?} at byte {offset} failed: {error:?}");
            }
            Event::DestageFailed { origin, error } => tracing::error!(
                "volume {}: writing dirty data to the origin failed ({error:?}); it stays in the cache and is tried again",
                name(origin)
            ),
            Event::ModeChanged { origin, mode } => tracing::info!("volume {}: mode is {mode} now", name(origin)),
            Event::Drained => match self.pump.engine().status().lost.len() {
                0 => tracing::info!("drained: nothing is dirty"),
                lost => tracing::warn!("drained but for {lost} lost blocks; `flashfront status` lists them"),
            },
            Event::Ready { .. } | Event::OpenFailed(_) | Event::Stopped => {}
        }
    }
}
