// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo x prose` measures how long the sentences of the documents are.
//!
//! A stranger who reads English as a second language loses the thread in a long sentence. So nine
//! of ten sentences of a document have at most [`LIMIT`] words. [`sentences`] says what a sentence
//! is.

pub(crate) mod sentences;

use std::fmt::Write as _;
use std::process::Command;

use crate::run::{Failed, print, read, root, stdout_of};

/// The most words that the 90th percentile of a document's sentences may have.
pub(crate) const LIMIT: usize = 26;

/// The documents in the root of the repository; all of [`BOOK`] belongs to them.
const ROOT: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
const BOOK: &str = "docs/";

/// How long the sentences of a document are, in words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(crate) count: usize,
    pub(crate) p50: usize,
    pub(crate) p90: usize,
}

/// Prints p50 and p90 of each document. `--check` fails if a p90 is above [`LIMIT`]; `--long`
/// prints the sentences above it. Paths after the options choose documents.
pub(crate) fn prose(args: &[String]) -> Result<(), Failed> {
    let (options, wanted): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| arg.starts_with("--"));
    if let Some(unknown) = options.iter().find(|option| !["--check", "--long"].contains(&option.as_str())) {
        return Err(Failed::Usage(format!("{unknown} is unknown; expected --check, --long or paths of documents")));
    }
    let has = |wanted: &str| options.iter().any(|option| *option == wanted);
    let paths = documents()?;
    if let Some(missing) = wanted.iter().find(|wanted| !paths.contains(wanted)) {
        return Err(Failed::Usage(format!("{missing} is no document; `cargo x prose` lists them")));
    }
    let mut above = 0;
    let mut out = "words per sentence\n  p50  p90  sentences\n".to_owned();
    for path in paths.iter().filter(|path| wanted.is_empty() || wanted.contains(path)) {
        let text = read(&root().join(path))?;
        let Some(lengths) = lengths(&text) else { continue };
        let too_long = lengths.p90 > LIMIT;
        above += usize::from(too_long);
        let mark = if too_long { "  above the limit" } else { "" };
        let _ = writeln!(out, "{:5}{:5}{:11}  {path}{mark}", lengths.p50, lengths.p90, lengths.count);
        if has("--long") {
            for sentence in sentences::of(&text).iter().filter(|sentence| sentence.words > LIMIT) {
                let _ = writeln!(out, "{path}:{}: {} words: {}", sentence.line, sentence.words, sentence.text);
            }
        }
    }
    print(&out)?;
    if above > 0 && has("--check") {
        eprintln!("p90 may be {LIMIT} at most; `cargo x prose --long PATH` shows the long sentences");
        return Err(Failed::Findings(above));
    }
    Ok(())
}

/// Whether a file of the repository is a document that is measured.
pub(crate) fn is_document(path: &str) -> bool {
    ROOT.contains(&path) || (path.starts_with(BOOK) && path.ends_with(".md"))
}

/// The lengths of the sentences of a Markdown text; none if it has no sentence.
pub(crate) fn lengths(text: &str) -> Option<Lengths> {
    let mut words: Vec<usize> = sentences::of(text).iter().map(|sentence| sentence.words).collect();
    words.sort_unstable();
    // The nearest rank is the smallest length that this part of the sentences don't exceed.
    let percentile = |percent: usize| words.get((words.len() * percent).div_ceil(100).saturating_sub(1)).copied();
    Some(Lengths { count: words.len(), p50: percentile(50)?, p90: percentile(90)? })
}

/// The paths of all documents that git knows or would add, in order.
fn documents() -> Result<Vec<String>, Failed> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "*.md"];
    let list = stdout_of(Command::new("git").args(list).current_dir(root()))?;
    let mut paths: Vec<String> = list.lines().filter(|path| is_document(path)).map(str::to_owned).collect();
    paths.retain(|path| root().join(path).is_file());
    paths.sort();
    paths.dedup();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let text: String = (1..=10).map(|words| format!("{}.\n\n", vec!["word"; words].join(" "))).collect();
        assert_eq!(lengths(&text), Some(Lengths { count: 10, p50: 5, p90: 9 }));
        assert_eq!(lengths("one two.\n"), Some(Lengths { count: 1, p50: 2, p90: 2 }));
        assert_eq!(lengths("# Only a heading\n"), None);
    }

    #[test]
    fn documents_are_the_four_of_the_root_and_the_book() {
        for path in ["README.md", "docs/a.md", "docs/laboratory/b.md"] {
            assert!(is_document(path), "{path}");
        }
        for path in ["bench/README.md", "docs/picture.svg", "crates/x/README.md"] {
            assert!(!is_document(path), "{path}");
        }
    }
}
