// SPDX-License-Identifier: MIT OR Apache-2.0
//! A finding of a rule: a place and a text.

use std::fmt;

/// Something against a rule: where, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) path: String,
    /// The line, from 1; 0: the whole file.
    pub(super) line: usize,
    pub(super) text: String,
    /// Printed, but no failure.
    pub(super) warning: bool,
}

impl Finding {
    pub(super) fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into(), warning: false }
    }

    pub(super) fn warning(path: &str, text: impl Into<String>) -> Self {
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
