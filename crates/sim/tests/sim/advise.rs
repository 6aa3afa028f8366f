// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces with a plain answer get that answer.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use flashfront_device::Rng;
use flashfront_device::sim::known;
use flashfront_engine::Mode;
use flashfront_sim::advise::{Advice, IN_FLIGHT_MAX, Progress, Question, advise};
use flashfront_sim::replay::{GridChoice, Source, SourceError};
use flashfront_sim::trace::Options;

const MIB: u64 = 1 << 20;
const BLOCK_SECTORS: u64 = 8;

/// A trace of one disk: (milliseconds, `R` or `W`, block, blocks).
pub(crate) fn question(name: &str, requests: impl Iterator<Item = (f64, char, u64, u64)>) -> Question {
    let mut lines = String::new();
    for (ms, op, block, blocks) in requests {
        let (sector, sectors) = (block * BLOCK_SECTORS, blocks * BLOCK_SECTORS);
        writeln!(lines, "{} ; {sector} ; {sectors} ; {op} ; 0.0 ; 0.0", ms / 1e3).expect("a string takes all");
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("advise-{name}.load"));
    fs::write(&path, lines).expect("the target folder can be written");
    let source =
        Source { path, options: Options::default(), grid: GridChoice::Aligned, echoes_ns: None, page_cache_blocks: 0 };
    let device = |name: &str| known().into_iter().find(|it| it.name == name).expect("a device of ours");
    let (origin, cache) = (device("wd-re-4tb"), device("samsung-850-pro"));
    Question { source, origin, cache, sizes: Vec::new(), threads: 2, ram_bytes: 0, rivals: Vec::new() }
}

pub(crate) fn advised(question: &Question) -> Advice {
    advise(question, &Progress::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// Makes `count` requests of one block at random places below `blocks`, far apart on the disk. A
/// request comes each 10 ms.
pub(crate) fn random(op: char, count: u64, blocks: u64) -> impl Iterator<Item = (f64, char, u64, u64)> {
    let mut rng = Rng::new(7);
    (0..count).map(move |nth| (nth as f64 * 10.0, op, rng.below(blocks) * 64, 1))
}

#[test]
fn data_read_again_and_again_asks_for_a_cache_that_holds_it() {
    // 31 MiB; each block is read twelve times, in no order.
    let advice = advised(&question("hot", random('R', 96_000, 8_000)));
    let choice = advice.choice.expect("a cache helps");
    assert_eq!((choice.cache_bytes, choice.mode), (64 * MIB, Mode::Writethrough), "the least there is, and no writes");
    let (alone, cached) = (&advice.alone.played, &advice.sizes[0].played);
    assert_eq!((alone.reads.requests, cached.reads.requests), (48_000, 48_000), "the second half");
    assert!(cached.read_hit_ratio() > Some(0.99), "{:?}", cached.read_hit_ratio());
    assert!(cached.mean_ns() * 20 < alone.mean_ns(), "{} and {}", cached.mean_ns(), alone.mean_ns());
    assert_eq!((advice.survey.touched_bytes, advice.survey.writes), (8_000 * 4096, 0));
    assert_eq!(alone.traffic.origin_ios, 48_000);
    assert!(cached.traffic.origin_ios < 500, "{}", cached.traffic.origin_ios);
}

/// A volume behind a network costs its round trip, wherever it is read.
#[test]
fn a_network_volume_is_worth_a_cache_though_it_seeks_nothing() {
    let volume = known().into_iter().find(|it| it.name == "volume-50ms").expect("a device of ours");
    let advice = advised(&Question { origin: volume, ..question("volume", random('R', 12_000, 1_000)) });
    let alone = advice.alone.played.mean_ns();
    assert!((50_000_000..51_000_000).contains(&alone), "{alone}");
    let choice = advice.choice.expect("a cache helps");
    assert_eq!((choice.cache_bytes, choice.mode), (64 * MIB, Mode::Writethrough));
    assert!(advice.sizes[0].played.mean_ns() * 20 < alone, "{}", advice.sizes[0].played.mean_ns());
}

#[test]
fn data_that_is_read_once_asks_for_none() {
    let advice =
        advised(&question("once", (0..20_000).map(|nth| (nth as f64 * 10.0, 'R', nth * 7919 % 20_000 * 64, 1))));
    assert_eq!(advice.choice, None);
    assert!(!advice.sizes.is_empty() && advice.modes.is_empty());
    for trial in &advice.sizes {
        assert_eq!(trial.played.traffic.read_hit_blocks, 0, "{:?}", trial.cache);
    }
}

#[test]
fn what_is_rewritten_faster_than_the_disk_can_asks_for_writeback() {
    let rewrites = random('W', 40_000, 4_000).map(|(ms, op, block, blocks)| (ms / 20.0, op, block, blocks));
    let advice = advised(&question("rewrites", rewrites));
    assert_eq!(advice.choice.map(|it| it.mode), Some(Mode::Writeback), "{advice:?}");
    let modes: Vec<_> = advice.modes.iter().filter_map(|trial| trial.cache).map(|it| it.1).collect();
    assert_eq!(modes, [Mode::Writethrough, Mode::Writearound]);
    // There are 2,000 writes a second: the disk has all its places taken, and the clients come
    // later.
    let alone = &advice.alone.played;
    assert!(alone.late_ns > advice.survey.span_ns.expect("it has times"), "{}", alone.late_ns);
    assert_eq!(advice.sizes[0].played.late_ns, 0, "the cache takes them as they come");
    // Each request waits at most for those before it.
    let each_ns = alone.took_ns / alone.writes.requests;
    assert!(alone.mean_ns() < each_ns * IN_FLIGHT_MAX as u64 * 2, "{} of {each_ns}", alone.mean_ns());
}

#[test]
fn long_requests_and_several_disks_are_played_whole() {
    // 3 MiB are more than a request may be. Between these requests comes a write of one block, far
    // away.
    let all = (0..40_u32).flat_map(|nth| {
        let at = f64::from(nth) * 100.0;
        [(at, 'R', u64::from(nth) * 768, 768), (at + 50.0, 'W', (1 << 20) + u64::from(nth), 1)]
    });
    let advice = advised(&question("long", all));
    let (survey, alone) = (&advice.survey, &advice.alone.played);
    assert_eq!((survey.reads, survey.writes), (40, 40));
    assert_eq!((survey.read_bytes, survey.write_bytes), (40 * 3 * MIB, 40 * 4096));
    assert_eq!(survey.origin_bytes, 5 << 30, "4 GiB and the last block, in whole GiB");
    assert_eq!((alone.reads.requests, alone.writes.requests), (20, 20));
    assert_eq!(alone.traffic.origin_read_bytes, 20 * 3 * MIB);
    let p99 = alone.reads.p99_ns().expect("there are reads");
    assert!((15_000_000..80_000_000).contains(&p99), "3 MiB at 178 MB/s and a seek: {p99}");
}

#[test]
fn the_same_question_has_the_same_answer() {
    let question = question(
        "same",
        random('R', 6_000, 3_000)
            .zip(0..)
            .map(|((ms, _, block, blocks), nth)| (ms, if nth % 3 == 0 { 'W' } else { 'R' }, block, blocks)),
    );
    let (one, other) = (advised(&question), advised(&question));
    assert_eq!(one.choice, other.choice);
    let figures = |advice: &Advice| {
        let all = advice.sizes.iter().chain(&advice.modes).map(|it| (it.cache, it.played.mean_ns(), it.played.traffic));
        all.collect::<Vec<_>>()
    };
    assert_eq!(figures(&one), figures(&other));
}

#[test]
fn it_can_be_stopped_and_says_how_far_it_is() {
    let question = question("stopped", random('R', 3_000, 3_000));
    let progress = Progress::default();
    let advice = advise(&question, &progress).expect("nobody stops it");
    let runs = 1 + advice.sizes.len() as u64;
    assert_eq!(progress.to_play.load(Ordering::Relaxed), runs * 3_000);
    assert_eq!(progress.played.load(Ordering::Relaxed), runs * 3_000);
    progress.reading.stop.store(true, Ordering::Relaxed);
    let stopped = advise(&question, &progress);
    assert!(matches!(stopped, Err(SourceError::Stopped { .. })), "{stopped:?}");
}

/// A question about a trace of MSR, whose lines these are.
fn of_msr(name: &str, lines: impl Iterator<Item = String>) -> Question {
    let mut question = question(name, std::iter::empty());
    question.source.path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("advise-{name}.csv"));
    fs::write(&question.source.path, lines.collect::<String>()).expect("the target folder can be written");
    question
}

#[test]
fn more_disks_than_a_cache_can_have_are_refused() {
    let far = of_msr("far", (0..2).map(|disk| format!("{disk},h,{disk},Read,{},4096,1\n", 100_u64 << 40)));
    let refused = advise(&far, &Progress::default());
    assert!(matches!(refused, Err(SourceError::Far { format: "msr", .. })), "{refused:?}");
}

/// The times of MSR's traces are near the end of what a number of nanoseconds holds.
#[test]
fn a_damaged_line_changes_no_advice() {
    let with = |name: &str, others: &[(u64, &str)]| {
        let mut rng = Rng::new(7);
        let line = |nth: u64| {
            let (time, offset) = (128_166_372_000_016_595 + nth * 100_000, rng.below(1_000) * 64 * 4096);
            let other = others.iter().find(|it| it.0 == nth).map(|it| format!("{}\n", it.1));
            other.unwrap_or_else(|| format!("{time},h,0,Read,{offset},4096,1\n"))
        };
        advised(&of_msr(name, (0..6_000).map(line)))
    };
    let sound = with("sound", &[]);
    assert_eq!(sound.survey.span_ns, Some(5_999 * 10_000_000));
    for (name, others) in [
        ("early", &[(3_000, "1,h,0,Read,4096,4096,1")][..]),
        ("late", &[(3_000, "184467440737095515,h,0,Read,4096,4096,1")]),
        ("first", &[(0, "1,h,0,Read,4096,4096,1")]),
        ("last", &[(5_999, "184467440737095515,h,0,Read,4096,4096,1")]),
        ("twice", &[(3_000, "1,h,0,Read,4096,4096,1"), (3_001, "5,h,0,Read,4096,4096,1")]),
        ("place", &[(3_000, "128166372300016595,h,0,Read,9223372036854771712,4096,1")]),
    ] {
        let found = with(name, others);
        let span_ns = found.survey.span_ns.expect("it has times");
        assert!((59_900_000_000..60_000_000_000).contains(&span_ns), "{name}: {span_ns}");
        assert_eq!((found.alone.played.late_ns, found.survey.origin_bytes), (0, 1 << 30), "{name}");
        let [one, other] = [&sound, &found].map(|it| it.alone.played.mean_ns() as f64);
        assert!((one / other - 1.0).abs() < 0.02, "{name}: {other} and not {one}");
    }
}

/// Plays a trace in the third version of the fio log, which has places in bytes and FLUSHes as
/// `sync`.
fn with_flushes(name: &str, flushes: bool) -> Advice {
    let mut rng = Rng::new(5);
    let mut question = question(name, std::iter::empty());
    let mut lines = String::from("fio version 3 iolog\n0 /disk add\n");
    for nth in 0..4_000_u64 {
        let (us, block) = (nth * 20_000, rng.below(8_000) * 64);
        writeln!(lines, "{us} /disk write {} 4096", block * 4096).expect("a string takes all");
        if flushes {
            writeln!(lines, "{} /disk sync 0 0", us + 100).expect("a string takes all");
        }
    }
    question.source.path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("advise-{name}.log"));
    fs::write(&question.source.path, lines).expect("the target folder can be written");
    advised(&question)
}

#[test]
fn flushes_of_the_trace_cost_what_they_cost() {
    let (without, with) = (with_flushes("no-flushes", false), with_flushes("flushes", true));
    assert_eq!((with.survey.writes, with.reading.flushes), (4_000, 4_000));
    let flushed = |advice: &Advice| advice.alone.played.traffic.origin_flushes;
    assert_eq!((flushed(&without), flushed(&with)), (0, 2_000), "those of the second half");
    // Without FLUSHes the disk's write cache takes a write in the time that its wire takes.
    let alone = |advice: &Advice| advice.alone.played.mean_ns();
    assert!(alone(&without) < 200_000, "{}", alone(&without));
    let cached = |advice: &Advice| advice.sizes[0].played.traffic.cache_flushes;
    assert!(cached(&with) >= 2_000 && cached(&without) < 200, "{} {}", cached(&with), cached(&without));
}

#[test]
fn a_write_of_a_part_of_a_block_reads_the_rest_from_the_disk() {
    let of = |name: &str, sectors: u64| {
        let mut rng = Rng::new(9);
        let mut lines = String::new();
        for nth in 0..4_000_u64 {
            let sector = rng.below(8_000) * 512 + 1;
            writeln!(lines, "{} ; {sector} ; {sectors} ; W ; 0.0 ; 0.0", nth as f64 / 50.0)
                .expect("a string takes all");
        }
        let mut question = question(name, std::iter::empty());
        question.sizes = vec![64 * MIB];
        fs::write(&question.source.path, lines).expect("the target folder can be written");
        advised(&question)
    };
    let part = of("parts", 7);
    let traffic = &part.sizes[0].played.traffic;
    assert!(traffic.origin_read_bytes > 1_000 * 4096, "{traffic:?}");
    assert!(part.sizes[0].played.writes.mean_ns() > Some(1_000_000), "{:?}", part.sizes[0].played.writes.mean_ns());
    assert_eq!(part.survey.write_bytes, 4_000 * 4096, "what is in the trace is told in whole blocks");
}
