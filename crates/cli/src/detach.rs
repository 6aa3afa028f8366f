// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront detach`: takes a stopped cache off its origin.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use flashfront_serve::failure::state_path;
use flashfront_serve::offline;

use crate::{human, progress};

/// Take a cache off its origin for good; the origin is then complete by itself.
///
/// The daemon must be stopped, and the cache must hold no dirty data (`flashfront drain` before the
/// stop). The cache device is marked empty, so that old data can never come back; the origin is not
/// touched.
#[derive(Debug, Args)]
pub(crate) struct Detach {
    /// The cache device.
    #[arg(long, value_name = "PATH")]
    cache: PathBuf,
    /// The second cache device of a mirrored cache.
    #[arg(long, value_name = "PATH")]
    mirror: Option<PathBuf>,
    /// Its origin.
    #[arg(long, value_name = "PATH")]
    origin: PathBuf,
    /// Folder that remembers failed caches: that of `serve` [default: as for `serve`].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Give up dirty data for ever.
    #[arg(long)]
    force: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl Detach {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let state = self.state.or_else(state_path);
        let bar = progress::of_share("reading", 0);
        let mut show = |done, all| progress::show(&bar, done, all);
        let (mirror, state) = (self.mirror.as_deref(), state.as_deref());
        let report = offline::detach(&self.cache, mirror, &self.origin, state, self.force, &mut show);
        bar.finish_and_clear();
        let report = report?;
        if self.json {
            human::print_json(&report)?;
        } else {
            let (cache, origin) = (report.cache.display(), report.origin.display());
            let given_up = match report.blocks_given_up {
                0 => String::new(),
                blocks => format!("; {} of dirty data were given up", human::blocks(blocks)),
            };
            let other = match report.other_remains {
                true => {
                    "; the other half of the mirrored cache was not named, and still holds an old copy: never serve it"
                }
                false => "",
            };
            human::tell(&format!(
                "detached: {cache} holds no cache any more; use {origin} directly{given_up}{other}\n"
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
