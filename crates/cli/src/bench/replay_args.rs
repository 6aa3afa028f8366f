// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `bench replay`: the trace, and how it is played.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use flashfront_bench::replay::{NAME, Options};
use flashfront_sim::trace::Format;

use crate::usage::misused;

/// The requests that most disks and SSDs take at once.
const IN_FLIGHT: u32 = 32;

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// The trace of the suite `replay`, in any format that `flashfront sim replay` reads.
    #[arg(value_name = "TRACE", conflicts_with = "resume")]
    trace: Option<PathBuf>,
    /// Replay at the trace's own times, instead of as fast as possible. A request's time counts
    /// from the moment at which the trace asked for it.
    #[arg(long, requires = "trace")]
    timed: bool,
    /// Replay with so many requests in flight, where the trace's times do not count [default: 32].
    #[arg(long, value_name = "N", requires = "trace", value_parser = clap::value_parser!(u32).range(1..=1024), conflicts_with = "timed")]
    in_flight: Option<u32>,
    /// Let a trace that is larger than a target begin again at the target's start. Without it such
    /// a trace is refused.
    #[arg(long, requires = "trace")]
    wrap: bool,
    /// The trace's format, if it can't be told from what is in it.
    #[arg(long, value_name = "F", requires = "trace", value_parser = PossibleValuesParser::new(Format::all().map(|it| it.name)))]
    format: Option<String>,
}

impl ReplayArgs {
    /// Returns the options of a replay, if the suite is one.
    pub(super) fn options(&self, suite: Option<&str>) -> anyhow::Result<Option<Options>> {
        let Some(trace) = &self.trace else {
            if suite == Some(NAME) {
                misused!("bench {NAME}: expected a trace: flashfront bench {NAME} TRACE --target WHAT");
            }
            return Ok(None);
        };
        if suite != Some(NAME) {
            misused!("{}: only the suite {NAME} takes a trace", trace.display());
        }
        let (timed, in_flight, wrap) = (self.timed, self.in_flight.unwrap_or(IN_FLIGHT), self.wrap);
        // For --resume in another folder.
        let trace = trace.canonicalize().unwrap_or_else(|_| trace.clone());
        Ok(Some(Options { trace, format: self.format.clone(), timed, in_flight, wrap }))
    }
}
