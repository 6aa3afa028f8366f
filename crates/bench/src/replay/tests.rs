// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what a replay asks of a file, and of what it counts.

use std::os::unix::fs::FileExt;

use super::*;
use crate::figures::Direction;

const TRACE: &str = "fio version 3 iolog\n\
    0 a add\n0 a open\n\
    10 a read 0 4096\n20 a write 8192 8192\n30 a read 512 512\n40 a sync 0 0\n\
    50 a trim 65536 4096\n60 a write 1048576 131072\n20060 b read 4096 4096\n70000 a close\n";

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(trace: &str, target_bytes: u64) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        std::fs::write(folder.path().join("trace"), trace).unwrap();
        let target = std::fs::File::create(folder.path().join("target")).unwrap();
        target.write_all_at(&vec![7; target_bytes as usize], 0).unwrap();
        Self { folder }
    }

    fn act(&self, timed: bool, wrap: bool) -> Result<Replay, BenchError> {
        let trace = self.folder.path().join("trace");
        Replay::of(&Options { trace, format: None, timed, in_flight: 4, wrap })
    }

    fn run(&self, timed: bool, wrap: bool) -> Result<Measured, BenchError> {
        let place = Site::File(self.folder.path().join("target"));
        self.act(timed, wrap).unwrap().run(&place, &|| false)
    }

    fn target(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("target")).unwrap()
    }
}

const FAST: bool = false;
const TIMED: bool = true;

fn counts(measured: &Measured, direction: Direction) -> (u64, u64) {
    measured.directions.get(&direction).map_or((0, 0), |it| (it.requests, it.bytes))
}

#[test]
fn each_request_is_asked_once_at_its_place() {
    let bench = Bench::new(TRACE, 4 << 20);
    let act = bench.act(FAST, false).unwrap();
    // Two disks, the second behind the first.
    assert_eq!((act.writes(), act.needs_bytes()), (true, (2 << 20) + 8192));
    let measured = bench.run(FAST, false).unwrap();
    // A read of 512 bytes takes the block of 4 KiB around it.
    assert_eq!(counts(&measured, Direction::Read), (3, 3 * 4096));
    assert_eq!(counts(&measured, Direction::Write), (2, 8192 + 131_072));
    assert_eq!(counts(&measured, Direction::Trim), (1, 4096));
    assert_eq!(counts(&measured, Direction::Sync), (1, 0));
    assert_eq!(measured.others.get("widened_requests"), Some(&1.0));
    assert_eq!(measured.series.iter().filter(|it| it.read_iops > 0.0).count(), 1, "{:?}", measured.series);
    let target = bench.target();
    for (place, byte) in target.chunks(4096).enumerate() {
        let is = |from: usize, bytes: usize| (from / 4096..(from + bytes) / 4096).contains(&place);
        let old = byte.iter().all(|it| *it == 7);
        let zero = byte.iter().all(|it| *it == 0);
        assert_eq!(zero, is(65_536, 4096), "block {place}");
        assert_eq!(!old && !zero, is(8192, 8192) || is(1_048_576, 131_072), "block {place}");
    }
}

#[test]
fn a_timed_replay_takes_as_long_as_the_trace() {
    let bench = Bench::new(TRACE, 4 << 20);
    assert_eq!(bench.act(TIMED, false).unwrap().estimate(), Duration::from_micros(20_050));
    let measured = bench.run(TIMED, false).unwrap();
    assert!(measured.seconds >= 0.020_05, "{}", measured.seconds);
    assert_eq!(measured.both.requests, 5);
    let without_times = Bench::new("fio version 2 iolog\na read 0 4096\n", 4096);
    let error = without_times.act(TIMED, false).unwrap_err().to_string();
    // Version 2 passes time by waiting; without that there is none.
    assert!(error.contains("the trace has no times; leave --timed out"), "{error}");
    assert_eq!(without_times.run(FAST, false).unwrap().both.requests, 1);
}

#[test]
fn a_trace_that_is_larger_than_the_target_is_refused_or_wrapped() {
    let bench = Bench::new(TRACE, 1 << 20);
    let before = bench.target();
    let error = bench.run(FAST, false).unwrap_err().to_string();
    assert!(error.contains("the trace goes to byte 2105344, and the target has 1048576"), "{error}");
    assert!(error.contains("--wrap"), "{error}");
    assert_eq!(bench.target(), before, "nothing was written");
    let measured = bench.run(FAST, true).unwrap();
    assert_eq!(measured.others.get("wrapped_requests"), Some(&2.0));
    assert_eq!(measured.both.requests, 5);
    assert_eq!(bench.target().len(), 1 << 20);
}

#[test]
fn a_user_can_end_a_replay() {
    let lines: String = (0..1000).map(|nth| format!("{} a read 0 4096\n", nth * 60_000_000_u64)).collect();
    let bench = Bench::new(&format!("fio version 3 iolog\n{lines}"), 4096);
    let act = bench.act(TIMED, false).unwrap();
    let place = Site::File(bench.folder.path().join("target"));
    assert!(matches!(act.run(&place, &|| true), Err(BenchError::Interrupted)));
}

#[test]
fn a_trace_without_requests_and_a_folder_are_refused() {
    let empty = Bench::new("fio version 3 iolog\n0 a add\n", 4096);
    assert!(empty.act(FAST, false).unwrap_err().to_string().contains("no requests"));
    let bench = Bench::new(TRACE, 4096);
    let folder = Site::Folder(bench.folder.path().to_owned());
    let error = bench.act(FAST, false).unwrap().run(&folder, &|| false).unwrap_err();
    assert!(matches!(&error, BenchError::Wrong(why) if why.contains("a folder")), "{error}");
}
