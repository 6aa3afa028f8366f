// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that meet another program's command at each of their requests.

use std::sync::Arc;

use flashfront_bucket::{Error, Memory, Place, Store, clone, forget, snapshot, survey};
use flashfront_object::Mode;

use super::mortal::{Meets, Mortal};
use super::{MONDAY, NEWEST, collect, content, is_sound, snapshot_content, volume, write};

/// Gives a command, and lets another one come before each of its requests in turn.
fn meet(other: fn(&Place), command: impl Fn(&Place) -> Result<(), Error>, judge: impl Fn(&Place, Result<(), Error>)) {
    let mut requests = 0;
    loop {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let place = Place::in_store(Arc::clone(&store), "disk");
        volume(&place);
        let beside = place.clone();
        let meets = Meets::new(&store, requests, move || other(&beside));
        let done = command(&Place::in_store(Arc::clone(&meets) as Arc<dyn Store>, "disk"));
        judge(&place, done);
        if !meets.has_met() {
            assert!(requests > 3, "the command asks for something");
            return;
        }
        requests += 1;
    }
}

/// The snapshot is forgotten, and what it alone needed is deleted.
fn forgets(place: &Place) {
    forget(place, "monday").expect("this store is well");
    collect(place).expect("this store is well");
}

#[test]
fn a_clone_of_a_snapshot_that_is_forgotten_meanwhile_is_whole_or_refused() {
    let copy = |place: &Place| Place::in_store(Arc::clone(place.store()), "copy");
    meet(
        forgets,
        |place| clone(place, "monday", &copy(place)),
        |place, done| {
            match (done, content(&copy(place), Mode::Read)) {
                (Ok(()), Ok(found)) => {
                    assert_eq!(found, MONDAY);
                    is_sound(&copy(place));
                }
                (Err(_), Err(Error::NoVolume { .. })) => {}
                (done, found) => panic!("the clone ended with {done:?}, and holds {found:?}"),
            }
            assert_eq!(content(place, Mode::Read).unwrap(), NEWEST);
            is_sound(place);
        },
    );
}

#[test]
fn of_two_clones_of_a_snapshot_that_is_forgotten_meanwhile_one_keeps_what_it_needs() {
    fn copy(place: &Place) -> Place {
        Place::in_store(Arc::clone(place.store()), "copy")
    }
    fn clones_and_forgets(place: &Place) {
        match clone(place, "monday", &copy(place)) {
            Ok(()) | Err(Error::Exists { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        forgets(place);
    }
    meet(
        clones_and_forgets,
        |place| clone(place, "monday", &copy(place)),
        |place, done| {
            match done {
                Ok(()) | Err(Error::Exists { .. } | Error::NoSnapshot { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            write(place, &[(2, 10), (3, 11)]).unwrap();
            collect(place).unwrap();
            assert_eq!(content(&copy(place), Mode::Read).unwrap(), MONDAY);
            is_sound(&copy(place));
            // The one that was refused holds nothing.
            let found = survey(place, false, |_, _| {}).unwrap();
            let holds: Vec<_> = found.snapshots.iter().filter(|it| *it != "monday").collect();
            assert_eq!((holds.len(), found.unclaimed), (1, Vec::new()), "{holds:?}");
            assert!(matches!(forget(place, holds[0]), Err(Error::Needed { .. })));
        },
    );
}

#[test]
fn of_two_clones_to_one_place_at_a_time_one_is_whole_and_the_other_is_refused() {
    fn copy(place: &Place) -> Place {
        Place::in_store(Arc::clone(place.store()), "copy")
    }
    fn clones(place: &Place) {
        snapshot(place, "tuesday").expect("this store is well");
        match clone(place, "tuesday", &copy(place)) {
            Ok(()) | Err(Error::Exists { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    meet(
        clones,
        |place| clone(place, "monday", &copy(place)),
        |place, done| {
            let found = content(&copy(place), Mode::Read).unwrap();
            match done {
                Ok(()) => assert_eq!(found, MONDAY),
                Err(Error::Exists { .. }) => assert_eq!(found, NEWEST),
                Err(other) => panic!("{other}"),
            }
            is_sound(&copy(place));
            collect(&copy(place)).unwrap();
            is_sound(&copy(place));
        },
    );
}

#[test]
fn a_clone_that_was_killed_long_ago_does_not_hold_an_older_snapshot_of_the_name() {
    let copy = |store: &Arc<dyn Store>| Place::in_store(Arc::clone(store), "copy");
    for changes in 0.. {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let place = Place::in_store(Arc::clone(&store), "disk");
        volume(&place);
        let killed: Arc<dyn Store> = Mortal::new(&store, changes);
        if clone(&Place::in_store(Arc::clone(&killed), "disk"), "monday", &copy(&killed)).is_ok() {
            assert!(changes > 8, "the clone has a hold, objects and a manifest");
            return;
        }
        forget(&place, "monday").unwrap();
        snapshot(&place, "monday").unwrap();
        match clone(&place, "monday", &copy(&store)) {
            Ok(()) => {}
            // All but the last answer had come.
            Err(Error::Exists { .. }) => continue,
            Err(other) => panic!("{other}"),
        }
        forget(&place, "monday").unwrap();
        write(&place, &[(0, 10), (1, 11), (2, 12), (3, 13), (5, 14)]).unwrap();
        collect(&place).unwrap();
        assert_eq!(content(&copy(&store), Mode::Read).unwrap(), NEWEST);
        is_sound(&copy(&store));
        is_sound(&place);
    }
}

#[test]
fn a_snapshot_beside_a_writer_that_deletes_is_whole_or_refused() {
    fn writes(place: &Place) {
        write(place, &[(0, 10), (1, 11), (5, 12)]).unwrap();
        collect(place).unwrap();
    }
    meet(
        writes,
        |place| snapshot(place, "tuesday").map(drop),
        |place, done| {
            done.unwrap();
            let found = snapshot_content(place, "tuesday").unwrap();
            assert!(found == NEWEST || found == [10, 11, 3, 4, 0, 12, 0, 0], "{found:?}");
            assert_eq!(snapshot_content(place, "monday").unwrap(), MONDAY);
            is_sound(place);
        },
    );
}

#[test]
fn a_collection_beside_a_new_snapshot_keeps_what_it_needs() {
    fn takes(place: &Place) {
        snapshot(place, "tuesday").unwrap();
    }
    meet(takes, collect, |place, done| {
        done.unwrap();
        match snapshot_content(place, "tuesday") {
            Ok(found) => assert_eq!(found, NEWEST),
            Err(Error::NoSnapshot { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        write(place, &[(0, 10), (1, 11), (5, 12)]).unwrap();
        collect(place).unwrap();
        is_sound(place);
    });
}
