// SPDX-License-Identifier: MIT OR Apache-2.0
//! What clients and outsiders of a life do, how their answers are judged, and the end of a life.

use std::sync::Arc;

use flashfront_object::{Effect, Mode, Name, Told, Trouble, Wanted, Wish};

use super::{Event, HOUR, Life, VOLUME};
use crate::objects::content::{BLOCK_SECTORS, BLOCKS, Content, sector, side_by_side};
use crate::objects::judge::{self, id};
use crate::objects::store::Rates;
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

    /// The store is well from now on: a last writer gets all done, and everything is looked at.
    pub(super) fn end(&mut self) {
        self.rates = Rates { request_lost: 0, reply_lost: 0, late: 0, refused: 0, torn: 0, flipped: 0, list_lacks: 0 };
        self.away_until = 0;
        self.take_over();
        let last = self.writers.len() - 1;
        self.live();
        for round in 0..3 {
            let writer = &mut self.writers[last];
            let mut fx = Vec::new();
            self.stamp += 1;
            writer.write(round, 1, self.stamp, &mut fx);
            let ticket = writer.wait(Waited::Flush(writer.changes.len()));
            let volume = writer.open();
            match round {
                0 => volume.checkpoint(&mut fx),
                1 => volume.collect(0, 90, &mut fx),
                _ => {}
            }
            volume.publish(ticket, &mut fx);
            self.send(last, fx);
            self.live();
            assert!(self.writers[last].waited.is_empty(), "the last writer waits for ever");
        }
        self.look_at_bucket();
        for (manifest, name, content) in std::mem::take(&mut self.snapshots) {
            let found = self.store.content(Mode::ReadAt(manifest));
            let found = found.unwrap_or_else(|what| panic!("the snapshot `{name}`: {what}"));
            assert_eq!(found, content, "the snapshot `{name}` is not what it was");
        }
        let mut fx = Vec::new();
        for block in 0..BLOCKS {
            let writer = &mut self.writers[last];
            let (ticket, changes) = (block as u64 + 1_000_000, writer.changes.len());
            writer.waited.insert(ticket, Waited::Read { block, blocks: 1, changes });
            let volume = writer.volume.as_mut().expect("the last writer has the volume");
            volume.read(ticket, sector(block), BLOCK_SECTORS, &mut fx);
        }
        self.send(last, fx);
        self.live();
        assert!(self.writers[last].waited.is_empty(), "a read waits for ever");
        self.compare_books(last);
    }

    /// After the end of a writer its books tell of each object what the map tells: how much is in
    /// use.
    fn compare_books(&mut self, last: usize) {
        let mut fx = Vec::new();
        let ticket = 2_000_000;
        let writer = &mut self.writers[last];
        writer.waited.insert(ticket, Waited::Flush(writer.changes.len()));
        let owes = self.stamp.is_multiple_of(2);
        let volume = writer.open();
        volume.owe(owes);
        volume.close(ticket, &mut fx);
        self.send(last, fx);
        self.live();
        assert!(self.writers[last].waited.is_empty(), "an end waits for ever");
        let newest = self.store.newest();
        assert_eq!((newest.is_open, newest.owes), (false, owes), "the last manifest says who owes");
        let volume = self.writers[last].open();
        judge::compare_books(volume, &mut self.store).unwrap_or_else(|what| panic!("{what}"));
    }
}
