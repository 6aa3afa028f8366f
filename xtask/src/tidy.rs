// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x tidy`: the rules of the house that no compiler checks.
//!
//! Looks at every file that git knows or would add. Rules about Rust sources are in `source` and
//! `comments`, about what documents promise in `documents`, about their links in `links`, about
//! the entries for the messages of the program in `messages`, about dependencies' licences in
//! `licences`. What old files still owe to young rules is in `debts`.

mod comments;
mod debts;
mod documents;
mod licences;
mod links;
mod messages;
mod source;

use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::prose;
use crate::run::{Failed, root, stdout_of};

/// The file with what may still break a rule.
const LEDGER: &str = "xtask/debts.txt";

/// A file of the repository: its path from the root, and its text.
pub(crate) struct File {
    path: String,
    text: String,
}

/// Something against a rule: where, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    /// From 1; 0 = the whole file.
    line: usize,
    text: String,
    /// Printed, but no failure.
    warning: bool,
}

impl Finding {
    fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into(), warning: false }
    }

    fn warning(path: &str, text: impl Into<String>) -> Self {
        Self { warning: true, ..Self::new(path, 0, text) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.warning { "warning: " } else { "" })?;
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.text),
            line => write!(f, "{}:{line}: {}", self.path, self.text),
        }
    }
}

/// Checks all rules; with `--lower` first writes down what files no longer owe.
pub(crate) fn tidy(args: &[String]) -> Result<(), Failed> {
    let mut files = files()?;
    let mut owed = comments::count(&files);
    owed.extend(long_sentences(&files));
    match args {
        [] => {}
        [lower] if lower == "--lower" => {
            let text = debts::lowered(&files, &owed);
            let path = root().join(LEDGER);
            std::fs::write(&path, &text).map_err(|error| Failed::File { path, error })?;
            files.retain(|file| file.path != LEDGER);
            files.push(File { path: LEDGER.into(), text });
        }
        _ => return Err(Failed::Usage(format!("{} is unknown; expected nothing or --lower", args.join(" ")))),
    }
    let mut findings = source::check(&files);
    findings.extend(debts::check(&files, &owed));
    findings.extend(documents::check(&files));
    findings.extend(links::check(&files));
    findings.extend(messages::check(&files));
    findings.extend(licences::check()?);
    for finding in &findings {
        eprintln!("{finding}");
    }
    let failures = findings.iter().filter(|finding| !finding.warning).count();
    if failures > 0 {
        return Err(Failed::Findings(failures));
    }
    println!("tidy: {} files", files.len());
    Ok(())
}

/// How long the sentences of each document are.
fn long_sentences(files: &[File]) -> Vec<debts::Debt> {
    let documents = files.iter().filter(|file| prose::is_document(&file.path));
    let lengths = documents.filter_map(|file| Some((file, prose::lengths(&file.text)?)));
    lengths
        .map(|(file, lengths)| debts::Debt {
            rule: "sentences-p90",
            path: file.path.clone(),
            count: lengths.p90,
            allowed: prose::LIMIT,
            what: format!("p90 of words per sentence (`cargo x prose --long {}`)", file.path),
        })
        .collect()
}

/// All text files that are in git or would be added to it.
fn files() -> Result<Vec<File>, Failed> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let list = stdout_of(Command::new("git").args(list).current_dir(root()))?;
    let mut files: Vec<File> = list
        .lines()
        .filter(|path| !path.ends_with("Cargo.lock") && Path::new(path).is_relative())
        // Deleted but not yet so in git, or not text: nothing to say about it.
        .filter_map(|path| Some(File { path: path.into(), text: std::fs::read_to_string(root().join(path)).ok()? }))
        .collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
