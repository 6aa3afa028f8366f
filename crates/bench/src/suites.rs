// SPDX-License-Identifier: MIT OR Apache-2.0
//! The suites that there are, by their names.

mod published;
mod quick;

use std::time::Duration;

use crate::suite::{Scale, Suite, Work};
use crate::{database, git, replay};

/// Lists the suites: name and summary.
#[must_use]
pub fn known() -> Vec<(&'static str, &'static str)> {
    let published = flashfront_sim::compare::ALL.iter().map(|suite| (suite.name, suite.summary));
    let acts = [(git::NAME, git::SUMMARY), (database::NAME, database::SUMMARY), (replay::NAME, replay::SUMMARY)];
    [(quick::NAME, quick::SUMMARY)].into_iter().chain(acts).chain(published).collect()
}

/// Makes a suite of [`known`] at a scale; timed jobs take `runtime` if that is given.
///
/// [`replay::suite`] makes a suite of a trace.
#[must_use]
pub fn find(name: &str, scale: Scale, runtime: Option<Duration>) -> Option<Suite> {
    let mut suite = match name {
        quick::NAME => quick::suite(scale),
        git::NAME => git::suite(scale),
        database::NAME => database::suite(scale, runtime),
        _ => published::suite(name, scale)?,
    };
    for job in suite.groups.iter_mut().flat_map(|group| &mut group.jobs) {
        let Work::Fio(jobs) = &mut job.work else { continue };
        for job in jobs.iter_mut().filter(|job| !job.time.is_zero()) {
            job.time = runtime.unwrap_or(job.time);
        }
    }
    Some(suite)
}

#[cfg(test)]
mod tests;
