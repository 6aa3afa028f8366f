// SPDX-License-Identifier: MIT OR Apache-2.0
//! In which order dirty blocks go to their origins.
//!
//! An order sees places, not blocks: it asks for the next dirty place at or after another.

use alloc::boxed::Box;

use crate::organ::index::Flat;
use crate::policy::registry;

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This place.
    At(u64),
    /// There is nothing more.
    Nothing,
    /// Lanes have to show more first: ask again.
    Unknown,
}

impl From<Option<Flat>> for Next {
    fn from(next: Option<Flat>) -> Self {
        next.map_or(Self::Nothing, |flat| Self::At(flat.0))
    }
}

/// The dirty blocks, as an order sees them: places on one line, all origins one after the other.
pub trait DirtyView {
    /// The first dirty place at or after `from`.
    fn next(&self, from: u64) -> Next;
}

/// A destage order.
pub trait Order: Send {
    /// Where the next run starts; nothing when a sweep has come round (ask again for the next one).
    fn next(&mut self, view: &dyn DirtyView) -> Next;

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

    use super::{ALL, DirtyView, Next};

    struct Set(BTreeSet<u64>);

    impl DirtyView for Set {
        fn next(&self, from: u64) -> Next {
            self.0.range(from..).next().map_or(Next::Nothing, |place| Next::At(*place))
        }
    }

    /// A view of lanes that have shown nothing.
    struct Unseen;

    impl DirtyView for Unseen {
        fn next(&self, _: u64) -> Next {
            Next::Unknown
        }
    }

    #[test]
    fn every_order_visits_each_dirty_place_once_a_sweep() {
        for spec in ALL {
            let mut order = (spec.build)();
            let set = Set([5, 6, 900, 17, 1 << 40].into());
            for _ in 0..3 {
                let mut seen = Vec::new();
                loop {
                    assert_eq!(
                        order.next(&Unseen),
                        Next::Unknown,
                        "{}: a sweep ends where nothing is, for sure",
                        spec.name
                    );
                    let Next::At(place) = order.next(&set) else { break };
                    order.taken(place + 1);
                    seen.push(place);
                }
                seen.sort_unstable();
                assert_eq!(seen, set.0.iter().copied().collect::<Vec<_>>(), "{}", spec.name);
            }
        }
    }
}
