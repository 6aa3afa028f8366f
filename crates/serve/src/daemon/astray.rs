// SPDX-License-Identifier: MIT OR Apache-2.0
//! Origins that are files, and whose path leads to another file by now, or to none: removed,
//! replaced or renamed while they are served.
//!
//! The daemon goes on with the file that is open. If that file has no name, all of it is gone when
//! the daemon ends. So the operator is told while it can still be copied.

use flashfront_device::real::{Astray, DeviceFile};
use flashfront_engine::Time;

use super::held::Held;

/// The least time between two looks. A daemon that has nothing to do is not woken for one.
const EVERY_NS: u64 = 10_000_000_000;

/// Looks after the names of origins.
#[derive(Debug, Default)]
pub(super) struct Names {
    due: Time,
    /// What the operator has been told last.
    told: Vec<String>,
}

impl Names {
    /// Tells the operator what became of origins since the last look.
    pub(super) fn look(&mut self, now: Time, held: &Held) {
        if now < self.due {
            return;
        }
        self.due = Time(now.0 + EVERY_NS);
        let found: Vec<String> = held.origins().iter().filter_map(|origin| said(origin)).collect();
        found.iter().filter(|it| !self.told.contains(it)).for_each(|it| tracing::warn!("{it}"));
        self.told = found;
    }
}

/// Says for people what became of the name of an origin, and what to do.
pub(super) fn said(origin: &DeviceFile) -> Option<String> {
    let path = origin.path().display();
    Some(match origin.astray()? {
        Astray::Nameless(open) => format!(
            "{path}: the file of this origin was removed, or another file has its place. What clients write goes to the removed file, which is gone when this daemon ends. Before you stop it: `flashfront drain`, then `cp --sparse=always {} PLACE`",
            open.display()
        ),
        Astray::Renamed => format!(
            "{path}: the file of this origin has another name now. What clients write goes to that file. Give it its name back, or name it at the next start"
        ),
    })
}

/// Says which origin is astray, if any is. To open its path would open another file.
pub(super) fn any(held: &Held) -> Option<String> {
    held.origins().iter().find_map(|origin| said(origin))
}

/// Says that the file of an origin is gone with this daemon, if it is.
pub(super) fn lost(origin: &DeviceFile) -> Option<String> {
    matches!(origin.astray()?, Astray::Nameless(_)).then(|| origin.path().display().to_string())
}
