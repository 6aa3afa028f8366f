// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dirty set against a `BTreeSet`, through both layouts.

use alloc::collections::BTreeSet;

use super::{DirtySet, Flat};

#[test]
fn dirty_set_equals_a_set() {
    let mut state = 1u64;
    let mut random = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % n
    };
    for span in [200, 9000, 1 << 17, 1 << 19, 1 << 24] {
        let (mut set, mut model) = (DirtySet::default(), BTreeSet::new());
        for step in 0..60_000u64 {
            // Grow first, then shrink, so that regions change layout both ways.
            let flat = Flat((1 << 16) - 100 + random(span));
            if random(10) < if step < 30_000 { 7 } else { 2 } {
                set.insert(flat);
                model.insert(flat);
            } else {
                // One that is in, mostly: of many places few are.
                let flat = model.range(flat..).next().copied().filter(|_| step % 8 > 0).unwrap_or(flat);
                set.remove(flat);
                model.remove(&flat);
            }
            let from = Flat(random(span + (1 << 17)));
            assert_eq!(set.next(from), model.range(from..).next().copied());
            assert_eq!(set.len(), model.len() as u64);
        }
    }
}
