// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes in an object store as devices. They keep what is promised of all devices, and what was
//! flushed. A writer is out when another one comes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

use flashfront_device::real::{Access, DeviceFile, LinkNews, LinkWatch, OpenError, Prefer, Reactor};
use flashfront_engine::{DeviceError, Memory, Op, Span, extents};
use flashfront_object::Form;

use crate::conformance::suite;
use crate::rig::{Rig, pattern};

const SIZE: u64 = 32 << 20;

/// Makes a volume in a folder.
fn volume(folder: &Path, bytes: u64) -> PathBuf {
    let url = format!("file://{}/volume", folder.display());
    flashfront_bucket::create(&flashfront_bucket::Place::of(&url).unwrap(), bytes / 512, Form::default(), false)
        .unwrap();
    url.into()
}

/// A volume that is open to be written.
struct Writer {
    rig: Rig,
    file: Arc<DeviceFile>,
}

fn writer(url: &Path) -> Writer {
    let reactor = Reactor::new(Prefer::Auto).unwrap();
    let file = Arc::new(DeviceFile::open(url, Access::Exclusive).unwrap());
    file.take_over(None).unwrap();
    let device = reactor.attach(Arc::clone(&file));
    Writer { rig: Rig::new(device, Some(reactor)), file }
}

#[test]
fn a_volume_keeps_what_all_devices_promise() {
    let folder = tempfile::tempdir().unwrap();
    suite(writer(&volume(folder.path(), SIZE)).rig);
}

#[test]
fn what_was_flushed_is_there_for_the_next_writer_and_the_rest_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let url = volume(folder.path(), SIZE);
    let mut first = writer(&url);
    first.rig.write(4096, &pattern(4096, 4096, 1), 0).unwrap();
    first.rig.flush().unwrap();
    first.rig.write(8192, &pattern(8192, 4096, 1), 0).unwrap();
    let mut second = writer(&url);
    assert!(second.rig.read(4096, 4096, 0).unwrap() == pattern(4096, 4096, 1));
    assert!(second.rig.read(8192, 4096, 0).unwrap() == vec![0; 4096]);
    let buf = second.rig.arena.alloc(4096);
    let span = Span::new(buf, 0, 4096);
    second.rig.run(Op::Map, 0, 16384, Some(span)).unwrap();
    let told: Vec<(u64, bool)> = extents(second.rig.arena.bytes(span)).take(3).map(|it| (it.bytes, it.hole)).collect();
    assert_eq!(told, [(4096, true), (4096, false), (8192, true)]);
    second.rig.arena.free(buf);
}

#[test]
fn a_writer_that_was_overtaken_takes_no_writes_and_says_by_whom() {
    let folder = tempfile::tempdir().unwrap();
    let url = volume(folder.path(), SIZE);
    let mut first = writer(&url);
    let (news, told) = channel();
    let told_by = move |it: &LinkNews| drop(news.send(it.clone()));
    first.file.watch_link(LinkWatch { check: Box::new(|_| Ok(())), told: Box::new(told_by) });
    first.rig.write(0, &pattern(0, 8192, 1), 0).unwrap();
    first.rig.flush().unwrap();
    let mut second = writer(&url);
    first.rig.write(0, &pattern(0, 4096, 2), 0).unwrap();
    assert_eq!(first.rig.flush(), Err(DeviceError::ReadOnly));
    assert_eq!(first.rig.write(0, &pattern(0, 4096, 3), 0), Err(DeviceError::ReadOnly));
    assert!(matches!(told.recv().unwrap(), LinkNews::Fenced { by } if by.contains("epoch 3")));
    assert!(first.file.link().unwrap().store.unwrap().fenced.is_some());
    // The fenced writer still reads, and the new one has all that was flushed.
    assert!(first.rig.read(4096, 4096, 0).unwrap() == pattern(4096, 4096, 1));
    assert!(second.rig.read(0, 4096, 0).unwrap() == pattern(0, 4096, 1));
    second.rig.write(0, &pattern(0, 4096, 4), 0).unwrap();
    second.rig.flush().unwrap();
}

/// A start that is refused later has done nothing to a running writer, and one that comes too late
/// is refused.
#[test]
fn an_opening_is_harmless_until_it_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let url = volume(folder.path(), SIZE);
    let mut first = writer(&url);
    let late = DeviceFile::open(&url, Access::Exclusive).unwrap();
    first.rig.write(0, &pattern(0, 4096, 1), 0).unwrap();
    first.rig.flush().unwrap();
    let error = late.take_over(None).unwrap_err().to_string();
    assert!(error.contains("start again"), "{error}");
}

#[test]
fn a_mark_tells_the_content_and_a_settled_volume_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let url = volume(folder.path(), SIZE);
    let mark = || DeviceFile::open(&url, Access::ReadOnly).unwrap().mark().unwrap();
    let empty = mark();
    let mut disk = writer(&url);
    let opening = disk.file.mark().unwrap().opening.unwrap();
    disk.file.sync_all().unwrap();
    drop(disk);
    assert_eq!(mark(), empty, "nothing was written");
    disk = writer(&url);
    for nth in 0..20 {
        disk.rig.write(nth << 20, &pattern(nth << 20, 4096, nth), 0).unwrap();
        disk.rig.flush().unwrap();
    }
    disk.file.sync_all().unwrap();
    let settled = disk.file.mark().unwrap();
    assert_ne!(settled.sequence, empty.sequence);
    assert!(settled.opening > Some(opening) && Some(settled.epoch) == settled.opening);
    drop(disk);
    assert_eq!((mark().epoch, mark().sequence), (settled.epoch, settled.sequence));
}

/// Overwriting leaves objects of which nothing is used, or little. Both go.
#[test]
fn worn_objects_are_moved_together_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let url = volume(folder.path(), SIZE);
    let mut disk = writer(&url);
    let mut write = |blocks: std::ops::Range<u64>, version: u64| {
        for block in blocks {
            disk.rig.write(block << 12, &pattern(block << 12, 4096, version), 0).unwrap();
        }
        disk.rig.flush().unwrap();
    };
    write(0..100, 0);
    for version in 1..30 {
        write(0..95, version);
    }
    // What is gone is known with the next checkpoint.
    disk.file.sync_all().unwrap();
    let objects = || std::fs::read_dir(folder.path().join("volume/data")).unwrap().count();
    let mut version = 30;
    // Sixteen manifests stay complete, and each has an object of its own.
    while objects() > 8 + 16 {
        assert!(version < 300, "{} objects are left", objects());
        disk.rig.write(100 << 12, &pattern(100 << 12, 4096, version), 0).unwrap();
        disk.rig.flush().unwrap();
        version += 1;
    }
    drop(disk);
    let mut disk = writer(&url);
    for block in 0..100 {
        let version = if block < 95 { 29 } else { 0 };
        assert!(disk.rig.read(block << 12, 4096, 0).unwrap() == pattern(block << 12, 4096, version), "{block}");
    }
}

#[test]
fn what_can_not_be_opened_is_told_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    for (url, what) in [
        (format!("file://{}/none", folder.path().display()), "object create"),
        ("s3://key:secret@bucket/a".to_owned(), "never part of a URL"),
    ] {
        let error = DeviceFile::open(Path::new(&url), Access::Exclusive).unwrap_err();
        assert!(matches!(error, OpenError::Objects { .. }) && error.to_string().contains(what), "{error}");
    }
}
