// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lives of an origin in a model: any writes, flushes, records and power cuts. The state after a
//! crash is never refused. A foreign write over a vital place is.

use flashfront_device::Rng;

use super::*;

const SECTORS: u64 = 32;

/// An origin of sectors that hold numbers.
struct Model {
    durable: Vec<u64>,
    /// Contents of writes that no flush has covered: any of them may be there after a power cut.
    newer: Vec<Vec<u64>>,
}

/// A write: held back, or begun.
struct Write {
    range: (u64, u64),
    values: Vec<Option<u64>>,
    brought: Vec<(usize, Option<u64>)>,
    begun: bool,
}

fn is_vital(sector: u64) -> bool {
    !sector.is_multiple_of(3)
}

fn samples(held: &[u64]) -> Samples {
    let sampled = |sector: &u64| !sector.is_multiple_of(5);
    let sample = |sector: u64| {
        let hashes = vec![held[sector as usize]];
        (Sample { offset: sector * 512, len: 512, hashes }, is_vital(sector))
    };
    Samples::new((0..SECTORS).filter(sampled).map(sample).collect())
}

fn refused(record: &[Sample], held: &[u64]) -> bool {
    record.iter().any(|it| !it.hashes.contains(&held[(it.offset / 512) as usize]))
}

/// Lives one life up to a crash; returns how many vital places the record knew.
fn live(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let first: Vec<u64> = (0..SECTORS).map(|_| rng.below(4)).collect();
    let mut model = Model { durable: first.clone(), newer: vec![Vec::new(); SECTORS as usize] };
    let mut it = samples(&first);
    let mut durable = it.save();
    it.saved();
    let (mut saving, mut writes): (Option<Vec<Sample>>, Vec<Write>) = (None, Vec::new());
    let mut flush: Option<(u64, Vec<(usize, usize)>)> = None;
    for _ in 0..rng.below(200) {
        match rng.below(8) {
            0..3 => {
                let (from, len) = (rng.below(SECTORS), 1 + rng.below(6));
                let to = (from + len).min(SECTORS);
                // The engine locks ranges.
                if writes.iter().any(|it| it.range.0 < to && from < it.range.1) {
                    continue;
                }
                let is_discard = rng.below(10) == 0;
                let change = if is_discard { Change::Undefined } else { Change::Content };
                let value = 10 + rng.below(1 << 40);
                let values = (from..to).map(|nth| (!is_discard).then_some(value + nth)).collect();
                let hash = |offset: u64, _: u32| value + offset / 512;
                let (must_wait, brought) = it.begin((from * 512, (to - from) * 512), change, hash);
                writes.push(Write { range: (from, to), values, brought, begun: !must_wait });
            }
            3 if saving.is_none() => saving = Some(it.save()),
            4 if saving.is_some() => {
                durable = saving.take().unwrap();
                it.saved();
                for write in writes.iter_mut().filter(|write| !write.begun) {
                    write.begun = it.allows(&write.brought);
                }
            }
            5 | 6 if writes.iter().any(|write| write.begun) => {
                let begun: Vec<usize> = (0..writes.len()).filter(|nth| writes[*nth].begun).collect();
                let write = writes.remove(begun[rng.below(begun.len() as u64) as usize]);
                let ok = rng.below(8) > 0;
                for (sector, value) in (write.range.0..write.range.1).zip(&write.values) {
                    // A discard leaves anything, and a discard that failed does, too.
                    let left = value.unwrap_or_else(|| 1 << 50 | rng.below(1 << 40));
                    model.newer[sector as usize].push(left);
                }
                it.end(&write.brought, ok);
                if !ok {
                    // It may have changed nothing: what is there is one of both for ever.
                    for sector in write.range.0..write.range.1 {
                        let newer = &mut model.newer[sector as usize];
                        newer.extend((rng.below(2) == 0).then(|| model.durable[sector as usize]));
                    }
                }
            }
            7 if flush.is_none() => {
                let covered = model.newer.iter().enumerate().map(|(sector, newer)| (sector, newer.len())).collect();
                flush = Some((it.flush_began(), covered));
            }
            7 => {
                let (number, covered) = flush.take().unwrap();
                let ok = rng.below(6) > 0;
                it.flush_ended(number, ok);
                for (sector, count) in covered {
                    // A flush that failed may have dropped what it should have made durable.
                    if ok || rng.below(2) == 0 {
                        let last = model.newer[sector].drain(..count).next_back();
                        model.durable[sector] = last.filter(|_| ok).unwrap_or(model.durable[sector]);
                    }
                }
            }
            _ => {}
        }
    }
    // The crash: each write that no flush has covered may be there, torn between sectors. Writes
    // that are held back have not begun. The record is the last durable one, or the one that was
    // being written.
    let mut held = model.durable.clone();
    for (sector, held) in held.iter_mut().enumerate() {
        let mut may = model.newer[sector].clone();
        for write in writes.iter().filter(|write| write.begun) {
            let is_in = (write.range.0..write.range.1).contains(&(sector as u64));
            may.extend(is_in.then(|| write.values[sector - write.range.0 as usize].unwrap_or(1 << 60)));
        }
        if let Some(nth) = rng.below(may.len() as u64 + 1).checked_sub(1) {
            *held = may[nth as usize];
        }
    }
    let record = if rng.below(2) == 0 { saving.unwrap_or(durable) } else { durable };
    assert!(!refused(&record, &held), "seed {seed}: what the daemon left is refused");
    let vital: Vec<u64> = record.iter().map(|it| it.offset / 512).filter(|sector| is_vital(*sector)).collect();
    for sector in &vital {
        let mut changed = held.clone();
        changed[*sector as usize] = 1 << 61;
        assert!(refused(&record, &changed), "seed {seed}: a change of sector {sector} is not seen");
    }
    vital.len()
}

#[test]
fn what_a_crash_leaves_is_never_refused() {
    let known: usize = (0..4_000).map(live).sum();
    assert!(known > 4_000 * 5, "{known}: most vital places stay known");
}

/// A superblock that is written again and again is always known.
#[test]
fn a_vital_place_stays_known() {
    let mut it = samples(&[0; SECTORS as usize]);
    for value in 1..100 {
        let (must_wait, brought) = it.begin((512, 512), Change::Content, |_, _| value);
        assert!(must_wait);
        let record = it.save();
        let hashes = record.iter().find(|it| it.offset == 512).map(|it| it.hashes.clone());
        assert_eq!(hashes, Some(vec![value - 1, value]));
        it.saved();
        assert!(it.allows(&brought));
        it.end(&brought, true);
        let number = it.flush_began();
        it.flush_ended(number, true);
        // A write that the record allows for already need not wait.
        let (must_wait, brought) = it.begin((512, 512), Change::Content, |_, _| value);
        assert!(!must_wait);
        it.end(&brought, true);
        let number = it.flush_began();
        it.flush_ended(number, true);
    }
    // Other places are given up once, for good.
    let (must_wait, brought) = it.begin((3 * 512, 512), Change::Content, |_, _| 7);
    assert!(must_wait);
    let record = it.save();
    assert!(record.iter().all(|it| it.offset != 3 * 512));
    it.saved();
    it.end(&brought, true);
    assert!(!it.begin((3 * 512, 512), Change::Content, |_, _| 8).0);
    // A discard leaves anything, until the next write is flushed.
    let (_, brought) = it.begin((1024, 512), Change::Undefined, |_, _| 0);
    it.end(&brought, true);
    let (_, brought) = it.begin((1024, 512), Change::Content, |_, _| 9);
    it.end(&brought, true);
    let number = it.flush_began();
    assert!(it.flush_ended(number, true), "worth a record");
    assert!(it.save().iter().any(|it| it.offset == 1024 && it.hashes == [9]));
}
