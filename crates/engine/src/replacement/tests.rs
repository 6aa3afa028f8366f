// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every replacement policy must do.

use super::ALL;
use crate::types::SegmentId;

#[test]
fn every_policy_offers_each_sealed_segment_once_and_respects_evictability() {
    for spec in ALL {
        let mut policy = (spec.build)(64);
        assert_eq!(policy.victim(&|_| true), None, "{}: nothing is sealed yet", spec.name);
        (0..64).for_each(|n| policy.sealed(SegmentId(n)));
        assert_eq!(policy.victim(&|_| false), None, "{}", spec.name);
        let mut seen = [false; 64];
        for _ in 0..64 {
            let victim = policy.victim(&|segment| !seen[segment.0 as usize]).expect("one is left");
            assert!(!seen[victim.0 as usize], "{}: offered an unevictable segment", spec.name);
            seen[victim.0 as usize] = true;
            policy.freed(victim);
        }
        assert_eq!(policy.victim(&|_| true), None, "{}: all are freed", spec.name);
    }
}

#[test]
fn every_policy_bounds_what_it_copies_forward() {
    for spec in ALL {
        let policy = (spec.build)(64);
        let mut kept = 0;
        for _ in 0..256 {
            kept += u32::from(policy.survives(3, kept, 256));
        }
        assert!(kept <= 64, "{}: copies {kept} of 256 blocks forward", spec.name);
        assert!(!policy.survives(0, 0, 256), "{}: keeps a block nobody asked for", spec.name);
    }
}
