// SPDX-License-Identifier: MIT OR Apache-2.0
//! What clients and outsiders of a life do, and how their answers are judged.

use std::sync::Arc;

use flashfront_object::{Effect, Mode, Name, Told, Trouble, Wanted, Wish};

use super::{Event, HOUR, Life, VOLUME, id};
use crate::objects::content::{BLOCK_SECTORS, BLOCKS, Change, Content, sector, side_by_side, stamps};
use crate::objects::writers::Waited;

impl Life {
    /// A client of a writer does something.
    pub(super) fn client(&mut self, number: usize) {
        let writer = &mut self.writers[number];
        let Some(volume) = &mut writer.volume else { return };
        if self.now < writer.paused_until {
            let delay = writer.paused_until - self.now;
            self.after(delay, Event::Client { writer: number });
            return;
        }
        if self.operations_left == 0 {
            return;
        }
        self.operations_left -= 1;
        self.lived.operations += 1;
        let mut fx = Vec::new();
        let block = self.rng.below(BLOCKS as u64) as usize;
        let blocks = side_by_side(block, 1 + self.rng.below(6) as usize);
        writer.tickets += 1;
        let ticket = writer.tickets;
        match self.rng.below(40) {
            0..18 if volume.has_room() => {
                self.stamp += 1;
                let is_zero = self.rng.below(8) == 0;
                let change = Change { block, blocks, stamp: if is_zero { 0 } else { self.stamp } };
                let start = sector(block);
                let written = match is_zero {
                    true => volume.zero(start, blocks as u64 * BLOCK_SECTORS, &mut fx),
                    false => volume.write(start, &change.bytes(), &mut fx),
                };
                if written.is_ok() {
                    writer.changes.push(change);
                }
            }
            0..26 => {
                let changes = writer.changes.len();
                writer.waited.insert(ticket, Waited::Read { block, blocks, changes });
                volume.read(ticket, sector(block), blocks as u64 * BLOCK_SECTORS, &mut fx);
            }
            26..32 => {
                writer.borders.insert(writer.changes.len());
                writer.waited.insert(ticket, Waited::Flush(writer.changes.len()));
                volume.flush(ticket, &mut fx);
            }
            32 => {
                writer.borders.insert(writer.changes.len());
                writer.waited.insert(ticket, Waited::Flush(writer.changes.len()));
                volume.publish(ticket, &mut fx);
            }
            33 => volume.checkpoint(&mut fx),
            34 | 35 => {
                writer.waited.insert(ticket, Waited::Collect);
                volume.collect(ticket, 20 + self.rng.below(80), &mut fx);
            }
            36 => self.snapshot(),
            37 => self.away_until = self.now + self.rng.below(HOUR / 10) * self.rng.below(2),
            38 if self.rng.below(2) == 0 => self.after(0, Event::TakeOver),
            _ => {}
        }
        self.send(number, fx);
        let delay = if self.rng.below(10) == 0 { self.rng.below(5000) } else { self.rng.below(40) };
        self.after(delay, Event::Client { writer: number });
    }

    pub(super) fn told(&mut self, number: usize, ticket: u64, result: Result<Told, Trouble>) {
        let Some(waited) = self.writers[number].waited.remove(&ticket) else { return };
        let is_overtaken = Some(self.store.newest().epoch) > self.writers[number].epoch;
        match (waited, result) {
            (Waited::Flush(changes), Ok(Told::Flushed(_))) => {
                self.writers[number].flushed = self.writers[number].flushed.max(changes);
                self.look(number);
            }
            (Waited::Read { block, blocks, changes }, Ok(Told::Read(bytes))) => {
                let found = stamps(&bytes).unwrap_or_else(|what| panic!("a read of writer {number}: {what}"));
                assert_eq!(found.len(), blocks);
                let may = self.writers[number].may_read(block, changes, &found);
                may.unwrap_or_else(|what| panic!("a read of writer {number}: {what}"));
            }
            (Waited::Collect, Ok(Told::Collected(_)) | Err(Trouble::Damaged { .. })) => {}
            // Bytes that are harmed on their way again and again.
            (Waited::Read { .. }, Err(Trouble::Damaged { what, .. }))
                if what.contains("checksum") && self.rates.flipped > 0 => {}
            (_, Err(trouble)) => assert!(is_overtaken, "writer {number}, whom nobody has overtaken: {trouble}"),
            (waited, told) => panic!("writer {number} waits for {waited:?} and is told {told:?}"),
        }
    }

    /// Somebody beside the writers begins to take a snapshot.
    pub(super) fn snapshot(&mut self) {
        let manifest = self.store.newest().number;
        let content = self.store.content(Mode::ReadAt(manifest)).unwrap_or_else(|what| panic!("{what}"));
        let delay = self.rng.below(3000);
        self.after(delay, Event::Wish { manifest, content });
    }

    fn put_wish(&mut self, wanted: Wanted) {
        let free = (1..).find(|number| !self.store.objects.contains_key(&Name::Wish(*number)));
        let maker = id(self.count as usize);
        let body = Arc::new(Wish { volume: VOLUME, maker, wanted }.encode());
        let name = Name::Wish(free.expect("there is always a free number"));
        let effect = Effect::Put { token: 0, name, body, create: true, attempt: 0 };
        let _ = self.store.carry_out(&effect, false, 0);
    }

    pub(super) fn wish(&mut self, manifest: u64, content: Content) {
        let name = format!("{manifest} at {}", self.now);
        self.put_wish(Wanted::Snapshot { name: name.clone(), manifest });
        let delay = self.rng.below(3000);
        self.after(delay, Event::Judge { manifest, name, content });
    }

    pub(super) fn judge(&mut self, manifest: u64, name: String, content: Content) {
        if self.store.newest().kept > manifest {
            self.put_wish(Wanted::Forget { name });
            return;
        }
        self.lived.snapshots += 1;
        self.snapshots.push((manifest, name, content));
        // Some are forgotten again.
        if self.rng.below(3) == 0 {
            let (_, name, _) = self.snapshots.remove(0);
            self.put_wish(Wanted::Forget { name });
        }
    }
}
