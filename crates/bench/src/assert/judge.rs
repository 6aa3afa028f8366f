// SPDX-License-Identifier: MIT OR Apache-2.0
//! The verdict: each figure with its spread, each comparison, and what the condition says.
//!
//! A spread goes through all sums as an interval. A comparison whose intervals overlap is not
//! certain; a condition is certain if no such comparison could change it.

use std::fmt;

use super::parse::{Compare, Expr, Kind, Sum};
use super::{Figure, Value};

/// What a condition says.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Whether it holds.
    pub holds: bool,
    /// Whether it says the same for every value within the spread of the repeats.
    pub is_certain: bool,
    /// Its comparisons, in order.
    pub compared: Vec<Compared>,
}

/// A comparison as it went.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The text of the left side, and its value.
    pub left: (String, Value),
    /// `<`, `<=`, `>` or `>=`.
    pub sign: &'static str,
    /// The right side.
    pub right: (String, Value),
    /// Whether it is so.
    pub holds: bool,
    /// Whether it is so for every value within the spread.
    pub is_certain: bool,
}

/// A figure that a condition needs, and that nobody measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmeasured {
    /// The text of what has no value.
    pub text: String,
}

impl fmt::Display for Unmeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--assert: {} could not be measured", self.text)
    }
}

impl std::error::Error for Unmeasured {}

pub(super) fn judge(
    text: &str,
    root: &Expr,
    measured: &dyn Fn(&Figure) -> Option<Value>,
) -> Result<Judgement, Unmeasured> {
    let mut judge = Judge { text, measured, compared: Vec::new() };
    let truth = judge.truth(root)?;
    Ok(Judgement { holds: truth.holds, is_certain: truth.is_certain(), compared: judge.compared })
}

struct Judge<'a> {
    text: &'a str,
    measured: &'a dyn Fn(&Figure) -> Option<Value>,
    compared: Vec<Compared>,
}

/// Whether something holds, and whether it can hold and can fail within the spread.
#[derive(Clone, Copy)]
struct Truth {
    holds: bool,
    can_hold: bool,
    can_fail: bool,
}

impl Truth {
    const fn is_certain(self) -> bool {
        self.can_hold != self.can_fail
    }
}

impl Judge<'_> {
    /// Both sides are always judged, so that all comparisons are told.
    fn truth(&mut self, expr: &Expr) -> Result<Truth, Unmeasured> {
        Ok(match &expr.kind {
            Kind::Not(inner) => {
                let it = self.truth(inner)?;
                Truth { holds: !it.holds, can_hold: it.can_fail, can_fail: it.can_hold }
            }
            Kind::And(a, b) => {
                let (a, b) = (self.truth(a)?, self.truth(b)?);
                Truth {
                    holds: a.holds && b.holds,
                    can_hold: a.can_hold && b.can_hold,
                    can_fail: a.can_fail || b.can_fail,
                }
            }
            Kind::Or(a, b) => {
                let (a, b) = (self.truth(a)?, self.truth(b)?);
                Truth {
                    holds: a.holds || b.holds,
                    can_hold: a.can_hold || b.can_hold,
                    can_fail: a.can_fail && b.can_fail,
                }
            }
            Kind::Compare(compare, a, b) => self.compare(*compare, a, b)?,
            // The parser lets no number stand here.
            _ => return Err(self.unmeasured(expr)),
        })
    }

    fn compare(&mut self, compare: Compare, a: &Expr, b: &Expr) -> Result<Truth, Unmeasured> {
        let (left, right) = (self.value(a)?, self.value(b)?);
        let is = |a: f64, b: f64| match compare {
            Compare::Less => a < b,
            Compare::LessOrEqual => a <= b,
            Compare::Greater => a > b,
            Compare::GreaterOrEqual => a >= b,
        };
        let corners = [(left.low, right.high), (left.high, right.low)];
        let truth = Truth {
            holds: is(left.value, right.value),
            can_hold: corners.iter().any(|it| is(it.0, it.1)),
            can_fail: corners.iter().any(|it| !is(it.0, it.1)),
        };
        let sign = match compare {
            Compare::Less => "<",
            Compare::LessOrEqual => "<=",
            Compare::Greater => ">",
            Compare::GreaterOrEqual => ">=",
        };
        let (left, right) = ((self.text_of(a), left), (self.text_of(b), right));
        self.compared.push(Compared { left, sign, right, holds: truth.holds, is_certain: truth.is_certain() });
        Ok(truth)
    }

    fn value(&self, expr: &Expr) -> Result<Value, Unmeasured> {
        let value = match &expr.kind {
            Kind::Number(number) => Some(Value::exact(*number)),
            Kind::Figure(figure) => (self.measured)(figure),
            Kind::Minus(inner) => {
                let it = self.value(inner)?;
                Some(Value { value: -it.value, low: -it.high, high: -it.low })
            }
            Kind::Sum(sum, a, b) => of_sum(*sum, self.value(a)?, self.value(b)?),
            _ => None,
        };
        // A spread may be without end, a value may not.
        let value = value.filter(|it| it.value.is_finite() && it.low <= it.value && it.value <= it.high);
        value.ok_or_else(|| self.unmeasured(expr))
    }

    fn text_of(&self, expr: &Expr) -> String {
        self.text.get(expr.place.clone()).unwrap_or_default().to_owned()
    }

    fn unmeasured(&self, expr: &Expr) -> Unmeasured {
        Unmeasured { text: self.text_of(expr) }
    }
}

fn of_sum(sum: Sum, a: Value, b: Value) -> Option<Value> {
    let corners = |of: fn(f64, f64) -> f64| {
        let all = [of(a.low, b.low), of(a.low, b.high), of(a.high, b.low), of(a.high, b.high)];
        let value = of(a.value, b.value);
        let low = all.into_iter().fold(value, f64::min);
        Value { value, low, high: all.into_iter().fold(value, f64::max) }
    };
    match sum {
        Sum::Add => Some(corners(|a, b| a + b)),
        Sum::Subtract => Some(corners(|a, b| a - b)),
        Sum::Multiply => Some(corners(|a, b| a * b)),
        Sum::Divide if b.value == 0.0 => None,
        // Some repeat may have been nothing: then the result may be anything.
        Sum::Divide if b.low <= 0.0 && b.high >= 0.0 => {
            Some(Value { value: a.value / b.value, low: f64::NEG_INFINITY, high: f64::INFINITY })
        }
        Sum::Divide => Some(corners(|a, b| a / b)),
    }
}
