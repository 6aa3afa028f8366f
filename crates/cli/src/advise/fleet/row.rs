// SPDX-License-Identifier: MIT OR Apache-2.0
//! The row of one recording in a fleet's table. The names are a contract: fields are added, never
//! renamed or removed.

use flashfront_sim::advise::{Advice, Question, Trial};
use serde::{Deserialize, Serialize};

use crate::advise::told;

/// A row. All but the first six are nothing if the recording could not be read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Row {
    /// The file, below the fleet's folder.
    pub(super) recording: String,
    pub(super) file_bytes: u64,
    /// When the file was changed, since 1970: a recording that was changed is sized again.
    pub(super) changed_ns: u64,
    /// Why the recording could not be read.
    pub(super) error: Option<String>,
    pub(super) origin: String,
    pub(super) cache: String,
    pub(super) format: Option<String>,
    pub(super) requests: Option<u64>,
    pub(super) reads: Option<u64>,
    pub(super) writes: Option<u64>,
    pub(super) read_bytes: Option<u64>,
    pub(super) write_bytes: Option<u64>,
    /// The time from the first request to the last; nothing if they have no times.
    pub(super) span_ns: Option<u64>,
    /// Distinct blocks that are asked for.
    pub(super) footprint_bytes: Option<u64>,
    /// The share of the blocks asked for that were asked for before.
    pub(super) reuse: Option<f64>,
    pub(super) helps: Option<bool>,
    /// Whether the answer is yes, and its word.
    pub(super) needs_cache: Option<bool>,
    pub(super) because: Option<String>,
    /// Whether the recording is long enough.
    pub(super) converged: Option<bool>,
    /// The size that is advised; nothing if no cache helps.
    pub(super) cache_bytes: Option<u64>,
    pub(super) mode: Option<String>,
    /// The time of a request on the disk alone.
    pub(super) alone_mean_ns: Option<u64>,
    pub(super) alone_read_mean_ns: Option<u64>,
    pub(super) alone_write_mean_ns: Option<u64>,
    /// The time of a request with the cache that is advised.
    pub(super) mean_ns: Option<u64>,
    pub(super) read_mean_ns: Option<u64>,
    pub(super) write_mean_ns: Option<u64>,
    pub(super) read_hit_ratio: Option<f64>,
    pub(super) flash_write_bytes_per_day: Option<u64>,
    /// The sizes that were tried, in writeback mode, with the hits and the mean at each.
    pub(super) sizes_bytes: Vec<u64>,
    pub(super) sizes_read_hit_ratio: Vec<Option<f64>>,
    pub(super) sizes_mean_ns: Vec<u64>,
}

impl Row {
    pub(super) fn unreadable(question: &Question, error: String) -> Self {
        let [origin, cache] = [&question.origin, &question.cache].map(|it| it.name.to_owned());
        Self { error: Some(error), origin, cache, ..Self::default() }
    }

    pub(super) fn advised(question: &Question, advice: &Advice) -> Self {
        let (survey, alone) = (&advice.survey, &advice.alone.played);
        let asked = survey.read_bytes + survey.write_bytes;
        let chosen = told::rows(advice).find(|trial| told::is_chosen(advice, trial)).map(|trial| &trial.played);
        let sizes = |of: fn(&Trial) -> u64| advice.sizes.iter().map(of).collect();
        Self {
            error: None,
            format: Some(advice.reading.format.name.to_owned()),
            requests: Some(advice.reading.requests),
            reads: Some(survey.reads),
            writes: Some(survey.writes),
            read_bytes: Some(survey.read_bytes),
            write_bytes: Some(survey.write_bytes),
            span_ns: survey.span_ns,
            footprint_bytes: Some(survey.touched_bytes),
            reuse: (asked > 0).then(|| 1.0 - survey.touched_bytes as f64 / asked as f64),
            helps: Some(advice.choice.is_some()),
            needs_cache: Some(advice.because.needs_cache()),
            because: Some(advice.because.word().to_owned()),
            converged: Some(advice.converged.is_converged()),
            cache_bytes: advice.choice.map(|it| it.cache_bytes),
            mode: advice.choice.map(|it| it.mode.name().to_owned()),
            alone_mean_ns: Some(alone.mean_ns()),
            alone_read_mean_ns: alone.reads.mean_ns(),
            alone_write_mean_ns: alone.writes.mean_ns(),
            mean_ns: chosen.map(|it| it.mean_ns()),
            read_mean_ns: chosen.and_then(|it| it.reads.mean_ns()),
            write_mean_ns: chosen.and_then(|it| it.writes.mean_ns()),
            read_hit_ratio: chosen.and_then(|it| it.read_hit_ratio()),
            flash_write_bytes_per_day: chosen
                .and_then(|it| told::per_day(advice, it.traffic.cache_write_bytes, it.took_ns)),
            sizes_bytes: sizes(|it| it.cache.map_or(0, |it| it.0)),
            sizes_read_hit_ratio: advice.sizes.iter().map(|it| it.played.read_hit_ratio()).collect(),
            sizes_mean_ns: sizes(|it| it.played.mean_ns()),
            ..Self::unreadable(question, String::new())
        }
    }

    /// The row of this file.
    pub(super) fn named(self, recording: String, file_bytes: u64, changed_ns: u64) -> Self {
        Self { recording, file_bytes, changed_ns, ..self }
    }

    /// Whether the row is a result of this file as it is now.
    pub(super) fn is_of(&self, recording: &str, file_bytes: u64, changed_ns: u64) -> bool {
        self.error.is_none()
            && (self.recording.as_str(), self.file_bytes, self.changed_ns) == (recording, file_bytes, changed_ns)
    }
}
