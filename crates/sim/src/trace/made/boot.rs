// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes three mornings of virtual desktops. All guests boot from one image, each with an overlay.
//!
//! Published figures:
//!
//! - A boot of Windows 7 up to the idle login screen takes 2 to 3 minutes. It reads 500 to 600 MB
//!   in 70,000 requests, and writes 20 to 30 MB (ThinScale, "ThinIO facts and figures, part 2").
//!   Ours is a sixteenth of that.
//! - A first write to a cluster of 64 KiB of the overlay copies the rest of that cluster from the
//!   image. (QEMU's qcow2, its default `cluster_size`.)
//! - Linked clones at first read only the image. Later they read the data that they have written
//!   from their overlays. (Leibovici, "The biggest linked clone IO split study".)
//! - At work 30 to 60 % of a desktop's requests are reads. (Webster, Evaluator Group, "What's
//!   different about storage for virtual desktops".)
//!
//! Guesses: 24 guests that start within 10 minutes, and a page cache of 16 MiB for each guest. Also
//! the parts of the image that they read and their order, and the amount of their work. The seed
//! changes the number of guests and the length of a boot.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use flashfront_device::Rng;

use super::files::SECOND_US;
use super::maker::{Asked, Maker, Seed};
use crate::replay::page_cache::PageCache;
use crate::zipf::Zipf;

const HOUR_US: u64 = 3600 * SECOND_US;
const DAY_US: u64 = 24 * HOUR_US;
const DAYS: u64 = 3;

const GUESTS: u64 = 24;
const IMAGE_BLOCKS: u64 = 160 << 10;
/// The place of users' own data, behind the system's data.
const HOME: u64 = 140 << 10;
const HOME_BLOCKS: u64 = 5000;
/// The number of requests of a boot.
const BOOT_READS: u64 = 4400;
const BOOT_US: u64 = 150 * SECOND_US;
const WORK_REQUESTS: u64 = 1200;
const PAGE_CACHE_BLOCKS: usize = 4 << 10;
/// The blocks of a cluster of an overlay.
const CLUSTER: u64 = 16;

struct Guest {
    pages: PageCache,
    /// Clusters of the image that the overlay has, and their places.
    overlay: HashMap<u64, u64>,
    from: u64,
    /// The number of requests of this day so far.
    asked: u64,
    day: u64,
}

pub(super) struct Boot {
    rng: Rng,
    guests: Vec<Guest>,
    /// The time of each guest's next request.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    /// The reads of a boot: places of the image, and lengths.
    reads: Vec<(u64, u64)>,
    /// The writes of a boot: number of the read before, place, length.
    writes: HashMap<u64, (u64, u64)>,
    home: Zipf,
}

impl Boot {
    pub(super) fn new(seed: &mut Seed) -> Self {
        let mut rng = seed.rng(1217);
        let guests = seed.about(GUESTS);
        let (mut reads, mut writes) = (Vec::new(), HashMap::new());
        let mut at = 0;
        for nth in 0..seed.about(BOOT_READS) {
            if rng.below(3) == 0 {
                at = rng.below(HOME - CLUSTER);
            }
            let blocks = 1 + rng.below(3);
            reads.push((at, blocks));
            // A twentieth as much is written: logs, the registry, data of services.
            if rng.below(20) == 0 {
                writes.insert(nth, (at, blocks));
            }
            at = (at + blocks) % (HOME - CLUSTER);
        }
        // An overlay has room for all blocks that could be written.
        let room = IMAGE_BLOCKS + CLUSTER;
        let guest = |nth| Guest {
            pages: PageCache::new(PAGE_CACHE_BLOCKS),
            overlay: HashMap::new(),
            from: IMAGE_BLOCKS + nth * room,
            asked: 0,
            day: 0,
        };
        let next = (0..guests).map(|nth| Reverse((rng.below(600 * SECOND_US), nth as usize))).collect();
        Self { next, guests: (0..guests).map(guest).collect(), reads, writes, home: Zipf::new(HOME_BLOCKS, 0.8), rng }
    }

    fn read(guest: &mut Guest, from: u64, blocks: u64, asked: &mut Asked) {
        for block in from..from + blocks {
            if guest.pages.touch(block) {
                continue;
            }
            let at = guest.overlay.get(&(block / CLUSTER)).map_or(block, |at| at + block % CLUSTER);
            asked.join(false, at);
        }
    }

    fn write(guest: &mut Guest, from: u64, blocks: u64, asked: &mut Asked) {
        for block in from..from + blocks {
            guest.pages.touch(block);
            if let Some(at) = guest.overlay.get(&(block / CLUSTER)) {
                asked.join(true, at + block % CLUSTER);
                continue;
            }
            // The first block of the overlay is its table.
            let at = guest.from + (guest.overlay.len() as u64 + 1) * CLUSTER;
            guest.overlay.insert(block / CLUSTER, at);
            asked.read(block / CLUSTER * CLUSTER, CLUSTER);
            asked.write(at, CLUSTER);
            asked.write(guest.from, 1);
        }
    }

    /// The next request of a guest, and the time until the one after. `None` at the end.
    fn ask(&mut self, nth: usize, asked: &mut Asked) -> Option<u64> {
        let boot = self.reads.len() as u64;
        let guest = &mut self.guests[nth];
        let number = guest.asked;
        guest.asked += 1;
        if let Some(&(from, blocks)) = self.reads.get(number as usize) {
            // Each guest leaves out a twentieth of the reads, so that guests differ.
            if self.rng.below(20) > 0 {
                Self::read(guest, from, blocks, asked);
            }
            if let Some(&(from, blocks)) = self.writes.get(&number) {
                Self::write(guest, from, blocks, asked);
            }
            return Some(1 + self.rng.below(2 * BOOT_US / boot));
        }
        if number < boot + WORK_REQUESTS {
            let blocks = 1 + self.rng.below(8);
            let from = HOME + self.home.sample(&mut self.rng);
            if self.rng.below(100) < 60 {
                Self::read(guest, from, blocks, asked);
            } else {
                Self::write(guest, from, blocks, asked);
            }
            return Some(1 + self.rng.below(2 * 8 * HOUR_US / WORK_REQUESTS));
        }
        // In the evening the machine is switched off, and forgets its page cache.
        guest.pages = PageCache::new(PAGE_CACHE_BLOCKS);
        guest.asked = 0;
        guest.day += 1;
        (guest.day < DAYS).then(|| (guest.day * DAY_US + self.rng.below(600 * SECOND_US)).saturating_sub(asked.time_us))
    }
}

impl Maker for Boot {
    fn act(&mut self, asked: &mut Asked) -> bool {
        let Some(Reverse((now_us, nth))) = self.next.pop() else { return false };
        asked.time_us = now_us;
        if let Some(wait_us) = self.ask(nth, asked) {
            self.next.push(Reverse((now_us + wait_us, nth)));
        }
        true
    }
}
