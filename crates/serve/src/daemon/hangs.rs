// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices that hang, as the operator is told of them: one warning when it begins, one line when it
//! is over.

use std::time::Duration;

use flashfront_engine::DeviceId;

use super::error::see;
use super::held::Held;
use crate::origin_errors::Site;
use crate::pump::{HangNews, Pump};
use crate::report::{HangReport, counted};

/// Tells the operator which devices began to hang or answer again since the last call.
pub(super) fn tell(pump: &mut Pump, held: &Held) {
    let news: Vec<HangNews> = pump.devices_mut().hangs().collect();
    for HangNews { device, silent, hang } in news {
        let (name, silent) = (held.name(device), humantime::format_duration(whole_seconds(silent)));
        let see = see(held.site(device) != Site::Here);
        match (hang, device) {
            (Some(hang), DeviceId::Origin(_)) => tracing::warn!(
                "{name}: the origin hangs: it has not answered for {silent}, and {} failed. All that needs it fails until these have ended; \
                     what is dirty stays in the cache. {see}",
                counted(hang.ios, "I/O")
            ),
            (Some(hang), DeviceId::Cache | DeviceId::Mirror) => tracing::warn!(
                "{name}: the cache device hangs: it has not answered for {silent}, and {} failed. It counts as failed. {see}",
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
pub(super) fn report(pump: &Pump, device: DeviceId) -> Option<HangReport> {
    let (hang, silent) = pump.devices().hang(pump.now(), device)?;
    Some(HangReport { silent_s: silent.as_secs(), ios: hang.ios, buffer_bytes: hang.bytes })
}

/// Rounds a time for people: to milliseconds below a second, else to seconds.
fn whole_seconds(time: Duration) -> Duration {
    if time < Duration::from_secs(1) {
        Duration::from_millis(time.as_millis() as u64)
    } else {
        Duration::from_secs(time.as_secs())
    }
}
