// SPDX-License-Identifier: MIT OR Apache-2.0
//! What clients and outsiders of a life do, and how their answers are judged.

use std::sync::Arc;

use flashfront_object::{Effect, Mode, Name, Told, Trouble, Wanted, Wish};

use super::{Event, HOUR, Life, VOLUME};
use crate::objects::content::{BLOCK_SECTORS, BLOCKS, Content, sector, side_by_side};
use crate::objects::judge::id;
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
        match self.rng.below(40) {
            0..18 if volume.has_room() => {
                self.stamp += 1;
                let is_zero = self.rng.below(8) == 0;
                writer.write(block, blocks, if is_zero { 0 } else { self.stamp }, &mut fx);
            }
            0..26 => {
                let ticket = writer.wait(Waited::Read { block, blocks, changes: writer.changes.len() });
                writer.open().read(ticket, sector(block), blocks as u64 * BLOCK_SECTORS, &mut fx);
            }
            26..32 => {
                let ticket = writer.wait(Waited::Flush(writer.changes.len()));
                writer.open().flush(ticket, &mut fx);
            }
            32 => {
                let ticket = writer.wait(Waited::Flush(writer.changes.len()));
                writer.open().publish(ticket, &mut fx);
            }
            33 => volume.checkpoint(&mut fx),
            34 | 35 => {
                let ticket = writer.wait(Waited::Collect);
                let percent = 20 + self.rng.below(80);
                writer.open().collect(ticket, percent, &mut fx);
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
        let is_overtaken = Some(self.store.newest().epoch) > self.writers[number].epoch;
        match self.writers[number].told(ticket, result, is_overtaken, self.rates.flipped > 0) {
            Ok(true) => self.look(number),
            Ok(false) => {}
            Err(what) => panic!("writer {number}: {what}"),
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
        let name = format!("{manifest} at {}, {}", self.now, self.count);
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
