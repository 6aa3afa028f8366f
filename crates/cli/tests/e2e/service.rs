// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon under a service manager: what it tells one, by the protocol of sd_notify(3).

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Daemon, Volume, must};

/// Far more than needed: the machine may be busy with other tests.
const LIMIT: Duration = Duration::from_secs(60);

/// What the manager hears next.
#[track_caller]
fn heard(manager: &UnixDatagram) -> String {
    let mut said = [0; 4096];
    let bytes = manager.recv(&mut said).expect("the daemon tells its manager");
    String::from_utf8_lossy(&said[..bytes]).into_owned()
}

#[test]
fn the_service_manager_is_told_when_clients_may_connect_and_of_the_stop() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let socket = volume.place.socket("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket can be made here");
    manager.set_read_timeout(Some(LIMIT)).expect("a socket may have a limit");
    let mut daemon = Daemon::spawn(volume.serve().env("NOTIFY_SOCKET", &socket), &volume.log);
    let said = heard(&manager);
    assert!(said.lines().any(|line| line == "READY=1") && said.contains(&volume.uri()), "{said}");
    volume.connect().write_at(0, &[1; 4096], true).expect("the volume can be written");
    daemon.ready();
    daemon.signal(Signal::TERM);
    let said = heard(&manager);
    assert!(said.lines().any(|line| line == "STOPPING=1"), "{said}");
    assert!(daemon.ended().success(), "{}", daemon.stderr());
}

#[test]
fn a_service_manager_that_is_gone_does_not_stop_the_daemon() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let gone = volume.place.socket("gone");
    let daemon = Daemon::spawn(volume.serve().env("NOTIFY_SOCKET", &gone), &volume.log);
    daemon.ready();
    volume.connect().write_at(0, &[1; 4096], true).expect("the volume can be written");
    daemon.stop();
    assert!(volume.stderr().contains("service manager can't be told"), "{}", volume.stderr());
}
