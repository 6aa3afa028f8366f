// SPDX-License-Identifier: MIT OR Apache-2.0
//! A life. Clients write, read and flush, and writers come and go. After each acknowledged flush
//! the bucket alone is looked at.

mod acts;

use std::collections::BTreeMap;

use flashfront_device::Rng;
use flashfront_object::{Answer, Effect, Fault, Form, Manifest, Mode, Name, OpenFault, Opening, Options, Writer as By};

use super::content::{Content, SECTORS};
use super::judge::{self, id};
use super::store::{Fate, Rates, Store, attempt_of, test_keys, token_of};
use super::writers::Writer;

const VOLUME: [u8; 16] = *b"the volume of it";
/// Milliseconds until a request without an answer is given up.
const TIMEOUT: u64 = 2000;
const HOUR: u64 = 3_600_000;
/// Events of a life that goes on for ever.
const EVENTS_MAX: u64 = 400_000;

/// What a life has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lived {
    /// Writes, reads and flushes of clients.
    pub operations: u64,
    /// Writers that have opened the volume.
    pub writers: u64,
    /// Requests that went wrong.
    pub faults: u64,
    /// Looks at the bucket alone.
    pub looks: u64,
    /// Snapshots that were taken.
    pub snapshots: u64,
    /// Objects that were deleted.
    pub deleted: u64,
    /// Milliseconds of virtual time.
    pub virtual_ms: u64,
}

#[derive(Debug)]
enum Event {
    /// A request reaches the store.
    Arrive { writer: usize, effect: Effect, fate: Fate },
    /// An answer reaches the writer.
    Answer { writer: usize, token: u64, answer: Result<Answer, Fault> },
    /// A client of the writer does something.
    Client { writer: usize },
    /// A new writer takes over.
    TakeOver,
    /// Somebody wishes for a snapshot of this manifest, which had this content.
    Wish { manifest: u64, content: Content },
    /// And looks whether the wish came in time.
    Judge { manifest: u64, name: String, content: Content },
}

struct Life {
    rng: Rng,
    now: u64,
    events: BTreeMap<(u64, u64), Event>,
    count: u64,
    store: Store,
    rates: Rates,
    away_until: u64,
    options: Options,
    writers: Vec<Writer>,
    operations_left: u64,
    stamp: u64,
    snapshots: Vec<(u64, String, Content)>,
    lived: Lived,
}

/// Lives a seed. A broken promise panics.
pub(super) fn run(seed: u64) -> Lived {
    let mut rng = Rng::new(seed);
    let mut rate = |most: u64| if rng.below(3) == 0 { 0 } else { rng.below(most) };
    let rates = Rates {
        request_lost: rate(80),
        reply_lost: rate(80),
        late: rate(40),
        refused: rate(150),
        torn: rate(40),
        flipped: rate(30),
        list_lacks: rate(15),
    };
    let options = Options {
        batch_bytes: (4 + rng.below(60) as usize) << 10,
        uploads: 1 + rng.below(4) as usize,
        tail: 1 + rng.below(8) as usize,
        tail_max: 8 + Rng::new(seed ^ 0x67).below(20) as usize,
        complete: 1 + rng.below(4),
        manifests: 20 + rng.below(20),
        recent_bytes: rng.below(2) as usize * (256 << 10),
        // Nothing of the map, some extents, or all of it.
        map_bytes: [0, 300, 1500, usize::MAX][Rng::new(seed ^ 0x68).below(4) as usize],
        whole_flushes: Rng::new(seed ^ 0x66).below(2) == 0,
    };
    let mut store = Store::default();
    let form = Form { compressed: rng.below(2) == 0, key: test_keys().first().filter(|_| rng.below(2) == 0) };
    let mut first = Manifest::first(VOLUME, [0; 16], SECTORS, 0, "0");
    first.form = form;
    store.objects.insert(Name::Manifest(1), first.encode());
    let operations_left = 60 + rng.below(400);
    let mut life = Life {
        rng,
        now: 0,
        events: BTreeMap::new(),
        count: 0,
        store,
        rates,
        away_until: 0,
        options,
        writers: vec![Writer::maker()],
        operations_left,
        stamp: 0,
        snapshots: Vec::new(),
        lived: Lived::default(),
    };
    life.after(0, Event::TakeOver);
    life.live();
    life.end();
    life.lived.virtual_ms = life.now;
    life.lived
}

impl Life {
    fn after(&mut self, delay: u64, event: Event) {
        self.count += 1;
        self.events.insert((self.now + delay, self.count), event);
    }

    fn live(&mut self) {
        let mut events = 0;
        while let Some(((time, _), event)) = self.events.pop_first() {
            events += 1;
            assert!(events < EVENTS_MAX, "the life does not end");
            self.now = time;
            self.step(event);
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Arrive { writer, effect, fate } => self.arrive(writer, &effect, fate),
            Event::Answer { writer, token, answer } => self.answer(writer, token, answer),
            Event::Client { writer } => self.client(writer),
            Event::TakeOver => self.take_over(),
            Event::Wish { manifest, content } => self.wish(manifest, content),
            Event::Judge { manifest, name, content } => self.judge(manifest, name, content),
        }
    }

    /// Sends what a writer asks for on its way.
    fn send(&mut self, writer: usize, fx: Vec<Effect>) {
        for effect in fx {
            if let Effect::Told { ticket, result } = effect {
                self.told(writer, ticket, result);
                continue;
            }
            let fate = self.rates.fate(&mut self.rng);
            self.lived.faults += u64::from(fate != Fate::Done);
            let backoff = match attempt_of(&effect) {
                0 => 0,
                attempt => 50 << attempt.min(8),
            };
            let travel = backoff + 1 + self.rng.below(60);
            let (token, away) = (token_of(&effect), Err(Fault::Away("it went wrong".to_owned())));
            match fate {
                Fate::Refused => self.after(travel, Event::Answer { writer, token, answer: away }),
                Fate::RequestLost => self.after(travel + TIMEOUT, Event::Answer { writer, token, answer: away }),
                Fate::Late => {
                    self.after(travel + TIMEOUT, Event::Answer { writer, token, answer: away });
                    let late = if self.rng.below(2) == 0 { self.rng.below(2 * HOUR) } else { self.rng.below(5000) };
                    self.after(travel + late, Event::Arrive { writer, effect, fate });
                }
                Fate::Done | Fate::ReplyLost | Fate::Torn => self.after(travel, Event::Arrive { writer, effect, fate }),
            }
        }
    }

    fn arrive(&mut self, writer: usize, effect: &Effect, fate: Fate) {
        let token = token_of(effect);
        let away = Err(Fault::Away("it is away".to_owned()));
        if self.now < self.away_until {
            if fate != Fate::Late {
                self.after(TIMEOUT, Event::Answer { writer, token, answer: away });
            }
            return;
        }
        let is_torn = fate == Fate::Torn && matches!(effect, Effect::Put { .. });
        let list_lacks = self.rng.below(self.rates.list_lacks + 1);
        self.lived.deleted += u64::from(matches!(effect, Effect::Delete { .. }));
        let mut answer = self.store.carry_out(effect, is_torn, list_lacks);
        // Openings take harmed bytes for damage.
        let is_open = self.writers[writer].volume.is_some();
        let is_data = matches!(effect, Effect::Get { key, range: Some((at, _)), .. }
            if *at > 0 && (matches!(key.name, Name::Data(_)) || is_open && matches!(key.name, Name::Map(_))));
        if is_data
            && let Ok(Answer::Bytes(bytes)) = &mut answer
            && self.rng.below(1000) < self.rates.flipped
        {
            let at = self.rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 4;
        }
        let travel = 1 + self.rng.below(60);
        match fate {
            Fate::Late => {}
            Fate::Done => self.after(travel, Event::Answer { writer, token, answer }),
            _ => self.after(TIMEOUT, Event::Answer { writer, token, answer: away }),
        }
    }

    fn answer(&mut self, number: usize, token: u64, answer: Result<Answer, Fault>) {
        let writer = &mut self.writers[number];
        if self.now < writer.paused_until {
            let delay = writer.paused_until - self.now;
            self.after(delay, Event::Answer { writer: number, token, answer });
            return;
        }
        let mut fx = Vec::new();
        if let Some(volume) = &mut writer.volume {
            volume.done(token, answer, &mut fx);
        } else if let Some(opening) = &mut writer.opening
            && let Some(opened) = opening.done(token, answer, &mut fx)
        {
            writer.opening = None;
            match opened {
                Ok(mut volume) => {
                    volume.use_keys(test_keys());
                    let manifest = volume.manifest().clone();
                    writer.volume = Some(volume);
                    self.opened(number, &manifest);
                }
                Err(fault) => {
                    // Another one may have taken over meanwhile, and deleted what was not needed.
                    let is_overtaken = self.store.newest().writer != id(number);
                    assert!(is_overtaken, "writer {number} can't open the volume: {fault}");
                    // Another one tries.
                    if matches!(fault, OpenFault::Overtaken(_)) && self.operations_left > 0 {
                        self.after(0, Event::TakeOver);
                    }
                }
            }
        }
        self.send(number, fx);
    }

    /// A writer has opened the volume: what it has found must be a state of the one before.
    fn opened(&mut self, number: usize, manifest: &Manifest) {
        self.lived.writers += 1;
        let followed = manifest.epoch - 1;
        let looked_at = self.writers[number].after.unwrap_or(followed);
        assert_eq!(followed, looked_at, "writer {number} follows another opening than it looked at");
        match judge::opened(number, manifest, &mut self.store, &self.writers) {
            Ok(Some(base)) => {
                let writer = &mut self.writers[number];
                (writer.base, writer.epoch) = (Some(base), Some(manifest.epoch));
            }
            Ok(None) => {
                self.writers[number].die();
                return;
            }
            Err(what) => panic!("{what}"),
        }
        let delay = self.rng.below(50);
        self.after(delay, Event::Client { writer: number });
    }

    fn take_over(&mut self) {
        let alive: Vec<usize> = (0..self.writers.len()).filter(|it| self.writers[*it].is_alive()).collect();
        for number in alive {
            match self.rng.below(4) {
                0 | 1 => self.writers[number].die(),
                2 => self.writers[number].paused_until = self.now + self.rng.below(HOUR / 20),
                _ => {}
            }
        }
        let (number, mut fx) = (self.writers.len(), Vec::new());
        // Some have looked before, and follow nobody who came since.
        let after = Some(self.store.newest().epoch).filter(|_| self.rng.below(2) == 0);
        let by = By { id: id(number), host: number.to_string(), now: self.now, after, ..By::default() };
        let opening = Opening::new(Mode::Write(by), self.options, &mut fx);
        self.writers.push(Writer { after, ..Writer::opens(opening, self.options.whole_flushes) });
        self.send(number, fx);
    }

    /// A flush was acknowledged: no writer may have taken over from an older state, and the bucket
    /// alone has it.
    fn look(&mut self, number: usize) {
        self.lived.looks += 1;
        judge::acknowledged(number, &self.writers).unwrap_or_else(|what| panic!("{what}"));
        self.look_at_bucket();
    }

    fn look_at_bucket(&mut self) {
        judge::look(&mut self.store, &self.writers).unwrap_or_else(|what| panic!("{what}"));
    }
}
