// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stage of a sweep: a store, its writers, and what is under way between them. Nothing goes
//! wrong here but death, so each act has one outcome.

use flashfront_object::{
    Answer, Effect, Fault, Form, Manifest, Mode, Name, Opening, Options, Wanted, Wish, Writer as By,
};

use super::rest::Rest;
use super::workloads::Act;
use crate::objects::content::{BLOCK_SECTORS, BLOCKS, Change, Content, SECTORS, sector};
use crate::objects::judge::{self, id};
use crate::objects::store::{Store, test_keys, token_of};
use crate::objects::writers::{Waited, Writer};

const VOLUME: [u8; 16] = *b"a volume's death";

/// How many variants each workload has.
pub const VARIANTS: usize = 5;
/// No act needs more events than this.
const EVENTS_MAX: usize = 10_000;

/// Sees the stage after each event.
pub(super) type Each<'a> = &'a mut dyn FnMut(&Stage) -> Result<(), String>;

#[derive(Clone, Debug)]
enum Flying {
    Request(Effect),
    Answer(u64, Result<Answer, Fault>),
}

/// A store, its writers, and what is under way between them.
pub(super) struct Stage {
    pub(super) store: Store,
    pub(super) writers: Vec<Writer>,
    options: Options,
    /// What was sent last comes first.
    newest_first: bool,
    /// With the number of the writer whose it is, in the order in which it was sent.
    flying: Vec<(usize, Flying)>,
    snapshots: Vec<(u64, String, Content)>,
    stamp: u64,
}

impl Stage {
    pub(super) fn new(variant: usize) -> Self {
        // Each pair of choices meets in one of these variants.
        let [newest_first, whole_flushes, has_no_map, is_sealed] = [
            [false, false, false, false],
            [false, true, true, true],
            [true, false, true, true],
            [true, true, false, true],
            [true, true, true, false],
        ][variant];
        let options = Options {
            batch_bytes: 16 << 10,
            uploads: 3,
            tail: 3,
            tail_max: 8,
            complete: 2,
            manifests: 6,
            recent_bytes: 0,
            map_bytes: if has_no_map { 0 } else { usize::MAX },
            whole_flushes,
        };
        let mut first = Manifest::first(VOLUME, [0; 16], SECTORS, 0, "0");
        first.form = Form { compressed: is_sealed, key: test_keys().first().filter(|_| is_sealed) };
        let mut store = Store::default();
        store.objects.insert(Name::Manifest(1), first.encode());
        let writers = vec![Writer::maker()];
        Self { store, writers, options, newest_first, flying: Vec::new(), snapshots: Vec::new(), stamp: 0 }
    }

    /// The requests under way that would change something.
    pub(super) fn changes_under_way(&self) -> impl Iterator<Item = &Effect> {
        self.flying.iter().filter_map(|(_, it)| match it {
            Flying::Request(effect @ (Effect::Put { .. } | Effect::Delete { .. })) => Some(effect),
            Flying::Request(_) | Flying::Answer(..) => None,
        })
    }

    /// The stage when all writers are dead, and the requests of theirs that are late.
    pub(super) fn after_death(&self, rest: &Rest) -> (Self, Vec<Effect>) {
        let mut store = self.store.clone();
        let mut late = Vec::new();
        for (nth, effect) in self.changes_under_way().enumerate() {
            if let Some(is_torn) = rest.of(nth) {
                // Nobody is there to hear the answer.
                let _ = store.carry_out(effect, is_torn, 0);
            } else if rest.is_late() {
                late.push(effect.clone());
            }
        }
        let writers = self.writers.iter().map(Writer::record).collect();
        let (options, newest_first, stamp) = (self.options, self.newest_first, self.stamp);
        let snapshots = self.snapshots.clone();
        (Self { store, writers, options, newest_first, flying: Vec::new(), snapshots, stamp }, late)
    }

    /// Late requests reach the store.
    pub(super) fn carry_out(&mut self, late: &[Effect]) {
        for effect in late {
            let _ = self.store.carry_out(effect, false, 0);
        }
    }

    /// The bucket alone and all snapshots are what they must be.
    pub(super) fn judge_all(&mut self) -> Result<(), String> {
        judge::look(&mut self.store, &self.writers)?;
        self.judge_snapshots()
    }

    /// All snapshots are what they were.
    pub(super) fn judge_snapshots(&mut self) -> Result<(), String> {
        for (manifest, name, content) in &self.snapshots {
            match self.store.content(Mode::ReadAt(*manifest)) {
                Ok(found) if found == *content => {}
                Ok(_) => return Err(format!("the snapshot `{name}` is not what it was")),
                Err(what) => return Err(format!("the snapshot `{name}`: {what}")),
            }
        }
        Ok(())
    }

    /// Begins an act of the newest writer, or of somebody else.
    pub(super) fn act(&mut self, act: Act, each: Each<'_>) -> Result<(), String> {
        let (mut number, mut fx) = (self.writers.len() - 1, Vec::new());
        let changes = self.writers[number].changes.len();
        match act {
            Act::Settle => return self.settle(each),
            Act::Wait(events) => {
                for _ in 0..events {
                    if self.step()? {
                        each(self)?;
                    }
                }
                return Ok(());
            }
            Act::Open => {
                number += 1;
                let by = By { id: id(number), host: number.to_string(), ..By::default() };
                let opening = Opening::new(Mode::Write(by), self.options, &mut fx);
                self.writers.push(Writer::opens(opening, self.options.whole_flushes));
            }
            Act::Die => {
                self.writers[number].die();
                self.flying.clear();
            }
            Act::Write(block, blocks) => {
                while !self.writers[number].open().has_room() && self.step()? {
                    each(self)?;
                }
                self.stamp += 1;
                self.writers[number].write(block, blocks, self.stamp, &mut fx);
            }
            Act::Zero(block, blocks) => self.writers[number].write(block, blocks, 0, &mut fx),
            Act::Read(block, blocks) => {
                let ticket = self.writers[number].wait(Waited::Read { block, blocks, changes });
                self.writers[number].open().read(ticket, sector(block), blocks as u64 * BLOCK_SECTORS, &mut fx);
            }
            Act::Flush => {
                let ticket = self.writers[number].wait(Waited::Flush(changes));
                self.writers[number].open().flush(ticket, &mut fx);
            }
            Act::Publish => {
                let ticket = self.writers[number].wait(Waited::Flush(changes));
                self.writers[number].open().publish(ticket, &mut fx);
            }
            Act::Close => {
                let ticket = self.writers[number].wait(Waited::Flush(changes));
                self.writers[number].open().close(ticket, &mut fx);
            }
            Act::Checkpoint => self.writers[number].open().checkpoint(&mut fx),
            Act::Collect(percent) => {
                let ticket = self.writers[number].wait(Waited::Collect);
                self.writers[number].open().collect(ticket, percent, &mut fx);
            }
            Act::Snapshot => self.snapshot()?,
            Act::Forget => {
                let (_, name, _) = self.snapshots.remove(0);
                self.wish(Wanted::Forget { name });
            }
            Act::RollBack => {
                let (manifest, _, content) = self.snapshots.first().expect("bug: a workload rolls back to nothing");
                let change = Change { block: 0, stamps: content.clone() };
                let older = self.store.open(Mode::ReadAt(*manifest)).map_err(|fault| fault.to_string())?;
                let writer = &mut self.writers[number];
                writer.changes.push(change);
                let ticket = writer.wait(Waited::Flush(changes + 1));
                writer.open().roll_back(*older, ticket, &mut fx);
            }
            Act::Straggler => {
                number -= 1;
                self.stamp += 1;
                let stamp = self.stamp;
                let writer = &mut self.writers[number];
                writer.write(0, 4, stamp, &mut fx);
                let ticket = writer.wait(Waited::Flush(writer.changes.len()));
                writer.open().flush(ticket, &mut fx);
            }
        }
        self.send(number, fx)?;
        each(self)
    }

    fn settle(&mut self, each: Each<'_>) -> Result<(), String> {
        let mut events = 0;
        while self.step()? {
            each(self)?;
            events += 1;
            if events > EVENTS_MAX {
                return Err(format!("the writers still ask the store after {EVENTS_MAX} events"));
            }
        }
        match self.writers.iter().enumerate().find(|(_, it)| it.is_alive() && !it.waited.is_empty()) {
            Some((number, writer)) => Err(format!("writer {number} waits for ever: {:?}", writer.waited)),
            None => Ok(()),
        }
    }

    /// The next event. Returns whether there was one.
    fn step(&mut self) -> Result<bool, String> {
        let next = if self.newest_first {
            self.flying.pop()
        } else {
            (!self.flying.is_empty()).then(|| self.flying.remove(0))
        };
        match next {
            None => return Ok(false),
            Some((writer, Flying::Request(effect))) => {
                let answer = self.store.carry_out(&effect, false, 0);
                self.flying.push((writer, Flying::Answer(token_of(&effect), answer)));
            }
            Some((writer, Flying::Answer(token, answer))) => self.answer(writer, token, answer)?,
        }
        Ok(true)
    }

    fn answer(&mut self, number: usize, token: u64, answer: Result<Answer, Fault>) -> Result<(), String> {
        let (writer, mut fx) = (&mut self.writers[number], Vec::new());
        if let Some(volume) = &mut writer.volume {
            volume.done(token, answer, &mut fx);
        } else if let Some(opening) = &mut writer.opening
            && let Some(opened) = opening.done(token, answer, &mut fx)
        {
            let mut volume = opened.map_err(|fault| format!("writer {number} can't open the volume: {fault}"))?;
            volume.use_keys(test_keys());
            let manifest = volume.manifest().clone();
            (writer.opening, writer.volume) = (None, Some(volume));
            let base = judge::opened(number, &manifest, &mut self.store, &self.writers)?;
            let writer = &mut self.writers[number];
            writer.base = Some(base.ok_or_else(|| format!("writer {number} was overtaken by nobody"))?);
            writer.epoch = Some(manifest.epoch);
        }
        self.send(number, fx)
    }

    fn send(&mut self, number: usize, fx: Vec<Effect>) -> Result<(), String> {
        for effect in fx {
            if let Effect::Told { ticket, result } = effect {
                let is_overtaken = Some(self.store.newest().epoch) > self.writers[number].epoch;
                let told = self.writers[number].told(ticket, result, is_overtaken, false);
                if told.map_err(|what| format!("writer {number}: {what}"))? {
                    judge::acknowledged(number, &self.writers)?;
                }
            } else {
                self.flying.push((number, Flying::Request(effect)));
            }
        }
        Ok(())
    }

    /// Somebody beside the writers takes a snapshot of the newest manifest.
    fn snapshot(&mut self) -> Result<(), String> {
        let manifest = self.store.newest().number;
        let content = self.store.content(Mode::ReadAt(manifest))?;
        assert_eq!(content.len(), BLOCKS);
        let name = format!("of {manifest}");
        self.wish(Wanted::Snapshot { name: name.clone(), manifest });
        self.snapshots.push((manifest, name, content));
        Ok(())
    }

    fn wish(&mut self, wanted: Wanted) {
        let free = (1..).find(|number| !self.store.objects.contains_key(&Name::Wish(*number)));
        let name = Name::Wish(free.expect("there is always a free number"));
        self.store.objects.insert(name, Wish { volume: VOLUME, maker: id(0), wanted }.encode());
    }
}
