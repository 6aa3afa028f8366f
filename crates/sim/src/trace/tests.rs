// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every format reads its fixture. Some things must be true of all formats, whatever the bytes.

mod fixtures;
mod packed;

use std::io::{self, Cursor, Read, Write};

use proptest::prelude::*;

use super::*;
use fixtures::Fixture;
use packed::{gz, numbers};

/// Gives so many bytes at once, and fails at the end if it shall.
struct Slow {
    bytes: Cursor<Vec<u8>>,
    most: usize,
    fails: bool,
}

impl Read for Slow {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = self.most.min(into.len());
        match self.bytes.read(&mut into[..most])? {
            0 if self.fails => Err(io::Error::other("the disk is gone")),
            bytes => Ok(bytes),
        }
    }
}

fn read(bytes: &[u8], options: &Options) -> Result<(Vec<Record>, Report, &'static str), OpenError> {
    let mut reader = Reader::new(Cursor::new(bytes.to_vec()), options)?;
    let records = reader.by_ref().map(|it| it.expect("RAM can be read")).collect();
    assert!(reader.next().is_none(), "it ends once");
    Ok((records, reader.report().clone(), reader.format().name))
}

fn by_format(name: &str) -> Options {
    let format = Format::named(name).expect("the format is in the list");
    Options { format: Some(format), ..Options::default() }
}

fn check(fixture: &Fixture, records: &[Record], report: &Report) {
    let name = fixture.format;
    assert_eq!(records, fixture.records, "{name}");
    let bad: Vec<String> = report.first_bad.iter().map(ToString::to_string).collect();
    assert_eq!(bad, fixture.bad, "{name}");
    assert_eq!(report.skipped, fixture.skipped, "{name}");
    assert_eq!((report.records, report.bad), (records.len() as u64, bad.len() as u64), "{name}");
}

#[test]
fn each_format_reads_its_fixture() {
    let fixtures = fixtures::all();
    for format in Format::all() {
        assert!(fixtures.iter().any(|it| it.format == format.name), "{} has no fixture", format.name);
        assert_eq!(Format::all().filter(|it| it.name == format.name).count(), 1, "{} twice", format.name);
    }
    for fixture in &fixtures {
        let (records, report, _) = read(&fixture.bytes, &by_format(fixture.format)).unwrap();
        check(fixture, &records, &report);
    }
}

#[test]
fn each_fixture_is_recognised_as_what_it_is() {
    for fixture in fixtures::all() {
        let (_, _, name) = read(&fixture.bytes, &Options::default()).unwrap();
        // Nothing tells these from their kin.
        let expected = if fixture.format == "oracle-general-lba" { "oracle-general" } else { fixture.format };
        assert_eq!(name, expected);
    }
}

#[test]
fn what_is_nothing_is_declined_with_the_list() {
    let text = b"It was a dark and stormy night; the rain fell in torrents.\n".repeat(9);
    for bytes in [&text[..], &[0; 5000], b"1 2 3\n4 5 6\n", b"7 8 9 10 11 12\n"] {
        let error = Reader::new(Cursor::new(bytes.to_vec()), &Options::default()).unwrap_err();
        assert!(matches!(error, OpenError::Format(FormatError::Unknown)), "{error}");
        assert!(error.to_string().contains("--format: blktrace blkparse biosnoop fio2"), "{error}");
    }
    let bzip2 = [&b"BZh91AY&SY"[..], &[0x9c; 500]].concat();
    let tar = gz(&[&[b'x'; 257][..], b"ustar\0", &[0; 700]].concat());
    for (bytes, words) in [
        (&b""[..], "the trace is empty"),
        (b"\n \n\n", "nothing but blank lines"),
        (&bzip2, "bzcat FILE"),
        (b"PK\x03\x04\x14\0\0\0", "unzip -p FILE"),
        (&tar, "tar -xOf FILE"),
    ] {
        let error = Reader::new(Cursor::new(bytes.to_vec()), &Options::default()).unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains("--format"), "{error}");
    }
    let error = FormatError::Ambiguous("arc", "blocks");
    assert!(error.to_string().starts_with("the trace may be arc or blocks; say which with --format:"));
}

#[test]
fn pieces_make_no_difference() {
    for fixture in fixtures::all() {
        for most in [1, 7, 100] {
            let slow = Slow { bytes: Cursor::new(fixture.bytes.clone()), most, fails: false };
            let mut reader = Reader::new(slow, &by_format(fixture.format)).unwrap();
            let records: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
            check(&fixture, &records, reader.report());
            assert_eq!(reader.input_bytes(), fixture.bytes.len() as u64);
        }
    }
}

#[test]
fn strict_ends_at_the_first_bad_one() {
    for fixture in fixtures::all() {
        let options = Options { strict: true, ..by_format(fixture.format) };
        let mut reader = Reader::new(Cursor::new(fixture.bytes.clone()), &options).unwrap();
        let error = reader.by_ref().find_map(Result::err).map(|it| it.to_string());
        assert_eq!(error.as_deref(), fixture.bad.first().copied(), "{}", fixture.format);
        assert!(reader.next().is_none());
    }
}

#[test]
fn other_events_count_if_asked_for() {
    let line = |letter| format!("8,0 0 1 1.5 9 {letter} W 8 + 8 [x]\n");
    let text = ["Q", "D", "D", "C"].map(line).concat();
    for (action, count) in [(Action::Queue, 1), (Action::Issue, 2), (Action::Complete, 1)] {
        let (records, report, _) = read(text.as_bytes(), &Options { action, ..Options::default() }).unwrap();
        assert_eq!((records.len(), report.skipped_total()), (count, 4 - count as u64));
    }
    let completed = line("C").repeat(20);
    let (records, report, name) = read(completed.as_bytes(), &Options::default()).unwrap();
    assert_eq!((records.len(), report.skipped, name), (0, vec![("events C (completed)", 20)], "blkparse"));
    let queued = fixtures::all().into_iter().find(|it| it.format == "blktrace").unwrap().bytes;
    let (records, ..) = read(&queued, &Options { action: Action::Complete, ..Options::default() }).unwrap();
    assert_eq!(records.iter().map(|it| it.time_ns).collect::<Vec<_>>(), [Some(11)]);
}

/// As DiskSim may have them too: with six digits and tabs, but in sectors.
#[test]
fn requests_of_whole_pages_in_sectors_are_not_taken_for_pages() {
    let text = "0.975249\t0\t72\t32\t1\n1.004684\t0\t480\t8\t1\n3.316314\t0\t16\t8\t0\n".repeat(9);
    let (records, _, name) = read(text.as_bytes(), &Options::default()).unwrap();
    assert_eq!((records[0].sectors, name), (32, "disksim"));
    for format in Format::all() {
        let kin = format.lookalikes;
        assert!(kin.is_empty() || kin.contains(&format.name), "{}", format.name);
        assert!(kin.iter().all(|it| Format::named(it).is_some_and(|it| it.lookalikes == kin)), "{}", format.name);
    }
}

/// A header, or half a line where a file is cut: the units of all others are no guess of theirs.
#[test]
fn a_bad_line_makes_no_lookalike_of_a_trace() {
    let lines = |line: fn(u64) -> String| (0..20).map(line).collect::<String>();
    let bytes = lines(|nth| format!("{nth}.5 0 {} 4096 1\n", nth * 4096));
    let pages = lines(|nth| format!("{nth}.500000\t0\t{}\t{}\t1\n", nth * 8, 1 + nth % 3));
    let nanoseconds = lines(|nth| format!("{} 0 {} 9 1\n", nth * 1000, nth * 8));
    let single = lines(|nth| format!("{nth} 1 0 {nth}\n"));
    for (text, bad, expected) in [
        (&bytes, "time device place length flags", "disksim-bytes"),
        (&bytes, "21.5 0 4096 40", "disksim-bytes"),
        (&pages, "ms\tdev\tplace\tsize\top", "disksim-4k"),
        (&nanoseconds, ".5 0 8 9 1", "ssdsim"),
        (&single, "8 0", "arc-4k"),
    ] {
        for whole in [format!("{bad}\n{text}"), format!("{text}{bad}")] {
            let (records, report, name) = read(whole.as_bytes(), &Options::default()).unwrap();
            assert_eq!((name, records.len(), report.bad), (expected, 20, 1), "{bad}");
        }
    }
}

#[test]
fn a_short_trace_may_have_a_bad_line_and_comments() {
    for (format, lines) in [
        ("msr", ["128166372003061629,h,0,Read,4096,4096,9", "128166372003061630,h,0,Write,0,512,9"]),
        ("spc", ["0,8,4096,r,0.5", "1,8,512,W,0.6"]),
        ("alibaba", ["419,W,4096,4096,1577808000000046", "419,R,0,512,1577808000000047"]),
        ("systor", ["1455592557.6,0.0002,W,0,4096,4096", "1455592557.7,,R,0,0,512"]),
        ("tencent", ["1538323200,8,8,1,77", "1538323200,16,1,0,77"]),
        ("disksim", ["1.5 0 9 8 1", "2.5 0 17 1 0"]),
        ("arc", ["8 8 0 0", "16 2 0 1"]),
        ("blocks", ["7", "8"]),
    ] {
        let [one, other] = lines;
        for (text, bad, comments) in [
            (format!("{one}\n{other}\nhalf a li"), 1, 0),
            (format!("from host 7, 2007\n{one}\n{other}"), 1, 0),
            (format!("# from host 7, 2007\n{one}\n #\n{other}"), 0, 2),
        ] {
            let (records, report, name) = read(text.as_bytes(), &Options::default()).unwrap();
            assert_eq!((name, records.len(), report.bad), (format, 2, bad), "{text}");
            assert_eq!(report.skipped_total(), comments, "{text}");
        }
    }
    let bpftrace = "Attached 4 probes\nTIME(ms)     DISK    COMM   PID    LAT(ms)\n611   nvme0n1    bash  4179    10\n";
    let error = Reader::new(Cursor::new(bpftrace), &Options::default()).unwrap_err();
    assert!(error.to_string().contains("not which sectors"), "{error}");
    for text in ["7\nx", "7\nx\n8\ny"] {
        let error = Reader::new(Cursor::new(text), &Options::default()).unwrap_err();
        assert!(matches!(error, OpenError::Format(FormatError::Unknown)), "{error}");
    }
}

/// Objects may be empty or huge, and the clock of those that were logged may jump back: what counts
/// is the most.
#[test]
fn objects_of_any_size_are_recognised() {
    let trace = |size: fn(u32) -> u32| -> Vec<u8> {
        let record = |nth: u32| {
            let time = if nth % 19 == 18 { 0 } else { nth / 10 };
            [&time.to_le_bytes()[..], &u64::from(nth).to_le_bytes(), &size(nth).to_le_bytes(), &[0xff; 8]].concat()
        };
        (0..100).flat_map(record).collect()
    };
    for size in [|nth| nth % 3 * 512, |nth| if nth % 7 == 0 { u32::MAX } else { 1 }, |_| 4096] as [fn(u32) -> u32; 3] {
        let (records, report, name) = read(&trace(size), &Options::default()).unwrap();
        assert_eq!((records.len(), report.bad, name), (100, 0, "oracle-general"));
    }
    let error = Reader::new(Cursor::new(trace(|_| 0)), &Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Format(FormatError::Unknown)), "{error}");
}

/// What begins it could be an object, but for what follows.
#[test]
fn one_request_of_vscsi_is_no_object() {
    for fixture in fixtures::all() {
        let record_bytes = match fixture.format {
            "vscsi1" => 32,
            "vscsi2" => 40,
            "oracle-general" => 24,
            _ => continue,
        };
        let (records, _, name) = read(&fixture.bytes[..record_bytes], &Options::default()).unwrap();
        assert_eq!((records.len(), name), (1, fixture.format));
    }
}

/// `blkparse -t` puts the time since a request was queued before the name of the process, or the
/// error.
#[test]
fn flushes_that_were_timed_are_flushes() {
    let line = |rest: &str| format!("8,0 0 1 1.5 9 {rest}\n");
    let text = ["D FN (    1000) [x]", "D W 8 + 8 (   10) [x]", "C FN 0 (    1000) [0]", "C W 8 + 8 (   10) [0]"]
        .map(line)
        .concat();
    for action in [Action::Issue, Action::Complete] {
        let (records, report, _) = read(text.as_bytes(), &Options { action, ..Options::default() }).unwrap();
        assert_eq!(records.iter().map(|it| it.op).collect::<Vec<_>>(), [Op::Flush, Op::Write]);
        assert_eq!((report.bad, report.skipped_total()), (0, 2));
    }
}

/// `blkparse -s` has totals of each process before the others; what looks like a name among the
/// requests is none.
#[test]
fn totals_of_processes_are_no_bad_lines() {
    let line = "8,0 0 1 1.5 9 Q W 8 + 8 [x]\n";
    let totals = " Reads Queued:    0,   0KiB\t Writes Queued:    1,   4KiB\n Allocation wait:   0\n";
    let text = format!(
        "{line}8,0 0 1 1.5 0 m N x (7)\n{line}fio (4253)\n{totals}Web Content (7, ...)\n{totals}\nCPU0 (8,0):\n{totals}"
    );
    let (records, report, name) = read(text.as_bytes(), &Options::default()).unwrap();
    assert_eq!((records.len(), report.bad, name), (2, 0, "blkparse"));
    assert_eq!(report.skipped.iter().find(|it| it.0 == "blkparse's summary").map(|it| it.1), Some(9));
    let text = format!("{line}x y (z)\n{line}");
    assert_eq!(read(text.as_bytes(), &Options::default()).unwrap().1.bad, 1);
}

/// What goes up and down in the fourth column is no number of a request; joined traces begin again
/// once.
#[test]
fn four_columns_of_something_else_are_not_the_arc_paper_s() {
    let text: String = (0..50).map(|nth| format!("{} {} 8 {}\n", 1000 + nth, nth * 8, nth % 2)).collect();
    let error = Reader::new(Cursor::new(text), &Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Format(FormatError::Unknown)), "{error}");
    let joined = (0..20).map(|nth| format!("{nth} 8 3 {nth}\n")).collect::<String>().repeat(2);
    assert_eq!(read(joined.as_bytes(), &Options::default()).unwrap().2, "arc");
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_line() {
    for (text, expected) in [("7\n8\n", "blocks"), ("fio version 2 iolog\nx read 0 512\nx write 0 512\n", "fio2")] {
        let marked = format!("\u{feff}{text}");
        let (records, report, name) = read(marked.as_bytes(), &Options::default()).unwrap();
        assert_eq!((name, records.len(), report.bad), (expected, 2, 0));
    }
    let error = Reader::new(Cursor::new("\u{feff}"), &Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "the trace is empty");
}

#[test]
fn only_five_bad_lines_are_kept() {
    let text = "1\n".repeat(100) + &"x\n".repeat(9);
    let (_, report, _) = read(text.as_bytes(), &Options::default()).unwrap();
    assert_eq!((report.records, report.bad, report.first_bad.len()), (100, 9, BAD_SHOWN));
    assert_eq!(report.first_bad[4].place, Position::Line(105));
}

/// A trace of MSR with one request a second, in which these lines are others.
fn msr(lines: u64, others: &[(u64, &str)]) -> Vec<u8> {
    let line = |nth: u64| match others.iter().find(|it| it.0 == nth) {
        Some((_, other)) => format!("{other}\n"),
        None => format!("{},h,0,Read,{},4096,1\n", 128_166_372_000_000_000 + nth * 10_000_000, nth * 4096),
    };
    (1..=lines).map(line).collect::<String>().into_bytes()
}

#[test]
fn a_line_with_a_damaged_time_is_bad_and_named() {
    let (early, late) = ("1,h,0,Read,4096,4096,1", "128166472000000000,h,0,Read,0,4096,1");
    for (place, line) in [(500, early), (500, late), (999, early), (999, late), (2, late)] {
        let (records, report, _) = read(&msr(1000, &[(place, line)]), &Options::default()).unwrap();
        let bad: Vec<String> = report.first_bad.iter().map(ToString::to_string).collect();
        assert_eq!(bad, [format!("line {place}: the time is far from those before and behind: `{line}`")]);
        assert_eq!((records.len(), report.records, report.bad), (999, 999, 1));
        assert!(records.windows(2).all(|it| it[0].time_ns < it[1].time_ns));
    }
    let strict = Options { strict: true, ..Options::default() };
    let mut reader = Reader::new(Cursor::new(msr(1000, &[(500, early)])), &strict).unwrap();
    assert!(reader.find_map(Result::err).unwrap().to_string().starts_with("line 500: the time"));
}

#[test]
fn steps_of_time_that_last_are_no_damage() {
    // Two traces are joined, of which the first rests before its last request.
    let joined = [msr(200, &[(200, "128166374500000000,h,0,Read,0,4096,1")]), msr(200, &[])].concat();
    for (bytes, lines) in [(joined, 400), (msr(100, &[(1, "1,h,0,Read,0,4096,1"), (100, "2,h,0,Read,0,4096,1")]), 100)]
    {
        let (records, report, _) = read(&bytes, &Options::default()).unwrap();
        assert_eq!((records.len(), report.bad), (lines, 0), "{:?}", report.first_bad);
    }
}

#[test]
fn a_line_with_a_damaged_place_is_bad_and_names_of_objects_are_no_places() {
    let bytes = msr(1000, &[(900, "128166381000000000,h,0,Read,9223372036854771712,4096,1")]);
    let (records, report, _) = read(&bytes, &Options::default()).unwrap();
    assert_eq!((records.len(), report.bad), (999, 1));
    assert!(report.first_bad[0].to_string().starts_with("line 900: the place is too large"), "{:?}", report.first_bad);
    let end = format!("128166381000000000,h,0,Read,{},4096,1", (128_u64 << 40) - 4096);
    assert_eq!(read(&msr(1000, &[(900, &end)]), &Options::default()).unwrap().1.bad, 0);
    let (records, report, _) = read(b"1152921504606846\n7\n", &by_format("blocks")).unwrap();
    assert_eq!((records.len(), report.bad), (2, 0), "{:?}", report.first_bad);
}

#[test]
fn long_lines_are_bad_once_and_take_no_room() {
    for length in [65_537, 300_000, 1_000_000] {
        let text = format!("1\n2\n{}\n3\n{}", "9".repeat(length), "9".repeat(length));
        let (records, report, _) = read(text.as_bytes(), &by_format("blocks")).unwrap();
        assert_eq!(records.iter().map(|it| it.sector / 8).collect::<Vec<_>>(), [1, 2, 3], "{length}");
        let places: Vec<_> = report.first_bad.iter().map(|bad| (bad.place, bad.reason.clone())).collect();
        assert_eq!(places, [3, 5].map(|line| (Position::Line(line), Reason::LineTooLong)), "{length}");
    }
}

#[test]
fn a_disk_that_fails_is_no_bad_line() {
    for bytes in [numbers(0, 50_000), gz(&numbers(0, 50_000))] {
        let slow = Slow { bytes: Cursor::new(bytes[..bytes.len() * 9 / 10].to_vec()), most: 4096, fails: true };
        let mut reader = Reader::new(slow, &Options::default()).unwrap();
        let error = reader.by_ref().find_map(Result::err).unwrap();
        assert_eq!(error.to_string(), "can't read on in the trace: the disk is gone");
        assert!(reader.next().is_none() && reader.report().bad == 0);
    }
    let slow = Slow { bytes: Cursor::default(), most: 1, fails: true };
    assert!(matches!(Reader::new(slow, &Options::default()), Err(OpenError::Io(_))));
}

/// Reads to the end; what was there adds up.
fn read_all(bytes: &[u8], format: &'static Format) {
    let (records, report, _) = read(bytes, &by_format(format.name)).unwrap();
    for record in &records {
        assert!(record.sector + u64::from(record.sectors) <= SECTOR_MAX, "{record:?}");
        assert_eq!(record.sectors == 0, record.op == Op::Flush, "{record:?}");
    }
    assert_eq!((records.len() as u64, report.first_bad.len() as u64), (report.records, report.bad.min(5)));
    if matches!((format.parser)(Action::default()), item::Parser::Lines(_)) {
        let lines = bytes.split_inclusive(|it| *it == b'\n').count() as u64;
        assert_eq!(report.records + report.bad + report.skipped_total(), lines, "{}", format.name);
    } else {
        assert!(bytes.is_empty() || report.records + report.bad + report.skipped_total() > 0, "{}", format.name);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_format_fall_over(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        // Packed by chance, they would be somebody else's.
        prop_assume!(!bytes.starts_with(&[0x1f, 0x8b]));
        Format::all().for_each(|format| read_all(&bytes, format));
        let _ = read(&bytes, &Options::default());
    }

    #[test]
    fn damaged_fixtures_make_no_format_fall_over(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), prop_oneof![any::<u8>(), Just(b'\n'), Just(b' '), Just(b'9')]), 1..30),
        cut in any::<prop::sample::Index>(),
    ) {
        for fixture in fixtures::all() {
            let mut bytes = fixture.bytes;
            for (at, byte) in &damage {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            bytes.truncate(cut.index(bytes.len()) + 1);
            read_all(&bytes, Format::named(fixture.format).unwrap());
            let _ = read(&bytes, &Options::default());
        }
    }
}
