// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront volume grow`: gives clients the new part of an origin.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use flashfront_serve::control::Command;

use super::place::Place;
use super::{Change, done};

/// Grow a volume to the size of its origin, which was made larger before.
///
/// Clients are served meanwhile, and learn of the new size if their protocol can tell it.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  lvextend --size +100G vg/data
  flashfront volume grow data")]
pub(super) struct Grow {
    /// The volume.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    place: Place,
    /// Where the origin is now, if it moved; for --cache.
    #[arg(long, value_name = "PATH", requires = "cache")]
    origin: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl Grow {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if let Some(mut stopped) = self.place.stopped(true)? {
            let started = Instant::now();
            stopped.grow(&self.name, self.origin.as_deref())?;
            return done(started, self.json);
        }
        Change::begin(&self.place, self.json)?.carry_out(&[Command::GrowVolume { volume: self.name }])
    }
}
