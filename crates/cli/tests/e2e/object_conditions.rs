// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stores that would let two writers of a volume go on: they know no `If-None-Match`, or a proxy
//! drops it.

use std::thread;

use serde_json::Value;

use crate::harness::{Disk, Form, Maker, Place, Store, Weather, flashfront, must, output, prefix, show, write};

const STRIPS: Weather =
    Weather { busy: 0, broken: 0, cut: 0, late: std::time::Duration::ZERO, is_away: false, strips_conditions: true };

/// No volume is made in a store that drops conditions, unless its user answers for a single writer.
#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let Some(store) = Store::server(Maker::Moto) else { return };
    store.proxy().set(STRIPS);
    let place = Place::new();
    let url = store.url(&place, "refused");
    let mut create = flashfront();
    create.args(["object", "create", &url, "--size", "16MiB"]);
    let said = show(&output(store.known(&mut create)));
    assert!(said.contains("exit status: 1") && said.contains("so two writers could destroy a volume here"), "{said}");
    let said = show(&output(store.known(flashfront().args(["object", "info", &url]))));
    assert!(said.contains("there is no volume here"), "{said}");

    let mut disk = Disk::with(store, Form::PLAIN, &["--size", "16MiB", "--single-writer"]);
    let info: Value = serde_json::from_str(&disk.object("info", &["--json"])).expect("JSON");
    assert_eq!(info["single_writer"], true, "{info}");
    for round in 0..3 {
        disk.start();
        write(&disk.volume, round * 20..round * 20 + 20);
        disk.volume.kill9();
        prefix(&disk.content(), 60);
    }
    disk.start();
    disk.volume.drain();
    disk.object("snapshot", &["kept"]);
    disk.volume.stop();
    assert_eq!(prefix(&disk.content(), 60), 60);
}

/// A proxy that drops conditions came later. The next start notices it, and takes nothing over.
#[test]
fn a_start_notices_that_conditions_are_ignored() {
    let Some(store) = Store::server(Maker::Moto) else { return };
    let mut disk = Disk::new(store, Form::PLAIN);
    disk.start();
    write(&disk.volume, 0..20);
    disk.volume.drain();
    disk.volume.stop();
    let before = disk.object("info", &["--json"]);
    disk.store.proxy().set(STRIPS);
    for mut command in [disk.volume.serve(), disk.object_command("gc", &[]), disk.object_command("snapshot", &["kept"])]
    {
        let said = show(&output(disk.known(&mut command)));
        assert!(said.contains("exit status: 1") && said.contains("creates an object anew that is there"), "{said}");
    }
    assert_eq!(disk.object("info", &["--json"]), before, "a refused start has changed something");
    disk.store.proxy().set(Weather::default());
    disk.start();
    disk.volume.stop();
    assert_eq!(prefix(&disk.content(), 20), 20);
}

/// Three creators race, and one wins. A store of which two would win is refused by all.
#[test]
fn a_race_of_creators_has_one_winner_in_a_server() {
    for store in Store::servers() {
        let place = Place::new();
        for round in 0..5 {
            let url = store.url(&place, &format!("race{round}"));
            let create = || {
                let mut command = flashfront();
                show(&output(store.known(command.args(["object", "create", &url, "--size", "1GiB"]))))
            };
            let said: Vec<String> = thread::scope(|scope| {
                let creators: Vec<_> = (0..3).map(|_| scope.spawn(create)).collect();
                creators.into_iter().map(|it| it.join().expect("no panic")).collect()
            });
            let winners = said.iter().filter(|it| it.contains("exit status: 0")).count();
            let are_all_refused = said.iter().all(|it| it.contains("create the same object at the same time"));
            assert!(winners == 1 || are_all_refused, "{said:?}");
            if winners == 1 {
                must(store.known(flashfront().args(["object", "check", &url])));
            }
        }
    }
}
