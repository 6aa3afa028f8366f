// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts what made traces do. Each test compares that with its sources and with the book.

use std::io::Read;
use std::path::Path;

use hashbrown::HashSet;

use super::{KINDS, Load};

fn load(path: &str) -> Load {
    Load::of(Path::new(path)).expect("a good name").expect("a made trace")
}

/// Blocks that a made trace asks for.
#[derive(Debug, Default)]
struct Counted {
    read: u64,
    written: u64,
    requests: u64,
    /// The part of `written` that goes to places that were written before.
    rewritten: u64,
    /// Distinct places.
    touched: u64,
    read_places: u64,
    written_places: u64,
}

impl Counted {
    fn of(path: &str) -> Self {
        let (mut text, mut it, mut last_us) = (load(path).text(), Self::default(), 0);
        let (mut reads, mut writes) = (HashSet::new(), HashSet::new());
        while let Some(made) = text.next() {
            assert!(made.time_us >= last_us && made.blocks > 0, "{path}: {made:?}");
            last_us = made.time_us;
            it.requests += 1;
            for block in made.block..made.block + made.blocks {
                if made.write {
                    it.written += 1;
                    it.rewritten += u64::from(!writes.insert(block));
                } else {
                    it.read += 1;
                    reads.insert(block);
                }
            }
        }
        (it.read_places, it.written_places) = (reads.len() as u64, writes.len() as u64);
        it.touched = reads.union(&writes).count() as u64;
        // A trace is short enough to be replayed soon, and long enough to be more than a toy.
        assert!((1_000_000..2_200_000).contains(&(it.read + it.written)), "{path}: {it:?}");
        assert!((100_000..400_000).contains(&it.touched), "{path}: {it:?}");
        it
    }

    /// The percentage of writes among all blocks asked for.
    fn written_percent(&self) -> u64 {
        self.written * 100 / (self.read + self.written)
    }
}

#[test]
fn each_reading_of_a_made_trace_is_the_same_and_each_seed_another() {
    for kind in &KINDS {
        let head = |seed: u32| {
            let mut head = vec![0; 60_000];
            let load = load(&format!("made:{}?seed={seed}", kind.name));
            load.text().read_exact(&mut head).map(|()| head).expect("a made trace is longer")
        };
        assert!(head(0) == head(0) && head(3) == head(3), "{}", kind.name);
        assert!(head(0) != head(3) && head(3) != head(4), "{}", kind.name);
    }
}

#[test]
fn a_workstation_and_a_database_write_two_thirds() {
    for path in ["made:workstation", "made:database"] {
        let it = Counted::of(path);
        assert!((62..=70).contains(&it.written_percent()), "{path}: {it:?}");
    }
}

/// Koller and Rangaswami: nine tenths are writes, and nearly all of them rewrite. In proportion
/// they go to fewer places than reads do.
#[test]
fn a_mail_server_writes_nine_tenths_and_mostly_again() {
    let it = Counted::of("made:mail");
    assert!((85..=93).contains(&it.written_percent()), "{it:?}");
    assert!(it.rewritten * 100 / it.written >= 85, "{it:?}");
    assert!(it.read / it.read_places < 4 && it.written / it.written_places >= 8, "{it:?}");
}

/// ThinScale: a boot reads twenty times as much as it writes, in requests of 8 KiB. QEMU: a first
/// write copies the rest of 64 KiB.
#[test]
fn guests_that_boot_read_one_image_and_copy_what_they_write() {
    let it = Counted::of("made:boot");
    assert!((25..=40).contains(&it.written_percent()), "{it:?}");
    let (mut text, mut image) = (load("made:boot").text(), HashSet::new());
    let (mut requests, mut blocks, mut written) = (0, 0, 0);
    // The storm of the first morning. Copies are requests of a whole cluster, and its table.
    while let Some(made) = text.next().filter(|made| made.time_us < 900 * 1_000_000) {
        if made.write {
            written += u64::from(made.blocks == 16);
        } else if made.blocks < 16 {
            requests += 1;
            blocks += made.blocks;
            image.extend(made.block..made.block + made.blocks);
        }
    }
    assert!(blocks > 8 * image.len() as u64, "each place is read by most guests: {blocks} of {}", image.len());
    assert!((150..=250).contains(&(blocks * 100 / requests)), "{blocks} in {requests}");
    assert!((15..=30).contains(&(requests / written)), "{requests} reads, {written} first writes");
}

/// The cleaner moves live blocks, and everything goes round the disk.
#[test]
fn a_log_structured_guest_writes_two_thirds_and_goes_round_its_disk() {
    let it = Counted::of("made:log");
    assert!((66..=75).contains(&it.written_percent()), "{it:?}");
    assert!(it.written > 4 * it.written_places && it.written_places * 10 > it.touched * 9, "{it:?}");
    // Only the cleaner asks for more than a request of a file at once.
    assert!(it.written / it.requests < 16, "{it:?}");
}

/// Build output is read from the page cache, if at all, and is deleted again.
#[test]
fn a_build_server_writes_most_and_reuses_its_room() {
    let it = Counted::of("made:ci");
    assert!((80..=88).contains(&it.written_percent()), "{it:?}");
    assert!(it.rewritten * 100 / it.written >= 70, "{it:?}");
}

#[test]
fn a_name_or_a_seed_that_nobody_has_is_told_with_what_there_is() {
    assert!(Load::of(Path::new("trace.gz")).is_ok_and(|load| load.is_none()));
    let told = Load::of(Path::new("made:nobody?seed=1")).expect_err("nobody");
    assert!(told.contains("nobody;") && told.contains("made:workstation"), "{told}");
    for path in ["made:mail?", "made:mail?seed=", "made:mail?seed=-1", "made:mail?seed=4294967296", "made:mail?size=1"]
    {
        let told = Load::of(Path::new(path)).expect_err(path);
        assert!(told.contains(path) && told.contains("made:mail?seed=1"), "{told}");
    }
}
