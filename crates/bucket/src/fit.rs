// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a store keeps a second writer out: it must create an object only if its name is free.
//! On that all fences rest.
//!
//! A volume can be made with one writer for ever, in a store that knows no conditions. Then this
//! program looks before it writes. That keeps out whoever comes later, not who comes at the same
//! time.

use std::sync::Arc;

use flashfront_object::Fault;

use crate::error::Error;
use crate::place::Place;
use crate::store::{Listed, Store};
use crate::this::random_id;

/// Creators of the same object at the same time, when a store is tried.
const CREATORS: usize = 3;
/// A request that goes wrong is repeated so often.
const TRIES: u32 = 8;

/// The place as its writer uses it. A store that would not keep a second writer out is refused,
/// unless the volume was made for one writer.
///
/// # Errors
/// [`Error::Unfit`], or what the store says.
pub fn to_write(place: &Place, single_writer: bool) -> Result<Place, Error> {
    if single_writer {
        return Ok(for_one_writer(place));
    }
    let probe = Probe::new(place);
    probe.create(b"first")?;
    if probe.create(b"second")? {
        return Err(unfit(place, "creates an object anew that is there already".to_owned()));
    }
    Ok(place.clone())
}

/// The place with a store that looks before it creates.
pub(crate) fn for_one_writer(place: &Place) -> Place {
    place.with_store(Arc::new(Looks { store: Arc::clone(place.store()) }))
}

/// Looks whether the store lets one creator of a name win, also of those that come at the same
/// time.
///
/// # Errors
/// [`Error::Unfit`], or what the store says.
pub(crate) fn store_is_fit(place: &Place) -> Result<(), Error> {
    let probe = &Probe::new(place);
    let outcomes: Vec<Result<bool, Error>> = std::thread::scope(|scope| {
        let creators: Vec<_> =
            (0..CREATORS).map(|nth| scope.spawn(move || probe.create(format!("creator {nth}").as_bytes()))).collect();
        let join = |creator: std::thread::ScopedJoinHandle<'_, _>| {
            let ended = || Error::Away { url: place.to_string(), seconds: 0, what: "a thread has ended".to_owned() };
            creator.join().unwrap_or_else(|_| Err(ended()))
        };
        creators.into_iter().map(join).collect()
    });
    let winners = outcomes.into_iter().collect::<Result<Vec<bool>, Error>>()?.into_iter().filter(|it| *it).count();
    match winners {
        1 => Ok(()),
        _ => Err(unfit(place, format!("let {winners} of {CREATORS} create the same object at the same time"))),
    }
}

fn unfit(place: &Place, why: String) -> Error {
    Error::Unfit { url: place.to_string(), why }
}

/// An object that nobody needs, deleted at the end.
struct Probe<'a> {
    place: &'a Place,
    name: String,
}

impl<'a> Probe<'a> {
    fn new(place: &'a Place) -> Self {
        let hex: String = random_id().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { place, name: format!("{}/probe/{hex}", place.prefix()) }
    }

    /// Creates it; says whether this call did.
    fn create(&self, body: &[u8]) -> Result<bool, Error> {
        let store = self.place.store();
        match put(self.place, &self.name, body) {
            // A store may refuse the condition, and not the object.
            Err(Error::Refused { what, .. }) if store.put(&self.name, &Arc::new(body.to_vec()), false).is_ok() => {
                Err(unfit(self.place, format!("refuses to create an object only if it is absent ({what})")))
            }
            created => created,
        }
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        // What is left of a failed deletion has no name that anybody looks for.
        let _ = self.place.store().delete(&self.name);
    }
}

/// Creates an object; says whether this call did. A lost reply is told from a lost race.
pub(crate) fn put(place: &Place, name: &str, body: &[u8]) -> Result<bool, Error> {
    let whole = Arc::new(body.to_vec());
    let created = again(|| place.store().put(name, &whole, true));
    match created {
        Ok(()) => Ok(true),
        Err(Fault::Taken) => match again(|| place.store().get(name, None)) {
            Ok(found) => Ok(found == body),
            Err(fault) => Err(error(place, fault)),
        },
        Err(fault) => Err(error(place, fault)),
    }
}

/// Repeats a request while nobody knows whether it was carried out.
pub(crate) fn again<T>(request: impl Fn() -> Result<T, Fault>) -> Result<T, Fault> {
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

pub(crate) fn error(place: &Place, fault: Fault) -> Error {
    let url = place.to_string();
    match fault {
        Fault::Refused(what) => Error::Refused { url, what },
        fault => Error::Away { url, seconds: 0, what: fault.to_string() },
    }
}

/// A store that looks before it creates.
#[derive(Debug)]
struct Looks {
    store: Arc<dyn Store>,
}

impl Store for Looks {
    fn put(&self, name: &str, body: &Arc<Vec<u8>>, create: bool) -> Result<(), Fault> {
        if create {
            match self.store.get(name, Some((0, 1))) {
                Err(Fault::Absent) => {}
                Err(fault) => return Err(fault),
                Ok(_) => return Err(Fault::Taken),
            }
        }
        self.store.put(name, body, false)
    }

    fn get(&self, name: &str, range: Option<(u64, u64)>) -> Result<Vec<u8>, Fault> {
        self.store.get(name, range)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, Fault> {
        self.store.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<(), Fault> {
        self.store.delete(name)
    }
}

#[cfg(test)]
mod tests {
    use flashfront_object::{Form, Mode, Options};

    use super::*;
    use crate::store::Memory;
    use crate::{Session, create, snapshot, this_writer};

    /// A store that knows no conditions: it refuses them, or ignores them.
    #[derive(Debug)]
    struct Unconditional {
        store: Memory,
        refuses: bool,
    }

    impl Store for Unconditional {
        fn put(&self, name: &str, body: &Arc<Vec<u8>>, create: bool) -> Result<(), Fault> {
            match create && self.refuses {
                true => Err(Fault::Refused("501 Not Implemented".to_owned())),
                false => self.store.put(name, body, false),
            }
        }

        fn get(&self, name: &str, range: Option<(u64, u64)>) -> Result<Vec<u8>, Fault> {
            self.store.get(name, range)
        }

        fn list(&self, prefix: &str) -> Result<Vec<Listed>, Fault> {
            self.store.list(prefix)
        }

        fn delete(&self, name: &str) -> Result<(), Fault> {
            self.store.delete(name)
        }
    }

    #[test]
    fn a_store_without_conditions_is_refused_unless_there_is_one_writer() {
        for refuses in [false, true] {
            let store: Arc<dyn Store> = Arc::new(Unconditional { store: Memory::default(), refuses });
            let place = Place::in_store(Arc::clone(&store), "disk");
            let refused = create(&place, 8, Form::default(), false).unwrap_err();
            assert!(matches!(refused, Error::Unfit { .. }), "{refused}");
            assert_eq!(store.list("").unwrap(), [], "a refusal leaves nothing");

            create(&place, 8, Form::default(), true).unwrap();
            assert!(matches!(create(&place, 8, Form::default(), true), Err(Error::Exists { .. })));
            let read = Session::open(&place, Mode::Read, Options::default()).unwrap().into_volume();
            let writes = to_write(&place, read.manifest().single_writer).unwrap();
            let mut session = Session::open(&writes, Mode::Write(this_writer(None, None)), Options::default()).unwrap();
            session.write(0, &[7; 512]).unwrap();
            session.flush().unwrap();
            snapshot(&place, "kept").unwrap();
            // A writer that opens the volume later fences the first one.
            drop(Session::open(&writes, Mode::Write(this_writer(None, None)), Options::default()).unwrap());
            session.write(0, &[8; 512]).unwrap();
            assert!(matches!(session.flush(), Err(Error::Fenced { .. })));
        }
    }

    #[test]
    fn a_volume_that_came_to_a_store_without_conditions_is_not_written() {
        let place = Place::in_store(Arc::new(Memory::default()), "disk");
        create(&place, 8, Form::default(), false).unwrap();
        to_write(&place, false).unwrap();
        let moved = Arc::new(Unconditional { store: Memory::default(), refuses: false });
        let all = place.store().list("").unwrap();
        all.iter()
            .for_each(|it| moved.put(&it.name, &Arc::new(place.store().get(&it.name, None).unwrap()), false).unwrap());
        let moved = Place::in_store(moved, "disk");
        assert!(matches!(to_write(&moved, false), Err(Error::Unfit { .. })));
        assert!(matches!(snapshot(&moved, "kept"), Err(Error::Unfit { .. })));
    }
}
