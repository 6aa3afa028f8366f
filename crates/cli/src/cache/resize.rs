// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront cache grow` and `cache shrink`: a cache gets another size, while a daemon serves it
//! or while it is stopped.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use flashfront_engine::BLOCK_BYTES;
use flashfront_serve::config::Size;
use flashfront_serve::control::{Client, ClientError, Command, Response};
use flashfront_serve::failure;
use flashfront_serve::offline::{self, CacheGrown};
use flashfront_serve::report::StatusReport;

use super::{PATIENCE, drain};
use crate::interrupt::Interrupt;
use crate::status::{Socket, connect};
use crate::volume::done;
use crate::{human, progress};

/// A running daemon, or a stopped cache.
#[derive(Debug, Args)]
struct Place {
    #[command(flatten)]
    socket: Socket,
    /// The cache device of a cache that no daemon serves now.
    #[arg(long, value_name = "PATH", conflicts_with = "control")]
    cache: Option<PathBuf>,
    /// Folder for the memory of failed cache devices, as of `serve`; for --cache.
    #[arg(long, value_name = "DIR", requires = "cache")]
    state: Option<PathBuf>,
}

/// Make the cache as large as its device, which was made larger before.
///
/// What the cache holds stays, dirty data too. A power cut meanwhile harms nothing. Clients of a
/// running daemon wait for a moment, and stay connected.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  lvextend --size +100G vg/cache
  flashfront cache grow")]
pub(super) struct Grow {
    #[command(flatten)]
    place: Place,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Make the cache smaller. Its device can be made smaller afterwards.
///
/// Dirty data stays, and of clean data as much as fits. A power cut or Ctrl-C leaves the cache as
/// large as it was, or smaller, with all dirty data: run the command again. Clients of a running
/// daemon wait for a moment, and stay connected. A cache with several lanes is destaged first, and
/// loses its clean data.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  flashfront cache shrink 40GiB
  lvreduce --size 40G vg/cache")]
pub(super) struct Shrink {
    /// The new size.
    #[arg(value_name = "SIZE")]
    size: Size,
    #[command(flatten)]
    place: Place,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl Grow {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let started = Instant::now();
        let Place { socket, cache, state } = self.place;
        let said = match cache {
            Some(cache) => {
                let grown = offline::grow(&cache, state.or_else(failure::state_path).as_deref())?;
                let CacheGrown { from_bytes, to_bytes, index_bytes } = grown;
                format!("grown: {}", sizes(from_bytes, to_bytes, index_bytes))
            }
            None => {
                let mut client = connect(&socket.path())?;
                client.wait_at_most(PATIENCE)?;
                let (sizes, waited) = told(client.call(&Command::GrowCache {})?)?;
                format!("grown: {sizes}; {waited}")
            }
        };
        tell(&said, started, self.json)
    }
}

impl Shrink {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let started = Instant::now();
        let Place { socket, cache, state } = self.place;
        let said = match cache {
            Some(cache) => {
                let state = state.or_else(failure::state_path);
                let bar = progress::of_share("shrinking", 0);
                let mut show = |done, all| progress::show(&bar, done, all);
                let shrunk = offline::shrink(&cache, state.as_deref(), self.size.0, &mut show);
                bar.finish_and_clear();
                let shrunk = shrunk?;
                let sizes = sizes(shrunk.from_bytes, shrunk.to_bytes, shrunk.index_bytes);
                let [dirty, kept, dropped] =
                    [shrunk.dirty_blocks, shrunk.clean_kept, shrunk.clean_dropped].map(human::blocks);
                format!("shrunk: {sizes}; kept: {dirty} dirty, {kept} clean; dropped: {dropped} clean")
            }
            None => {
                let mut client = connect(&socket.path())?;
                let before = client.status()?;
                let interrupt = Interrupt::new()?;
                client.call(&Command::VacateCache { bytes: Some(self.size.0) })?;
                if moves_nothing(&before) {
                    drain(&mut client, &socket.path(), before.blocks_dirty, &interrupt, "shrink")?;
                } else {
                    empty_end(&mut client, &socket.path(), self.size.0, &interrupt)?;
                }
                client.wait_at_most(PATIENCE)?;
                let resized = client.call(&Command::ShrinkCache { bytes: self.size.0 });
                let (sizes, waited) = match resized {
                    Ok(response) => told(response)?,
                    Err(error) => {
                        // The daemon goes on with the cache as it was, unless it has ended.
                        let again = connect(&socket.path());
                        let _ = again.and_then(|mut client| client.call(&Command::VacateCache { bytes: None }));
                        return Err(error.into());
                    }
                };
                let clean = |report: &StatusReport| human::blocks(report.blocks_cached - report.blocks_dirty);
                let left = connect(&socket.path()).and_then(|mut client| client.status());
                let left = left.map_or_else(|_| "some".to_owned(), |report| clean(&report));
                format!("shrunk: {sizes}; {left} are left of {} of clean data; {waited}", clean(&before))
            }
        };
        tell(&said, started, self.json)
    }
}

/// Whether what is dirty can't be moved to the beginning of the cache, and has to be destaged.
fn moves_nothing(report: &StatusReport) -> bool {
    report.lanes > 1 || report.volumes.iter().any(|volume| volume.destage == "ordered")
}

/// Waits until what lies beyond the new end is empty, or Ctrl-C ends that.
fn empty_end(client: &mut Client, socket: &Path, bytes: u64, interrupt: &Interrupt) -> anyhow::Result<()> {
    let bar = progress::of_bytes("emptying");
    let mut all = 0;
    loop {
        let report = match client.status() {
            // Another life of the daemon, which knows nothing of this: after an upgrade, or without
            // a cache.
            Err(ClientError::Gone { .. }) => {
                *client = connect(socket)?;
                client.call(&Command::VacateCache { bytes: Some(bytes) })?;
                client.status()?
            }
            other => other?,
        };
        let left = report.left_in_end_blocks.unwrap_or(0);
        all = all.max(left);
        progress::show(&bar, (all - left) * BLOCK_BYTES, all * BLOCK_BYTES);
        if left == 0 {
            break;
        }
        if interrupt.wait(progress::LOOK_EVERY) {
            client.call(&Command::VacateCache { bytes: None })?;
            bar.finish_and_clear();
            anyhow::bail!("stopped: the cache keeps its size, and all that it holds; run the command again to go on");
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn tell(said: &str, started: Instant, json: bool) -> anyhow::Result<ExitCode> {
    if !json {
        human::tell(&format!("{said}\n"))?;
    }
    done(started, json)?;
    Ok(ExitCode::SUCCESS)
}

fn sizes(from_bytes: u64, to_bytes: u64, index_bytes: u64) -> String {
    let [from, to, index] = [from_bytes, to_bytes, index_bytes].map(human::bytes);
    format!("from {from} to {to}; its index takes {index} of RAM")
}

/// The sizes, and who waited.
fn told(response: Response) -> anyhow::Result<(String, String)> {
    let Response::Resized { from_bytes, to_bytes, index_bytes, clients, paused_ms, .. } = response else {
        anyhow::bail!("an answer to another question: {response:?}");
    };
    let waited = format!("{} waited {paused_ms} ms", human::counted(clients, "client"));
    Ok((sizes(from_bytes, to_bytes, index_bytes), waited))
}
