// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront cache`: grows or shrinks a cache, moves a running one to another device, takes it
//! off its volumes, and gives it back.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use flashfront_engine::BLOCK_BYTES;
use flashfront_serve::control::{Client, ClientError, Command, Response};

use crate::drain::refusals;
use crate::interrupt::Interrupt;
use crate::status::{Socket, connect};
use crate::volume::done;
use crate::{human, mirror, progress};

mod resize;

use resize::{Grow, Shrink};

/// The longest that a cache takes to be closed and another one to be opened.
const PATIENCE: Duration = Duration::from_secs(180);

/// Change the size of a cache, or its device.
#[derive(Debug, Args)]
pub(crate) struct Cache {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Grow(Grow),
    Shrink(Shrink),
    Replace(Replace),
    Detach(Detach),
    Attach(Attach),
}

/// Take the cache off its volumes, which stay served by their origins alone.
///
/// Everything dirty goes to the origins first; Ctrl-C stops that, and the cache stays. Then clients
/// wait for a moment, and stay connected. The device holds no cache any more.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  flashfront cache detach
  flashfront cache attach /dev/disk/by-id/nvme-new-part4")]
struct Detach {
    #[command(flatten)]
    socket: Socket,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Give volumes that are served without a cache a cache again.
///
/// DEVICE becomes an empty cache, with the modes and limits that the volumes had. Clients wait for
/// a moment, and stay connected.
#[derive(Debug, Args)]
struct Attach {
    /// The device.
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
    #[command(flatten)]
    socket: Socket,
    /// Destroy what is on the device.
    #[arg(long)]
    force: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Move a running cache to another device, with all that it holds, clean data and dirty.
///
/// Clients are served meanwhile. A power cut leaves the old device or the new one as the whole
/// cache. Ctrl-C ends the waiting and not the copying; `flashfront mirror remove DEVICE` ends that.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  flashfront cache replace /dev/disk/by-id/nvme-new-part4")]
struct Replace {
    /// The new device: at least as large as the cache.
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
    #[command(flatten)]
    socket: Socket,
    /// Destroy what is on the device.
    #[arg(long)]
    force: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl Cache {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::Grow(verb) => verb.run(),
            Verb::Shrink(verb) => verb.run(),
            Verb::Replace(verb) => verb.run(),
            Verb::Detach(verb) => verb.run(),
            Verb::Attach(verb) => verb.run(),
        }
    }
}

impl Detach {
    fn run(self) -> anyhow::Result<ExitCode> {
        let mut client = connect(&self.socket.path())?;
        let interrupt = Interrupt::new()?;
        let started = Instant::now();
        let before = client.status()?;
        // A mirrored cache, and volumes without a cache, are refused below: nothing is drained.
        if !before.without_cache && before.mirror == "none" {
            drain(&mut client, &self.socket.path(), before.blocks_dirty, &interrupt, "detach")?;
        }
        client.wait_at_most(PATIENCE)?;
        switched(client.call(&Command::DetachCache {})?, "detached: the origins alone hold everything", self.json)?;
        done(started, self.json)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Destages what is dirty, until nothing is or Ctrl-C ends it.
fn drain(client: &mut Client, socket: &Path, dirty: u64, interrupt: &Interrupt, verb: &str) -> anyhow::Result<()> {
    client.call(&Command::Drain { start: true })?;
    let bar = progress::of_bytes("draining");
    bar.set_length(dirty * BLOCK_BYTES);
    let mut told = Vec::new();
    loop {
        let report = match client.status() {
            // Another life of the daemon: what is to be done next says whether it can be.
            Err(ClientError::Gone { .. }) => {
                *client = connect(socket)?;
                client.status()?
            }
            other => other?,
        };
        bar.set_position(dirty.saturating_sub(report.blocks_dirty) * BLOCK_BYTES);
        if !report.draining {
            break;
        }
        for line in refusals(&report) {
            // The daemon tries again for ever.
            if !told.contains(&line) {
                bar.suspend(|| eprintln!("{line}"));
                told.push(line);
            }
        }
        if interrupt.wait(progress::LOOK_EVERY) {
            client.call(&Command::Drain { start: false })?;
            bar.finish_and_clear();
            anyhow::bail!(
                "stopped: the cache stays, and what is dirty in it; `flashfront cache {verb}` goes on from here"
            );
        }
    }
    bar.finish_and_clear();
    Ok(())
}

impl Attach {
    fn run(self) -> anyhow::Result<ExitCode> {
        let device = mirror::whole(&self.device)?;
        let mut client = connect(&self.socket.path())?;
        let started = Instant::now();
        let said = format!("attached: the cache is on {}", device.display());
        client.wait_at_most(PATIENCE)?;
        switched(client.call(&Command::AttachCache { device, force: self.force })?, &said, self.json)?;
        done(started, self.json)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Tells people of the clients that stayed connected.
fn switched(response: Response, said: &str, json: bool) -> anyhow::Result<()> {
    let Response::Switched { clients, paused_ms } = response else {
        anyhow::bail!("an answer to another question: {response:?}");
    };
    if !json {
        human::tell(&format!("{said}; {} waited {paused_ms} ms\n", human::counted(clients, "client")))?;
    }
    Ok(())
}

impl Replace {
    fn run(self) -> anyhow::Result<ExitCode> {
        let device = mirror::whole(&self.device)?;
        let mut client = connect(&self.socket.path())?;
        let interrupt = Interrupt::new()?;
        let started = Instant::now();
        client.call(&Command::ReplaceCache { device: device.clone(), force: self.force })?;
        let Some(report) = mirror::wait(&mut client, true, &interrupt)? else { return mirror::goes_on() };
        let named = device.display().to_string();
        if report.mirror_lacks_blocks > 0 {
            let lacks = human::blocks(report.mirror_lacks_blocks);
            anyhow::bail!(
                "{named} became the mirror: the old device stays, since it alone has {lacks} that can't be read"
            );
        }
        if report.mirror != "none" || report.cache_path.as_ref() != Some(&named) {
            anyhow::bail!("{named} did not become the cache device: it failed, or was removed; see the daemon's log");
        }
        if !self.json {
            human::tell(&format!("replaced: the cache is on {named}. Name that one at the next start (--cache)\n"))?;
        }
        done(started, self.json)?;
        Ok(ExitCode::SUCCESS)
    }
}
