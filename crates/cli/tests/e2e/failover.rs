// SPDX-License-Identifier: MIT OR Apache-2.0
//! A second host: it keeps the mirror of the first one's cache, and takes over alone when that one
//! dies under load.
//!
//! The hosts share nothing but the origin's server. The second one has neither the first one's
//! cache device nor its folder of state.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use crate::harness::{Daemon, MIB, Random, Volume, must, skip_without, tool};
use crate::refusal::assert_refused;
use crate::servers::Server;
use crate::stamps::{Record, SECTOR};
use crate::tls::pki;
use crate::writers::{Answered, lock, write_until_over};

const WRITERS: u64 = 2;
const PART_SECTORS: u64 = 16 * MIB / SECTOR as u64;

#[test]
fn a_second_host_takes_over_with_the_mirror() {
    if skip_without(&["nbdkit"]) {
        return;
    }
    let (mut first, mut second) = (Volume::new(32, 32), Volume::new(32, 1));
    let image = first.origin.clone();
    let pki = pki(second.place.dir(), "hosts");
    let nbdkit = |of: std::path::PathBuf, at: std::path::PathBuf, options: Vec<String>| {
        Server::new(at.clone(), move || {
            let mut command = tool("nbdkit");
            command.arg("--foreground").arg("--unix").arg(&at).args(&options).arg("file").arg(&of);
            command
        })
    };
    let mut origin = nbdkit(image.clone(), first.place.socket("storage"), Vec::new());
    origin.start();
    let inside = vec![
        "--tls=require".to_owned(),
        "--tls-verify-peer".to_owned(),
        format!("--tls-certificates={}", pki.server.display()),
    ];
    let mut mirror = nbdkit(second.cache.clone(), second.place.socket("mirror"), inside);
    mirror.start();
    (first.origin, second.origin) = (origin.uri(), origin.uri());
    let socket = second.place.socket("mirror");
    let uri = format!("nbds+unix:///?socket={}&tls-certificates={}", socket.display(), pki.client.display());
    let with_mirror = |volume: &Volume| {
        let mut command = volume.serve();
        command.arg("--mirror").arg(&uri);
        command
    };
    must(first.format().arg("--mirror").arg(&uri));
    let daemon = Daemon::spawn(&mut with_mirror(&first), &first.log);
    daemon.ready();

    let records: Vec<_> =
        (0..WRITERS).map(|nth| Mutex::new(Record::new(1, nth * PART_SECTORS, PART_SECTORS))).collect();
    let answered = Answered::default();
    let clients: Vec<_> = records.iter().map(|_| first.connect()).collect();
    std::thread::scope(|scope| {
        for (nth, mut client) in clients.into_iter().enumerate() {
            let (answered, records) = (&answered, &records);
            scope.spawn(move || {
                let mut random = Random::new(nth as u64);
                let written = write_until_over(&mut client, records, nth, &mut random, answered);
                answered.gone();
                written.expect_err("the daemon dies");
            });
        }
        answered.wait_for(1000);
        daemon.kill9();
    });

    // The second host takes its own device back, so that nobody else writes there.
    mirror.kill9();
    assert_refused(&second.place, &mut second.serve(), &["half of a mirrored cache", "--without-mirror"]);
    second.options = vec!["--without-mirror"];
    second.start();
    let mut client = second.connect();
    let mut bytes = vec![0; PART_SECTORS as usize * SECTOR];
    for record in &records {
        let mut record = lock(record);
        let from = record.first();
        client.read_at(from * SECTOR as u64, &mut bytes).expect("the volume can be read");
        assert_eq!(record.wrong_after_crash(from, &bytes), None, "{}", second.stderr());
        record.adopt(from, &bytes);
        let payload = record.issue(from, 64);
        client.write_at(from * SECTOR as u64, &payload, true).expect("the volume can be written");
        record.acknowledge(from, 64);
    }
    second.drain();
    second.stop();
    origin.kill9();
    let held = fs::File::open(&image).expect("the file is ours");
    for record in &records {
        let record = lock(record);
        held.read_exact_at(&mut bytes, record.first() * SECTOR as u64).expect("the file is ours");
        assert_eq!(record.wrong_alive(record.first(), &bytes), None);
    }
    // The first host's cache is old now. Nobody serves it by mistake.
    origin.start();
    assert_refused(&first.place, &mut first.serve(), &["half of a mirrored cache", "--without-mirror"]);
    mirror.start();
    let daemon = Daemon::spawn(&mut with_mirror(&first), &first.log);
    daemon.ready();
    assert!(first.stderr().contains("it was left out"), "{}", first.stderr());
    let mut client = first.connect();
    for record in &records {
        let record = lock(record);
        client.read_at(record.first() * SECTOR as u64, &mut bytes).expect("the volume can be read");
        assert_eq!(record.wrong_alive(record.first(), &bytes), None);
    }
    daemon.stop();
}
