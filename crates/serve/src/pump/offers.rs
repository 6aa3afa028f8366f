// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volumes on offer, who uses them, and what operators want of them.

use std::io;

use super::Pump;
use crate::frontend::{Export, prefetch};

impl Pump {
    /// Brings a range of a volume into the cache, and answers the operator.
    ///
    /// # Errors
    /// None: the front-end has no sockets to watch.
    pub(crate) fn prefetch(&mut self, order: prefetch::Order) -> io::Result<()> {
        if self.prefetches.is_none() {
            let orders = prefetch::Orders::default();
            self.add_frontend(Box::new(prefetch::Prefetch::new(orders.clone())))?;
            self.prefetches = Some(orders);
        }
        if let Some(orders) = &self.prefetches {
            orders.give(order);
        }
        Ok(())
    }

    /// The volumes on offer.
    pub(crate) fn exports(&self) -> &[Export] {
        &self.exports
    }

    /// Offers other volumes from now on. Those who have opened one that is gone keep it open.
    pub(crate) fn set_exports(&mut self, exports: Vec<Export>) {
        self.exports = exports;
        for (frontend, _) in &mut self.frontends {
            frontend.exports_changed(&self.exports);
        }
    }

    /// Counts the clients of a volume, and the users of a block device that shows it.
    pub(crate) fn users_of(&self, export: &Export) -> usize {
        let devices = self.frontends.iter().filter(|(frontend, _)| frontend.only() == Some(export.origin));
        export.guests.count().max(devices.map(|(frontend, _)| frontend.holders()).sum())
    }

    /// The addresses at which clients reach a volume.
    pub(crate) fn uris_of(&self, export: &Export) -> Vec<String> {
        self.frontends.iter().filter_map(|(frontend, _)| frontend.uri_of(export)).collect()
    }
}
