// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront mirror add`: gives a running cache a second device, or another in place of one that
//! failed.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Subcommand};
use flashfront_device::real::is_uri;
use flashfront_engine::BLOCK_BYTES;
use flashfront_serve::control::{Client, Command};
use serde::Serialize;

use crate::interrupt::Interrupt;
use crate::status::Socket;
use crate::{human, progress};

/// Keep a copy of dirty data on a second cache device.
#[derive(Debug, Args)]
pub(crate) struct Mirror {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Add(Add),
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
        let Verb::Add(add) = self.verb;
        add.run()
    }
}

impl Add {
    fn run(self) -> anyhow::Result<ExitCode> {
        // The daemon may run in another folder.
        let device = if is_uri(&self.device) { self.device.clone() } else { std::path::absolute(&self.device)? };
        let mut client = Client::connect(&self.socket.path())?;
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
            human::print_json(&outcome)?;
        } else if whole {
            human::tell(&format!(
                "mirrored: {} holds all dirty data too{lacks}. Name both devices at the next start (--cache, --mirror)\n",
                device.display()
            ))?;
        } else if interrupted {
            human::tell("the daemon goes on copying; `flashfront status` shows how far it is\n")?;
        } else {
            anyhow::bail!("{} did not become the mirror: it failed; see the daemon's log", device.display());
        }
        Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
