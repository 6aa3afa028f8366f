// SPDX-License-Identifier: MIT OR Apache-2.0
//! A store in RAM, and helpers that carry effects out at once.

use std::collections::{BTreeMap, VecDeque};

use flashfront_object::{
    Answer, Effect, Fault, Form, Keys, Manifest, Mode, Name, OpenFault, Opening, Options, Volume, Writer,
};
use flashfront_object::{Ticket, Told, Trouble, Wanted, Wish};

pub(crate) const SECTORS: u64 = 3 * 32_768 + 100;

pub(crate) const SMALL: Options = Options {
    batch_bytes: 64 << 10,
    uploads: 2,
    tail: 5,
    tail_max: 20,
    complete: 2,
    manifests: 50,
    recent_bytes: 512 << 10,
    map_bytes: usize::MAX,
    whole_flushes: false,
};

#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) objects: BTreeMap<Name, Vec<u8>>,
    /// Objects of the volume that this one is a clone of.
    pub(crate) source: BTreeMap<Name, Vec<u8>>,
    /// How volumes are opened.
    pub(crate) options: Options,
}

pub(crate) type Tickets = BTreeMap<Ticket, Result<Told, Trouble>>;

impl Store {
    pub(crate) fn with_volume() -> Self {
        Self::in_form(Form::default())
    }

    /// A store with a volume that is stored in this form.
    pub(crate) fn in_form(form: Form) -> Self {
        let mut manifest = Manifest::first([1; 16], [0; 16], SECTORS, 0, "");
        manifest.form = form;
        Self { objects: [(Name::Manifest(1), manifest.encode())].into(), ..Self::empty() }
    }

    pub(crate) const fn empty() -> Self {
        Self { objects: BTreeMap::new(), source: BTreeMap::new(), options: SMALL }
    }

    pub(crate) fn answer(&mut self, effect: &Effect) -> Option<(u64, Result<Answer, Fault>)> {
        Some(match effect {
            Effect::Put { token, name, body, create, .. } => {
                let taken = *create && self.objects.contains_key(name);
                if !taken {
                    self.objects.insert(*name, body.to_vec());
                }
                (*token, if taken { Err(Fault::Taken) } else { Ok(Answer::Done) })
            }
            Effect::Get { token, key, range, .. } => {
                let objects = if key.source.is_some() { &self.source } else { &self.objects };
                let found = objects.get(&key.name).map(|all| match range {
                    None => all.clone(),
                    Some((at, len)) => all[*at as usize..(at + len) as usize].to_vec(),
                });
                (*token, found.map(Answer::Bytes).ok_or(Fault::Absent))
            }
            Effect::List { token, .. } => {
                let number = |name: &Name| if let Name::Manifest(number) = name { Some(*number) } else { None };
                (*token, Ok(Answer::Numbers(self.objects.keys().filter_map(number).collect())))
            }
            Effect::Delete { token, name, .. } => {
                self.objects.remove(name);
                (*token, Ok(Answer::Done))
            }
            Effect::Told { .. } => return None,
        })
    }

    pub(crate) fn open(&mut self, mode: Mode) -> Result<Volume, OpenFault> {
        let mut fx = Vec::new();
        let mut opening = Opening::new(mode, self.options, &mut fx);
        let mut todo = VecDeque::from(fx);
        while let Some(effect) = todo.pop_front() {
            let (token, answer) = self.answer(&effect).expect("an opening tells nobody");
            let mut fx = Vec::new();
            if let Some(opened) = opening.done(token, answer, &mut fx) {
                assert!(fx.is_empty(), "an opening that has ended asks for more");
                return opened.map(|mut it| {
                    it.use_keys(keys());
                    *it
                });
            }
            todo.extend(fx);
        }
        panic!("the opening waits for nothing: {opening:?}");
    }

    pub(crate) fn writer(&mut self, id: u8) -> Volume {
        self.open(Mode::Write(Writer { id: [id; 16], host: format!("host {id}"), now: 1, ..Writer::default() }))
            .expect("a writer opens the volume")
    }

    /// Carries out effects until there are none.
    pub(crate) fn carry(&mut self, volume: &mut Volume, fx: &mut Vec<Effect>) -> Tickets {
        let mut told = Tickets::new();
        let mut todo: VecDeque<Effect> = fx.drain(..).collect();
        while let Some(effect) = todo.pop_front() {
            match effect {
                Effect::Told { ticket, result } => _ = told.insert(ticket, result),
                effect => {
                    let (token, answer) = self.answer(&effect).expect("all others have an answer");
                    volume.done(token, answer, fx);
                    todo.extend(fx.drain(..));
                }
            }
        }
        told
    }

    pub(crate) fn flush(&mut self, volume: &mut Volume) -> Result<Told, Trouble> {
        let mut fx = Vec::new();
        volume.flush(7, &mut fx);
        self.carry(volume, &mut fx).remove(&7).expect("a flush ends")
    }

    pub(crate) fn read(&mut self, volume: &mut Volume, start: u64, sectors: u64) -> Vec<u8> {
        let mut fx = Vec::new();
        volume.read(9, start, sectors, &mut fx);
        match self.carry(volume, &mut fx).remove(&9) {
            Some(Ok(Told::Read(bytes))) => bytes,
            other => panic!("a read of {sectors} sectors at {start}: {other:?}"),
        }
    }

    /// What the volume tells of one request of its own.
    fn ask(&mut self, volume: &mut Volume, ask: impl FnOnce(&mut Volume, &mut Vec<Effect>)) -> Told {
        let mut fx = Vec::new();
        ask(volume, &mut fx);
        match self.carry(volume, &mut fx).remove(&9) {
            Some(Ok(told)) => told,
            other => panic!("{other:?}"),
        }
    }

    /// Everything that is no zeroes, read in the order of objects, many ranges at a time.
    pub(crate) fn read_content(&mut self, volume: &mut Volume) -> Vec<u8> {
        let mut array = vec![0; (SECTORS * 512) as usize];
        let mut from = Some(0);
        while let Some(start) = from {
            let Told::Content(part) = self.ask(volume, |volume, fx| volume.walk(9, start, fx)) else { panic!() };
            from = part.next;
            for ranges in part.ranges.chunks(5) {
                let read = self.ask(volume, |volume, fx| volume.read_ranges(9, ranges.to_vec(), fx));
                let Told::Read(bytes) = read else { panic!("{ranges:?}: {read:?}") };
                let mut rest = &bytes[..];
                for (start, sectors) in ranges {
                    let (range, after) = rest.split_at((sectors * 512) as usize);
                    array[(start * 512) as usize..][..range.len()].copy_from_slice(range);
                    rest = after;
                }
                assert!(rest.is_empty(), "more was read than wanted");
            }
        }
        array
    }

    /// Takes a snapshot as somebody beside the writer does.
    pub(crate) fn wish(&mut self, wanted: Wanted) {
        let number =
            (1..).find(|number| !self.objects.contains_key(&Name::Wish(*number))).expect("there is a free number");
        let wish = Wish { volume: [1; 16], maker: [3; 16], wanted };
        self.objects.insert(Name::Wish(number), wish.encode());
    }
}

/// The keys of encrypted volumes.
pub(crate) fn keys() -> Keys {
    Keys::new(&[[1; 32], [2; 32]])
}

/// The four forms in which a volume may be stored, in turn.
pub(crate) fn form(nth: u64) -> Form {
    Form { compressed: nth & 1 > 0, key: keys().first().filter(|_| nth & 2 > 0) }
}

/// A few bits that look random.
pub(crate) fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}
