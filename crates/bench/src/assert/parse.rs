// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parser of conditions: recursive descent, which goes at most [`DEPTH_MAX`] deep.
//!
//! Crates for expressions (evalexpr, and parsers such as winnow) do not know that a name may have
//! spaces. They check no name before a value is there, and their errors have no place.

use std::ops::Range;

use super::error::unknown;
use super::{AssertError, Figure, Names};

/// An expression, and its place in the text.
#[derive(Clone, Debug)]
pub(super) struct Expr {
    pub(super) kind: Kind,
    pub(super) place: Range<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Number(f64),
    Figure(Figure),
    Minus(Box<Expr>),
    Sum(Sum, Box<Expr>, Box<Expr>),
    Compare(Compare, Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compare {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Expr {
    fn is_truth(&self) -> bool {
        matches!(self.kind, Kind::Compare(..) | Kind::And(..) | Kind::Or(..) | Kind::Not(_))
    }
}

/// More parentheses, `not`s and minuses than anybody writes; a thread's stack holds many more.
const DEPTH_MAX: usize = 100;

pub(super) fn parse(text: &str, names: &Names) -> Result<Expr, AssertError> {
    let mut parser = Parser { text, at: 0, depth: 0, names };
    let all = parser.either()?;
    parser.skip_blanks();
    if parser.at < text.len() {
        return Err(parser.unexpected("`and`, `or` or the end"));
    }
    parser.truth(all)
}

struct Parser<'a> {
    text: &'a str,
    /// The next letter, in bytes.
    at: usize,
    depth: usize,
    names: &'a Names,
}

impl<'a> Parser<'a> {
    fn either(&mut self) -> Result<Expr, AssertError> {
        let mut left = self.both()?;
        while self.word("or") {
            let right = self.both()?;
            let (a, b) = (self.truth(left)?, self.truth(right)?);
            left = of_two(Kind::Or, a, b);
        }
        Ok(left)
    }

    fn both(&mut self) -> Result<Expr, AssertError> {
        let mut left = self.negated()?;
        while self.word("and") {
            let right = self.negated()?;
            let (a, b) = (self.truth(left)?, self.truth(right)?);
            left = of_two(Kind::And, a, b);
        }
        Ok(left)
    }

    fn negated(&mut self) -> Result<Expr, AssertError> {
        self.skip_blanks();
        let begin = self.at;
        if !self.word("not") {
            return self.comparison();
        }
        let inner = self.deeper(Self::negated)?;
        let inner = self.truth(inner)?;
        let place = begin..inner.place.end;
        Ok(Expr { kind: Kind::Not(Box::new(inner)), place })
    }

    fn comparison(&mut self) -> Result<Expr, AssertError> {
        let left = self.sum()?;
        let Some(compare) = self.compare()? else { return Ok(left) };
        let right = self.sum()?;
        let (left, right) = (self.number(left)?, self.number(right)?);
        self.skip_blanks();
        if self.rest().starts_with(['<', '>', '=']) {
            return Err(self.here(1, "a second comparison. Join two comparisons with `and`".to_owned()));
        }
        Ok(of_two(|a, b| Kind::Compare(compare, a, b), left, right))
    }

    fn compare(&mut self) -> Result<Option<Compare>, AssertError> {
        self.skip_blanks();
        let all = [
            ("<=", Compare::LessOrEqual),
            (">=", Compare::GreaterOrEqual),
            ("<", Compare::Less),
            (">", Compare::Greater),
        ];
        let found = all.into_iter().find(|(sign, _)| self.sign(sign));
        if found.is_none() && self.rest().starts_with(['=', '!']) {
            let message = "measured figures are never quite equal. Compare with < <= > or >=".to_owned();
            return Err(self.here(1, message));
        }
        Ok(found.map(|it| it.1))
    }

    fn sum(&mut self) -> Result<Expr, AssertError> {
        self.chain(&[("+", Sum::Add), ("-", Sum::Subtract)], Self::product)
    }

    fn product(&mut self) -> Result<Expr, AssertError> {
        self.chain(&[("*", Sum::Multiply), ("/", Sum::Divide)], Self::signed)
    }

    fn chain(
        &mut self,
        signs: &[(&str, Sum)],
        part: fn(&mut Self) -> Result<Expr, AssertError>,
    ) -> Result<Expr, AssertError> {
        let mut left = part(self)?;
        while let Some((_, sum)) = signs.iter().find(|it| self.sign(it.0)) {
            let right = part(self)?;
            let (a, b) = (self.number(left)?, self.number(right)?);
            left = of_two(|a, b| Kind::Sum(*sum, a, b), a, b);
        }
        Ok(left)
    }

    fn signed(&mut self) -> Result<Expr, AssertError> {
        self.skip_blanks();
        let begin = self.at;
        if !self.sign("-") {
            return self.primary();
        }
        let inner = self.deeper(Self::signed)?;
        let inner = self.number(inner)?;
        let place = begin..inner.place.end;
        Ok(Expr { kind: Kind::Minus(Box::new(inner)), place })
    }

    fn primary(&mut self) -> Result<Expr, AssertError> {
        self.skip_blanks();
        let begin = self.at;
        if self.sign("(") {
            let inner = self.deeper(Self::either)?;
            self.close(begin)?;
            return Ok(Expr { place: begin..self.at, ..inner });
        }
        match self.rest().chars().next() {
            Some('0'..='9' | '.') => self.literal(),
            Some(c) if c.is_alphabetic() => self.figure(),
            _ => Err(self.unexpected("a number, a function or `(`")),
        }
    }

    fn literal(&mut self) -> Result<Expr, AssertError> {
        let begin = self.at;
        let digits = |it: &str| it.bytes().take_while(|c| c.is_ascii_digit() || *c == b'.').count();
        let mut end = begin + digits(self.rest());
        // 1.5e6 and 1e-3.
        let exponent = self.text[end..].strip_prefix(['e', 'E']);
        if let Some(exponent) = exponent {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            let count = digits(&exponent[sign..]);
            end += if count > 0 { 1 + sign + count } else { 0 };
        }
        self.at = end;
        let unit = self.rest().trim_start();
        let unit_at = self.text.len() - unit.len();
        let word = unit.find(|c: char| !(c.is_alphanumeric() || c == '%' || c == '_')).unwrap_or(unit.len());
        if word > 0 && !["and", "or"].contains(&&unit[..word]) {
            let message = format!(
                "`{}` behind a number. A number has no unit here: the name of the function tells it \
                 (p99_us is in microseconds)",
                &unit[..word]
            );
            return Err(AssertError::new(self.text, unit_at..unit_at + word, message));
        }
        let number = self.text[begin..end].parse::<f64>().ok().filter(|it| it.is_finite());
        let wrong = || AssertError::new(self.text, begin..end, "not a number".to_owned());
        Ok(Expr { kind: Kind::Number(number.ok_or_else(wrong)?), place: begin..end })
    }

    fn figure(&mut self) -> Result<Expr, AssertError> {
        let begin = self.at;
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let word = self.rest().find(|c| !is_word(c)).unwrap_or(self.rest().len());
        let name = &self.text[begin..begin + word];
        let Some((function, _)) = self.names.functions.iter().find(|it| it.0 == name) else {
            let known = self.names.functions.iter().map(|it| it.0);
            return Err(self.here(word, unknown("function", name, known)));
        };
        self.at += word;
        if !self.sign("(") {
            return Err(self.unexpected(&format!("`(` and the name of a job behind `{name}`")));
        }
        let job = self.name("job", &self.names.jobs)?;
        let target = if self.sign(",") {
            self.name("target", &self.names.targets)?
        } else {
            let first = self.names.targets.first();
            first
                .cloned()
                .ok_or_else(|| AssertError::new(self.text, begin..self.at, "there is no target".to_owned()))?
        };
        self.close(begin)?;
        Ok(Expr { kind: Kind::Figure(Figure { function, job, target }), place: begin..self.at })
    }

    /// A name: in quotes, or all text up to the comma or the parenthesis.
    fn name(&mut self, what: &str, known: &[String]) -> Result<String, AssertError> {
        self.skip_blanks();
        let begin = self.at;
        let quote = self.rest().chars().next().filter(|c| matches!(c, '"' | '\''));
        let (name, end) = if let Some(quote) = quote {
            let inner = &self.rest()[1..];
            let Some(len) = inner.find(quote) else {
                return Err(self.here(self.rest().len(), format!("a quote that does not end: {quote}")));
            };
            (&inner[..len], begin + len + 2)
        } else {
            let len = self.rest().find([',', ')']).unwrap_or(self.rest().len());
            let name = self.rest()[..len].trim_end();
            (name, begin + name.len())
        };
        if name.is_empty() {
            return Err(self.unexpected(&format!("the name of a {what}: {}", known.join(", "))));
        }
        if !known.iter().any(|it| it == name) {
            let message = unknown(what, name, known.iter().map(String::as_str));
            return Err(AssertError::new(self.text, begin..end, message));
        }
        self.at = end;
        Ok(name.to_owned())
    }

    fn close(&mut self, begin: usize) -> Result<(), AssertError> {
        if self.sign(")") {
            return Ok(());
        }
        let open = self.text[begin..].chars().take_while(|c| *c != '(').count();
        Err(self.unexpected(&format!("`)` for the `(` of letter {}", self.text[..begin].chars().count() + open + 1)))
    }

    fn deeper(&mut self, part: fn(&mut Self) -> Result<Expr, AssertError>) -> Result<Expr, AssertError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.here(1, format!("more than {DEPTH_MAX} parentheses, `not`s or minuses inside each other")));
        }
        let inner = part(self);
        self.depth -= 1;
        inner
    }

    fn truth(&self, expr: Expr) -> Result<Expr, AssertError> {
        if expr.is_truth() {
            return Ok(expr);
        }
        let message = "a number. A condition compares two numbers: iops(read) > 1000".to_owned();
        Err(AssertError::new(self.text, expr.place, message))
    }

    fn number(&self, expr: Expr) -> Result<Expr, AssertError> {
        if !expr.is_truth() {
            return Ok(expr);
        }
        let message = "a condition, where a number must stand".to_owned();
        Err(AssertError::new(self.text, expr.place, message))
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn sign(&mut self, sign: &str) -> bool {
        self.skip_blanks();
        let is_here = self.rest().starts_with(sign);
        self.at += if is_here { sign.len() } else { 0 };
        is_here
    }

    fn word(&mut self, word: &str) -> bool {
        self.skip_blanks();
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let is_here = self.rest().strip_prefix(word).is_some_and(ends);
        self.at += if is_here { word.len() } else { 0 };
        is_here
    }

    fn here(&self, bytes: usize, message: String) -> AssertError {
        AssertError::new(self.text, self.at..self.at + bytes, message)
    }

    fn unexpected(&mut self, expected: &str) -> AssertError {
        self.skip_blanks();
        match self.rest().chars().next() {
            None => self.here(0, format!("the condition ends here; expected {expected}")),
            Some('&' | '|') => self.here(1, "no sign of this language. Write `and` or `or`".to_owned()),
            Some(c) => self.here(c.len_utf8(), format!("found `{c}`; expected {expected}")),
        }
    }
}

fn of_two(kind: impl FnOnce(Box<Expr>, Box<Expr>) -> Kind, left: Expr, right: Expr) -> Expr {
    let place = left.place.start..right.place.end;
    Expr { kind: kind(Box::new(left), Box::new(right)), place }
}
