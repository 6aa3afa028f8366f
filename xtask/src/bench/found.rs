// SPDX-License-Identifier: MIT OR Apache-2.0
//! The findings of a part of `cargo x bench`, and the figures and files that all parts need.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::run::{Failed, root, stdout_of};

/// The findings of one part: the rows of its table, and a JSON text if there is more to keep.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) summary: String,
    pub(crate) json: Option<String>,
}

/// Returns the median of an odd number of values.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Reads a program's JSON.
pub(crate) fn parse(text: &str) -> Result<Value, Failed> {
    serde_json::from_str(text).map_err(|error| Failed::Usage(format!("no JSON ({error}): {text}")))
}

/// Makes a file without holes: the first write into a hole costs the file system more than later
/// writes.
pub(super) fn fill(path: &Path, bytes: u64) -> Result<(), Failed> {
    use std::io::Write as _;
    let write = || -> std::io::Result<()> {
        let mut file = fs::File::create(path)?;
        let zeroes = vec![0; 4 << 20];
        (0..bytes / zeroes.len() as u64).try_for_each(|_| file.write_all(&zeroes))?;
        file.sync_all()
    };
    write().map_err(|error| Failed::File { path: path.into(), error })
}

/// Writes the results into the tree, with the machine and the date.
///
/// `of_models`: the devices are models, so the machine matters little and does not name the folder.
pub(crate) fn keep(part: &str, of_models: bool, command: &str, found: &Found) -> Result<(), Failed> {
    let say = |program: &str, args: &[&str]| stdout_of(Command::new(program).args(args).current_dir(root()));
    let date = say("date", &["+%F"])?;
    // Not all kinds have a name there.
    let processor = say("sh", &["-c", "sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | grep -m1 . || uname -m"])?;
    let machine = say("sh", &["-c", "uname -srm; nproc; free -m | head -2; df -T . | tail -1"])?;
    let commit = say("git", &["rev-parse", "--short", "HEAD"])?;
    let (date, processor, commit) = (date.trim(), processor.trim(), commit.trim());
    let place = if of_models { part.to_owned() } else { slug(processor) };
    let dir = root().join(format!("bench/runs/{date}-{place}"));
    // With each part: they are run again one by one, at other commits.
    let summary = format!(
        "# {part}, {date}\n\nCommit {commit}, `{command}`. Absolute figures of a shared machine mean little.\n\n{}\n```\n{processor}\n{machine}```\n",
        found.summary
    );
    fs::create_dir_all(&dir).map_err(|error| Failed::File { path: dir.clone(), error })?;
    let mut files = vec![(format!("{part}.md"), summary.as_str())];
    files.extend(found.json.iter().map(|json| (format!("{part}.json"), json.as_str())));
    for (name, text) in files {
        let path = dir.join(name);
        fs::write(&path, text).map_err(|error| Failed::File { path, error })?;
    }
    println!("kept in {}", dir.display());
    Ok(())
}

/// Lower case, with hyphens for all that is no letter or digit.
fn slug(text: &str) -> String {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}
