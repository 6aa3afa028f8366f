// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays of traces are counted. Some traces are so short that they can be counted by hand, and
//! one is real.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use flashfront_device::Rng;
use flashfront_engine::policy::Spec;
use flashfront_sim::policy::flashfront::Flashfront;
use flashfront_sim::policy::{self, Build};
use flashfront_sim::replay::{GridChoice, Progress, Replayed, Size, Source, SourceError, Totals, replay};
use flashfront_sim::trace::{Action, Format, Options};

fn source(path: impl Into<PathBuf>, format: Option<&str>) -> Source {
    let format = format.map(|name| Format::named(name).expect("a format of ours"));
    Source {
        path: path.into(),
        options: Options { format, ..Options::default() },
        grid: GridChoice::Aligned,
        echoes_ns: None,
        page_cache_blocks: 0,
    }
}

fn policies(names: &[&str]) -> Vec<&'static Spec<Build>> {
    names.iter().map(|name| policy::by_name(name).expect("a policy of ours")).collect()
}

fn replayed(source: &Source, names: &[&str], sizes: &[Size]) -> Replayed {
    replay(source, &policies(names), sizes, &|_| None, false, &Progress::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

fn mssql() -> Source {
    source(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/windows-mssql.load.gz"), None)
}

/// Writes a trace of accesses to blocks, such as `r1 w2 r4+8`, to a file of its own.
fn trace(name: &str, accesses: &str) -> PathBuf {
    let lines: String = accesses
        .split_whitespace()
        .zip(0..)
        .map(|(access, at)| {
            let (op, block) = access.split_at(1);
            let (block, blocks) = block.split_once('+').unwrap_or((block, "1"));
            let [sector, sectors] = [block, blocks].map(|it| it.parse::<u64>().expect("a number") * 8);
            format!("{at}.0 ; {sector} ; {sectors} ; {} ; 0.0 ; 0.0\n", op.to_uppercase())
        })
        .collect();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.load"));
    fs::write(&path, lines).expect("the target folder can be written");
    path
}

fn totals(name: &str, accesses: &str, policy: &str, blocks: u64) -> Totals {
    let source = source(trace(name, accesses), Some("blkreplay"));
    replayed(&source, &[policy], &[Size::Blocks(blocks)]).rows[0].totals
}

/// A budget of a block a second admits a quarter of the reads, which are four blocks a second.
/// Writes are all admitted, and use up the budget of reads.
#[test]
fn a_budget_declines_reads_and_no_writes() {
    let day_of_blocks = 86_400 * 4096;
    let within = |accesses: String, budget: Option<u64>| {
        let source = source(trace("budget", &accesses), Some("blkreplay"));
        let (policies, sizes) = (policies(&["flashfront", "lru"]), [Size::Blocks(4096)]);
        let rows =
            replay(&source, &policies, &sizes, &|_| budget, false, &Progress::default()).expect("a sound trace").rows;
        assert_eq!((rows[0].flash_writes_per_day_bytes, rows[1].flash_writes_per_day_bytes), (budget, None));
        rows[0].totals
    };
    let reads: String = (0..400).map(|nth| format!("r{}+4 ", nth * 4)).collect();
    assert_eq!(within(reads.clone(), None).fill_blocks, 1600);
    let few = within(reads.clone(), Some(day_of_blocks)).fill_blocks;
    assert!((390..=400).contains(&few), "{few} blocks in 400 seconds");
    assert_eq!(within(reads, Some(4 * day_of_blocks)).fill_blocks, 1596, "but for those of the first moment");
    let mixed: String = (0..400).map(|nth| format!("w{}+4 r{} ", nth * 4, 10_000 + nth)).collect();
    let mixed = within(mixed, Some(day_of_blocks));
    assert_eq!((mixed.absorbed_blocks, mixed.fill_blocks), (1600, 0));
}

/// A count from outside, from what a policy says that it did, is the same as the own count of our
/// model.
#[test]
fn of_ours_as_much_is_counted_as_its_model_counts() {
    let mut rng = Rng::new(1);
    let mut random = |below: u64| rng.below(below);
    for capacity in [1, 2, 3, 5, 8, 15, 16, 17, 31, 40, 64, 100, 300, 1100] {
        let accesses: Vec<(bool, u64)> =
            (0..20_000).map(|_| (random(3) == 0, random(4 * capacity).min(random(4 * capacity)))).collect();
        let text: Vec<String> =
            accesses.iter().map(|(write, key)| format!("{}{key}", if *write { 'w' } else { 'r' })).collect();
        let found = totals("as-its-model", &text.join(" "), "flashfront", capacity);
        let mut model = Flashfront::new(capacity as usize);
        for (write, key) in &accesses {
            model.ask(*key, *write);
        }
        assert_eq!(found, model.totals(), "{capacity} blocks");
    }
}

#[test]
fn hits_fills_and_writes_are_counted() {
    // There is room for two: r1 and w2 miss, r1 and r2 hit, r3 throws out 1, r1 throws out 2, which
    // is dirty.
    let totals = totals("counted", "r1 w2 r1 r2 r3 r1", "lru", 2);
    let expected = Totals {
        accesses: 6,
        reads: 5,
        hits: 2,
        read_hits: 2,
        write_hits: 0,
        fill_blocks: 3,
        absorbed_blocks: 1,
        reinserted_blocks: 0,
        origin_read_blocks: 3,
        origin_write_blocks: 1,
    };
    assert_eq!(totals, expected);
    assert_eq!(totals.flash_blocks_written(), 4);
}

#[test]
fn what_is_dirty_at_the_end_counts_as_written_to_the_origin() {
    let totals = totals("dirty-end", "w1 w2 w1 w1", "lru", 8);
    assert_eq!((totals.absorbed_blocks, totals.origin_write_blocks), (4, 2));
    assert_eq!((totals.hits, totals.write_hits), (2, 2));
}

#[test]
fn what_a_policy_declines_goes_to_the_origin() {
    // LARC takes blocks that come twice in a short time.
    let totals = totals("declined", "w1 r2 w3", "larc", 100);
    assert_eq!((totals.absorbed_blocks, totals.fill_blocks, totals.flash_blocks_written()), (0, 0, 0));
    assert_eq!((totals.origin_read_blocks, totals.origin_write_blocks), (1, 2));
}

#[test]
fn a_policy_with_larger_units_copies_them_whole() {
    let source = source(trace("units", &"r1 ".repeat(2000)), Some("blkreplay"));
    let totals = replayed(&source, &["smq"], &[Size::Blocks(1 << 16)]).rows[0].totals;
    assert!(totals.hits > 0, "a block asked for 2000 times in 2000 s is promoted");
    assert_eq!(totals.fill_blocks, 16);
    assert_eq!(totals.origin_read_blocks, totals.accesses - totals.hits + 16);
}

#[test]
fn the_page_cache_answers_reads_of_what_was_used_and_passes_writes_on() {
    let mut behind = source(trace("page-cache", "r1 r1 w1 r1 w2 r2 r3 r1"), Some("blkreplay"));
    behind.page_cache_blocks = 2;
    let found = replayed(&behind, &["lru"], &[Size::Blocks(8)]);
    // These accesses are left: r1 w1 w2 r3 r1.
    let totals = found.rows[0].totals;
    assert_eq!((totals.accesses, totals.reads, totals.hits, found.reading.unique_blocks), (5, 3, 2, 3));
}

#[test]
fn sizes_and_policies_come_in_the_order_asked_for_and_don_t_disturb_each_other() {
    let sizes = [Size::Fraction(0.10), Size::Blocks(1000), Size::Fraction(0.01)];
    let names = ["fifo", "lru", "belady", "s3fifo", "flashfront"];
    let together = replayed(&mssql(), &names, &sizes);
    assert_eq!((together.reading.requests, together.reading.unique_blocks), (42_976, 154_742));
    let order: Vec<_> = together.rows.iter().map(|row| (row.policy, row.cache_blocks)).collect();
    let asked: Vec<_> = [15_474, 1000, 1547].iter().flat_map(|&blocks| names.map(|name| (name, blocks))).collect();
    assert_eq!(order, asked);
    for row in &together.rows {
        let alone = replayed(&mssql(), &[row.policy], &[row.size]);
        assert_eq!(alone.rows[0].totals, row.totals, "{} at {}", row.policy, row.cache_blocks);
    }
}

/// The policy misses as often as dm-cache's own code on the same trace (docs/laboratory/policy.md).
/// It is asked once for each unit of a request.
#[test]
fn large_units_are_asked_for_once_a_request() {
    let sizes = [0.01, 0.05, 0.10, 0.25].map(Size::Fraction);
    let found = replayed(&mssql(), &["smq"], &sizes);
    for (row, misses) in found.rows.iter().zip([0.947, 0.940, 0.920, 0.881]) {
        let totals = row.totals;
        assert!((1.0 - totals.hit_ratio() - misses).abs() < 0.000_51, "{}", 1.0 - totals.hit_ratio());
        assert_eq!(totals.reinserted_blocks % 16, 0);
    }
}

#[test]
fn a_small_cache_of_ours_copies_forward_too() {
    // 100 blocks are read all the time. Between them goes a scan, each block of it twice, so that
    // it is admitted.
    let hot_and_scan: String =
        (0..6000).map(|nth| format!("r{} r{} r{} ", nth % 100, 1000 + nth, 1000 + nth)).collect();
    let totals = totals("small", &hot_and_scan, "flashfront", 300);
    assert!(totals.reinserted_blocks > 100, "{totals:?}");
}

/// The miss ratios are those of libCacheSim 0.3.5 on the same trace, with 10 % of the footprint.
/// Other checks are true of any admit-all policy.
#[test]
fn a_real_trace_gives_the_known_miss_ratios() {
    let found = replayed(&mssql(), &["lru", "fifo", "belady"], &[Size::Fraction(0.10)]);
    for (row, misses) in found.rows.iter().zip([0.67537, 0.66566, 0.61013]) {
        let totals = row.totals;
        assert!((1.0 - totals.hit_ratio() - misses).abs() < 0.000_01, "{}: {}", row.policy, 1.0 - totals.hit_ratio());
        assert_eq!(totals.origin_read_blocks, totals.fill_blocks);
        assert_eq!(totals.absorbed_blocks, totals.accesses - totals.reads);
        assert!(totals.origin_write_blocks <= totals.absorbed_blocks);
    }
}

#[test]
fn the_daemon_s_own_policy_keeps_a_scan_out() {
    let scan: String = (0..20_000).map(|block| format!("r{block} ")).collect();
    let totals = totals("scan", &scan, "flashfront", 1000);
    assert!(totals.flash_blocks_written() <= 1100, "{totals:?}");
}

#[test]
fn before_a_disk_neighbours_of_what_is_missed_wait_for_the_next_request() {
    // The first read takes its unit of 16. The third takes the blocks that follow it, as it lies in
    // two units. The fourth is as long as a whole unit. Neighbours are cached when they are asked
    // for.
    let totals = totals("disk", "r0+4 r4+2 r30+4 r100+16 r45 r46 r8", "flashfront_disk", 1000);
    assert_eq!((totals.accesses, totals.hits), (29, 2 + 1 + 1), "no request finds what it brought");
    assert_eq!(totals.origin_read_blocks, 16 + 16 + 16 + 2);
    assert_eq!((totals.fill_blocks, totals.reinserted_blocks), (4 + 2 + 4 + 16 + 1 + 1 + 1, 0));
}

/// Neighbours wait in RAM beside a full cache. A scan costs no more flash than without them, and it
/// reads the origin once for sixteen blocks.
#[test]
fn before_a_disk_a_scan_misses_once_a_unit_and_is_kept_out() {
    let scan: String = (0..20_000).map(|block| format!("r{block} ")).collect();
    let totals = totals("disk-scan", &scan, "flashfront_disk", 2000);
    assert!(totals.flash_blocks_written() <= 2200, "{totals:?}");
    assert!(totals.accesses - totals.hits <= 20_000 / 16 + 100, "{totals:?}");
    assert!(totals.origin_read_blocks <= 20_000 + 16, "{totals:?}");
}

#[test]
fn what_can_t_be_read_twice_is_refused_before_anything_is_read() {
    let pipe = source("/dev/null", None);
    let refused = replay(&pipe, &policies(&["lru"]), &[Size::Fraction(0.1)], &|_| None, false, &Progress::default());
    assert!(matches!(refused, Err(SourceError::Once { .. })), "{refused:?}");
    let empty = source(trace("nothing", ""), Some("blkreplay"));
    let refused = replay(&empty, &policies(&["lru"]), &[Size::Blocks(8)], &|_| None, false, &Progress::default());
    assert!(matches!(refused, Err(SourceError::Empty { .. })), "{refused:?}");
    for size in [Size::Blocks(8), Size::Fraction(0.1)] {
        let none = source("/nonexistent/trace", None);
        let refused = replay(&none, &policies(&["lru"]), &[size], &|_| None, false, &Progress::default());
        assert!(matches!(refused, Err(SourceError::Open { .. })), "{refused:?}");
    }
}

fn written(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).expect("the target folder can be written");
    path
}

#[test]
fn what_is_left_out_is_counted() {
    let text = "8,0 0 1 0.000001 9 Q R 8 + 8 [x]\n8,0 0 1 0.000005 9 Q R 8 + 8 [x]\n8,0 0 1 0.5 9 Q FN [x]\n\
        8,0 0 1 0.6 9 Q D 8 + 8 [x]\n8,0 0 1 0.7 9 Q W 16 + 8 [x]\n8,0 0 1 0.8 9 C W 16 + 8 [0]\n";
    let mut source = source(written("left-out.txt", text), Some("blkparse"));
    source.echoes_ns = Some(1_000_000);
    let found = replayed(&source, &["lru"], &[Size::Blocks(8)]);
    assert_eq!(
        (found.reading.requests, found.reading.echoes_dropped, found.reading.flushes, found.reading.discards),
        (2, 1, 1, 1)
    );
    assert_eq!(found.reading.report.skipped, [("events C (completed)", 1)]);
}

#[test]
fn one_that_was_left_out_is_called_one() {
    let source = source(written("nothing.csv", "Timestamp,Offset\n\n\n1,8,0,0,7\n"), Some("tencent"));
    let error = replay(&source, &policies(&["lru"]), &[Size::Blocks(8)], &|_| None, false, &Progress::default());
    let words = "left out: 1 header line, 2 blank lines, 1 request of no length";
    assert!(error.as_ref().is_err_and(|it| it.to_string().ends_with(words)), "{error:?}");
}

#[test]
fn a_share_of_a_footprint_is_rounded_down_and_never_nothing() {
    for (share, unique, blocks) in
        [(0.29, 100, 29), (0.58, 100, 58), (0.1, 30, 3), (0.1, 39, 3), (0.01, 99, 1), (1.0, 7, 7)]
    {
        assert_eq!(Size::Fraction(share).blocks(unique), blocks, "{share} of {unique}");
    }
}

#[test]
fn a_trace_of_other_events_says_how_to_read_it() {
    let text = "8,0 0 1 0.8 9 C W 16 + 8 [0]\n".repeat(20);
    let mut source = source(written("completed.txt", &text), None);
    let error = replay(&source, &policies(&["lru"]), &[Size::Blocks(8)], &|_| None, false, &Progress::default())
        .unwrap_err()
        .to_string();
    for words in ["no reads and writes", "20 events C (completed)", "--action"] {
        assert!(error.contains(words), "{error}");
    }
    source.options.action = Action::Complete;
    assert_eq!(replayed(&source, &["lru"], &[Size::Blocks(8)]).reading.requests, 20);
}

/// Disk 1 is aligned and has most of the requests, disk 2 begins at sector 63.
#[test]
fn each_disk_has_a_grid_of_its_own() {
    let line = |disk: u64, nth: u64, from: u64| format!("1,h,{disk},Read,{},4096,1\n", (from + 8 * nth) * 512);
    let text: String = (0..50).map(|nth| line(1, nth, 0) + &line(1, nth, 4096) + &line(2, nth, 63)).collect();
    let mut source = source(written("two-disks.csv", &text), Some("msr"));
    let aligned = replayed(&source, &["lru"], &[Size::Blocks(8)]);
    assert_eq!(
        (aligned.reading.phases(), aligned.reading.unique_blocks, aligned.rows[0].totals.accesses),
        (vec![0], 151, 200)
    );
    let disks: Vec<_> = aligned.reading.disks.iter().map(|it| (it.requests, it.grid.phase())).collect();
    assert_eq!(disks, [(100, 0), (50, 7)]);
    source.grid = GridChoice::Detected;
    let shifted = replayed(&source, &["lru"], &[Size::Blocks(8)]);
    assert_eq!(
        (shifted.reading.phases(), shifted.reading.unique_blocks, shifted.rows[0].totals.accesses),
        (vec![0, 7], 150, 150)
    );
}

/// A garbled line may have a time near the end of all times. Policies that use the time must not
/// count the seconds until it comes round.
#[test]
fn no_time_is_too_late_for_a_policy() {
    let line = |time: u64, block: u64| format!("{time},h,0,Write,{},4096,1\n", block * 4096);
    let text: String = [184_467_440_737_095_516, 184_467_440_737_095_516, 128_166_372_003_061_629, 3]
        .into_iter()
        .zip(0..)
        .map(|(time, block)| line(time, block))
        .collect();
    let source = source(written("late.csv", &text), Some("msr"));
    let names: Vec<&str> = policy::ALL.iter().map(|spec| spec.name).collect();
    let found = replayed(&source, &names, &[Size::Blocks(100)]);
    assert!(found.rows.iter().all(|row| row.totals.origin_write_blocks == 4), "{:?}", found.rows);
    assert_eq!(found.reading.times_back, 2);
}

#[test]
fn a_replay_that_is_to_stop_does_and_what_foresight_takes_is_told() {
    let progress = Progress::default();
    let (sizes, foresees) = ([Size::Blocks(100)], policies(&["belady"]));
    replay(&mssql(), &policies(&["lru"]), &sizes, &|_| None, false, &progress).expect("the trace is there");
    assert_eq!(progress.foresight_bytes.load(Ordering::Relaxed), 0);
    let found = replay(&mssql(), &foresees, &sizes, &|_| None, false, &progress).expect("the trace is there");
    let bytes = progress.foresight_bytes.load(Ordering::Relaxed);
    assert!(bytes > 8 * found.rows[0].totals.accesses + 16 * found.reading.unique_blocks, "{bytes}");
    for policies in [&["lru"][..], &["belady"]].map(policies) {
        progress.stop.store(true, Ordering::Relaxed);
        let error = replay(&mssql(), &policies, &sizes, &|_| None, false, &progress).unwrap_err();
        assert!(matches!(error, SourceError::Stopped { .. }), "{error}");
    }
}

/// The contents of a policy's cache of `blocks` blocks at the end of a trace. They are live blocks,
/// dead places, live blocks that nobody has read, and moved blocks.
fn held(name: &str, accesses: &str, policy: &str, blocks: u64) -> [u64; 4] {
    let source = source(trace(name, accesses), Some("blkreplay"));
    let told = replay(&source, &policies(&[policy]), &[Size::Blocks(blocks)], &|_| None, true, &Progress::default());
    let (held, unread) = told.expect("a sound trace").rows[0].occupancy.expect("it was asked for");
    [held.live_blocks, held.dead_blocks, unread, held.cleaned_blocks]
}

#[test]
fn what_a_cache_holds_at_the_end_is_told() {
    // Five blocks come. Block 1 is rewritten three times, which leaves three holes in a log. Two
    // blocks are read again.
    let accesses = "w1 w2 r3 r4 w5 w1 w1 w1 r1 r3";
    assert_eq!(held("held", accesses, "flashfront", 64), [5, 3, 3, 0]);
    assert_eq!(held("held", accesses, "lru", 64), [5, 3, 3, 0]);
    assert_eq!(held("held", accesses, "s3fifo", 64), [5, 0, 3, 0], "its queues are taken for logs without holes");
    // A block that is dropped isn't held any more, whether it was read or not.
    assert_eq!(held("held", "w1 r1 w2 w3", "fifo", 1), [1, 0, 1, 0]);
    // There are enough holes for segments to be cleaned, and the blocks between them are moved.
    let scattered: String = (0..12_000).map(|nth| format!("w{} ", if nth % 8 == 0 { nth } else { 1 })).collect();
    let [live, dead, unread, cleaned] = held("scattered", &scattered, "flashfront", 4096);
    assert!(live + dead <= 4096 && unread == live && cleaned > 0, "{live} {dead} {unread} {cleaned}");
}
