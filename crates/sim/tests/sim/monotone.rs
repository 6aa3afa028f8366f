// SPDX-License-Identifier: MIT OR Apache-2.0
//! A larger cache never has fewer hits or more reads of the origin: 64 sizes, by half a point.
//!
//! Here are the beginnings of made loads, and the traces of the repository. `cargo run --release -p
//! flashfront-sim --example loads -- sizes FOLDER` does the whole collection
//! (docs/laboratory/loads.md).

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flashfront_sim::policy;
use flashfront_sim::replay::falls::{self, Fall};
use flashfront_sim::replay::{self, GridChoice, Progress, Size, Source};
use flashfront_sim::trace::{MadeLoad, Options};

const SIZES: u64 = 64;
const TOLERANCE: f64 = 0.5;

/// Falls that are known, in points: load, policy, of hits, of reads of the origin. None may grow.
/// `br_mssql` has segments of one block up to the size where it falls, and of two from there on.
const KNOWN: [(&str, &str, f64, f64); 4] = [
    ("made:workstation", "flashfront", 0.7, 0.5),
    ("made:workstation", "flashfront_disk", 0.7, 0.5),
    ("br_mssql", "flashfront", 2.4, 0.5),
    ("br_mssql", "flashfront_disk", 2.4, 0.5),
];

/// Replays the first lines of a load at 64 sizes, with and without neighbours.
fn never_does_worse(name: &str, load: impl Read, lines: usize) {
    let place = tempfile::tempdir().expect("a folder can be made");
    let path = place.path().join("trace");
    let text: Vec<String> = BufReader::new(load).lines().take(lines).map(|line| line.expect("text")).collect();
    fs::write(&path, text.join("\n") + "\n").expect("a file can be written");
    let source =
        Source { path, options: Options::default(), grid: GridChoice::Aligned, echoes_ns: None, page_cache_blocks: 0 };
    let sizes: Vec<Size> = (1..=SIZES).map(|nth| Size::Fraction(nth as f64 / SIZES as f64)).collect();
    for policy in ["flashfront", "flashfront_disk"] {
        let spec = policy::by_name(policy).expect("it is ours");
        let replayed = replay::replay(&source, &[spec], &sizes, &|_| None, false, &Progress::default());
        let rows = replayed.expect("a trace").rows;
        let known = KNOWN.iter().find(|known| (known.0, known.1) == (name, policy));
        let (hits, reads) = known.map_or((TOLERANCE, TOLERANCE), |known| (known.2, known.3));
        let told = |what: &str, fall: Fall, most: f64| {
            println!("{name} {policy} {what}: {fall:?}");
            assert!(fall.points <= most, "{name}, {policy}, {what}: {fall:?}, at most {most} points");
        };
        told("hits", falls::of_hits(&rows), hits);
        told("reads of the origin", falls::of_origin_reads(&rows), reads);
    }
}

fn made(name: &str, lines: usize) {
    let load = MadeLoad::of(Path::new(name)).expect("a good name").expect("a made trace");
    never_does_worse(name, load.text(), lines);
}

#[test]
fn a_larger_cache_never_does_worse_for_a_database() {
    made("made:database", 8000);
}

#[test]
fn a_larger_cache_never_does_worse_for_a_mail_server() {
    made("made:mail", 8000);
}

#[test]
fn a_larger_cache_never_does_worse_for_a_workstation() {
    made("made:workstation", 8000);
}

#[test]
fn a_larger_cache_never_does_worse_for_guests_that_boot() {
    made("made:boot", 12_000);
}

#[test]
fn a_larger_cache_never_does_worse_for_a_log() {
    made("made:log", 8000);
}

#[test]
fn a_larger_cache_never_does_worse_for_builds() {
    made("made:ci", 8000);
}

#[test]
fn a_larger_cache_never_does_worse_for_a_real_database() {
    let load = fs::File::open("tests/data/windows-mssql.load.gz").expect("a file of the repository");
    never_does_worse("br_mssql", flate2::read::GzDecoder::new(load), 4000);
}

#[test]
fn a_larger_cache_never_does_worse_for_a_real_file_server() {
    let load = fs::File::open("tests/data/windows-shared-server.load.gz").expect("a file of the repository");
    never_does_worse("br_winshared", flate2::read::GzDecoder::new(load), 4000);
}
