// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is done to a volume beside its writer: make one, clone one, take and forget snapshots.

use std::sync::Arc;

use flashfront_object::{Fault, Form, Manifest, Mode, Name, Options, Wanted, Wish};

use crate::error::Error;
use crate::place::Place;
use crate::session::Session;
use crate::this::{random_id, this_writer};

/// Creators of the same object at the same time, when a store is tried.
const CREATORS: usize = 3;
/// A request that goes wrong is repeated so often.
const TRIES: u32 = 8;
/// A snapshot of a volume that changes all the time is tried so often.
const SNAPSHOT_TRIES: u32 = 5;

/// Looks whether the store lets one creator of a name win. On that all fences rest.
///
/// # Errors
/// [`Error::Unfit`], or what the store says.
pub fn store_is_fit(place: &Place) -> Result<(), Error> {
    let hex: String = random_id().iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("{}/probe/{hex}", place.prefix());
    let outcomes: Vec<Result<bool, Error>> = std::thread::scope(|scope| {
        let creators: Vec<_> = (0..CREATORS)
            .map(|nth| {
                scope.spawn({
                    let name = &name;
                    move || put(place, name, format!("creator {nth}").as_bytes())
                })
            })
            .collect();
        let join = |creator: std::thread::ScopedJoinHandle<'_, _>| {
            let ended = || Error::Away { url: place.to_string(), seconds: 0, what: "a thread has ended".to_owned() };
            creator.join().unwrap_or_else(|_| Err(ended()))
        };
        creators.into_iter().map(join).collect()
    });
    let winners = outcomes.into_iter().collect::<Result<Vec<bool>, Error>>()?.into_iter().filter(|it| *it).count();
    // What is left of a failed deletion has no name that anybody looks for.
    let _ = place.store().delete(&name);
    if winners == 1 { Ok(()) } else { Err(Error::Unfit { url: place.to_string(), winners }) }
}

/// Creates an object; says whether this call did. A lost reply is told from a lost race.
fn put(place: &Place, name: &str, body: &[u8]) -> Result<bool, Error> {
    let created = again(place, || place.store().put(name, body, true));
    match created {
        Ok(()) => Ok(true),
        Err(Fault::Taken) => match again(place, || place.store().get(name, None)) {
            Ok(found) => Ok(found == body),
            Err(fault) => Err(error(place, fault)),
        },
        Err(fault) => Err(error(place, fault)),
    }
}

/// Repeats a request while nobody knows whether it was carried out.
fn again<T>(place: &Place, request: impl Fn() -> Result<T, Fault>) -> Result<T, Fault> {
    let _ = place;
    let mut result = request();
    for attempt in 1..TRIES {
        if !matches!(result, Err(Fault::Away(_))) {
            break;
        }
        // pacing: a store that is busy wants to be left alone.
        std::thread::sleep(std::time::Duration::from_millis(50 << attempt));
        result = request();
    }
    result
}

fn error(place: &Place, fault: Fault) -> Error {
    let url = place.to_string();
    match fault {
        Fault::Refused(what) => Error::Refused { url, what },
        fault => Error::Away { url, seconds: 0, what: fault.to_string() },
    }
}

/// Makes an empty volume, whose extents are stored in this form.
///
/// # Errors
/// [`Error`].
pub fn create(place: &Place, sectors: u64, form: Form) -> Result<(), Error> {
    is_free(place)?;
    store_is_fit(place)?;
    let writer = this_writer();
    let mut manifest = Manifest::first(random_id(), writer.id, sectors, writer.now, &writer.host);
    manifest.form = form;
    put_first(place, &manifest.encode())
}

fn is_free(place: &Place) -> Result<(), Error> {
    match Session::open(place, Mode::Read, Options::default()) {
        Err(Error::NoVolume { .. }) => Ok(()),
        Err(Error::Damaged { .. } | Error::NoKey { .. } | Error::NotEncrypted { .. }) | Ok(_) => {
            Err(Error::Exists { url: place.to_string() })
        }
        Err(other) => Err(other),
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
    let mut newest = session.into_volume().manifest().clone();
    for _ in 0..SNAPSHOT_TRIES {
        let manifest = newest.number;
        wish(place, &newest, Wanted::Snapshot { name: name.to_owned(), manifest })?;
        newest = Session::open(place, Mode::Read, Options::default())?.into_volume().manifest().clone();
        let granted = newest.snapshots.iter().find(|it| it.name == name).map(|it| it.manifest);
        if granted.is_some_and(|granted| granted != manifest) {
            return Err(Error::SnapshotExists { url: place.to_string(), name: name.to_owned() });
        }
        if newest.kept <= manifest {
            return Ok(manifest);
        }
        // The writer may have deleted a part of it before it could see the wish.
        wish(place, &newest, Wanted::Forget { name: name.to_owned() })?;
    }
    Err(Error::TooFast { url: place.to_string(), tries: SNAPSHOT_TRIES })
}

/// Forgets a snapshot. The writer deletes what nothing else needs.
///
/// # Errors
/// [`Error`].
pub fn forget(place: &Place, name: &str) -> Result<(), Error> {
    let session = Session::open(place, Mode::Read, Options::default())?;
    session.snapshot(name)?;
    let manifest = session.into_volume().manifest().clone();
    wish(place, &manifest, Wanted::Forget { name: name.to_owned() })
}

fn wish(place: &Place, manifest: &Manifest, wanted: Wanted) -> Result<(), Error> {
    let body = Wish { volume: manifest.volume, maker: random_id(), wanted }.encode();
    let mut number = manifest.wishes + 1;
    while !put(place, &place.name(Name::Wish(number)), &body)? {
        number += 1;
    }
    Ok(())
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
    let session = Session::open(from, Mode::Read, Options::default())?;
    let manifest = session.snapshot(name)?.manifest;
    let newest = session.into_volume().manifest().clone();
    // The clone's own hold on the state: the snapshot itself may be forgotten.
    let pin = format!("{name} for the clone {to}");
    wish(from, &newest, Wanted::Snapshot { name: pin, manifest })?;
    let state = Session::open(from, Mode::ReadAt(manifest), Options::default())?.into_volume();
    let source: Arc<str> = from.prefix().into();
    let (checkpoint, first) = state.clone_from(&source, random_id(), this_writer());
    let (map, body) = checkpoint;
    again(to, || to.store().put(&to.name(map), &body, false)).map_err(|fault| error(to, fault))?;
    put_first(to, &first)
}
