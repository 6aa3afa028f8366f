// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront mirror`: gives a running cache a second device, or another in place of one that
//! failed, or lets one of two go.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use flashfront_device::real::is_uri;
use flashfront_engine::BLOCK_BYTES;
use flashfront_serve::control::{Client, Command};
use flashfront_serve::report::StatusReport;
use serde::Serialize;

use crate::interrupt::Interrupt;
use crate::status::{Socket, connect};
use crate::volume::done;
use crate::{human, progress};

/// How long a device that has left may take until it is closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);

/// Keep a copy of dirty data on a second cache device.
#[derive(Debug, Args)]
pub(crate) struct Mirror {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Add(Add),
    Remove(Remove),
    Promote(Promote),
}

/// Let the other one of two cache devices lead, while clients are served.
///
/// The lead holds everything, and the other one all that is dirty. The new lead gets the clean data
/// first; the old one stays, as its mirror. Ctrl-C ends the waiting only.
#[derive(Debug, Args)]
struct Promote {
    /// The device that is to lead.
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
    #[command(flatten)]
    socket: Socket,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Let one of two cache devices go, while clients are served.
///
/// The other one holds everything afterwards, clean data too, and is the whole cache at the next
/// start. A device that is being filled is filled no further. Ctrl-C ends the waiting only.
#[derive(Debug, Args)]
struct Remove {
    /// The device that is to go.
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
    #[command(flatten)]
    socket: Socket,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Make a device the mirror of a running cache, or put it in the place of one that failed.
///
/// What is dirty is copied while clients go on; the mirror counts when all of it is there. Ctrl-C
/// ends the waiting and not the copying. Name both devices at the next start (`serve --cache A
/// --mirror B`).
#[derive(Debug, Args)]
struct Add {
    /// The device: at least as large as the cache, and on other hardware.
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

/// How it ended.
#[derive(Debug, Serialize)]
struct Outcome {
    mirror: String,
    copied_blocks: u64,
    /// Dirty blocks that the new device doesn't have, as they can't be read.
    lacks_blocks: u64,
    seconds: f64,
}

impl Mirror {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::Add(add) => add.run(),
            Verb::Remove(remove) => remove.run(),
            Verb::Promote(promote) => promote.run(),
        }
    }
}

impl Promote {
    fn run(self) -> anyhow::Result<ExitCode> {
        let device = whole(&self.device)?;
        let mut client = connect(&self.socket.path())?;
        let interrupt = Interrupt::new()?;
        let started = Instant::now();
        let named = device.display().to_string();
        client.call(&Command::PromoteMirror { device: device.clone() })?;
        let bar = progress::of_bytes("copying");
        let report = loop {
            let report = client.status()?;
            progress::show(&bar, report.mirror_copied_blocks * BLOCK_BYTES, report.mirror_of_blocks * BLOCK_BYTES);
            if report.promoting_path.is_none() {
                break report;
            }
            if interrupt.wait(progress::LOOK_EVERY) {
                bar.finish_and_clear();
                let words = "the daemon goes on copying; `flashfront status` shows how far it is\n";
                human::read_or_not(human::tell(words))?;
            }
        };
        bar.finish_and_clear();
        if !is_same(report.cache_path.as_ref(), &device) {
            anyhow::bail!("{named} does not lead: it failed, or lacks dirty data; see the daemon's log");
        }
        if !self.json {
            let mirror = report.mirror_path.unwrap_or_default();
            human::tell(&format!("promoted: {named} leads, and {mirror} is its mirror\n"))?;
        }
        done(started, self.json)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Remove {
    fn run(self) -> anyhow::Result<ExitCode> {
        let device = whole(&self.device)?;
        let mut client = connect(&self.socket.path())?;
        let interrupt = Interrupt::new()?;
        let started = Instant::now();
        let named = device.display().to_string();
        // What the lead alone has stays there, if the other one goes.
        let lead_goes = is_same(client.status()?.cache_path.as_ref(), &device);
        client.call(&Command::RemoveMirror { device: device.clone() })?;
        let Some(report) = wait(&mut client, lead_goes, &interrupt)? else { return goes_on() };
        if report.mirror != "none" || is_same(report.cache_path.as_ref(), &device) {
            let lacks = human::blocks(report.mirror_lacks_blocks);
            anyhow::bail!(
                "{named} stays in the cache: the other device failed, or lacks {lacks}; see the daemon's log"
            );
        }
        if !self.json {
            let cache = report.cache_path.unwrap_or_default();
            human::tell(&format!(
                "removed: {named} is free, and {cache} holds everything. Name that one at the next start\n"
            ))?;
        }
        done(started, self.json)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The whole path of a device: the daemon may run in another folder.
pub(crate) fn whole(device: &Path) -> anyhow::Result<PathBuf> {
    Ok(if is_uri(device) { device.to_owned() } else { std::path::absolute(device)? })
}

/// Whether the daemon's path leads to this device.
fn is_same(path: Option<&String>, device: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    path.is_some_and(|path| real(Path::new(path)) == real(device))
}

/// Waits until nothing is being copied, and a device that has left is closed. `lead_goes`: the lead
/// is to leave, unless it alone has blocks. Returns the status then; none after Ctrl-C.
pub(crate) fn wait(
    client: &mut Client,
    lead_goes: bool,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<StatusReport>> {
    let bar = progress::of_bytes("copying");
    let mut closed_by = None;
    let report = loop {
        let report = client.status()?;
        progress::show(&bar, report.mirror_copied_blocks * BLOCK_BYTES, report.mirror_of_blocks * BLOCK_BYTES);
        // A device that hangs is closed when the kernel has given it up.
        let out = report.mirror == "none";
        let is_open = out && (report.leaving_path.is_some() || report.cache_devices.len() > 1);
        let by = *closed_by.get_or_insert_with(|| Instant::now() + CLOSED_WITHIN);
        if !out || !is_open {
            closed_by = None;
        }
        let copying = report.mirror == "syncing" || !out && report.leaving_path.is_some();
        let leaving = report.mirror == "whole" && (!lead_goes || report.mirror_lacks_blocks == 0);
        if !copying && !leaving && (!is_open || Instant::now() > by) {
            break Some(report);
        }
        if interrupt.wait(progress::LOOK_EVERY) {
            break None;
        }
    };
    bar.finish_and_clear();
    Ok(report)
}

/// Tells that Ctrl-C has ended only the waiting.
pub(crate) fn goes_on() -> anyhow::Result<ExitCode> {
    human::read_or_not(human::tell("the daemon goes on; `flashfront status` shows how far it is\n"))?;
    Ok(ExitCode::FAILURE)
}

impl Add {
    fn run(self) -> anyhow::Result<ExitCode> {
        let device = whole(&self.device)?;
        let mut client = connect(&self.socket.path())?;
        let interrupt = Interrupt::new()?;
        let started = Instant::now();
        client.call(&Command::AddMirror { device: device.clone(), force: self.force })?;
        let bar = progress::of_bytes("copying");
        let mut copied_blocks = 0;
        let (report, interrupted) = loop {
            let report = client.status()?;
            if report.mirror != "syncing" {
                break (report, false);
            }
            copied_blocks = report.mirror_copied_blocks;
            progress::show(&bar, copied_blocks * BLOCK_BYTES, report.mirror_of_blocks * BLOCK_BYTES);
            if interrupt.wait(progress::LOOK_EVERY) {
                break (report, true);
            }
        };
        bar.finish_and_clear();
        let whole = report.mirror == "whole";
        let lacks = match report.mirror_lacks_blocks {
            0 => String::new(),
            lacks => format!(", but for {} that can't be read", human::blocks(lacks)),
        };
        let outcome = Outcome {
            mirror: report.mirror,
            copied_blocks,
            lacks_blocks: report.mirror_lacks_blocks,
            seconds: started.elapsed().as_secs_f64(),
        };
        if self.json {
            human::read_or_not(human::print_json(&outcome))?;
        } else if whole {
            human::tell(&format!(
                "mirrored: {} holds all dirty data too{lacks}. Name both devices at the next start (--cache, --mirror)\n",
                device.display()
            ))?;
        } else if interrupted {
            return goes_on();
        } else {
            anyhow::bail!("{} did not become the mirror: it failed; see the daemon's log", device.display());
        }
        Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
