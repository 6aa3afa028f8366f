// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of how long a device may be silent.

use std::time::Duration;

use flashfront_device::real::{Prefer, Reactor};
use flashfront_device::sim::{RamDisk, RamSpec};
use flashfront_engine::{DeviceId, OriginId, Time};

use super::{DeviceSet, Devices};

fn at(seconds: u64) -> Time {
    Time(seconds * 1_000_000_000)
}

#[test]
fn silent_devices_are_known_by_their_time() {
    let origin = DeviceId::Origin(OriginId(0));
    let all = [DeviceId::Cache, origin].map(|id| (id, Box::new(RamDisk::new(RamSpec::default())) as _));
    let mut devices = DeviceSet::new(Devices { all: all.into(), reactor: Reactor::new(Prefer::Auto).unwrap() });
    let longest = Duration::from_secs(20);
    devices.attached[1].under_way = 1;
    assert_eq!(devices.silent(at(19), Time(0), longest), None);
    assert_eq!(devices.silent(at(21), Time(0), longest), Some((origin, Duration::from_secs(21))));
    // Silence before the stop is not held against the device.
    assert_eq!(devices.silent(at(21), at(21), longest), None);
    devices.attached[1].moved = at(21);
    assert_eq!(devices.silent(at(21), Time(0), longest), None);
    devices.attached[1].under_way = 0;
    assert_eq!(devices.silent(at(51), Time(0), longest), None, "it has nothing to do");
}
