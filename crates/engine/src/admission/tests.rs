// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every admission policy must do, and what `second_miss` promises.

use super::{ALL, View, by_name};

const FULL: View = View { room: false };

#[test]
fn every_policy_admits_while_there_is_room_and_what_keeps_missing() {
    for spec in ALL {
        let mut policy = (spec.build)(1000);
        assert!((0..1000).all(|key| policy.admit(key, View { room: true })), "{}", spec.name);
        let admitted = (0..4).any(|_| policy.admit(77_777, FULL));
        assert!(admitted, "{}: a block that misses again and again never gets in", spec.name);
        assert!(policy.bytes() <= 4 * 1000, "{}: more than 4 bytes a block", spec.name);
        assert!(by_name(spec.name).is_some());
    }
    assert!(by_name("nonsense").is_none());
}

#[test]
fn second_miss_keeps_a_scan_out_and_lets_the_second_miss_in() {
    let mut policy = (by_name("second_miss").unwrap().build)(1000);
    let admitted = (0..100_000).filter(|&key| policy.admit(key, FULL)).count();
    assert!(admitted < 100, "{admitted} blocks of a scan were admitted");
    assert!(!policy.admit(1 << 40, FULL));
    assert!(policy.admit(1 << 40, FULL), "the second miss is in");
    policy.evicted(1 << 41);
    assert!(policy.admit(1 << 41, FULL), "an evicted block that misses is in");
}
