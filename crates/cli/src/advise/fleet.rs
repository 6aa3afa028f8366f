// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront advise --fleet FOLDER --out FILE`: what `advise` finds out, of all recordings below
//! a folder, as one row of a table each.
//!
//! Each thread sizes one recording at a time, with one system in memory. What is finished is in
//! the `journal` at once, so a second start goes on where the first one ended, however that was.
//! The `table` appears as a whole, when all recordings are done. A recording that can't be read is
//! a row, too, with its error; the next start tries that recording again.

use std::collections::VecDeque;
use std::fs::{self, Metadata};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::UNIX_EPOCH;

use anyhow::{Context, bail};
use flashfront_sim::advise::{Progress, Question, advise};
use flashfront_sim::replay::SourceError;
use serde::Serialize;

use crate::interrupt::Interrupted;
use crate::{human, progress};

mod columns;
mod journal;
mod row;
mod table;

pub(super) use journal::Begun;
use journal::Journal;
use row::Row;
use table::Table;

const TEMPLATE: &str = "sizing [{bar:30}] {msg}  {eta} left";
/// The last words after a signal.
const GOES_ON: Interrupted = Interrupted("what is finished is kept, and the same command goes on from there");

/// A recording that is still to be sized.
#[derive(Debug)]
struct Recording {
    /// The row's name: the path below the folder, or of a fleet of one file that file as given.
    name: String,
    path: PathBuf,
    bytes: u64,
    changed_ns: u64,
}

/// The summary for scripts at the end.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    out: &'a Path,
    recordings: u64,
    /// Recordings that could not be read: rows with an error.
    unreadable: u64,
    helped: u64,
    /// Recordings that this start has sized; the others were finished before.
    sized_now: u64,
}

/// Sizes all recordings below `folder`, or `folder` itself if it is one recording. `question`
/// makes the question for a recording.
pub(super) fn fleet(
    folder: &Path,
    out: &Path,
    begun: &Begun,
    json: bool,
    question: &(dyn Fn(&Path) -> Question + Sync),
    stop: Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let table = Table::at(out)?;
    let journal = Journal::of(out)?;
    let found = recordings(folder, &[out, &journal])?;
    let mut journal = Journal::open(journal, begun)?;
    journal.keep(|row| found.iter().any(|it| row.is_of(&it.name, it.bytes, it.changed_ns)));
    let (all, mut left) = (found.iter().map(|it| it.bytes).sum::<u64>(), found);
    left.retain(|it| !journal.has(&it.name));
    let sized_now = left.len() as u64;
    let work = Work::new(left, all, journal, stop);
    work.run(question)?;
    let rows = work.rows();
    table.write(&rows)?;
    let summary = Summary {
        out,
        recordings: rows.len() as u64,
        unreadable: rows.iter().filter(|row| row.error.is_some()).count() as u64,
        helped: rows.iter().filter(|row| row.helps == Some(true)).count() as u64,
        sized_now,
    };
    if json { human::print_json(&summary) } else { human::tell(&told(&summary, &rows)) }
}

fn told(summary: &Summary, rows: &[Row]) -> String {
    let mut text = format!(
        "{}: {}; a cache helps {} of them\n",
        summary.out.display(),
        human::counted(summary.recordings, "recording"),
        human::count(summary.helped)
    );
    if let Some((name, error)) = rows.iter().find_map(|row| Some((&row.recording, row.error.as_ref()?))) {
        text += &format!("{} could not be read; the first, {name}: {error}\n", human::count(summary.unreadable));
    }
    text
}

/// Lists all files below a folder but for `ours`, the largest first: no thread is left alone with
/// it at the end.
fn recordings(folder: &Path, ours: &[&Path]) -> anyhow::Result<Vec<Recording>> {
    let place = || format!("--fleet {}: can't be read", folder.display());
    let mut found = Vec::new();
    let whole = fs::metadata(folder).with_context(place)?;
    if whole.is_file() {
        found.push(Recording::new(folder.display().to_string(), folder.to_owned(), &whole));
    }
    let mut folders = Vec::from_iter(whole.is_dir().then(|| folder.to_owned()));
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(&inner).with_context(place)? {
            let entry = entry.with_context(place)?;
            // A link to a file is a recording; a link to a folder may lead back.
            if entry.file_type().with_context(place)?.is_dir() {
                folders.push(entry.path());
                continue;
            }
            let path = entry.path();
            let Ok(file) = fs::metadata(&path) else { continue };
            if file.is_file() && !ours.iter().any(|it| is_same(it, &path)) && !is_temporary(&path) {
                let name = path.strip_prefix(folder).unwrap_or(&path).to_string_lossy().into_owned();
                found.push(Recording::new(name, path, &file));
            }
        }
    }
    if found.is_empty() {
        bail!("--fleet {}: no file is there; name the folder that holds the recordings", folder.display());
    }
    found.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.name.cmp(&other.name)));
    Ok(found)
}

/// Whether two paths lead to one file. A path that leads to none is the same as no other.
fn is_same(one: &Path, other: &Path) -> bool {
    let [one, other] = [one, other].map(fs::canonicalize);
    one.is_ok_and(|one| other.is_ok_and(|other| one == other))
}

/// Whether a table was being written there when the power went.
fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(table::TEMPORARY))
}

impl Recording {
    fn new(name: String, path: PathBuf, file: &Metadata) -> Self {
        let changed = file.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        Self { name, path, bytes: file.len(), changed_ns: u64::try_from(changed.as_nanos()).unwrap_or(u64::MAX) }
    }
}

/// Data that the threads share.
struct Work {
    left: Mutex<VecDeque<Recording>>,
    journal: Mutex<Journal>,
    /// The progress of each thread with its recording, and the bytes of that recording.
    under_way: Mutex<Vec<Option<(Progress, u64)>>>,
    all: u64,
    done: AtomicU64,
    stop: Arc<AtomicBool>,
}

impl Work {
    fn new(left: Vec<Recording>, all: u64, journal: Journal, stop: Arc<AtomicBool>) -> Self {
        let done = AtomicU64::new(all - left.iter().map(|it| it.bytes).sum::<u64>());
        let under_way = Mutex::default();
        Self { left: Mutex::new(left.into()), journal: Mutex::new(journal), under_way, all, done, stop }
    }

    /// Sizes all that is left, on all processors.
    fn run(&self, question: &(dyn Fn(&Path) -> Question + Sync)) -> anyhow::Result<()> {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(lock(&self.left).len());
        lock(&self.under_way).resize_with(threads, || None);
        let (done, ended) = channel::<()>();
        thread::scope(|scope| {
            scope.spawn(|| self.show(ended));
            let workers: Vec<_> = (0..threads).map(|nth| scope.spawn(move || self.work(nth, question))).collect();
            let joined: Vec<_> = workers.into_iter().map(|it| it.join()).collect();
            drop(done);
            joined.into_iter().try_for_each(|it| it.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })?;
        if self.stop.load(Ordering::Relaxed) { Err(GOES_ON.into()) } else { Ok(()) }
    }

    /// Sizes one recording after the other, until none is left or the work is to end.
    fn work(&self, nth: usize, question: &(dyn Fn(&Path) -> Question + Sync)) -> anyhow::Result<()> {
        while !self.stop.load(Ordering::Relaxed) {
            let Some(recording) = lock(&self.left).pop_front() else { break };
            let mut progress = Progress::default();
            progress.reading.stop = Arc::clone(&self.stop);
            lock(&self.under_way)[nth] = Some((progress.clone(), recording.bytes));
            let question = question(&recording.path);
            // A fleet of thousands does not end with a bug that one recording shows.
            let advice = catch_unwind(AssertUnwindSafe(|| advise(&question, &progress)));
            let row = match advice {
                Ok(Err(SourceError::Stopped { .. })) => break,
                Ok(Ok(advice)) => Row::advised(&question, &advice),
                Ok(Err(error)) => Row::unreadable(&question, without_path(&error.to_string(), &recording.path)),
                Err(_) => Row::unreadable(&question, "a bug of flashfront; please report it".to_owned()),
            };
            let row = row.named(recording.name, recording.bytes, recording.changed_ns);
            lock(&self.journal).add(row).inspect_err(|_| self.stop.store(true, Ordering::Relaxed))?;
            lock(&self.under_way)[nth] = None;
            self.done.fetch_add(recording.bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    #[expect(clippy::needless_pass_by_value, reason = "a receiver can't be shared with a thread")]
    fn show(&self, ended: Receiver<()>) {
        let bar = progress::bar(TEMPLATE, self.all).with_position(self.done.load(Ordering::Relaxed));
        bar.reset_eta();
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(progress::LOOK_EVERY) {
            let under_way: u64 = lock(&self.under_way).iter().flatten().map(|(it, bytes)| played(it, *bytes)).sum();
            bar.set_position(self.done.load(Ordering::Relaxed) + under_way);
            let (done, left) = (lock(&self.journal).len() as u64, lock(&self.left).len() as u64);
            let busy = lock(&self.under_way).iter().flatten().count() as u64;
            bar.set_message(format!("{} of {} recordings", human::count(done), human::count(done + left + busy)));
        }
        bar.finish_and_clear();
    }

    /// Returns all rows, in the order of their names.
    fn rows(self) -> Vec<Row> {
        self.journal.into_inner().unwrap_or_else(PoisonError::into_inner).rows()
    }
}

/// A message without the path before it, which the row has.
fn without_path(message: &str, path: &Path) -> String {
    message.strip_prefix(&format!("{}: ", path.display())).unwrap_or(message).to_owned()
}

/// Returns the bytes of a recording that stand for the part that was played.
fn played(progress: &Progress, bytes: u64) -> u64 {
    let to_play = progress.to_play.load(Ordering::Relaxed).max(1);
    let share = progress.played.load(Ordering::Relaxed) as f64 / to_play as f64;
    (bytes as f64 * share.min(1.0)) as u64
}

/// Locks data that is whole after each step, also where a thread has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
