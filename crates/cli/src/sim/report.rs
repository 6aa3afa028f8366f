// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--report FILE`: the results of a simulation as an HTML page with pictures. The page needs
//! nothing else: no network, no script.
//!
//! A run may take minutes, so writing the file is tried before the run. The page is written as a
//! whole or not at all. Only a report is ever overwritten.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use tempfile::NamedTempFile;

use self::pictures::Pictures;
use crate::usage::misused;

mod adapted;
mod advised;
mod axis;
mod bars;
mod benched;
mod canvas;
mod chart;
mod compared;
mod labels;
mod look;
mod page;
mod pictures;
#[cfg(feature = "png")]
mod png;
mod replayed;
mod scenario;
mod style;
mod table;
mod time;

pub(super) use adapted::adapted;
pub(crate) use advised::advised;
pub(crate) use benched::benched;
pub(super) use compared::compared;
pub(super) use replayed::replayed;
pub(super) use scenario::ran;

/// The first text of a report, by which it is known.
const MARK: &str = "<!DOCTYPE html>\n<!-- flashfront report -->\n";

/// Whether a report is wanted, and where.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Also write all results, with pictures, to an HTML page that needs no network. A report that
    /// is there is replaced.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write each picture of the report to an SVG file in this folder, which is made if it is not
    /// there. If flashfront was built with the feature `png`, there is also a PNG file of each.
    #[arg(long, value_name = "FOLDER", requires = "report")]
    pictures: Option<PathBuf>,
}

impl ReportArgs {
    /// Makes sure that the report can be written there, and that nothing else is lost by that.
    pub(crate) fn open(&self) -> anyhow::Result<Option<Report>> {
        let Some(path) = &self.report else { return Ok(None) };
        let report = Report::at(path)?;
        let pictures = self.pictures.as_deref().map(Pictures::at).transpose()?;
        Ok(Some(Report { pictures, ..report }))
    }
}

/// A place for a report.
#[derive(Debug)]
pub(crate) struct Report {
    path: PathBuf,
    pictures: Option<Pictures>,
}

impl Report {
    fn at(path: &Path) -> anyhow::Result<Self> {
        if path.as_os_str() == "-" {
            misused!(
                "--report -: a report goes to a file, and not to stdout; name one (./- if it shall be called that)"
            );
        }
        // A link is followed: the file that it leads to is replaced, not the link.
        let path = match fs::canonicalize(path) {
            Ok(path) => path,
            Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => path.to_owned(),
            Err(error) => {
                return Err(error).with_context(|| format!("--report {}: no file can be there", path.display()));
            }
        };
        let report = Self { path, pictures: None };
        report.refuse_what_is_no_report()?;
        report.temporary()?;
        Ok(report)
    }

    /// Writes the report, in place of an older one if there is one.
    pub(crate) fn write(&self, title: &str, body: &str) -> anyhow::Result<()> {
        // Another file may have been put there meanwhile.
        self.refuse_what_is_no_report()?;
        let page = page::page(MARK, title, body);
        let mut file = self.temporary()?;
        let written = file.write_all(page.as_bytes()).and_then(|()| file.as_file().sync_all());
        written.with_context(|| format!("--report {}: can't be written", self.path.display()))?;
        file.persist(&self.path).with_context(|| format!("--report {}: can't be written", self.path.display()))?;
        tracing::info!("the report is in {}", self.path.display());
        self.pictures.as_ref().map_or(Ok(()), |pictures| pictures.write(body, &style::of_picture()))
    }

    fn refuse_what_is_no_report(&self) -> anyhow::Result<()> {
        let path = self.path.display();
        let found = match fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found.with_context(|| format!("--report {path}: no file can be there"))?,
        };
        if !found.is_file() {
            bail!("--report {path}: not a regular file; name a file, new or a report that may be replaced");
        }
        let mut head = Vec::new();
        let read = File::open(&self.path).and_then(|file| file.take(MARK.len() as u64).read_to_end(&mut head));
        read.with_context(|| format!("--report {path}: can't be read"))?;
        if head != MARK.as_bytes() {
            bail!("--report {path}: there is a file that is no report of flashfront; name another, or move it away");
        }
        Ok(())
    }

    /// Makes a file beside the place, so that renaming it is one step. The file is gone unless it
    /// is kept.
    fn temporary(&self) -> anyhow::Result<NamedTempFile> {
        let folder = self.path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        // The permissions are those of any new file: all that the umask leaves.
        builder.prefix(".flashfront-report-").permissions(Permissions::from_mode(0o666));
        let place = || format!("--report {}: no file can be made in {}", self.path.display(), folder.display());
        builder.tempfile_in(folder).with_context(place)
    }
}
