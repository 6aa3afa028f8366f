// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is done to a volume beside its writer: make one, clone one, take and forget snapshots.

use flashfront_object::{Fault, Form, Manifest, Mode, Name, Options, Wanted, Wish};

use crate::error::Error;
use crate::fit::{again, error, for_one_writer, put, store_is_fit, to_write};
use crate::hold::{Hold, clone_with};
use crate::place::Place;
use crate::session::{Session, snapshot_of};
use crate::this::{random_id, this_writer};

/// A snapshot of a volume that changes all the time is tried so often.
const SNAPSHOT_TRIES: u32 = 5;

/// Makes an empty volume, whose extents are stored in this form. With `single_writer` the store
/// need not keep a second writer out.
///
/// # Errors
/// [`Error`].
pub fn create(place: &Place, sectors: u64, form: Form, single_writer: bool) -> Result<(), Error> {
    is_free(place)?;
    is_apart(place)?;
    let place = &match single_writer {
        true => for_one_writer(place),
        false => place.clone(),
    };
    if !single_writer {
        store_is_fit(place)?;
    }
    let writer = this_writer(None, None);
    let mut manifest = Manifest::first(random_id(), writer.id, sectors, writer.now, &writer.host);
    (manifest.form, manifest.single_writer) = (form, single_writer);
    put_first(place, &manifest.encode())
}

fn is_free(place: &Place) -> Result<(), Error> {
    match Session::newest(place) {
        Err(Error::NoVolume { .. }) => Ok(()),
        Ok(_) => Err(Error::Exists { url: place.to_string() }),
        Err(other) => Err(other),
    }
}

/// Refuses a place inside another volume, or around one: whoever deletes all of the outer one would
/// delete the inner one, too.
fn is_apart(place: &Place) -> Result<(), Error> {
    for outer in place.outer() {
        match Session::newest(&outer) {
            Ok(_) => return Err(Error::Inside { url: place.to_string(), outer: outer.to_string() }),
            Err(Error::NoVolume { .. }) => {}
            // Whoever may not look there can't be told.
            Err(Error::Refused { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    let below = format!("{}/", place.prefix());
    match again(|| place.store().volume_below(&below)) {
        Ok(Some(inner)) => Err(Error::Around { url: place.to_string(), inner: place.url_of(&inner) }),
        Ok(None) | Err(Fault::Refused(_)) => Ok(()),
        Err(fault) => Err(error(place, fault)),
    }
}

fn put_first(place: &Place, manifest: &[u8]) -> Result<(), Error> {
    match put(place, &place.name(Name::Manifest(1)), manifest)? {
        true => Ok(()),
        false => Err(Error::Exists { url: place.to_string() }),
    }
}

/// Keeps the state of the newest manifest under a name. The volume's writer, if there is one, goes
/// on. Returns the number of the manifest.
///
/// # Errors
/// [`Error`].
pub fn snapshot(place: &Place, name: &str) -> Result<u64, Error> {
    let session = Session::open(place, Mode::Read, Options::default())?;
    if session.snapshot(name).is_ok() {
        return Err(Error::SnapshotExists { url: place.to_string(), name: name.to_owned() });
    }
    let place = &to_write(place, session.into_volume().manifest().single_writer)?;
    for _ in 0..SNAPSHOT_TRIES {
        // The writer goes on between these three steps, and the quicker they are, the better.
        let newest = Session::newest(place)?;
        let manifest = newest.number;
        wish(place, &newest, Wanted::Snapshot { name: name.to_owned(), manifest })?;
        let is_void = Session::newest(place)?.kept > manifest;
        let newest = Session::open(place, Mode::Read, Options::default())?.into_volume().manifest().clone();
        let granted = newest.snapshots.iter().find(|it| it.name == name).map(|it| it.manifest);
        if granted.is_some_and(|granted| granted != manifest) {
            return Err(Error::SnapshotExists { url: place.to_string(), name: name.to_owned() });
        }
        if !is_void {
            return Ok(manifest);
        }
        // The writer may have deleted a part of it before it could see the wish.
        wish(place, &newest, Wanted::Forget { name: name.to_owned() })?;
    }
    Err(Error::TooFast { url: place.to_string(), tries: SNAPSHOT_TRIES })
}

/// The newest manifest, with all wishes granted that the store has. The rest of the volume may be
/// damaged.
pub(crate) fn newest(place: &Place) -> Result<Manifest, Error> {
    let mut manifest = Session::newest(place)?;
    loop {
        let name = place.name(Name::Wish(manifest.wishes + 1));
        match again(|| place.store().get(&name, None)) {
            Ok(wish) => Wish::grant(&wish, &mut manifest),
            Err(Fault::Absent) => return Ok(manifest),
            Err(fault) => return Err(error(place, fault)),
        }
    }
}

/// The mode that reads the snapshot of this name. The rest of the volume may be damaged.
///
/// # Errors
/// [`Error`].
pub fn read_snapshot(place: &Place, name: &str) -> Result<Mode, Error> {
    Ok(Mode::ReadAt(snapshot_of(place, &newest(place)?, name)?.manifest))
}

/// Forgets a snapshot. The writer deletes what nothing else needs.
///
/// # Errors
/// [`Error`].
pub fn forget(place: &Place, name: &str) -> Result<(), Error> {
    let session = Session::open(place, Mode::Read, Options::default())?;
    session.snapshot(name)?;
    if let Some(clone) = clone_with(place, name)? {
        return Err(Error::Needed { url: place.to_string(), name: name.to_owned(), clone });
    }
    let manifest = session.into_volume().manifest().clone();
    wish(&to_write(place, manifest.single_writer)?, &manifest, Wanted::Forget { name: name.to_owned() })
}

fn wish(place: &Place, manifest: &Manifest, wanted: Wanted) -> Result<(), Error> {
    let body = Wish { volume: manifest.volume, maker: random_id(), wanted }.encode();
    let mut number = manifest.wishes + 1;
    while !put(place, &place.name(Name::Wish(number)), &body)? {
        number += 1;
    }
    Ok(())
}

/// Holds a snapshot by another name, which nobody else uses. Returns the number of its manifest.
///
/// The writer may have deleted a part of the state before it could see the wish, if the snapshot is
/// forgotten meanwhile. So the snapshot must be there when the other name is.
fn hold(place: &Place, name: &str, pin: &str) -> Result<u64, Error> {
    for _ in 0..SNAPSHOT_TRIES {
        let newest = newest(place)?;
        let held = newest.snapshots.iter().find(|it| it.name == pin).map(|it| it.manifest);
        match snapshot_of(place, &newest, name).map(|it| it.manifest) {
            Ok(manifest) if held == Some(manifest) => return Ok(manifest),
            // The name was given to another state meanwhile.
            Ok(_) if held.is_some() => let_go(place, &newest, pin)?,
            Ok(manifest) => wish(place, &newest, Wanted::Snapshot { name: pin.to_owned(), manifest })?,
            Err(gone) => {
                if held.is_some() {
                    let_go(place, &newest, pin)?;
                }
                return Err(gone);
            }
        }
    }
    Err(Error::TooFast { url: place.to_string(), tries: SNAPSHOT_TRIES })
}

fn let_go(place: &Place, newest: &Manifest, pin: &str) -> Result<(), Error> {
    wish(place, newest, Wanted::Forget { name: pin.to_owned() })
}

/// Makes a volume that begins as a snapshot of another one, and shares its objects.
///
/// # Errors
/// [`Error`].
pub fn clone(from: &Place, name: &str, to: &Place) -> Result<(), Error> {
    if !from.shares_bucket_with(to) {
        return Err(Error::Apart { from: from.to_string(), to: to.to_string() });
    }
    is_free(to)?;
    is_apart(to)?;
    let of = newest(from)?;
    // Nothing is written for a snapshot that is not there.
    snapshot_of(from, &of, name)?;
    let single_writer = of.single_writer;
    let (writes, to) = (to_write(from, single_writer)?, &to_write(to, single_writer)?);
    // The clone's own hold on the state: the snapshot itself may be forgotten.
    let (id, writer) = (random_id(), this_writer(None, None));
    let pin = Hold::new(name, to, id).name();
    let manifest = hold(&writes, name, &pin)?;
    let made = Session::open(from, Mode::ReadAt(manifest), Options::default())
        .and_then(|state| state.become_clone(to, id, writer));
    let error = match made {
        // The clone has no objects yet but pages of the map, which are just made.
        Err(Error::Damaged { name, what, .. }) => Error::Damaged { url: from.to_string(), name, what },
        Err(Error::Fenced { .. }) => Error::Exists { url: to.to_string() },
        // Nobody knows whether the clone's manifest will be there some day.
        other => return other,
    };
    let_go(&writes, &newest(&writes)?, &pin)?;
    Err(error)
}
