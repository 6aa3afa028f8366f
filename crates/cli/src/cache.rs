// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront cache`: changes a stopped cache as a whole.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Subcommand};
use flashfront_serve::failure;
use flashfront_serve::offline::{self, CacheGrown};

use crate::human;
use crate::volume::done;

/// Change the size of a cache.
#[derive(Debug, Args)]
pub(crate) struct Cache {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Grow(Grow),
}

/// Make a stopped cache as large as its device, which was made larger before.
///
/// What the cache holds stays, dirty data too. A power cut meanwhile harms nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  lvextend --size +100G vg/cache
  flashfront cache grow --cache /dev/vg/cache")]
struct Grow {
    /// The cache device.
    #[arg(long, value_name = "PATH")]
    cache: PathBuf,
    /// Folder for the memory of failed cache devices, as of `serve`.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl Cache {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::Grow(verb) => verb.run(),
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Grow {
    fn run(self) -> anyhow::Result<()> {
        let started = Instant::now();
        let state = self.state.or_else(failure::state_path);
        let CacheGrown { from_bytes, to_bytes, index_bytes } = offline::grow(&self.cache, state.as_deref())?;
        if !self.json {
            let [from, to, index] = [from_bytes, to_bytes, index_bytes].map(human::bytes);
            human::tell(&format!("grown: from {from} to {to}; its index takes {index} of RAM\n"))?;
        }
        done(started, self.json)
    }
}
