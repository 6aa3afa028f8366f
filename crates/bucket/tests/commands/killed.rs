// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each command, killed after each of its changes. The bucket holds the state of before or the one
//! of after, the snapshots hold what they held, and the command can be given again.

use std::cell::Cell;
use std::sync::Arc;

use flashfront_bucket::{Error, Memory, Place, Store, clone, create, forget, snapshot, survey};
use flashfront_object::{Form, Mode};

use super::mortal::Mortal;
use super::{MONDAY, NEWEST, SECTORS, collect, content, is_sound, open_to_write, snapshot_content, volume, write};

/// Kills a command after each of its changes. `judge` sees the bucket, and whether the command had
/// succeeded.
fn kill(prepare: impl Fn(&Place), command: impl Fn(&Place) -> Result<(), Error>, judge: impl Fn(&Place, bool)) {
    let mut changes = 0;
    loop {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let place = Place::in_store(Arc::clone(&store), "disk");
        prepare(&place);
        let mortal = Mortal::new(&store, changes);
        let done = command(&Place::in_store(Arc::clone(&mortal) as Arc<dyn Store>, "disk"));
        judge(&place, done.is_ok());
        if mortal.lives() {
            done.expect("this store is well");
            assert!(changes > 0, "the command changes something");
            return;
        }
        changes += 1;
    }
}

/// The volume holds one of these, and its snapshot what it held.
fn holds(place: &Place, may: &[[u8; 8]]) {
    let found = content(place, Mode::Read).expect("this store is well");
    assert!(may.iter().any(|it| found == *it), "{found:?} is none of {may:?}");
    assert_eq!(snapshot_content(place, "monday").expect("this store is well"), MONDAY);
    is_sound(place);
}

#[test]
fn a_killed_create_leaves_no_volume_or_a_whole_one() {
    for single_writer in [false, true] {
        let command = |place: &Place| create(place, SECTORS, Form::default(), single_writer);
        kill(
            |_| {},
            command,
            |place, done| {
                match command(place) {
                    Ok(()) => assert!(!done),
                    Err(Error::Exists { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
                assert_eq!(content(place, Mode::Read).unwrap(), [0; 8]);
                is_sound(place);
            },
        );
    }
}

#[test]
fn a_killed_write_leaves_what_was_flushed() {
    let command = |place: &Place| write(place, &[(6, 8), (0, 9)]);
    let after = [9, 6, 3, 4, 0, 7, 8, 0];
    // The first of both is an object of its own, so a manifest may have that alone.
    let half = [5, 6, 3, 4, 0, 7, 8, 0];
    kill(volume, command, |place, done| {
        let may = [after, half, NEWEST];
        holds(place, if done { &may[..1] } else { &may });
        command(place).unwrap();
        holds(place, &[after]);
    });
}

#[test]
fn a_killed_snapshot_is_there_or_not() {
    kill(
        volume,
        |place| snapshot(place, "tuesday").map(drop),
        |place, done| {
            match snapshot_content(place, "tuesday") {
                Ok(found) => assert_eq!(found, NEWEST),
                Err(Error::NoSnapshot { .. }) => assert!(!done),
                Err(other) => panic!("{other}"),
            }
            match snapshot(place, "tuesday") {
                Ok(_) | Err(Error::SnapshotExists { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            write(place, &[(2, 10), (3, 11)]).unwrap();
            collect(place).unwrap();
            assert_eq!(snapshot_content(place, "tuesday").unwrap(), NEWEST);
            holds(place, &[[5, 6, 10, 11, 0, 7, 0, 0]]);
        },
    );
}

#[test]
fn a_killed_forget_leaves_the_snapshot_whole_or_forgotten() {
    kill(
        volume,
        |place| forget(place, "monday"),
        |place, done| {
            match snapshot_content(place, "monday") {
                Ok(found) => {
                    assert!(!done);
                    assert_eq!(found, MONDAY);
                    forget(place, "monday").unwrap();
                }
                Err(Error::NoSnapshot { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            collect(place).unwrap();
            assert!(matches!(snapshot_content(place, "monday"), Err(Error::NoSnapshot { .. })));
            assert_eq!(content(place, Mode::Read).unwrap(), NEWEST);
            is_sound(place);
        },
    );
}

#[test]
fn a_killed_collection_loses_nothing() {
    kill(volume, collect, |place, _| {
        holds(place, &[NEWEST]);
        collect(place).unwrap();
        holds(place, &[NEWEST]);
    });
}

#[test]
fn a_killed_rollback_leaves_the_newest_state_or_the_old_one() {
    let command = |place: &Place| {
        let mode = flashfront_bucket::read_snapshot(place, "monday")?;
        let older = flashfront_bucket::Session::open(place, mode, super::options())?.into_volume();
        let mut session = open_to_write(place)?;
        session.roll_back(older)?;
        session.close()
    };
    kill(volume, command, |place, done| {
        holds(place, if done { &[MONDAY] } else { &[NEWEST, MONDAY] });
        command(place).unwrap();
        collect(place).unwrap();
        holds(place, &[MONDAY]);
    });
}

#[test]
fn a_killed_clone_is_no_volume_or_a_whole_one_and_the_source_keeps_what_it_needs() {
    let copy = |place: &Place| Place::in_store(Arc::clone(place.store()), "copy");
    let command = |place: &Place| clone(place, "monday", &copy(place));
    let has_held = Cell::new(false);
    kill(volume, command, |place, done| {
        holds(place, &[NEWEST]);
        match command(place) {
            Ok(()) => assert!(!done),
            Err(Error::Exists { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        // What the killed one held is told, and can be freed.
        let found = survey(place, false, |_, _| {}).unwrap();
        assert!(found.unclaimed.len() <= 1 && (!done || found.unclaimed.is_empty()), "{:?}", found.unclaimed);
        has_held.set(has_held.get() || !found.unclaimed.is_empty());
        found.unclaimed.iter().for_each(|name| forget(place, name).unwrap());
        // The clone needs the snapshot no more.
        forget(place, "monday").unwrap();
        write(place, &[(2, 10), (3, 11)]).unwrap();
        collect(place).unwrap();
        assert_eq!(content(&copy(place), Mode::Read).unwrap(), MONDAY);
        is_sound(&copy(place));
        is_sound(place);
    });
    assert!(has_held.get(), "some of them are killed with a hold");
}

#[test]
fn a_clone_of_a_snapshot_that_is_not_there_changes_nothing() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    volume(&Place::in_store(Arc::clone(&store), "disk"));
    // The first change would be refused.
    let unchanged: Arc<dyn Store> = Mortal::new(&store, 0);
    let place = |prefix| Place::in_store(Arc::clone(&unchanged), prefix);
    let refused = clone(&place("disk"), "tuesday", &place("copy")).unwrap_err();
    assert!(matches!(refused, Error::NoSnapshot { .. }), "{refused}");
}
