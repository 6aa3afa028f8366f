// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pages");
    (folder, path)
}

/// A page, and what tells it from others.
fn page(nth: u32, bytes: usize) -> (PageKey, Vec<u8>) {
    let content: Vec<u8> = (0..bytes).map(|at| (at as u32 * 31 + nth) as u8).collect();
    let page = StoredPage { at: u64::from(nth) * 7, bytes: bytes as u32, crc: crc(&[&content]) };
    (PageKey { volume: [7; 16], name: format!("bucket/disk/map/{nth:08}"), page }, content)
}

fn opened(path: &Path, segments: u64) -> Segments {
    Segments::open(path, segments * SEGMENT).unwrap()
}

/// The numbers of the pages that are found; all of these have their content.
fn found(segments: &mut Segments, pages: &[(PageKey, Vec<u8>)]) -> Vec<usize> {
    let is_found = |(key, content): &(PageKey, Vec<u8>)| {
        let found = segments.find(key).unwrap();
        assert!(found.as_ref().is_none_or(|it| it == content), "a page has another content");
        found.is_some()
    };
    pages.iter().map(is_found).enumerate().filter(|it| it.1).map(|it| it.0).collect()
}

#[test]
fn what_is_kept_is_found_until_its_room_is_needed_also_after_a_start() {
    let (_folder, path) = folder();
    let pages: Vec<_> = (0..40).map(|nth| page(nth, 100_000)).collect();
    let mut segments = opened(&path, 2);
    let mut newest = Vec::new();
    for (nth, (key, content)) in pages.iter().enumerate() {
        segments.keep(key, content).unwrap();
        segments.keep(key, content).unwrap();
        newest = found(&mut segments, &pages);
        assert_eq!(newest.last(), Some(&nth));
        assert_eq!(segments.pages(), newest.len() as u64);
        assert_eq!(segments.page_bytes(), newest.len() as u64 * 100_000);
        if nth % 7 == 3 {
            drop(segments);
            segments = opened(&path, 2);
            let after = found(&mut segments, &pages);
            assert!(newest.iter().all(|it| after.contains(it)), "{newest:?} {after:?}");
        }
    }
    assert!((11..=20).contains(&newest.len()), "10 pages fit each segment: {newest:?}");
    assert!(fs::metadata(&path).unwrap().len() <= FIRST + 2 * SEGMENT);
    let (mut other, content) = page(39, 100_000);
    other.volume = [8; 16];
    assert_eq!(segments.find(&other).unwrap(), None, "another volume's");
    segments.keep(&other, &content).unwrap();
    assert_eq!(segments.find(&other).unwrap(), Some(content));
    drop(segments);
    let mut small = opened(&path, 1);
    found(&mut small, &pages);
    assert!(fs::metadata(&path).unwrap().len() <= FIRST + SEGMENT, "a smaller size counts from the next start on");
}

/// Bytes are changed and the file is cut at any place. What is found then has the right content.
/// The file takes pages as before.
#[test]
fn damage_costs_pages_and_nothing_else() {
    let (_folder, path) = folder();
    let pages: Vec<_> = (0..30).map(|nth| page(nth, 70_001)).collect();
    let mut segments = opened(&path, 3);
    pages.iter().for_each(|(key, content)| segments.keep(key, content).unwrap());
    drop(segments);
    let whole = fs::read(&path).unwrap();
    let all = found(&mut opened(&path, 3), &pages);
    assert_eq!(all.len(), 30);
    let head = HEAD + pages[0].0.name.len();
    let near_heads = (0..head).chain([head + 70_000, head + 70_001, head + 70_010]);
    let places = near_heads.map(|at| FIRST as usize + at).chain((8..whole.len()).step_by(99_991));
    for at in places {
        for cut in [false, true] {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            damaged.truncate(if cut { at } else { whole.len() });
            fs::write(&path, &damaged).unwrap();
            let mut segments = opened(&path, 3);
            let left = found(&mut segments, &pages);
            assert!(left.len() < 30 || !cut, "cut at {at}, and all is there");
            for (key, content) in &pages {
                segments.keep(key, content).unwrap();
                assert_eq!(segments.find(key).unwrap().as_ref(), Some(content), "changed or cut at {at}");
            }
        }
    }
}

/// The file is damaged while it is in use.
#[test]
fn damage_is_seen_when_a_page_is_wanted() {
    let (_folder, path) = folder();
    let pages: Vec<_> = (0..5).map(|nth| page(nth, 1000)).collect();
    let mut segments = opened(&path, 1);
    pages.iter().for_each(|(key, content)| segments.keep(key, content).unwrap());
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"x", FIRST + 500).unwrap();
    assert_eq!(found(&mut segments, &pages), [1, 2, 3, 4]);
    file.set_len(FIRST + 3000).unwrap();
    assert_eq!(found(&mut segments, &pages), [1]);
    assert_eq!(segments.pages(), 1);
}

#[test]
fn what_is_something_else_is_left_as_it_is() {
    let (folder, path) = folder();
    let target = folder.path().join("text");
    fs::write(&target, "a letter").unwrap();
    symlink(&target, &path).unwrap();
    let other = |path: &Path| matches!(Segments::open(path, SEGMENT), Err(Refused::Other));
    assert!(other(&target) && other(&path));
    assert_eq!(fs::read(&target).unwrap(), b"a letter");
    assert!(matches!(Segments::open(folder.path(), SEGMENT), Err(Refused::Io(_))), "a folder");
    assert!(other(Path::new("/dev/null")));
}

#[test]
fn the_file_is_its_owners_and_one_process_has_it() {
    let (_folder, path) = folder();
    let first = opened(&path, 1);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(Segments::open(&path, SEGMENT), Err(Refused::Busy)));
    drop(first);
    opened(&path, 1);
}

#[test]
fn another_version_of_the_file_is_begun_anew() {
    let (_folder, path) = folder();
    fs::write(&path, b"FFPAGES9 and more").unwrap();
    let mut segments = opened(&path, 1);
    let (key, content) = page(1, 10);
    segments.keep(&key, &content).unwrap();
    assert!(fs::read(&path).unwrap().starts_with(MAGIC));
}

#[test]
fn a_full_disk_is_an_error() {
    let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
    let mut segments = Segments::of_file(full, SEGMENT);
    let (key, content) = page(1, 10);
    assert_eq!(segments.keep(&key, &content).unwrap_err().kind(), io::ErrorKind::StorageFull);
}
