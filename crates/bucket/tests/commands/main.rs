// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands on volumes in a store. They are killed after each of their changes, or meet another
//! program's command before each of their requests. What the bucket holds afterwards is judged.

mod killed;
mod meets;
mod mortal;

use flashfront_bucket::{Error, Place, Session, create, snapshot, survey, this_writer};
use flashfront_object::{Form, Mode, Options, SECTOR_BYTES};

/// Sectors of the volume, and of one write.
const SECTORS: u64 = 64;
const WRITE: u64 = 8;

/// A stamp for each write's sectors.
type Content = Vec<u8>;

/// Small batches, so that each write is an object. No manifest stays complete but the newest.
fn options() -> Options {
    Options { batch_bytes: (WRITE * SECTOR_BYTES) as usize, complete: 0, tail: 2, ..Options::default() }
}

fn open_to_write(place: &Place) -> Result<Session, Error> {
    Session::open(place, Mode::Write(this_writer(None, None)), options())
}

/// Writes these stamps, and closes the volume.
fn write(place: &Place, stamps: &[(u64, u8)]) -> Result<(), Error> {
    let mut session = open_to_write(place)?;
    for (nth, stamp) in stamps {
        session.write(nth * WRITE, &[*stamp; (WRITE * SECTOR_BYTES) as usize])?;
    }
    session.flush()?;
    session.close()
}

/// Moves and deletes what the newest state and snapshots don't need.
fn collect(place: &Place) -> Result<(), Error> {
    let mut session = open_to_write(place)?;
    session.collect(90, |_| {})?;
    session.settle(0)?;
    flashfront_bucket::sweep_leftovers(&session)?;
    session.close()
}

/// A volume with a snapshot `monday`. Since then half of the volume was overwritten.
fn volume(place: &Place) {
    create(place, SECTORS, Form::default(), false).expect("this store is well");
    write(place, &[(0, 1), (1, 2), (2, 3), (3, 4)]).expect("this store is well");
    snapshot(place, "monday").expect("this store is well");
    write(place, &[(0, 5), (1, 6), (5, 7)]).expect("this store is well");
}

const MONDAY: [u8; 8] = [1, 2, 3, 4, 0, 0, 0, 0];
const NEWEST: [u8; 8] = [5, 6, 3, 4, 0, 7, 0, 0];

/// What a state holds.
fn content(place: &Place, mode: Mode) -> Result<Content, Error> {
    let mut session = Session::open(place, mode, Options::default())?;
    let mut content = Content::new();
    session.read_all::<Error>(&[(0, SECTORS)], |_, bytes| {
        for part in bytes.chunks((WRITE * SECTOR_BYTES) as usize) {
            assert!(part.iter().all(|byte| *byte == part[0]), "a write is torn");
            content.push(part[0]);
        }
        Ok(())
    })?;
    Ok(content)
}

fn snapshot_content(place: &Place, name: &str) -> Result<Content, Error> {
    content(place, flashfront_bucket::read_snapshot(place, name)?)
}

/// Nothing of the volume is damaged.
fn is_sound(place: &Place) {
    let survey = survey(place, true, |_, _| {}).expect("this store is well");
    assert_eq!(survey.damage, [], "{place}");
}
