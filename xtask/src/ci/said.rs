// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a step's output for tests that failed, and for tests that were skipped. The output is read
//! line by line, and not kept.

use std::collections::BTreeSet;

/// The findings so far.
#[derive(Default)]
pub(super) struct Said {
    /// Tests that could not run on this machine, and why.
    pub(super) skipped: Vec<String>,
    /// Tests that failed, and programs of tests that died.
    failed: BTreeSet<String>,
    last_words: String,
}

impl Said {
    /// Takes one line of the output.
    pub(super) fn line(&mut self, line: &str) {
        if let Some(what) = line.strip_prefix("skipped: ") {
            self.skipped.push(what.to_owned());
        }
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failed.insert(name.to_owned());
        }
        let died = line.trim_start().strip_prefix("process didn't exit successfully: ");
        if let Some(program) = died.filter(|program| program.contains("(signal")) {
            self.failed.insert(format!("a program of tests died: {program}"));
        }
        if !line.trim().is_empty() {
            line.clone_into(&mut self.last_words);
        }
    }

    /// The tests that failed, by name; without such names the last words of the step.
    pub(super) fn what_failed(&self) -> Vec<String> {
        if self.failed.is_empty() {
            return vec![self.last_words.clone()];
        }
        self.failed.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(lines: &[&str]) -> Said {
        let mut said = Said::default();
        lines.iter().for_each(|line| said.line(line));
        said
    }

    #[test]
    fn failed_tests_are_named_once() {
        let said = said(&["test a::b ... ok", "test c::d ... FAILED", "test c::d ... FAILED", "error: test failed"]);
        assert_eq!(said.what_failed(), ["c::d"]);
    }

    #[test]
    fn a_program_that_died_is_named() {
        let said = said(&["  process didn't exit successfully: `x` (signal: 11, SIGSEGV)", "error: 1 target failed:"]);
        assert_eq!(said.what_failed(), ["a program of tests died: `x` (signal: 11, SIGSEGV)"]);
    }

    #[test]
    fn without_names_the_last_words_count() {
        let said = said(&["error: this file is not formatted", "  "]);
        assert_eq!(said.what_failed(), ["error: this file is not formatted"]);
    }

    #[test]
    fn what_is_skipped_is_kept() {
        assert_eq!(said(&["skipped: ublk: no driver"]).skipped, ["ublk: no driver"]);
    }
}
