// SPDX-License-Identifier: MIT OR Apache-2.0
//! How near the shadow comes to a full simulation of each size: 2 points of hits, on a real trace and on made ones.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flashfront_device::Rng;
use flashfront_engine::policy as engine;
use flashfront_engine::shadow::{Access, Shadow, Totals};
use flashfront_sim::policy::flashfront::{Flashfront, shape};
use flashfront_sim::replay::{GridChoice, Source};
use flashfront_sim::trace::Options;

/// Sizes that the shadow models, as multiples.
const SIZES: [f64; 4] = [0.5, 1.0, 2.0, 4.0];

/// How far the shadow may be off, in hundredths of the accesses.
struct Bounds {
    hits: f64,
    origin_reads: f64,
    flash_writes: f64,
}

fn totals(shadow: &Shadow, whole: &[Flashfront; 4]) -> ([Totals; 4], [Totals; 4]) {
    let said: Vec<Totals> = shadow.what_if_from_the_start().iter().map(|it| it.totals).collect();
    (said.try_into().expect("four sizes"), whole.each_ref().map(Flashfront::totals))
}

/// Gives the same accesses, (key, write), to a shadow of a cache and to whole caches of its sizes, and compares what comes
/// after the first `before`.
fn compare(name: &str, blocks: usize, before: usize, accesses: impl Iterator<Item = (u64, bool)>, bounds: &Bounds) {
    let policy = engine::ALL[0].build;
    let mut shadow = Shadow::new(shape(blocks), policy);
    let mut whole = SIZES.map(|size| Flashfront::new((blocks as f64 * size) as usize));
    let mut begun = ([Totals::default(); 4], [Totals::default(); 4]);
    for (nth, (key, write)) in accesses.enumerate() {
        if nth == before {
            begun = totals(&shadow, &whole);
        }
        for model in &mut whole {
            model.ask(key, write);
        }
        shadow.note(if write { Access::Write } else { Access::Read }, key..key + 1);
    }
    let ended = totals(&shadow, &whole);
    for (nth, size) in SIZES.into_iter().enumerate() {
        let (said, so) = (ended.0[nth] - begun.0[nth], ended.1[nth] - begun.1[nth]);
        assert_eq!((said.accesses, said.reads), (so.accesses, so.reads));
        let off = |count: fn(&Totals) -> u64| 100.0 * (count(&said) as f64 - count(&so) as f64) / so.accesses as f64;
        for (what, off, bound) in [
            ("hits", off(|it| it.hits), bounds.hits),
            ("origin reads", off(|it| it.origin_read_blocks), bounds.origin_reads),
            ("flash writes", off(Totals::flash_blocks_written), bounds.flash_writes),
        ] {
            println!("{name} {size}: {what} {off:+.2} (hits {:.1})", 100.0 * so.hit_ratio());
            assert!(
                off.abs() <= bound,
                "{name}, {size} times {blocks} blocks: {what} are off by {off:.2} of 100 accesses"
            );
        }
    }
}

#[test]
fn near_on_a_real_trace() {
    let source = Source {
        path: Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/windows-mssql.load.gz"),
        options: Options::default(),
        grid: GridChoice::Aligned,
        echoes_ns: None,
        page_cache_blocks: 0,
    };
    let mut trace = source.open(Arc::new(AtomicU64::new(0))).unwrap();
    let batches = std::iter::from_fn(|| Some(trace.batch().unwrap()).filter(|batch| !batch.is_empty()));
    let accesses = batches.flatten().map(|asked| (asked.key, asked.write));
    compare("mssql", 15_474, 0, accesses, &Bounds { hits: 2.0, origin_reads: 2.0, flash_writes: 2.0 });
}

/// A block of so many, the n-th most wanted with a probability of about 1/n, scattered.
fn zipf(rng: &mut Rng, blocks: u64) -> u64 {
    let rank = (blocks as f64).powf(rng.below(1 << 30) as f64 / (1 << 30) as f64) as u64;
    rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24
}

#[test]
fn near_on_zipf() {
    let mut rng = Rng::new(1);
    let accesses = (0..3_000_000).map(|_| (zipf(&mut rng, 1 << 21), rng.below(5) == 0));
    compare("zipf", 1 << 16, 0, accesses, &Bounds { hits: 2.0, origin_reads: 2.0, flash_writes: 3.0 });
}

/// Half of all a scan, the other half as [`zipf`]; the scan begins anew after so many blocks.
fn scan_and_zipf(scan_blocks: u64) -> impl Iterator<Item = (u64, bool)> {
    let mut rng = Rng::new(2);
    (0..3_000_000_u64).map(move |at| {
        let scan = at / 1000 % 2 == 0;
        let key = if scan { (1 << 50) + at % scan_blocks } else { zipf(&mut rng, 1 << 20) };
        (key, !scan && rng.below(4) == 0)
    })
}

#[test]
fn near_on_a_scan_beside_zipf() {
    let bounds = Bounds { hits: 2.0, origin_reads: 2.0, flash_writes: 5.0 };
    compare("scan", 1 << 16, 0, scan_and_zipf(u64::MAX), &bounds);
}

#[test]
fn less_near_on_a_scan_that_comes_back() {
    // How much of the loop is kept depends on where the gate comes to rest, which is not quite the same in a sample.
    let bounds = Bounds { hits: 4.0, origin_reads: 4.0, flash_writes: 6.0 };
    compare("loop", 1 << 16, 1_500_000, scan_and_zipf(600_000), &bounds);
}
