// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts what a volume under random overwrites sends to its store, and what collection fetches. No
//! time is measured, so any build of any machine gives the same figures.
//!
//! `cargo run --release -p flashfront-object --example sent`

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use flashfront_object::{
    Answer, Effect, Fault, Head, Key, Manifest, Mode, Name, Opening, Options, SECTOR_BYTES, Told, Volume, Writer,
};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// As the daemon does: objects that are moved between two flushes, and how worn they are.
const MOVES_MAX: u32 = 4;
const LIVE_PERCENT: u64 = 22;

/// A load: a volume that is filled, and overwritten at random in blocks of 4 KiB.
struct Load {
    name: &'static str,
    volume_mib: u64,
    /// Bytes of a write that fills the volume. Blocks are written in no order.
    fill: u64,
    /// Bytes between two flushes.
    flush: u64,
    /// Bytes that are overwritten, by the volume's.
    tenths: u64,
}

const LOADS: &[Load] = &[
    Load { name: "256 MiB in runs", volume_mib: 256, fill: MIB, flush: 8 * MIB, tenths: 80 },
    Load { name: "256 MiB in runs", volume_mib: 256, fill: MIB, flush: MIB, tenths: 80 },
    Load { name: "1 GiB in blocks of 4 KiB", volume_mib: 1024, fill: BLOCK, flush: 64 << 10, tenths: 16 },
    Load { name: "1 GiB in blocks of 4 KiB", volume_mib: 1024, fill: BLOCK, flush: 64 << 10, tenths: 64 },
    Load { name: "2 GiB in blocks of 4 KiB", volume_mib: 2048, fill: BLOCK, flush: 64 << 10, tenths: 8 },
];

/// What was sent and fetched.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Objects with data, and their heads among that.
    data: u64,
    heads: u64,
    /// Checkpoints, and their roots among that.
    map: u64,
    roots: u64,
    checkpoints: u64,
    manifests: u64,
    gets: u64,
    got: u64,
    moved: u64,
}

#[derive(Default)]
struct Store {
    objects: BTreeMap<Name, Arc<Vec<u8>>>,
    bytes: u64,
    counts: Counts,
    /// Objects of a checkpoint whose roots were not counted yet, and their bytes.
    maps: Vec<(Name, u64)>,
}

impl Store {
    fn put(&mut self, name: Name, body: &Arc<Vec<u8>>) {
        let bytes = body.len() as u64;
        match name {
            Name::Data(_) => {
                self.counts.data += bytes;
                self.counts.heads += u64::from(Head::parse(body).expect("it is sound").bytes);
            }
            Name::Map(_) => {
                self.counts.map += bytes;
                self.maps.push((name, bytes));
            }
            Name::Manifest(_) | Name::Wish(_) => self.counts.manifests += bytes,
        }
        self.bytes += bytes;
        self.objects.insert(name, Arc::clone(body));
    }

    fn get(&mut self, key: &Key, range: Option<(u64, u64)>) -> Result<Answer, Fault> {
        let whole = self.objects.get(&key.name).ok_or(Fault::Absent)?;
        let (at, len) = range.unwrap_or((0, whole.len() as u64));
        let bytes = whole[at as usize..(at + len) as usize].to_vec();
        self.counts.gets += u64::from(matches!(key.name, Name::Data(_) | Name::Map(_)));
        self.counts.got += bytes.len() as u64;
        Ok(Answer::Bytes(bytes))
    }

    fn answer(&mut self, effect: Effect) -> Option<(u64, Result<Answer, Fault>)> {
        Some(match effect {
            Effect::Put { token, name, body, .. } => {
                self.put(name, &body);
                (token, Ok(Answer::Done))
            }
            Effect::Get { token, key, range, .. } => (token, self.get(&key, range)),
            Effect::List { token, .. } => {
                let number = |name: &Name| if let Name::Manifest(number) = name { Some(*number) } else { None };
                (token, Ok(Answer::Numbers(self.objects.keys().filter_map(number).collect())))
            }
            Effect::Delete { token, name, .. } => {
                self.bytes -= self.objects.remove(&name).map_or(0, |body| body.len() as u64);
                (token, Ok(Answer::Done))
            }
            Effect::Told { .. } => return None,
        })
    }

    fn open(&mut self, options: Options) -> Box<Volume> {
        let (mut fx, mut todo) = (Vec::new(), VecDeque::new());
        let mode = Mode::Write(Writer { id: [7; 16], ..Writer::default() });
        let mut opening = Opening::new(mode, options, &mut fx);
        loop {
            todo.extend(fx.drain(..));
            let effect = todo.pop_front().expect("an opening asks until it ends");
            let (token, answer) = self.answer(effect).expect("an opening tells nobody");
            if let Some(opened) = opening.done(token, answer, &mut fx) {
                return opened.expect("the volume is sound");
            }
        }
    }
}

/// A volume at work.
struct Run {
    store: Store,
    volume: Box<Volume>,
    fx: Vec<Effect>,
    last: Option<Told>,
}

impl Run {
    fn carry(&mut self) {
        let mut todo: VecDeque<Effect> = self.fx.drain(..).collect();
        while let Some(effect) = todo.pop_front() {
            if let Effect::Told { result, .. } = effect {
                self.last = Some(result.expect("nothing goes wrong"));
                continue;
            }
            let (token, answer) = self.store.answer(effect).expect("all others have an answer");
            self.volume.done(token, answer, &mut self.fx);
            todo.extend(self.fx.drain(..));
        }
        // The books have the pages of a checkpoint without the root.
        for (name, bytes) in self.store.maps.drain(..) {
            let entry = self.volume.objects().find(|it| it.key().name == name);
            let root = bytes - entry.map_or(bytes, |it| it.bytes);
            self.store.counts.roots += root;
            self.store.counts.checkpoints += u64::from(root > 0);
        }
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.volume.write(at / SECTOR_BYTES, bytes, &mut self.fx).expect("nobody overtakes");
        self.carry();
    }

    /// Flushes, and moves what worn objects have.
    fn flush(&mut self) {
        self.volume.flush(1, &mut self.fx);
        self.carry();
        for _ in 0..MOVES_MAX {
            self.volume.collect(2, LIVE_PERCENT, &mut self.fx);
            self.carry();
            let Some(Told::Collected(Some(moved))) = self.last else { return };
            self.store.counts.moved += moved;
        }
    }
}

/// A number below `below` that looks random.
fn random(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

fn run(load: &Load) {
    let size = load.volume_mib * MIB;
    let mut store = Store::default();
    let first = Manifest::first([1; 16], [0; 16], size / SECTOR_BYTES, 0, "");
    store.put(Name::Manifest(1), &Arc::new(first.encode()));
    let volume = store.open(Options { whole_flushes: true, uploads: 3, ..Options::default() });
    let mut run = Run { store, volume, fx: Vec::new(), last: None };
    let (mut state, content) = (1, vec![7; load.fill as usize]);
    let mut places: Vec<u64> = (0..size / load.fill).collect();
    for left in (1..places.len()).rev().filter(|_| load.fill == BLOCK) {
        places.swap(left, random(&mut state, left as u64 + 1) as usize);
    }
    for (nth, place) in places.into_iter().enumerate() {
        run.write(place * load.fill, &content);
        if ((nth as u64 + 1) * load.fill).is_multiple_of(8 * MIB) {
            run.flush();
        }
    }
    run.store.counts = Counts::default();
    let (written, mut most, mut spaces, mut flushes) = (size * load.tenths / 10, 0, 0, 0);
    for nth in 1..=written / BLOCK {
        run.write(random(&mut state, size / BLOCK) * BLOCK, &content[..BLOCK as usize]);
        if (nth * BLOCK).is_multiple_of(load.flush) {
            run.flush();
            let space = run.store.bytes * 100 / size;
            (most, spaces, flushes) = (space.max(most), spaces + space, flushes + 1);
        }
    }
    let Counts { data, heads, map, roots, checkpoints, manifests, gets, got, moved } = run.store.counts;
    let ratio = |bytes: u64| bytes as f64 / written as f64;
    println!("{}, FLUSH after {} KiB:", load.name, load.flush >> 10);
    println!(
        "  of each byte written: data {:.3} (moved {:.3}, heads {:.3}), manifests {:.3}, map {:.3} (roots {:.3}), all {:.3}",
        ratio(data),
        ratio(moved),
        ratio(heads),
        ratio(manifests),
        ratio(map),
        ratio(roots),
        ratio(data + manifests + map),
    );
    println!(
        "  space {:.2}, at most {:.2}; {checkpoints} checkpoints; for each GiB moved {:.0} GETs and {:.2} GiB",
        spaces as f64 / flushes as f64 / 100.0,
        most as f64 / 100.0,
        gets as f64 * 1024.0 * MIB as f64 / moved.max(1) as f64,
        got as f64 / moved.max(1) as f64,
    );
}

fn main() {
    LOADS.iter().for_each(run);
}
