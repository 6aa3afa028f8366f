// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks at all objects of a volume: are those there that its states need, are they what they
//! should be, and which are left over?

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use flashfront_object::{Entry, Fault, Head, Key, Kind, Mode, Name, Options, Volume, Wish};

use crate::error::Error;
use crate::hold::without_clone;
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
    /// Bytes of objects that it does not use any more: other states may. Of a volume that can't be
    /// opened: all bytes in its folder.
    pub dead_bytes: u64,
    /// Other bytes in its folder: manifests, wishes, heads, and what is left over.
    pub other_bytes: u64,
    /// Names of the snapshots.
    pub snapshots: Vec<String>,
    /// Names of snapshots that clones hold which are not there.
    pub unclaimed: Vec<String>,
    /// Objects whose every byte was read.
    pub read: u64,
    /// What is damaged.
    pub damage: Vec<Damage>,
}

impl Survey {
    /// Notes damaged wishes that no manifest has granted. Nobody knows what they wanted.
    fn note_wishes(&mut self, place: &Place, numbers: RangeInclusive<u64>, volume: [u8; 16]) -> Result<(), Error> {
        for number in numbers {
            let name = place.name(Name::Wish(number));
            let wish = place.store().get(&name, None).map_err(|fault| refused(place, &fault))?;
            if Wish::decode(&wish).is_none_or(|it| it.volume != volume) {
                let what = "it is no whole wish; the snapshot that it may have kept, or that of a clone, is lost";
                self.damage.push(Damage { name, what: what.to_owned(), snapshot: None });
            }
        }
        Ok(())
    }

    /// Notes damaged manifests above the one that counts. Nobody knows what they named.
    fn note_passed_over(&mut self, place: &Place, newest: &Volume) {
        let counts = newest.manifest().number;
        self.damage.extend(newest.passed().iter().map(|(number, what)| Damage {
            name: place.name(Name::Manifest(*number)),
            what: format!("{what}; the state of manifest {counts} counts, and what only this one names is not in it"),
            snapshot: None,
        }));
    }
}

/// Checks a volume and its snapshots, one after the other. With `data` every byte is read; else
/// heads, sizes and the map.
///
/// # Errors
/// [`Error`], if nothing can be said at all.
pub fn survey(place: &Place, data: bool, progress: impl FnMut(u64, u64)) -> Result<Survey, Error> {
    survey_with(place, Options::default(), data, progress)
}

fn survey_with(place: &Place, options: Options, data: bool, progress: impl FnMut(u64, u64)) -> Result<Survey, Error> {
    let mut survey = Survey::default();
    let (before, manifest) = (Session::newest(place)?, newest(place)?);
    // The newest state is opened before the list, which then has all its objects.
    let opened = Session::open(place, Mode::Read, options);
    let mut sizes = BTreeMap::new();
    for kind in ["data/", "map/", "manifest/", "wish/"] {
        let listed = place.store().list(&format!("{}/{kind}", place.prefix()));
        for it in listed.map_err(|fault| refused(place, &fault))? {
            survey.objects += 1;
            survey.dead_bytes += it.bytes;
            if let Some(name) = place.parse(&it.name) {
                sizes.insert(name, it.bytes);
            }
        }
    }
    let mut look = Look { place, data, sizes, objects: BTreeMap::new(), pages: BTreeSet::new(), progress };
    survey.note_wishes(place, before.wishes + 1..=manifest.wishes, manifest.volume)?;
    survey.unclaimed = without_clone(place, &manifest)?;
    survey.snapshots = manifest.snapshots.iter().map(|it| it.name.clone()).collect();
    if let Some(newest) = opened_state(&mut survey, place, None, manifest.number, opened)? {
        let (usage, all) = (newest.usage(), survey.dead_bytes);
        (survey.live_bytes, survey.dead_bytes) = (Some(usage.live_bytes), usage.dead_bytes);
        survey.other_bytes = all.saturating_sub(usage.live_bytes + usage.dead_bytes);
        survey.note_passed_over(place, &newest);
        look.at(&newest, None, &mut survey)?;
    }
    for snapshot in manifest.snapshots {
        let opened = Session::open(place, Mode::ReadAt(snapshot.manifest), options);
        let name = Some(snapshot.name);
        if let Some(state) = opened_state(&mut survey, place, name.as_deref(), snapshot.manifest, opened)? {
            look.at(&state, name.as_deref(), &mut survey)?;
        }
    }
    Ok(survey)
}

fn refused(place: &Place, fault: &Fault) -> Error {
    Error::Refused { url: place.to_string(), what: fault.to_string() }
}

/// A state that was opened to be looked at. What keeps it from being opened is noted.
fn opened_state(
    survey: &mut Survey,
    place: &Place,
    snapshot: Option<&str>,
    manifest: u64,
    opened: Result<Session, Error>,
) -> Result<Option<Volume>, Error> {
    match opened {
        Ok(session) => Ok(Some(session.into_volume())),
        Err(error @ (Error::Damaged { .. } | Error::Foreign { .. } | Error::NoVolume { .. })) => {
            let name = match &error {
                Error::Damaged { name: Some(name), .. } => place.name(*name),
                _ => place.name(Name::Manifest(manifest)),
            };
            survey.damage.push(Damage { name, what: error.to_string(), snapshot: snapshot.map(str::to_owned) });
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A look at states that share objects.
struct Look<'a, P> {
    place: &'a Place,
    data: bool,
    /// What the volume's folder has.
    sizes: BTreeMap<Name, u64>,
    /// Objects that were looked at, and what is wrong with them.
    objects: BTreeMap<Key, Option<String>>,
    /// Pages of the map that are sound: their objects, and where they begin.
    pages: BTreeSet<(Key, u64)>,
    progress: P,
}

impl<P: FnMut(u64, u64)> Look<'_, P> {
    /// Looks at a state.
    fn at(&mut self, state: &Volume, snapshot: Option<&str>, survey: &mut Survey) -> Result<(), Error> {
        let all: u64 = state.objects().map(|it| it.bytes).sum::<u64>().max(1);
        let mut seen = 0;
        for entry in state.objects() {
            seen += entry.bytes;
            let found = match self.objects.get(&entry.key()) {
                Some(found) => found.clone(),
                None => {
                    survey.read += u64::from(self.data && entry.kind == Kind::Data);
                    let found = self.judge(state, entry)?;
                    self.objects.insert(entry.key(), found.clone());
                    found
                }
            };
            let (name, snapshot) = (self.place.key(&entry.key()), snapshot.map(str::to_owned));
            survey.damage.extend(found.map(|what| Damage { name, what, snapshot }));
            (self.progress)(seen, all);
        }
        self.at_pages(state, snapshot, survey)
    }

    /// Looks at the pages of the map that were not read at the opening.
    fn at_pages(&mut self, state: &Volume, snapshot: Option<&str>, survey: &mut Survey) -> Result<(), Error> {
        for request in state.page_requests(|key, at| self.pages.insert((key.clone(), at))) {
            let name = self.place.key(request.key());
            let wrong = match self.place.store().get(&name, Some(request.range())) {
                Ok(bytes) => state.judge_pages(&request, &bytes),
                // That of an object in the volume's own folder was told already.
                Err(Fault::Absent) if request.key().source.is_none() => Vec::new(),
                Err(Fault::Absent) => vec!["it is absent".to_owned()],
                Err(fault) => return Err(refused(self.place, &fault)),
            };
            if !wrong.is_empty() {
                // The next state that needs them is told of, too.
                let (from, len) = request.range();
                self.pages.retain(|(key, at)| key != request.key() || !(from..from + len).contains(at));
            }
            let damage = |what| Damage { name: name.clone(), what, snapshot: snapshot.map(str::to_owned) };
            survey.damage.extend(wrong.into_iter().map(damage));
        }
        Ok(())
    }

    /// Says what is wrong with an object, if anything is.
    fn judge(&self, volume: &Volume, entry: &Entry) -> Result<Option<String>, Error> {
        let (place, key) = (self.place, entry.key());
        let wants = match (entry.kind, self.data) {
            // Its pages are looked at one by one.
            (Kind::Map, _) => None,
            (Kind::Data, true) => Some(None),
            (Kind::Data, false) => Some(Some((0, u64::from(entry.head)))),
        };
        let size = self.sizes.get(&key.name).filter(|_| entry.source.is_none());
        let bytes = match size {
            Some(bytes) if *bytes < entry.bytes => {
                return Ok(Some(format!("it has {bytes} bytes instead of {}", entry.bytes)));
            }
            None if entry.source.is_none() => return Ok(Some("it is absent".to_owned())),
            _ => match wants {
                None => return Ok(None),
                Some(range) => place.store().get(&place.key(&key), range),
            },
        };
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(Fault::Absent) => return Ok(Some("it is absent".to_owned())),
            Err(fault) => return Err(refused(place, &fault)),
        };
        let head = match Head::parse(&bytes) {
            Ok(head) => head,
            Err(what) => return Ok(Some(what)),
        };
        if head.stamp != entry.stamp || entry.source.is_none() && head.volume != volume.manifest().volume {
            return Ok(Some("it is another object, or another volume's".to_owned()));
        }
        if !self.data {
            return Ok(None);
        }
        let stored = head.records.iter().filter(|record| record.stored > 0);
        let wrong: Vec<String> = stored.filter_map(|it| volume.judge_extent(&head, it, &bytes).err()).collect();
        let all = head.records.len();
        Ok(wrong
            .first()
            .map(|first| format!("{} of {all} extents can't be read, the first one as {first}", wrong.len())))
    }
}

/// Deletes what no state needs and nobody will delete: objects of writers that were overtaken, and
/// old manifests. The volume must be open for writing by this very process. Returns how many.
///
/// # Errors
/// [`Error`].
pub fn sweep_leftovers(session: &Session) -> Result<u64, Error> {
    let (place, volume) = (session.place(), session.volume());
    let retired = volume.retired().iter().map(|it| it.entry.key());
    let needed: BTreeSet<Key> = volume.objects().map(Entry::key).chain(retired).collect();
    let mut deleted = 0;
    for kind in ["data/", "map/"] {
        for it in place.store().list(&format!("{}/{kind}", place.prefix())).map_err(|fault| refused(place, &fault))? {
            let Some(name @ (Name::Data(stamp) | Name::Map(stamp))) = place.parse(&it.name) else { continue };
            if stamp.epoch < volume.manifest().epoch && !needed.contains(&Key::from(name)) {
                place.store().delete(&it.name).map_err(|fault| refused(place, &fault))?;
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
            let mut session = Session::open(&place, Mode::Write(this_writer(None, None)), Options::default()).unwrap();
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
        let mut read = Vec::new();
        let take = |start, bytes: &[u8]| {
            read.push((start, bytes.to_vec()));
            Ok::<_, Error>(())
        };
        session.read_content(take).unwrap();
        assert_eq!(read, [(0, vec![1; 512])]);
    }

    #[test]
    fn each_damaged_page_of_a_map_that_is_in_the_store_alone_is_told_once_for_each_state() {
        let place = Place::in_store(Arc::new(Memory::default()), "disk");
        create(&place, 4 << 15, Form::default(), false).unwrap();
        let mut session = Session::open(&place, Mode::Write(this_writer(None, None)), Options::default()).unwrap();
        (0..4).for_each(|page| session.write(page << 15, &[7; 512]).unwrap());
        session.close().unwrap();
        snapshot(&place, "kept").unwrap();
        let without_map = Options { map_bytes: 0, ..Options::default() };
        let check = |data| survey_with(&place, without_map, data, |_, _| {}).unwrap();
        assert_eq!(check(true).damage, []);
        let map = place.store().list("disk/map/").unwrap().remove(0).name;
        let sound = place.store().get(&map, None).unwrap();
        // Pages of one extent each follow a head of 36 bytes.
        for harmed in [vec![1], vec![0, 3]] {
            let mut body = sound.clone();
            harmed.iter().for_each(|page| body[36 + page * 24] ^= 1);
            place.store().put(&map, &Arc::new(body), false).unwrap();
            let found = check(false).damage;
            let states =
                [None, Some("kept")].into_iter().flat_map(|state| harmed.iter().map(move |page| (state, page)));
            assert_eq!(found.len(), 2 * harmed.len(), "{found:?}");
            for ((state, page), found) in states.zip(&found) {
                assert_eq!((&found.name, found.snapshot.as_deref()), (&map, state), "{found:?}");
                let wanted =
                    format!("page {page} of the map is wrong (16 MiB of the volume from {} MiB on)", page * 16);
                assert!(found.what.ends_with(&wanted), "{found:?}");
            }
        }
    }
}
