// SPDX-License-Identifier: MIT OR Apache-2.0
//! `serve --inject`: the faults that were ordered come, no others, and nobody can miss that they
//! were ordered.

use crate::harness::{Daemon, MIB, Volume, must, output, show};

#[test]
fn ordered_faults_come_and_are_announced() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let faults = ["--inject", "origin:eio,op=read,at=1MiB..2MiB", "--inject", "cache:seed=3;stall,p=0.2,hold=3ms"];
    let daemon = Daemon::spawn(volume.serve().args(faults), &volume.log);
    daemon.ready();
    for fault in [faults[1], faults[3]] {
        let told = daemon.stderr().lines().any(|line| line.contains("FAULTS ARE INJECTED") && line.contains(fault));
        assert!(told, "{fault}\n{}", daemon.stderr());
    }
    let mut client = volume.connect();
    let mut bytes = [0; 8192];
    client.read_at(MIB, &mut bytes).expect_err("reads of this part fail");
    let data = [7; 8192];
    client.write_at(3 * MIB, &data, true).expect("writes do not");
    client.read_at(3 * MIB, &mut bytes).expect("nor do reads elsewhere");
    assert_eq!(bytes, data);
    drop(client);
    daemon.stop();
}

#[test]
fn faults_that_cannot_be_read_are_refused() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    for (spec, says) in [("cache:fire", "`fire` is no fault"), ("tape:eio", "mirror:FAULTS or origin:FAULTS")] {
        let refused = output(volume.serve().args(["--inject", spec]));
        assert!(!refused.status.success(), "{spec}");
        assert!(show(&refused).contains(says), "{spec}: {}", show(&refused));
    }
}
