// SPDX-License-Identifier: MIT OR Apache-2.0
//! `git`: clone and grep of a repository that is made on the spot, in a mounted folder.
//!
//! The repository is made from a seed, so that all targets have the same one. It has text files, a
//! history of commits, and words of known number. Each measured job begins without the repository
//! in the page cache. A grep that finds another number of words than were put in is an error: then
//! the target returned wrong data.

mod repository;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cold;
use crate::command::Running;
use crate::error::BenchError;
use crate::figures::Measured;
use crate::folders::Folders;
use crate::suite::{Act, Group, Headline, Job, Scale, Site, Suite, Work};
use repository::{NEEDLE, Repository};

/// The suite's name on the command line.
pub const NAME: &str = "git";
/// The suite in a line.
pub const SUMMARY: &str = "clone and grep of a repository made on the spot, on a mounted file system";

/// The folder that is made in a target.
const FOLDER: &str = "flashfront-bench-git";

/// The jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Makes the repository.
    Make,
    /// Clones it.
    Clone,
    /// Looks for a word in all files of the clone.
    Grep,
    /// Looks once more, and removes all.
    GrepAgain,
}

#[derive(Debug)]
struct Git {
    step: Step,
    repository: Repository,
    folders: Arc<Folders>,
}

/// Makes the suite, with a number of files that goes by the scale.
#[must_use]
pub fn suite(scale: Scale) -> Suite {
    let repository = Repository::of(scale);
    let folders = Arc::new(Folders::default());
    let job = |(nth, (name, step)): (usize, (&str, Step))| Job {
        name: name.to_owned(),
        work: Work::Act(Arc::new(Git { step, repository, folders: Arc::clone(&folders) })),
        headline: Headline::Seconds,
        idle_before: Duration::ZERO,
        counts_from: (step != Step::Make).then_some(nth),
        published: Vec::new(),
    };
    let steps = [
        ("make the repository", Step::Make),
        ("clone", Step::Clone),
        ("grep", Step::Grep),
        ("grep again", Step::GrepAgain),
    ];
    let jobs = steps.into_iter().enumerate().map(job).collect();
    let scaling = if scale == Scale::FULL {
        Vec::new()
    } else {
        vec![format!("The repository has {} files instead of {}.", repository.files, Repository::of(Scale::FULL).files)]
    };
    Suite {
        name: NAME.to_owned(),
        summary: SUMMARY.to_owned(),
        source: None,
        groups: vec![Group { jobs }],
        scaling,
        cache_bytes: repository.bytes(),
    }
}

impl Git {
    fn folder(place: &Site) -> Result<PathBuf, BenchError> {
        match place {
            Site::Folder(path) => Ok(path.join(FOLDER)),
            _ => Err(BenchError::Wrong("the suite git needs a folder of a mounted file system as target".to_owned())),
        }
    }

    fn clone_command(folder: &Path) -> Vec<String> {
        let path = |name: &str| folder.join(name).display().to_string();
        // Without hard links: a clone reads and writes all of it.
        ["git", "clone", "-q", "--no-hardlinks", &path("origin.git"), &path("clone")].map(str::to_owned).to_vec()
    }

    fn grep_command(folder: &Path) -> Vec<String> {
        let clone = folder.join("clone").display().to_string();
        ["git", "-C", &clone, "grep", "-c", "-F", NEEDLE].map(str::to_owned).to_vec()
    }

    fn make(&self, folder: &Path, stop: &dyn Fn() -> bool) -> Result<(), BenchError> {
        self.folders.make(folder)?;
        self.repository.make(folder, stop)
    }

    fn clone_it(folder: &Path, stop: &dyn Fn() -> bool) -> Result<(), BenchError> {
        Running::start(&Self::clone_command(folder))?.wait(stop)?;
        // Data that a clone leaves in RAM is part of its time.
        cold::sync(folder)
    }

    fn grep(&self, folder: &Path, stop: &dyn Fn() -> bool) -> Result<(), BenchError> {
        let found = Running::start(&Self::grep_command(folder))?.wait(stop)?;
        let count = |line: &str| line.rsplit(':').next().and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
        let found = found.lines().map(count).sum::<u64>();
        let expected = self.repository.needles();
        if found == expected {
            return Ok(());
        }
        Err(BenchError::Failed(format!(
            "{}: git grep found a word {found} times that was written {expected} times: the target returned WRONG DATA; \
             do not trust it with any",
            folder.display()
        )))
    }
}

impl Act for Git {
    fn needs_folder(&self) -> bool {
        true
    }

    fn writes(&self) -> bool {
        false
    }

    fn needs_bytes(&self) -> u64 {
        self.repository.bytes() * 3
    }

    fn programs(&self) -> Vec<(&'static str, &'static str)> {
        vec![("git", "git")]
    }

    fn estimate(&self) -> Duration {
        // A disk makes some hundred files a second, and reads a thousand that lie together.
        let files = self.repository.files as f64;
        Duration::from_secs_f64(match self.step {
            Step::Make => files / 2000.0,
            Step::Clone => files / 300.0,
            Step::Grep | Step::GrepAgain => files / 1000.0,
        })
    }

    fn commands(&self, place: &Site) -> Vec<Vec<String>> {
        let Ok(folder) = Self::folder(place) else { return Vec::new() };
        let git = |rest: &str| vec!["git".to_owned(), "-C".to_owned(), folder.display().to_string(), rest.to_owned()];
        match self.step {
            Step::Make => vec![git("fast-import")],
            Step::Clone => vec![cold::command(), Self::clone_command(&folder)],
            Step::Grep | Step::GrepAgain => vec![cold::command(), Self::grep_command(&folder)],
        }
    }

    fn run(&self, place: &Site, stop: &dyn Fn() -> bool) -> Result<Measured, BenchError> {
        let folder = Self::folder(place)?;
        if self.step == Step::Make {
            return cold::timed(|| self.make(&folder, stop));
        }
        // A turn that is gone on with later has nothing left of the jobs before.
        if !folder.exists() {
            self.make(&folder, stop)?;
            if self.step != Step::Clone {
                Self::clone_it(&folder, stop)?;
            }
        }
        cold::drop_page_cache(&folder)?;
        let measured = cold::timed(|| match self.step {
            Step::Clone => Self::clone_it(&folder, stop),
            _ => self.grep(&folder, stop),
        })?;
        if self.step == Step::GrepAgain {
            self.folders.remove(&folder)?;
        }
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Figures;

    fn run(suite: &Suite, place: &Site, name: &str) -> Result<Measured, BenchError> {
        let job = suite.groups[0].jobs.iter().find(|it| it.name == name).unwrap();
        let Work::Act(act) = &job.work else { panic!("an act") };
        act.run(place, &|| false)
    }

    #[test]
    fn a_repository_is_made_cloned_searched_and_removed() {
        if std::process::Command::new("git").arg("--version").output().is_err() {
            return println!("skipped: git is not installed");
        }
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let place = Site::Folder(folder.path().to_owned());
        let suite = suite("1/512".parse().unwrap());
        for name in ["make the repository", "clone", "grep"] {
            let measured = run(&suite, &place, name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(measured.seconds > 0.0 && measured.both == Figures::default(), "{measured:?}");
        }
        // A file that came back other than it was written is noticed.
        let some = folder.path().join(FOLDER).join("clone/d000/f000.txt");
        let text = std::fs::read_to_string(&some).unwrap();
        assert!(text.contains(NEEDLE));
        std::fs::write(&some, text.replace(NEEDLE, "")).unwrap();
        let error = run(&suite, &place, "grep").unwrap_err().to_string();
        assert!(error.contains("WRONG DATA"), "{error}");
        std::fs::write(&some, text).unwrap();
        run(&suite, &place, "grep again").unwrap();
        let left = || std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left(), 0, "the last job removes all");
        // A turn may begin in its middle.
        run(&suite, &place, "grep").unwrap();
        assert_eq!(left(), 1);
        drop(suite);
        assert_eq!(left(), 0, "and so does the end of a suite that did not come so far");
    }

    #[test]
    fn a_folder_of_somebody_else_is_left_alone() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let theirs = folder.path().join(FOLDER);
        std::fs::create_dir(&theirs).unwrap();
        std::fs::write(theirs.join("letter"), "mine").unwrap();
        let place = Site::Folder(folder.path().to_owned());
        let error = run(&suite("1/512".parse().unwrap()), &place, "make the repository").unwrap_err().to_string();
        assert!(error.contains("was not made by flashfront bench"), "{error}");
        assert!(theirs.join("letter").exists());
    }
}
