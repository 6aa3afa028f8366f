// SPDX-License-Identifier: MIT OR Apache-2.0
//! The map file of a daemon: it saves GETs of pages of a large map, also after a start. Whatever is
//! wrong with it, clients read what was written.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::errors::Ram;
use crate::harness::{BLOCK, Disk, Form, MIB, Random, Store, Volume, first, must, skip};

/// A page of the map is for so many bytes of the volume. Each has some blocks with data.
const PAGE: u64 = 16 * MIB;
const PAGES: u64 = 60;
const BLOCKS: u64 = 8;
/// The daemon may have a tenth of the map in RAM, and less.
const IN_RAM: u64 = PAGES * BLOCKS * 24 / 20;

fn place(page: u64, block: u64) -> u64 {
    page * PAGE + block * 64 * 1024
}

fn payload(page: u64, block: u64) -> Vec<u8> {
    Random::new(page * BLOCKS + block).bytes(BLOCK as usize)
}

/// A disk with a large map, all of it in the store.
fn disk() -> Disk {
    let mut disk = Disk::with(Store::Folder, Form::PLAIN, &["--size", "1GiB"]);
    disk.start();
    let mut client = disk.volume.connect();
    for (page, block) in (0..PAGES).flat_map(|page| (0..BLOCKS).map(move |block| (page, block))) {
        client.write_at(place(page, block), &payload(page, block), false).expect("the volume takes writes");
    }
    client.flush().expect("the cache device is well");
    drop(client);
    disk.volume.drain();
    disk.volume.stop();
    disk
}

/// Serves with a map file, and waits until it is known whether there is one.
fn serve(disk: &Disk, volume: &mut Volume, file: &Path) {
    let mut serve = volume.serve();
    serve.env("FLASHFRONT_OBJECT_MAP_BYTES", IN_RAM.to_string());
    serve.args(["--read-around=0B", "--map-file-bytes=16MiB", "--map-file"]).arg(file);
    volume.start_by(disk.known(&mut serve));
    wait(volume, |it| it["is_ready"] == true || it["off"] != Value::Null);
}

fn wait(volume: &Volume, is: impl Fn(&Value) -> bool) {
    while !is(&volume.status()["map_file"]) {
        std::thread::sleep(std::time::Duration::from_millis(20)); // pacing: a poll of the daemon
    }
}

/// Reads a block of each page, far from the one before. Says how many GETs that took, and how many
/// the map file has saved.
fn read(volume: &Volume, block: u64) -> (u64, u64) {
    let figures = || {
        let (gets, file) = (first(volume)["store"]["get"]["requests"].clone(), volume.status()["map_file"].clone());
        (gets.as_u64().expect("a number"), file["saved_gets"].as_u64().expect("a number"))
    };
    let before = figures();
    let (mut client, mut bytes) = (volume.connect(), vec![0; BLOCK as usize]);
    for page in (0..PAGES).map(|nth| nth * 37 % PAGES) {
        client.read_at(place(page, block), &mut bytes).expect("the volume can be read");
        assert!(bytes == payload(page, block), "block {block} of page {page} is not what was written");
    }
    let after = figures();
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn the_map_file_saves_gets_also_after_a_start() {
    let disk = disk();
    let mut reader = disk.other_cache();
    let file = reader.place.file("pages");
    serve(&disk, &mut reader, &file);
    assert_eq!(read(&reader, 0), (2 * PAGES, 0), "a page and a block for each read");
    let (gets, saved) = read(&reader, 1);
    assert!(saved > 0 && gets + saved == 2 * PAGES, "{gets} GETs, {saved} saved");
    let told = must(&mut reader.ask("status"));
    let line = told.lines().find(|line| line.starts_with("map file")).expect("status tells of it");
    assert!(line.contains("pages"), "{told}");
    reader.stop();

    serve(&disk, &mut reader, &file);
    let (gets, saved) = read(&reader, 2);
    assert!(saved > 0 && gets + saved == 2 * PAGES, "{gets} GETs, {saved} saved, after a start");
    println!("after a start: {gets} GETs for {PAGES} reads");
    reader.kill9();

    // Bytes are changed all over, and then the end is missing.
    let whole = fs::read(&file).expect("the file is there");
    for (block, cut) in [(3, whole.len()), (4, whole.len() / 2), (5, 100), (6, 0)] {
        let mut damaged = whole.clone();
        damaged.iter_mut().skip(4096).step_by(501).for_each(|it| *it ^= 0x55);
        damaged.truncate(cut);
        fs::write(&file, damaged).expect("the file is ours");
        serve(&disk, &mut reader, &file);
        let (gets, saved) = read(&reader, block);
        assert!(saved < PAGES && gets + saved == 2 * PAGES, "{gets} GETs, {saved} saved, cut at {cut}");
        reader.kill9();
    }
}

/// The file is something else, or another daemon has it, or its disk is full. Clients read, and the
/// operator hears why no page is kept.
#[test]
fn without_a_map_file_clients_are_served() {
    let (disk, other) = (disk(), disk());
    let mut reader = disk.other_cache();
    let file = reader.place.file("pages");
    fs::write(&file, "a letter").expect("the folder is ours");
    serve(&disk, &mut reader, &file);
    assert_eq!(read(&reader, 0), (2 * PAGES, 0));
    let told = must(&mut reader.ask("status")).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("map file none: ") && told.contains("something else than pages of maps"), "{told}");
    assert!(reader.stderr().contains("something else than pages of maps"), "{}", reader.stderr());
    assert_eq!(fs::read(&file).expect("it is there"), b"a letter");
    reader.stop();

    fs::remove_file(&file).expect("the folder is ours");
    serve(&disk, &mut reader, &file);
    let mut second = other.other_cache();
    serve(&other, &mut second, &file);
    assert!(second.stderr().contains("another process uses this file"), "{}", second.stderr());
    assert_eq!(read(&second, 0), (2 * PAGES, 0));
    let (gets, saved) = read(&reader, 1);
    assert_eq!(gets + saved, 2 * PAGES);
    second.stop();

    let folder = second.place.file("full");
    let Some(_ram) = Ram::mount(&folder, "size=4k") else { return skip("no tmpfs") };
    let file = folder.join("pages");
    serve(&other, &mut second, &file);
    assert_eq!(read(&second, 1), (2 * PAGES, 0));
    wait(&second, |it| it["off"] != Value::Null);
    assert!(second.stderr().contains("the disk is full, so the file was emptied"), "{}", second.stderr());
    assert_eq!(read(&second, 2), (2 * PAGES, 0));
    assert!(fs::metadata(&file).expect("it is there").len() < 100, "its room is given back");
    second.stop();
}
