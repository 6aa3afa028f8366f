// SPDX-License-Identifier: MIT OR Apache-2.0
//! What engines before this one had counted, where a daemon hands its clients over. The counters of
//! the status go on from there.

use alloc::vec::Vec;

use crate::fact::status::{Counters, OriginStatus, Status};

/// The counters of the engines before, and of their origins.
#[derive(Default)]
pub(crate) struct Earlier {
    counters: Counters,
    origins: Vec<OriginStatus>,
}

impl Earlier {
    pub(crate) const fn new(counters: Counters, origins: Vec<OriginStatus>) -> Self {
        Self { counters, origins }
    }

    /// Adds them to what this engine has counted.
    pub(crate) fn added_to(&self, mut status: Status) -> Status {
        status.counters.add(&self.counters);
        for now in &mut status.origins {
            let Some(before) = self.origins.iter().find(|it| it.id == now.id) else { continue };
            now.logged_blocks += before.logged_blocks;
            now.evicted_blocks += before.evicted_blocks;
            now.evicted_below_min += before.evicted_below_min;
            now.evicted_at_max += before.evicted_at_max;
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::types::OriginId;

    #[test]
    fn counters_go_on_and_levels_are_those_of_now() {
        let origin = |id, evicted_blocks| OriginStatus {
            id: OriginId(id),
            blocks_dirty: 5,
            evicted_blocks,
            ..OriginStatus::default()
        };
        let before =
            Earlier::new(Counters { reads: 7, ..Counters::default() }, alloc::vec![origin(1, 10), origin(3, 30)]);
        let counters = Counters { reads: 1, writes: 2, ..Counters::default() };
        let now = Status { counters, origins: alloc::vec![origin(1, 1), origin(2, 2)], ..Status::default() };
        let told = before.added_to(now.clone());
        assert_eq!(told.counters, Counters { reads: 8, ..counters });
        assert_eq!(told.origins, [origin(1, 11), origin(2, 2)]);
        assert_eq!(Earlier::default().added_to(now.clone()), now);
    }
}
