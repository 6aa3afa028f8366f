// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows that are finished, beside the table: a line of JSON each. The first line says how the
//! work was begun.
//!
//! A line is written with one call, and a line that was cut is dropped at the next start. After
//! `kill -9` all rows but the last are there. One start at a time has the file, by its lock.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::row::Row;
use crate::usage::misused;

/// The options that rows of one table have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::advise) struct Begun {
    /// The program that finds out. Another one may find out something else.
    pub(in crate::advise) flashfront: String,
    /// The options that change a row, as they are written.
    pub(in crate::advise) options: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    rows: BTreeMap<String, Row>,
}

impl Journal {
    /// The place of a table's journal. A table without a journal is not of this work.
    pub(super) fn of(out: &Path) -> anyhow::Result<PathBuf> {
        let mut name = OsString::from(out);
        name.push(".rows");
        let path = PathBuf::from(name);
        if fs::symlink_metadata(out).is_ok() && fs::symlink_metadata(&path).is_err() {
            bail!(
                "--out {}: there is a file already, without the journal that would tell its rows ({}); name another, or move it away",
                out.display(),
                path.display()
            );
        }
        Ok(path)
    }

    /// Opens a journal, or makes it.
    pub(super) fn open(path: PathBuf, begun: &Begun) -> anyhow::Result<Self> {
        let place = || format!("{}: can't be used as the journal of --fleet", path.display());
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).with_context(place)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("{}: another `advise --fleet` is at work on it; wait until it has ended", path.display())
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(place),
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).with_context(place)?;
        // A line that a kill has cut is dropped.
        text.truncate(text.iter().rposition(|it| *it == b'\n').map_or(0, |at| at + 1));
        let rows = rows(&path, &text, begun)?;
        file.set_len(text.len() as u64).with_context(place)?;
        let mut journal = Self { path, file, rows };
        if text.is_empty() {
            journal.line(begun)?;
        }
        Ok(journal)
    }

    /// Drops rows that no longer hold.
    pub(super) fn keep(&mut self, mut holds: impl FnMut(&Row) -> bool) {
        self.rows.retain(|_, row| holds(row));
    }

    pub(super) fn has(&self, recording: &str) -> bool {
        self.rows.contains_key(recording)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Writes a row that is finished.
    pub(super) fn add(&mut self, row: Row) -> anyhow::Result<()> {
        self.line(&row)?;
        self.rows.insert(row.recording.clone(), row);
        Ok(())
    }

    fn line(&mut self, line: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.file.write_all(&text).with_context(|| format!("{}: can't be written", self.path.display()))
    }

    /// Returns all rows, in the order of their names.
    pub(super) fn rows(self) -> Vec<Row> {
        self.rows.into_values().collect()
    }
}

/// The rows of a journal, which must be of the same work. The last row of a recording holds.
fn rows(path: &Path, text: &[u8], begun: &Begun) -> anyhow::Result<BTreeMap<String, Row>> {
    let mut lines = text.split(|it| *it == b'\n').filter(|line| !line.is_empty());
    let Some(first) = lines.next() else { return Ok(BTreeMap::new()) };
    let Ok(before) = serde_json::from_slice::<Begun>(first) else {
        bail!(
            "{}: there is a file that is no journal of flashfront; name another --out, or move it away",
            path.display()
        );
    };
    if before != *begun {
        let [then, now] = [&before, begun].map(|it| format!("{} with `{}`", it.flashfront, it.options.join(" ")));
        misused!(
            "{}: its rows were made by flashfront {then}, and this is {now}; do as then, or name another --out",
            path.display()
        );
    }
    let row = |(nth, line): (usize, &[u8])| -> anyhow::Result<(String, Row)> {
        let row: Row = serde_json::from_slice(line).with_context(|| {
            format!(
                "{}: line {} is no row; delete that line, and its recording is sized again",
                path.display(),
                nth + 2
            )
        })?;
        Ok((row.recording.clone(), row))
    };
    lines.enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(options: &str) -> Begun {
        Begun { flashfront: "1".to_owned(), options: vec![options.to_owned()] }
    }

    fn row(name: &str) -> Row {
        Row { requests: Some(3), ..Row::default() }.named(name.to_owned(), 1, 2)
    }

    #[test]
    fn a_kill_in_the_middle_of_a_line_costs_that_row_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("fleet.csv.rows");
        let mut journal = Journal::open(path.clone(), &begun("a")).unwrap();
        journal.add(row("one")).unwrap();
        journal.add(row("two")).unwrap();
        drop(journal);
        let whole = fs::read(&path).unwrap();
        for cut in 1..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let mut journal = Journal::open(path.clone(), &begun("a")).unwrap();
            let lines = whole[..cut].iter().filter(|it| **it == b'\n').count();
            assert_eq!(journal.len(), lines.saturating_sub(1), "cut at {cut}");
            for name in ["one", "two"] {
                if !journal.has(name) {
                    journal.add(row(name)).unwrap();
                }
            }
            drop(journal);
            assert_eq!(fs::read(&path).unwrap(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn rows_of_another_question_are_refused_and_kept() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("fleet.csv.rows");
        Journal::open(path.clone(), &begun("a")).unwrap().add(row("one")).unwrap();
        let before = fs::read(&path).unwrap();
        let error = Journal::open(path.clone(), &begun("b")).unwrap_err().to_string();
        assert!(error.contains("`a`") && error.contains("`b`"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), before);
        let open = Journal::open(path.clone(), &begun("a")).unwrap();
        let error = Journal::open(path, &begun("a")).unwrap_err().to_string();
        assert!(error.contains("another"), "{error}");
        assert_eq!(open.rows().len(), 1);
    }
}
