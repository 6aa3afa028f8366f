// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices that hang, as the operator is told of them: one warning when it begins, one line when it
//! is over.

use std::time::Duration;

use flashfront_engine::DeviceId;

use super::Daemon;
use crate::pump::HangNews;
use crate::report::{HangReport, counted};

impl Daemon<'_> {
    /// Tells what is new.
    pub(super) fn tell_hangs(&mut self) {
        let news: Vec<HangNews> = self.pump.hangs().collect();
        for HangNews { device, silent, hang } in news {
            let (name, silent) = (self.device(device), humantime::format_duration(whole_seconds(silent)));
            match (hang, device) {
                (Some(hang), DeviceId::Origin(_)) => tracing::warn!(
                    "{name}: the origin hangs: it has not answered for {silent}, and {} failed. All that needs it fails until these have ended; \
                     what is dirty stays in the cache. See `dmesg`",
                    counted(hang.ios, "I/O")
                ),
                (Some(hang), DeviceId::Cache | DeviceId::Mirror) => tracing::warn!(
                    "{name}: the cache device hangs: it has not answered for {silent}, and {} failed. It counts as failed. See `dmesg`",
                    counted(hang.ios, "I/O")
                ),
                (None, DeviceId::Origin(_)) => {
                    tracing::info!("{name}: the origin answers again, after {silent}, and is used as before");
                }
                (None, DeviceId::Cache | DeviceId::Mirror) => tracing::info!(
                    "{name}: the cache device answers again, after {silent}; what only it holds can be read, and nothing new is put on it"
                ),
            }
        }
    }

    /// How a device hangs, for `status`.
    pub(super) fn hang(&self, device: DeviceId) -> Option<HangReport> {
        let (hang, silent) = self.pump.hang(device)?;
        Some(HangReport { silent_s: silent.as_secs(), ios: hang.ios, buffer_bytes: hang.bytes })
    }
}

/// Nobody wants to know nanoseconds; less than a second is told in milliseconds.
fn whole_seconds(time: Duration) -> Duration {
    if time < Duration::from_secs(1) {
        Duration::from_millis(time.as_millis() as u64)
    } else {
        Duration::from_secs(time.as_secs())
    }
}
