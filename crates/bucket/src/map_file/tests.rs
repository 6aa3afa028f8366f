// SPDX-License-Identifier: MIT OR Apache-2.0
use std::collections::BTreeMap;
use std::fs;

use flashfront_object::{Fault, Form, Mode, Options, SECTOR_BYTES};

use super::*;
use crate::store::{Listed, Memory, Store};
use crate::{Place, Session, create, this_writer};

/// Sectors of a page of the map, pages, and extents of each: what is in RAM is a tenth of that.
const PAGE: u64 = 32_768;
const PAGES: u64 = 60;
const EXTENTS: u64 = 20;
const MAP_BYTES: usize = (PAGES * EXTENTS * 24 / 10) as usize;
const SIZE: u64 = 4 << 20;

/// Counts GETs, by the first part of the object's name. Damages the next one of a map.
#[derive(Debug, Default)]
struct Counting {
    memory: Memory,
    gets: Mutex<BTreeMap<String, u64>>,
    damages: AtomicBool,
}

impl Store for Counting {
    fn put(&self, name: &str, body: &Arc<Vec<u8>>, create: bool) -> Result<(), Fault> {
        self.memory.put(name, body, create)
    }

    fn get(&self, name: &str, range: Option<(u64, u64)>) -> Result<Vec<u8>, Fault> {
        let kind = name.split('/').nth(1).unwrap_or_default();
        *self.gets.lock().unwrap().entry(kind.to_owned()).or_default() += 1;
        let mut bytes = self.memory.get(name, range)?;
        if kind == "map" && self.damages.swap(false, Ordering::Relaxed) {
            bytes[0] ^= 1;
        }
        Ok(bytes)
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, Fault> {
        self.memory.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<(), Fault> {
        self.memory.delete(name)
    }
}

fn options() -> Options {
    Options { map_bytes: MAP_BYTES, recent_bytes: 0, ..Options::default() }
}

/// Where an extent is. Every second sector, so that each is one of its own.
fn sector(page: u64, extent: u64) -> u64 {
    page * PAGE + extent * 2
}

/// A volume whose extents have this stamp and their sectors.
fn volume(store: &Arc<Counting>, stamp: u8) -> Place {
    let place = Place::in_store(Arc::clone(store) as Arc<dyn Store>, "disk");
    create(&place, PAGES * PAGE, Form::default(), false).unwrap();
    let mut session = Session::open(&place, Mode::Write(this_writer(None, None)), Options::default()).unwrap();
    for (page, extent) in (0..PAGES).flat_map(|page| (0..EXTENTS).map(move |extent| (page, extent))) {
        session.write(sector(page, extent), &content(page, extent, stamp)).unwrap();
    }
    session.settle(0).unwrap();
    session.close().unwrap();
    place
}

fn content(page: u64, extent: u64, stamp: u8) -> Vec<u8> {
    [stamp, page as u8, extent as u8, 1].repeat(SECTOR_BYTES as usize / 4)
}

/// An open volume, which keeps pages in a file if there is one.
fn open(store: &Arc<Counting>, file: Option<&MapFile>) -> Session {
    let place = Place::in_store(Arc::clone(store) as Arc<dyn Store>, "disk");
    let session = Session::open(&place, Mode::Read, options()).unwrap();
    if let Some(file) = file {
        place.keep_pages(file.pages(), session.volume().manifest().volume);
    }
    session
}

fn opened(path: &Path) -> MapFile {
    let none = Box::new(|why: &str| panic!("{why}"));
    let file = MapFile::open_with(path, SIZE, Duration::from_secs(3600), none).unwrap();
    until(|| file.figures().is_ready);
    file
}

/// Waits for the thread of a file.
fn until(is: impl Fn() -> bool) {
    while !is() {
        std::thread::yield_now();
    }
}

/// Reads an extent of each page, far from the one before. Counts GETs of the map and of data.
fn read(store: &Counting, session: &mut Session, extent: u64, stamp: u8) -> (u64, u64) {
    store.gets.lock().unwrap().clear();
    for page in (0..PAGES).map(|nth| nth * 37 % PAGES) {
        let wanted = content(page, extent, stamp);
        let range = [(sector(page, extent), 1)];
        let taken = session.read_all(&range, |_, bytes| {
            assert_eq!(bytes, wanted);
            Ok::<(), crate::Error>(())
        });
        taken.unwrap();
    }
    let gets = store.gets.lock().unwrap();
    let of = |kind: &str| gets.get(kind).copied().unwrap_or(0);
    (of("map"), of("data"))
}

/// A map ten times as large as what is in RAM of it: a cold read is two GETs. With the file it is
/// one, when its page was fetched before, and also after a start.
#[test]
fn a_cold_read_of_a_large_map_is_one_get() {
    let folder = tempfile::tempdir().unwrap();
    let (path, store) = (folder.path().join("pages"), Arc::new(Counting::default()));
    volume(&store, 1);

    let mut without = open(&store, None);
    for extent in 0..3 {
        assert_eq!(read(&store, &mut without, extent, 1), (PAGES, PAGES), "two GETs for each read");
    }

    let file = opened(&path);
    let mut with = open(&store, Some(&file));
    assert_eq!(read(&store, &mut with, 0, 1), (PAGES, PAGES), "the first time");
    for extent in 1..4 {
        assert_eq!(read(&store, &mut with, extent, 1), (0, PAGES), "one GET for each read");
    }
    let figures = file.figures();
    assert_eq!((figures.saved_gets, figures.missed_gets, figures.pages), (3 * PAGES, PAGES, PAGES));
    assert_eq!(figures.page_bytes, PAGES * EXTENTS * 24);
    drop((with, file));

    let file = opened(&path);
    let mut again = open(&store, Some(&file));
    assert_eq!(read(&store, &mut again, 5, 1), (0, PAGES), "after a start");
    assert_eq!(file.figures().saved_gets, PAGES);
}

/// The volume is deleted and made anew at the same place. Its objects have the same names, and
/// pages of the same length. Nothing of its forerunner is read.
#[test]
fn a_volume_that_was_made_anew_reads_its_own_pages() {
    let folder = tempfile::tempdir().unwrap();
    let file = opened(&folder.path().join("pages"));
    for stamp in 1..4 {
        let store = Arc::new(Counting::default());
        volume(&store, stamp);
        let mut session = open(&store, Some(&file));
        assert_eq!(read(&store, &mut session, 0, stamp), (PAGES, PAGES));
        assert_eq!(read(&store, &mut session, 1, stamp), (0, PAGES));
    }
}

/// What is damaged in the file comes from the store, and is kept anew.
#[test]
fn a_damaged_file_costs_gets_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (path, store) = (folder.path().join("pages"), Arc::new(Counting::default()));
    volume(&store, 1);
    let file = opened(&path);
    let mut session = open(&store, Some(&file));
    read(&store, &mut session, 0, 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes.iter_mut().skip(5000).step_by(3001).for_each(|it| *it ^= 0xff);
    fs::write(&path, &bytes).unwrap();
    let (map, data) = read(&store, &mut session, 1, 1);
    assert!(map > 0 && map < PAGES && data == PAGES, "{map} pages were damaged");
    assert_eq!(read(&store, &mut session, 2, 1), (0, PAGES));
    fs::write(&path, "").unwrap();
    assert_eq!(read(&store, &mut session, 3, 1), (PAGES, PAGES));
    assert_eq!(read(&store, &mut session, 4, 1), (0, PAGES));
}

/// A page that the store, or the way to it, has damaged is fetched once more, and kept as it should
/// be.
#[test]
fn a_damaged_answer_does_not_stay() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Counting::default());
    volume(&store, 1);
    let file = opened(&folder.path().join("pages"));
    let mut session = open(&store, Some(&file));
    store.damages.store(true, Ordering::Relaxed);
    assert_eq!(read(&store, &mut session, 0, 1), (PAGES + 1, PAGES));
    assert_eq!(read(&store, &mut session, 0, 1), (0, PAGES));
    assert_eq!(file.figures().pages, PAGES);
}

/// A file that can't be had is told of once, and volumes are read without it.
#[test]
fn without_the_file_volumes_are_read_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let (path, store) = (folder.path().join("pages"), Arc::new(Counting::default()));
    volume(&store, 1);
    fs::write(&path, "a letter").unwrap();
    let (tell, told) = channel();
    let tell = Box::new(move |why: &str| tell.send(why.to_owned()).unwrap());
    let file = MapFile::open(&path, SIZE, tell).unwrap();
    let why = told.recv().unwrap();
    assert!(why.contains("something else than pages of maps, so it was left as it is"), "{why}");
    let mut session = open(&store, Some(&file));
    for extent in 0..2 {
        assert_eq!(read(&store, &mut session, extent, 1), (PAGES, PAGES));
    }
    assert_eq!(fs::read(&path).unwrap(), b"a letter");
    let figures = file.figures();
    assert_eq!((figures.is_ready, figures.off), (false, Some(why)));
    assert!(told.try_recv().is_err(), "told once");
}

/// A disk that does not answer keeps nobody: the store is asked, and nobody waits a second time.
#[test]
fn a_disk_that_is_silent_is_not_waited_for_again() {
    let shared = Arc::new(Shared { is_ready: true.into(), ..Shared::default() });
    let (orders, taken) = sync_channel(ORDERS);
    let pages = Pages { shared: Arc::clone(&shared), orders, patience: Duration::from_millis(1) };
    let store = Arc::new(Counting::default());
    volume(&store, 1);
    let place = Place::in_store(Arc::clone(&store) as Arc<dyn Store>, "disk");
    let mut session = Session::open(&place, Mode::Read, options()).unwrap();
    place.keep_pages(&pages, session.volume().manifest().volume);
    for extent in 0..3 {
        assert_eq!(read(&store, &mut session, extent, 1), (PAGES, PAGES));
    }
    let finds = taken.try_iter().filter(|it| matches!(it, Order::Find(..))).count();
    assert_eq!(finds, 1, "nobody waited a second time");
}
