// SPDX-License-Identifier: MIT OR Apache-2.0
//! The repository that the suite `git` works with: made by `git fast-import`, always the same.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use flashfront_device::Rng;

use crate::cold;
use crate::command::Running;
use crate::error::BenchError;
use crate::suite::Scale;

/// A word that no other word of the files contains.
pub(super) const NEEDLE: &str = "flashfront-needle";

/// The measures of a repository before it is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repository {
    pub(super) files: u64,
}

/// The files of a small kernel.
const FILES: u64 = 20_000;
/// The least number of files, so that there is something to measure.
const FILES_MIN: u64 = 32;
const FILES_PER_FOLDER: u64 = 50;
const WORDS_PER_LINE: u64 = 9;
/// The lines of a file: source files have some hundred.
const LINES: std::ops::Range<u64> = 20..300;
/// The needle is in one file of this many, in one line.
const FILES_PER_NEEDLE: u64 = 25;
/// Commits after the first, each with new versions of some files.
const COMMITS: u64 = 20;
const SEED: u64 = 2017;
/// A line has about 60 bytes.
const FILE_BYTES: u64 = 160 * 60;
impl Repository {
    pub(super) fn of(scale: Scale) -> Self {
        Self { files: (FILES / scale.divisor()).max(FILES_MIN) }
    }

    /// About how much the files take.
    pub(super) fn bytes(self) -> u64 {
        self.files * FILE_BYTES
    }

    /// The lines with the needle.
    pub(super) fn needles(self) -> u64 {
        self.files.div_ceil(FILES_PER_NEEDLE)
    }

    /// Makes it in an empty folder.
    pub(super) fn make(self, folder: &Path, stop: &dyn Fn() -> bool) -> Result<(), BenchError> {
        let origin = folder.join("origin.git").display().to_string();
        let git = |rest: &[&str]| -> Vec<String> { ["git"].iter().chain(rest).map(|it| (*it).to_owned()).collect() };
        Running::start(&git(&["init", "-q", "--bare", "--initial-branch=main", &origin]))?.wait(stop)?;
        let import = git(&["-C", &origin, "fast-import", "--quiet"]);
        let import = Running::start_with_input(&import, move |input| self.write(input))?;
        import.wait(stop)?;
        cold::sync(folder)
    }

    /// The stream of `git fast-import`.
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        let mut random = Rng::new(SEED);
        for commit in 0..=COMMITS {
            write!(out, "commit refs/heads/main\ncommitter bench <bench@example.org> {commit} +0000\ndata 0\n")?;
            // The first has all files, others one in fifty.
            let step = if commit == 0 { 1 } else { 50 };
            for file in (commit % step..self.files).step_by(step as usize) {
                let (folder, name) = (file / FILES_PER_FOLDER, file % FILES_PER_FOLDER);
                let text = text(&mut random, file % FILES_PER_NEEDLE == 0);
                write!(out, "M 100644 inline d{folder:03}/f{name:03}.txt\ndata {}\n{text}\n", text.len())?;
            }
        }
        out.flush()
    }
}

/// Lines of words, which compress about as well as sources do.
fn text(random: &mut Rng, has_needle: bool) -> String {
    let mut text = String::new();
    let lines = LINES.start + random.next_u64() % (LINES.end - LINES.start);
    for line in 0..lines {
        for _ in 0..WORDS_PER_LINE {
            // A few words are frequent, and most are rare.
            let rank = random.next_u64() % 4096 * (random.next_u64() % 4096) / 4096;
            // Nothing can go wrong in a string.
            let _ = write!(text, "w{rank:x} ");
        }
        if has_needle && line == 0 {
            text.push_str(NEEDLE);
        }
        text.push('\n');
    }
    text
}
