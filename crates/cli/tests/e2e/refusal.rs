// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every refusal has in common: it says what and why, fails, changes nothing, and has an
//! entry in the book.

use std::process::Command;

use crate::harness::{Place, output, show};
use crate::told;

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
    if !told::is_told(&said_as_it_is) {
        return Err(format!("docs/trouble/messages/ has no entry for it: {said}"));
    }
    let after = place.hashes();
    let changed: Vec<_> = after.iter().filter(|(path, hash)| before.get(*path) != Some(hash)).collect();
    if !changed.is_empty() || before.len() != after.len() {
        return Err(format!("files were changed, {changed:?}: {said}"));
    }
    Ok(())
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
