// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device models do what the devices did.

use flashfront_sim::calibrate::rows;

/// Each published row of a bare device within 10 %.
#[test]
fn calibration() {
    let rows = rows(&mut |_| ());
    assert_eq!(rows.len(), 34);
    for row in rows {
        let ratio = row.simulated / row.published;
        assert!((0.9..=1.1).contains(&ratio), "{}: {}: {ratio:.3} of what was published", row.device, row.job);
    }
}
