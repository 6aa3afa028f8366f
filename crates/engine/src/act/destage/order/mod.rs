// SPDX-License-Identifier: MIT OR Apache-2.0
//! In which order dirty blocks go to their origins.
//!
//! An order sees places, not blocks: it asks for the next dirty place at or after another.

use alloc::boxed::Box;

use crate::policy::registry;

/// The dirty blocks, as an order sees them: places on one line, all origins one after the other.
pub trait DirtyView {
    /// The first dirty place at or after `from`.
    fn next(&self, from: u64) -> Option<u64>;
}

/// A destage order.
pub trait Order: Send {
    /// Where the next run starts; `None` when a sweep has come round (ask again for the next one).
    fn next(&mut self, view: &dyn DirtyView) -> Option<u64>;

    /// The run that starts there took everything before `end`.
    fn taken(&mut self, end: u64);
}

/// Makes an order.
pub type Build = fn() -> Box<dyn Order>;

registry! { Build: elevator }

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;

    use super::{ALL, DirtyView};

    struct Set(BTreeSet<u64>);

    impl DirtyView for Set {
        fn next(&self, from: u64) -> Option<u64> {
            self.0.range(from..).next().copied()
        }
    }

    #[test]
    fn every_order_visits_each_dirty_place_once_a_sweep() {
        for spec in ALL {
            let mut order = (spec.build)();
            let set = Set([5, 6, 900, 17, 1 << 40].into());
            for _ in 0..3 {
                let mut seen = Vec::new();
                while let Some(place) = order.next(&set) {
                    order.taken(place + 1);
                    seen.push(place);
                }
                seen.sort_unstable();
                assert_eq!(seen, set.0.iter().copied().collect::<Vec<_>>(), "{}", spec.name);
            }
        }
    }
}
