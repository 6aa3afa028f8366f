// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading the history: questions and answers.
//!
//! The finest resolution that covers the range is chosen. An answer copies at most 1,440 values of
//! some forty series, so that a recorder waits for microseconds only.

use std::time::Duration;

use flashfront_engine::Time;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::ring::Ring;
use super::series::{TRAFFIC_WIDTH, WHOLE, traffic_names};
use super::{History, NS_PER_S, RANGE_MAX, VOLUMES_MAX, Value};

/// A question to the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// How far back.
    pub range: Duration,
    /// The volume; none: the daemon.
    pub volume: Option<String>,
    /// The first step to be told: an earlier answer said it in `next`.
    pub from: Option<u64>,
}

/// Why the history does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The question makes no sense.
    #[error("{0}")]
    Question(String),
    /// The history has no such series.
    #[error("{0}")]
    Volume(String),
    /// The daemon does not serve yet.
    #[error("replaying the cache: there is no history yet")]
    Early,
}

impl Query {
    /// Reads the part of an address behind the question mark.
    ///
    /// # Errors
    /// [`Refused::Question`], which says what is allowed.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        const ALLOWED: &str = "/api/history takes range=10m (a time from 1s to 24h, such as 10m, 1h, 24h), volume=NAME, and \
                               from=N (the `next` of an earlier answer)";
        let mut query = Self { range: Duration::from_secs(3600), volume: None, from: None };
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let refused = |what: &str| Refused::Question(format!("{key}={value}: {what}; {ALLOWED}"));
            match key {
                "range" => {
                    let range = humantime::parse_duration(value).map_err(|_| refused("not a time"))?;
                    if range < Duration::from_secs(1) || range > RANGE_MAX {
                        return Err(refused("shorter than 1 s or longer than 24 h, which is all that is kept"));
                    }
                    query.range = range;
                }
                "volume" => query.volume = Some(value.to_owned()),
                "from" => query.from = Some(value.parse().map_err(|_| refused("not a number"))?),
                _ => return Err(refused("no such parameter")),
            }
        }
        Ok(query)
    }
}

/// An answer of the history.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryReport {
    /// Seconds from one value to the next.
    pub step_s: u64,
    /// The number of the step of the first value of each series. Steps are numbered from the
    /// daemon's start.
    pub first: i64,
    /// The number of the step behind the last value: what to ask `from` next time.
    pub next: u64,
    /// When the last value's step ended, in milliseconds since 1970.
    pub end_unix_ms: u64,
    /// The volume of the series; none: the daemon.
    pub volume: Option<String>,
    /// Name and values, the oldest one first.
    #[serde(serialize_with = "as_map")]
    pub series: Vec<(&'static str, Vec<Value>)>,
}

fn as_map<S: Serializer>(series: &[(&'static str, Vec<Value>)], to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(series.len()))?;
    for (name, values) in series {
        map.serialize_entry(name, values)?;
    }
    map.end()
}

impl History {
    /// Returns the recorded series. `now` is by the daemon's clock, `unix` the same moment since
    /// 1970.
    ///
    /// # Errors
    /// [`Refused::Volume`].
    pub fn read(&self, query: &Query, now: Time, unix: Duration) -> Result<HistoryReport, Refused> {
        let seconds = query.range.as_secs_f64().ceil() as u64;
        let fits = |ring: &&Ring| ring.covers_s() >= seconds;
        let ring = self.rings.iter().find(fits).or(self.rings.last()).expect("a history has rings");
        let columns: Vec<(&'static str, usize)> = match &query.volume {
            None => traffic_names().chain(WHOLE.iter().map(|it| it.0)).zip(0..).collect(),
            Some(name) => {
                let first = TRAFFIC_WIDTH + WHOLE.len() + self.followed(name)? * TRAFFIC_WIDTH;
                traffic_names().zip(first..).collect()
            }
        };
        let next = ring.end();
        let first = next.cast_signed() - seconds.div_ceil(ring.step_s()).cast_signed();
        let first = query.from.map_or(first, |from| first.max(from.min(next).cast_signed()));
        let since_end = Duration::from_nanos(now.0.saturating_sub(next * ring.step_s() * NS_PER_S));
        let end = unix.saturating_sub(since_end).as_millis();
        let series = columns.into_iter().map(|(name, column)| (name, ring.column(column, first)));
        Ok(HistoryReport {
            step_s: ring.step_s(),
            first,
            next,
            end_unix_ms: u64::try_from(end).unwrap_or(u64::MAX),
            volume: query.volume.clone(),
            series: series.collect(),
        })
    }

    /// Returns the place of a volume among those that are followed.
    fn followed(&self, name: &str) -> Result<usize, Refused> {
        let at = self.volumes.iter().position(|it| it == name);
        at.ok_or_else(|| {
            let known = self.volumes.join(", ");
            Refused::Volume(format!(
                "volume={name}: no history of such a volume; there is one of {known} (the first {VOLUMES_MAX} volumes of the configuration)"
            ))
        })
    }
}
