// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every refusal has in common: it says what and why, fails, changes nothing, and has an
//! entry in the book.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::harness::{Place, output, show};

/// `command` must fail with a message that has all of `words` in it, and leave all files of
/// `place` as they are.
#[track_caller]
pub(crate) fn assert_refused(place: &Place, command: &mut Command, words: &[&str]) {
    if let Err(why) = refused(place, command, words) {
        panic!("{why}");
    }
}

/// What was wrong with a refusal, if anything: for tables of cases.
pub(crate) fn refused(place: &Place, command: &mut Command, words: &[&str]) -> Result<(), String> {
    let before = place.hashes();
    let line = format!("{command:?}");
    let output = output(command);
    let said = format!("{line}: {}", show(&output));
    let stderr = String::from_utf8_lossy(&output.stderr).to_lowercase();
    if output.status.success() {
        return Err(format!("it was accepted: {said}"));
    }
    if output.status.code().is_none() || stderr.contains("panicked") {
        return Err(format!("it crashed: {said}"));
    }
    if !output.stdout.is_empty() {
        return Err(format!("stdout is for scripts, and it failed: {said}"));
    }
    if let Some(word) = words.iter().find(|word| !stderr.contains(&word.to_lowercase())) {
        return Err(format!("the message doesn't say {word:?}: {said}"));
    }
    let said_as_it_is = String::from_utf8_lossy(&output.stderr);
    if !is_in_the_book(&said_as_it_is) {
        return Err(format!("docs/trouble/messages/ has no entry for it: {said}"));
    }
    let after = place.hashes();
    let changed: Vec<_> = after.iter().filter(|(path, hash)| before.get(*path) != Some(hash)).collect();
    if !changed.is_empty() || before.len() != after.len() {
        return Err(format!("files were changed, {changed:?}: {said}"));
    }
    Ok(())
}

/// Whether a user who looks for the message finds it in the book's part *When something fails*.
fn is_in_the_book(said: &str) -> bool {
    static QUOTES: OnceLock<Vec<String>> = OnceLock::new();
    let quotes = QUOTES.get_or_init(|| {
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/trouble/messages");
        let pages = std::fs::read_dir(pages).expect("the book is beside the sources");
        let pages = pages.map(|page| std::fs::read_to_string(page.expect("a page").path()).expect("a page is text"));
        let quotes = pages.flat_map(|page| page.lines().filter_map(quoted).collect::<Vec<_>>());
        quotes.collect()
    });
    // What clap says is told in the text of a page.
    said.starts_with("error: ") || quotes.iter().any(|quote| in_order(quote, said))
}

/// The message that a line of an entry quotes; short ones could stand in any other.
fn quoted(line: &str) -> Option<String> {
    let quote = line.strip_prefix("- `")?.trim_matches(['`', ' ']);
    (quote.chars().filter(|it| it.is_alphabetic()).count() >= 10).then(|| quote.to_owned())
}

/// Whether what stands between the `…` of a quote is in a text, one after another.
fn in_order(quote: &str, text: &str) -> bool {
    let mut rest = text;
    quote.split('…').map(|words| words.trim_matches([' ', '`'])).all(|words| {
        rest.find(words).is_some_and(|at| {
            rest = &rest[at + words.len()..];
            true
        })
    })
}

/// Findings of a table, each with the name of its case; fails with all of them at once.
#[derive(Default)]
pub(crate) struct Table {
    cases: usize,
    wrong: Vec<String>,
}

impl Table {
    pub(crate) fn case(&mut self, name: &str, result: Result<(), String>) {
        self.cases += 1;
        if let Err(why) = result {
            self.wrong.push(format!("--- {name}\n{why}"));
        }
    }

    #[track_caller]
    pub(crate) fn assert(self) {
        let (wrong, cases) = (self.wrong.len(), self.cases);
        assert!(self.wrong.is_empty(), "{wrong} of {cases} cases:\n{}", self.wrong.join("\n"));
    }
}
