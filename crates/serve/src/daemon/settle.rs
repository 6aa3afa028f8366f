// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of origins that the cache has settled.

use super::Daemon;
use super::changes::folder;
use crate::stale;
use crate::uuid::uuid_text;

impl Daemon<'_> {
    /// The log has begun anew without what was dropped.
    pub(super) fn settle(&mut self) {
        if self.pump.engine().status().cache_failed {
            return;
        }
        let uuid = uuid_text(&self.pump.engine().superblock().uuid);
        for change in std::mem::take(&mut self.unsettled) {
            if let Err(error) = stale::settle(self.config.state.as_deref(), &change, &uuid) {
                tracing::warn!(
                    "{}: it can't be written down there that the cache has dropped its old data of {} ({error}), so the next start drops the clean data again. Make the state folder writable for this user",
                    folder(self.config),
                    change.origin
                );
            }
        }
    }
}
