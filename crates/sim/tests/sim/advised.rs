// SPDX-License-Identifier: MIT OR Apache-2.0
//! For loads with a plain answer, the advice says why an SSD is needed, or isn't. It says when a
//! recording is long enough for that.

use flashfront_device::Rng;
use flashfront_device::sim::known;
use flashfront_engine::Mode;
use flashfront_sim::advise::{Advice, Because, Question, RAM_BYTES};
use flashfront_sim::rival;
use flashfront_sim::zipf::Zipf;

use crate::advise::{advised, question, random};

const MIB: u64 = 1 << 20;

/// The advice if there is a gigabyte of RAM to give.
fn with_ram(question: Question) -> Advice {
    advised(&Question { ram_bytes: RAM_BYTES, ..question })
}

/// Makes `count` reads of single blocks that lie far apart, by Zipf's law. A read comes each 10 ms.
fn zipf(count: u64, blocks: u64, exponent: f64) -> impl Iterator<Item = (f64, char, u64, u64)> {
    let (law, mut rng) = (Zipf::new(blocks, exponent), Rng::new(11));
    (0..count).map(move |nth| (nth as f64 * 10.0, 'R', law.sample(&mut rng) * 64, 1))
}

#[test]
fn a_scan_needs_no_cache() {
    let scan = (0..8_000).map(|nth| (nth as f64 * 4.0, 'R', nth * 64, 64));
    let advice = with_ram(question("scan", scan));
    assert_eq!((advice.because, advice.choice), (Because::Scan, None), "{:?}", advice.growth);
    assert_eq!(advice.growth.sequential_requests, 7_999);
}

#[test]
fn one_hit_floods_need_no_cache() {
    let advice =
        with_ram(question("flood", (0..20_000).map(|nth| (nth as f64 * 10.0, 'R', nth * 7919 % 20_000 * 64, 1))));
    assert_eq!((advice.because, advice.choice), (Because::AskedOnce, None), "{:?}", advice.growth);
    assert_eq!(advice.growth.again_share(), Some(0.0));
}

#[test]
fn data_that_fits_the_page_cache_needs_ram_and_no_ssd() {
    let hot = || question("fits", random('R', 40_000, 8_000));
    let advice = with_ram(hot());
    assert_eq!(advice.because, Because::FitsRam);
    assert_eq!(advice.choice.map(|it| it.cache_bytes), Some(64 * MIB), "an SSD would help as well");
    let ram = advice.ram.expect("it was tried");
    assert!(ram.alone.played.mean_ns() * 10 < advice.alone.played.mean_ns(), "{}", ram.alone.played.mean_ns());
    // An operator without RAM to give gets the SSD.
    let without = advised(&hot());
    assert_eq!((without.because, without.ram.is_none()), (Because::SavesTime, true));
}

#[test]
fn requests_side_by_side_need_reading_around_and_no_ssd() {
    // Each quarter of 64 KiB is asked for once. The quarters of 400 units come in no order.
    let mut rng = Rng::new(5);
    let mut all: Vec<u64> = (0..32_000).collect();
    for chunk in all.chunks_mut(1_600) {
        for at in (1..chunk.len()).rev() {
            chunk.swap(at, rng.below(at as u64 + 1) as usize);
        }
    }
    let beside =
        all.into_iter().zip(0_u32..).map(|(at, nth)| (f64::from(nth) * 10.0, 'R', at / 4 * 256 + at % 4 * 4, 4));
    let advice = with_ram(question("beside", beside));
    assert_eq!(advice.because, Because::ReadAround, "{:?} {:?}", advice.choice, advice.growth);
    let ram = advice.ram.expect("it was tried");
    let [asked, around, alone] = [&ram.alone, &ram.around, &advice.alone].map(|it| it.played.mean_ns());
    assert!(asked * 10 > alone * 9 && around * 2 < alone, "{asked}, {around}, {alone}");
}

#[test]
fn writes_that_the_disk_never_catches_up_with_need_no_cache() {
    // There are 1,000 writes a second, each to another place. Sorted, the disk takes some hundred.
    let flood = random('W', 60_000, 4_000_000).map(|(ms, op, block, blocks)| (ms / 10.0, op, block / 8, blocks));
    let advice = with_ram(question("outrun", flood));
    assert_eq!(advice.because, Because::WritesOutrun, "{:?}", advice.sizes);
    let backlog = advice.sizes.last().expect("sizes were tried").played.backlog;
    assert!(backlog.drain_bytes_per_s().is_some_and(|it| it < 4e6), "{backlog:?}");
    // Where the same blocks are written over and over, few writes are left to the disk.
    let again = random('W', 60_000, 4_000).map(|(ms, op, block, blocks)| (ms / 10.0, op, block, blocks));
    let advice = with_ram(question("again", again));
    assert_eq!((advice.because, advice.choice.map(|it| it.mode)), (Because::SavesTime, Some(Mode::Writeback)));
}

#[test]
fn reuse_beyond_the_cache_and_a_fast_disk_need_none() {
    // The trace reads 512 MiB by turns, and the cache is an eighth of that.
    let far = |name: &str| question(name, (0..40_000).map(|nth| (nth as f64 * 10.0, 'R', nth * 7919 % 16_384 * 64, 8)));
    let advice = with_ram(Question { sizes: vec![64 * MIB], ..far("far-apart") });
    assert_eq!(advice.because, Because::TooFarApart, "{:?}", advice.sizes);
    let nvme = known().into_iter().find(|it| it.name == "intel-p4500").expect("a device of ours");
    let advice = with_ram(Question { origin: nvme, ..far("fast") });
    assert_eq!(advice.because, Because::DiskIsFast, "{:?}", advice.sizes);
}

#[test]
fn popular_data_beyond_the_ram_needs_a_cache() {
    let advice = advised(&Question { ram_bytes: 64 * MIB, ..question("popular", zipf(100_000, 60_000, 0.6)) });
    assert_eq!(advice.because, Because::SavesTime, "{:?}", advice.choice);
    let (choice, ram) = (advice.choice.expect("it helps"), advice.ram.expect("it was tried"));
    assert!(choice.cache_bytes > 64 * MIB && choice.mean_ns < ram.around.played.mean_ns());
}

#[test]
fn a_recording_is_long_enough_once_its_working_set_is_seen() {
    let short = advised(&question("short", zipf(6_000, 30_000, 0.9))).converged;
    assert!(!short.is_converged() && short.times > 1.5, "{short:?}");
    let long = advised(&question("long", zipf(300_000, 30_000, 0.9))).converged;
    assert!(long.is_converged() && (long.times - 1.0).abs() < f64::EPSILON, "{long:?}");
    // Blocks that were read once in a short recording may still come again.
    let flood = (0..6_000).map(|nth| (nth as f64 * 10.0, 'R', nth * 7919 % 6_000 * 64, 1));
    let flood = advised(&question("short-flood", flood)).converged;
    assert!(flood.is_unseen() && !flood.is_converged(), "{flood:?}");
}

#[test]
fn a_working_set_that_grows_is_told_by_halves() {
    // Reads of 32 KiB go to 250 places at first, and later to 16,000. The first half of the trace
    // knows nothing of that.
    let mut rng = Rng::new(3);
    let grows = (0..60_000_u64).map(|nth| {
        let places = if nth < 28_000 { 250 } else { 16_000 };
        (nth as f64 * 10.0, 'R', rng.below(places) * 64, 8)
    });
    let advice = advised(&question("grows", grows));
    assert_eq!(advice.converged.first_half, Some(64 * MIB));
    assert!(!advice.converged.agrees && !advice.converged.is_converged(), "{:?}", advice.converged);
    let curve = advice.growth.touched_bytes;
    assert!(curve[8] == 2_000 * 4096 && curve[31] > 10 * curve[14], "{curve:?}");
}

#[test]
fn rivals_get_the_same_trace_and_the_advised_size() {
    let rivals: Vec<_> = rival::ALL.iter().collect();
    let advice = advised(&Question { rivals, ..question("rivals", random('R', 20_000, 2_000)) });
    let choice = advice.choice.expect("a cache helps");
    assert_eq!(advice.rivals.len(), rival::ALL.len());
    for (rival, trial) in &advice.rivals {
        assert_eq!(trial.cache, Some((rival.cache_bytes(choice.cache_bytes), Mode::Writeback)), "{}", rival.name);
        assert_eq!(trial.played.reads.requests, 10_000, "{}: the second half", rival.name);
    }
    let bcache = advice.rivals.iter().find(|(rival, _)| rival.name == "bcache").expect("it was asked for");
    assert!(bcache.1.played.mean_ns() * 2 < advice.alone.played.mean_ns(), "it caches what is read");
}

#[test]
fn the_guide_has_each_reason() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/decide/advise.md");
    let guide = std::fs::read_to_string(guide).expect("the guide is there");
    for because in Because::ALL {
        assert!(guide.contains(&format!("| `{}` |", because.word())), "{}", because.word());
    }
}
