// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks at all objects of a volume: are those there that its states need, are they what they
//! should be, and which are left over?

use std::collections::{BTreeMap, BTreeSet};

use flashfront_object::{Entry, Head, Key, Kind, Mode, Name, Options, Volume};

use crate::error::Error;
use crate::offline::newest;
use crate::place::Place;
use crate::session::Session;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The object.
    pub name: String,
    /// What is wrong with it.
    pub what: String,
    /// The state that needs it: a snapshot's name, or none for the volume itself.
    pub snapshot: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Objects in the volume's folder.
    pub objects: u64,
    /// Bytes that the volume uses, if it can be opened.
    pub live_bytes: Option<u64>,
    /// Bytes in the volume's folder that it does not use, as far as that is known: other states
    /// may.
    pub dead_bytes: u64,
    /// Names of the snapshots.
    pub snapshots: Vec<String>,
    /// Objects whose every byte was read.
    pub read: u64,
    /// What is damaged.
    pub damage: Vec<Damage>,
}

impl Survey {
    /// Takes a state to be looked at, or the damage that keeps it from being opened.
    fn take(
        &mut self,
        place: &Place,
        snapshot: Option<String>,
        manifest: u64,
        opened: Result<Session, Error>,
        states: &mut Vec<(Option<String>, Volume)>,
    ) -> Result<(), Error> {
        match opened {
            Ok(session) => states.push((snapshot, session.into_volume())),
            Err(error @ (Error::Damaged { .. } | Error::Foreign { .. } | Error::NoVolume { .. })) => {
                let name = place.name(Name::Manifest(manifest));
                self.damage.push(Damage { name, what: error.to_string(), snapshot });
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Checks a volume and its snapshots. With `data` every byte is read; else heads and sizes.
///
/// # Errors
/// [`Error`], if nothing can be said at all.
pub fn survey(place: &Place, data: bool, mut progress: impl FnMut(u64, u64)) -> Result<Survey, Error> {
    let mut survey = Survey::default();
    let manifest = newest(place)?;
    let mut states: Vec<(Option<String>, Volume)> = Vec::new();
    survey.take(place, None, manifest.number, Session::open(place, Mode::Read, Options::default()), &mut states)?;
    let mut sizes = BTreeMap::new();
    for kind in ["data/", "map/", "manifest/", "wish/"] {
        let listed = place.store().list(&format!("{}/{kind}", place.prefix()));
        for it in listed.map_err(|fault| Error::Refused { url: place.to_string(), what: fault.to_string() })? {
            survey.objects += 1;
            sizes.insert(it.name, it.bytes);
        }
    }
    survey.live_bytes = states.first().map(|(_, newest)| newest.usage().live_bytes);
    survey.dead_bytes = sizes.values().sum::<u64>().saturating_sub(survey.live_bytes.unwrap_or(0));
    survey.snapshots = manifest.snapshots.iter().map(|it| it.name.clone()).collect();
    for snapshot in manifest.snapshots {
        let opened = Session::open(place, Mode::ReadAt(snapshot.manifest), Options::default());
        survey.take(place, Some(snapshot.name), snapshot.manifest, opened, &mut states)?;
    }
    let all: u64 = states.iter().map(|(_, volume)| volume.objects().map(|it| it.bytes).sum::<u64>()).sum();
    let (mut seen, mut done) = (BTreeSet::new(), 0);
    for (snapshot, volume) in &states {
        for entry in volume.objects() {
            done += entry.bytes;
            if seen.insert(entry.key()) {
                let found = judge(place, volume, entry, &sizes, data)?;
                survey.read += u64::from(data && entry.kind == Kind::Data);
                let name = place.key(&entry.key());
                survey.damage.extend(found.map(|what| Damage { name, what, snapshot: snapshot.clone() }));
            }
            progress(done, all.max(1));
        }
    }
    Ok(survey)
}

/// Says what is wrong with an object, if anything is.
fn judge(
    place: &Place,
    volume: &Volume,
    entry: &Entry,
    sizes: &BTreeMap<String, u64>,
    data: bool,
) -> Result<Option<String>, Error> {
    let name = place.key(&entry.key());
    // Pages of a checkpoint were verified at the opening.
    let wants = match (entry.kind, data) {
        (Kind::Map, _) => None,
        (Kind::Data, true) => Some(None),
        (Kind::Data, false) => Some(Some((0, u64::from(entry.head)))),
    };
    let bytes = match sizes.get(&name) {
        Some(bytes) if *bytes < entry.bytes => {
            return Ok(Some(format!("it has {bytes} bytes instead of {}", entry.bytes)));
        }
        None if entry.source.is_none() => return Ok(Some("it is absent".to_owned())),
        _ => match wants {
            None => return Ok(None),
            Some(range) => place.store().get(&name, range),
        },
    };
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(flashfront_object::Fault::Absent) => return Ok(Some("it is absent".to_owned())),
        Err(fault) => return Err(Error::Refused { url: place.to_string(), what: format!("{name}: {fault}") }),
    };
    let head = match Head::parse(&bytes) {
        Ok(head) => head,
        Err(what) => return Ok(Some(what)),
    };
    if head.stamp != entry.stamp || entry.source.is_none() && head.volume != volume.manifest().volume {
        return Ok(Some("it is another object, or another volume's".to_owned()));
    }
    let is_bad = |record: &&flashfront_object::Record| record.stored > 0 && head.payload_of(record, &bytes).is_none();
    let bad = if data { head.records.iter().filter(is_bad).count() } else { 0 };
    Ok((bad > 0).then(|| format!("{bad} of {} extents have a wrong checksum", head.records.len())))
}

/// Deletes what no state needs and nobody will delete: objects of writers that were overtaken, and
/// old manifests. The volume must be open for writing by this very process. Returns how many.
///
/// # Errors
/// [`Error`].
pub fn sweep_leftovers(session: &Session) -> Result<u64, Error> {
    let (place, volume) = (session.place(), session.volume());
    let refused = |fault: flashfront_object::Fault| Error::Refused { url: place.to_string(), what: fault.to_string() };
    let retired = volume.retired().iter().map(|it| it.entry.key());
    let needed: BTreeSet<Key> = volume.objects().map(Entry::key).chain(retired).collect();
    let mut deleted = 0;
    for kind in ["data/", "map/"] {
        for it in place.store().list(&format!("{}/{kind}", place.prefix())).map_err(refused)? {
            let Some(name @ (Name::Data(stamp) | Name::Map(stamp))) = place.parse(&it.name) else { continue };
            if stamp.epoch < volume.manifest().epoch && !needed.contains(&Key::from(name)) {
                place.store().delete(&it.name).map_err(refused)?;
                deleted += 1;
            }
        }
    }
    Ok(deleted)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flashfront_object::Form;

    use super::*;
    use crate::store::Memory;
    use crate::{create, read_snapshot, snapshot, this_writer};

    /// A volume with a snapshot of its first sector, and more of its own.
    fn volume_with_snapshot() -> Place {
        let place = Place::in_store(Arc::new(Memory::default()), "disk");
        create(&place, 64, Form::default(), false).unwrap();
        let write = |start, byte| {
            let mut session = Session::open(&place, Mode::Write(this_writer()), Options::default()).unwrap();
            session.write(start, &[byte; 512]).unwrap();
            session.flush().unwrap();
            session.close().unwrap();
        };
        write(0, 1);
        // Nobody has the volume open: the snapshot stays a wish until somebody does.
        snapshot(&place, "kept").unwrap();
        (1..4).for_each(|start| write(start * 8, 2));
        snapshot(&place, "later").unwrap();
        place
    }

    #[test]
    fn a_damaged_volume_is_told_from_none_and_its_snapshots_are_read() {
        let place = volume_with_snapshot();
        let sound = survey(&place, true, |_, _| {}).unwrap();
        assert!(sound.damage.is_empty() && sound.live_bytes > Some(0), "{sound:?}");
        // All that the first snapshot does not need.
        let needed: Vec<String> = {
            let mode = read_snapshot(&place, "kept").unwrap();
            let state = Session::open(&place, mode, Options::default()).unwrap().into_volume();
            state.objects().map(|it| place.key(&it.key())).collect()
        };
        let mut all: Vec<_> =
            ["data", "map"].map(|kind| place.store().list(&format!("disk/{kind}/")).unwrap()).concat();
        all.retain(|it| !needed.contains(&it.name));
        assert!(all.len() >= 4, "{all:?}");
        all.iter().for_each(|it| place.store().delete(&it.name).unwrap());

        let found = survey(&place, true, |_, _| {}).unwrap();
        assert_eq!((found.snapshots.len(), found.live_bytes), (2, None), "nobody knows what is in use");
        let states: Vec<Option<&str>> = found.damage.iter().map(|it| it.snapshot.as_deref()).collect();
        assert_eq!(states, [None, Some("later")], "{:?}", found.damage);
        assert!(found.damage[0].what.contains("it is absent"), "{:?}", found.damage);
        assert!(matches!(create(&place, 64, Form::default(), false), Err(Error::Exists { .. })));

        let mode = read_snapshot(&place, "kept").unwrap();
        let mut session = Session::open(&place, mode, Options::default()).unwrap();
        let ranges = session.volume().content();
        let mut read = Vec::new();
        let take = |start, bytes: &[u8]| {
            read.push((start, bytes.to_vec()));
            Ok::<_, Error>(())
        };
        session.read_all(&ranges, take).unwrap();
        assert_eq!(read, [(0, vec![1; 512])]);
    }
}
