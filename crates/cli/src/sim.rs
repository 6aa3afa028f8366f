// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront sim`: what a cache would do, before you have one.

use std::process::ExitCode;

use clap::{Args, Subcommand};

mod adapt;
mod calibrate;
mod compare;
mod replay;
pub(crate) mod report;
mod run;
mod sizes;

/// Simulate caches: no devices, no root, nothing written but the result.
#[derive(Debug, Args)]
pub(crate) struct Sim {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Replay(replay::Replay),
    Sizes(sizes::Sizes),
    Adapt(adapt::Adapt),
    Calibrate(calibrate::Calibrate),
    Run(run::Run),
    Compare(compare::Compare),
}

impl Sim {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Replay(replay) => replay.run(),
            What::Sizes(sizes) => sizes.run(),
            What::Adapt(adapt) => adapt.run(),
            What::Calibrate(calibrate) => calibrate.run(),
            What::Run(run) => run.run(),
            What::Compare(compare) => compare.run(),
        }
    }
}
