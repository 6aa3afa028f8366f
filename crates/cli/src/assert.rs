// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--assert CONDITION`: measured figures as an exit code, for scripts and for `git bisect run`.
//!
//! The condition's names are checked before anything runs (exit code 2). Afterwards 0 says that the
//! condition holds, 1 that it does not. 125 says that it could not be measured: so `git bisect`
//! skips a version. The verdict goes to stderr, beside the command's own output.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use flashfront_bench::assert::{Assertion, Compared, Figure, Judgement, Names, Value};

use crate::terminal::{Paint, Tone};
use crate::usage::{self, misused};
use crate::{human, interrupt};

/// The exit code without a verdict: `git bisect run` skips such a version.
const NOT_MEASURED: u8 = 125;

/// Whether figures are to be judged.
#[derive(Clone, Debug, Args)]
pub(crate) struct AssertArgs {
    /// Judge the figures: exit code 0 if the condition holds, 1 if not, 125 if it
    /// could not be measured. Such as 'p99_us(read) < 500 and iops(read) > 0.8 *
    /// iops(read, ssd)': docs/decide/bisect.md has the language.
    #[arg(long = "assert", value_name = "CONDITION")]
    condition: Option<String>,
}

impl AssertArgs {
    /// Reads the condition; `names` is what the command is going to measure.
    pub(crate) fn read(&self, names: &Names) -> anyhow::Result<Verdict> {
        let Some(condition) = &self.condition else { return Ok(Verdict(None)) };
        match Assertion::parse(condition, names) {
            Ok(assertion) => Ok(Verdict(Some(assertion))),
            Err(error) => misused!("{error}"),
        }
    }

    /// The exit code of a command that may have failed before there was a verdict.
    pub(crate) fn code(&self, done: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
        match done {
            // After a signal the exit code tells the signal: it ends a bisection, too.
            Err(error) if self.condition.is_some() && !usage::is_wrong(&error) && interrupt::exit_code().is_none() => {
                Ok(not_measured(&human::error(&error)))
            }
            done => done,
        }
    }
}

/// A condition that waits for its figures, if there is one.
#[derive(Debug)]
pub(crate) struct Verdict(Option<Assertion>);

impl Verdict {
    /// The exit code of the verdict. Without a condition that is success.
    pub(crate) fn of(&self, value: impl Fn(&Figure) -> Option<Value>) -> ExitCode {
        let Some(assertion) = &self.0 else { return ExitCode::SUCCESS };
        match assertion.judge(&value) {
            Ok(judgement) => {
                tell(&judged(&judgement));
                if judgement.holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
            }
            Err(unmeasured) => not_measured(&unmeasured.to_string()),
        }
    }
}

fn not_measured(why: &str) -> ExitCode {
    let name = Paint::stderr().paint(Tone::Bad, "flashfront:");
    tell(&format!("{name} {why}; no verdict (exit code {NOT_MEASURED})\n"));
    ExitCode::from(NOT_MEASURED)
}

/// Prints to stderr. If that is closed or full only the exit code is left.
fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The verdict, with a line for each comparison.
fn judged(judgement: &Judgement) -> String {
    let word = if judgement.holds { "holds" } else { "does not hold" };
    let mut out = format!("assert: {word}\n");
    for compared in &judgement.compared {
        let verdict = if compared.holds { "true " } else { "false" };
        let open = if compared.is_certain { "" } else { "  (within the spread)" };
        let Compared { left, sign, right, .. } = compared;
        out += &format!("  {verdict}  {}  {sign}  {}{open}\n", side(left), side(right));
    }
    if !judgement.is_certain {
        out += "warning: the spread of the repeats leaves this verdict open: another run may say the opposite. Measure \
                with more repeats, or compare with more distance\n";
    }
    out
}

/// The text of a side and its value; a number is its own value.
fn side((text, value): &(String, Value)) -> String {
    if text.parse::<f64>().is_ok() {
        return text.clone();
    }
    let spread = if value.low < value.high {
        format!(" ({} to {})", figure(value.low), figure(value.high))
    } else {
        String::new()
    };
    format!("{text} = {}{spread}", figure(value.value))
}

/// A number with four digits or so.
fn figure(value: f64) -> String {
    let digits = match value.abs() {
        1000.0.. => 0,
        100.0.. => 1,
        1.0.. => 2,
        0.0 => 0,
        _ => 4,
    };
    if value.abs() >= 1e6 && value.is_finite() {
        return format!("{}{}", if value < 0.0 { "-" } else { "" }, human::count(value.abs() as u64));
    }
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_is_told_with_its_spread_and_doubt_is_said() {
        let names = Names {
            functions: vec![("iops", "requests a second"), ("p99_us", "")],
            jobs: vec!["read".to_owned()],
            targets: vec!["cached".to_owned(), "ssd".to_owned()],
        };
        let text = "iops(read) > 0.8 * iops(read, ssd) and p99_us(read) < 500";
        let assertion = Assertion::parse(text, &names).unwrap();
        let value = |figure: &Figure| {
            Some(match (figure.function, figure.target.as_str()) {
                ("iops", "cached") => Value { value: 81.0, low: 79.5, high: 83.0 },
                ("iops", _) => Value::exact(100.0),
                _ => Value::exact(1234.5),
            })
        };
        let mut judgement = assertion.judge(&value).unwrap();
        assert_eq!(
            judged(&judgement),
            "assert: does not hold\n  \
             true   iops(read) = 81.00 (79.50 to 83.00)  >  0.8 * iops(read, ssd) = 80.00  (within the spread)\n  \
             false  p99_us(read) = 1234  <  500\n"
        );
        judgement.is_certain = false;
        assert!(judged(&judgement).contains("warning: the spread"), "{}", judged(&judgement));
    }

    #[test]
    fn what_cannot_be_measured_is_no_verdict() {
        let names = Names { functions: vec![("iops", "")], jobs: vec!["a".to_owned()], targets: vec!["b".to_owned()] };
        let args = |condition: Option<&str>| AssertArgs { condition: condition.map(str::to_owned) };
        let read = |condition: Option<&str>| args(condition).read(&names);
        let code = |condition, measured: anyhow::Result<f64>| {
            let verdict = read(condition).unwrap();
            let value = |it: f64| Some(Value::exact(it)).filter(|it| it.value > 0.0);
            args(condition).code(measured.map(|it| verdict.of(|_| value(it))))
        };
        let is = |found: anyhow::Result<ExitCode>, code: u8| {
            assert_eq!(format!("{:?}", found.unwrap()), format!("{:?}", ExitCode::from(code)));
        };
        is(code(Some("iops(a) > 1"), Ok(2.0)), 0);
        is(code(Some("iops(a) > 1"), Ok(0.5)), 1);
        is(code(Some("iops(a) > 1"), Ok(0.0)), NOT_MEASURED);
        is(code(Some("iops(a) > 1"), Err(anyhow::anyhow!("no disk"))), NOT_MEASURED);
        is(code(None, Ok(0.0)), 0);
        assert!(code(None, Err(anyhow::anyhow!("no disk"))).is_err());
        assert!(usage::is_wrong(&read(Some("iops(c) > 1")).unwrap_err()), "exit code 2");
    }
}
