// SPDX-License-Identifier: MIT OR Apache-2.0
//! Judges whether a store is away: by faults without a success between them.
//!
//! A store may refuse one kind of requests and grant another, as to a key that may only read. So
//! each kind is counted by itself. What can't be deleted costs space, and is no reason to be away.

use std::time::{Duration, Instant};

use flashfront_bucket::{Back, Kind};
use flashfront_object::Fault;

/// Faults in a row that are no accident any more.
const FAULTS: u32 = 3;

/// The faults of one kind of requests since its last success.
#[derive(Debug, Default)]
struct Row {
    since: Option<Instant>,
    count: u32,
    why: String,
}

/// The faults of a store.
#[derive(Debug, Default)]
pub(super) struct Faults {
    gets: Row,
    puts: Row,
    away: Option<(Instant, String)>,
}

/// What an answer has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    Lost,
    /// The store was away so long.
    Back(Duration),
}

impl Faults {
    /// Since when the store is away, and why.
    pub(super) const fn away(&self) -> Option<&(Instant, String)> {
        self.away.as_ref()
    }

    /// Judges an answer.
    pub(super) fn judge(&mut self, back: &Back) -> Option<News> {
        let row = match back.kind {
            Kind::Get => &mut self.gets,
            Kind::Put => &mut self.puts,
            Kind::Delete | Kind::Kept => return None,
        };
        match &back.answer {
            Err(Fault::Away(what) | Fault::Refused(what)) => {
                row.since.get_or_insert_with(Instant::now);
                row.count += 1;
                row.why = format!("{}: {what}", back.name);
            }
            _ => *row = Row::default(),
        }
        let worst = [&self.gets, &self.puts].into_iter().filter(|it| it.count >= FAULTS).max_by_key(|it| it.count);
        let now = worst.and_then(|it| Some((it.since?, it.why.clone())));
        let before = std::mem::replace(&mut self.away, now);
        match (before, &self.away) {
            (None, Some(_)) => Some(News::Lost),
            (Some((since, _)), None) => Some(News::Back(since.elapsed())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use flashfront_object::Answer;

    use super::*;

    fn back(kind: Kind, fault: Option<&str>) -> Back {
        let answer = fault.map_or(Ok(Answer::Done), |what| Err(Fault::Away(what.to_owned())));
        Back { token: 0, name: "data/1".to_owned(), kind, answer }
    }

    #[test]
    fn a_store_is_away_after_some_faults_of_a_kind_and_until_that_kind_succeeds() {
        let mut faults = Faults::default();
        for _ in 0..2 {
            assert_eq!(faults.judge(&back(Kind::Put, Some("500"))), None);
        }
        assert_eq!(faults.judge(&back(Kind::Put, None)), None, "two faults are an accident");
        for nth in 0..4 {
            let news = faults.judge(&back(Kind::Put, Some("503 Slow Down")));
            assert_eq!(news, (nth == 2).then_some(News::Lost));
            assert_eq!(faults.judge(&back(Kind::Get, None)), None, "reads go on");
            assert_eq!(faults.judge(&back(Kind::Delete, Some("403"))), None);
        }
        assert_eq!(faults.away().map(|it| it.1.as_str()), Some("data/1: 503 Slow Down"));
        assert!(matches!(faults.judge(&back(Kind::Put, None)), Some(News::Back(_))));
        assert_eq!(faults.away(), None);
    }
}
