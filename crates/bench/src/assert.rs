// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--assert`: a condition on measured figures, for scripts and for `git bisect run`.
//!
//! `p99_us(read) < 500 and iops(read) > 0.8 * iops(read, ssd)`: numbers, `+ - * /`, `< <= > >=`,
//! `and`, `or`, `not`, parentheses, and functions of a job and a target. A name is all text up to
//! the comma or the parenthesis, so `iops(full 30 min, lvmcache 4.11)` needs no quotes. Without a
//! target the first one is meant.
//!
//! Every name is checked before anything runs ([`Assertion::parse`]). Afterwards
//! [`Assertion::judge`] says what holds, and whether the spread of the repeats leaves the verdict
//! open. No text makes the parser panic: `no_text_makes_it_panic`.

mod error;
mod figures;
mod judge;
mod parse;

pub use error::AssertError;
pub use figures::{COMMON, figure};
pub use judge::{Compared, Judgement, Unmeasured};

use parse::Expr;

/// What may be asked for.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Each function, and what its figure is.
    pub functions: Vec<(&'static str, &'static str)>,
    /// The jobs.
    pub jobs: Vec<String>,
    /// The targets. The first one is meant where none is named.
    pub targets: Vec<String>,
}

/// A figure that a condition needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The function, as in [`Names::functions`].
    pub function: &'static str,
    /// The job, as in [`Names::jobs`].
    pub job: String,
    /// The target, as in [`Names::targets`].
    pub target: String,
}

/// A figure as it was measured: between the lowest and the highest repeat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// The figure that is told.
    pub value: f64,
    /// The lowest repeat.
    pub low: f64,
    /// The highest repeat.
    pub high: f64,
}

impl Value {
    /// A figure without a spread.
    #[must_use]
    pub const fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }
}

/// A condition whose names all exist.
#[derive(Clone, Debug)]
pub struct Assertion {
    text: String,
    root: Expr,
}

impl Assertion {
    /// Reads a condition.
    ///
    /// # Errors
    ///
    /// Tells the place of what is wrong, and what exists.
    pub fn parse(text: &str, names: &Names) -> Result<Self, AssertError> {
        Ok(Self { text: text.to_owned(), root: parse::parse(text, names)? })
    }

    /// Whether the condition holds.
    ///
    /// # Errors
    ///
    /// `measured` knows no value for a figure that the condition needs.
    pub fn judge(&self, measured: &dyn Fn(&Figure) -> Option<Value>) -> Result<Judgement, Unmeasured> {
        judge::judge(&self.text, &self.root, measured)
    }
}

#[cfg(test)]
mod tests;
