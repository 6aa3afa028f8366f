// SPDX-License-Identifier: MIT OR Apache-2.0
//! A phase over time, interval by interval: what JSON, CSV and pictures show of it.

use flashfront_sim::load::PhaseResult;
use serde::Serialize;

/// An interval: what moved in it, and what was dirty at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(in crate::sim) struct Step {
    #[serde(skip)]
    pub(in crate::sim) begin_s: f64,
    pub(in crate::sim) end_s: f64,
    /// Answered to clients.
    pub(in crate::sim) read_bytes: u64,
    pub(in crate::sim) write_bytes: u64,
    pub(in crate::sim) dirty_bytes: u64,
    pub(in crate::sim) dirty_limit_bytes: u64,
    pub(in crate::sim) origin_read_bytes: u64,
    pub(in crate::sim) origin_write_bytes: u64,
    pub(in crate::sim) cache_read_bytes: u64,
    pub(in crate::sim) cache_write_bytes: u64,
}

/// The intervals of a phase that took any time; the last may be shorter than the others.
pub(in crate::sim) fn steps(phase: &PhaseResult) -> Vec<Step> {
    let (mut begin_ns, mut last) = (0, phase.before);
    let mut steps = Vec::new();
    for it in &phase.series {
        let (begin_s, now) = (begin_ns as f64 / 1e9, it.traffic);
        if it.end_ns > begin_ns {
            steps.push(Step {
                begin_s,
                end_s: it.end_ns as f64 / 1e9,
                read_bytes: it.read_bytes.iter().sum(),
                write_bytes: it.write_bytes.iter().sum(),
                dirty_bytes: now.dirty_bytes,
                dirty_limit_bytes: now.dirty_limit_bytes,
                origin_read_bytes: now.origin_read_bytes - last.origin_read_bytes,
                origin_write_bytes: now.origin_write_bytes - last.origin_write_bytes,
                cache_read_bytes: now.cache_read_bytes - last.cache_read_bytes,
                cache_write_bytes: now.cache_write_bytes - last.cache_write_bytes,
            });
        }
        (begin_ns, last) = (it.end_ns, now);
    }
    steps
}
