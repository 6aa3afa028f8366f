// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a condition, with a caret below the place.

use std::fmt;
use std::ops::Range;

/// A condition that cannot be read, or that names something that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssertError {
    text: String,
    /// The place, in bytes.
    place: Range<usize>,
    message: String,
}

impl AssertError {
    pub(super) fn new(text: &str, place: Range<usize>, message: String) -> Self {
        Self { text: text.to_owned(), place, message }
    }
}

impl fmt::Display for AssertError {
    /// The text on a line of its own, and carets below the place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Line ends and tabs would move the carets.
        let line: String = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let letters = |range: Range<usize>| self.text.get(range).map_or(0, |part| part.chars().count());
        let (before, wide) = (letters(0..self.place.start), letters(self.place.clone()).max(1));
        write!(f, "--assert: {}\n  {line}\n  {}{}", self.message, " ".repeat(before), "^".repeat(wide))
    }
}

impl std::error::Error for AssertError {}

/// What exists, and the nearest of it if a name is nearly right.
pub(super) fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let near = known.clone().map(|it| (strsim::jaro_winkler(name, it), it)).filter(|it| it.0 > 0.7);
    let near = near.max_by(|a, b| a.0.total_cmp(&b.0));
    let near = near.map_or_else(String::new, |it| format!(" Did you mean `{}`?", it.1));
    let known: Vec<&str> = known.collect();
    format!("no {what} is called `{name}`.{near} There is {}", known.join(", "))
}
