// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront set`: changes a running daemon.

use std::process::ExitCode;

use clap::Args;
use flashfront_engine::Mode;
use flashfront_serve::config::{DirtyLimit, Size};
use flashfront_serve::control::Command;

use crate::status::{Socket, connect};
use crate::{choice, human};

/// Change mode, dirty limit or sequential bypass of a running daemon.
///
/// The mode is kept in the cache's superblock; the others last until the daemon ends.
#[derive(Debug, Args)]
#[command(
    override_usage = "flashfront set [OPTIONS] <WHAT TO CHANGE>...",
    after_help = "\
Example:
  flashfront set --mode writethrough     nothing new becomes dirty; what is dirty
                                         is destaged in the background"
)]
#[group(id = "what", required = true, multiple = true, args = ["mode", "dirty_limit", "sequential_bypass"])]
pub(crate) struct Set {
    #[command(flatten)]
    socket: Socket,
    /// Which volume's mode to change [default: all].
    #[arg(long, requires = "mode")]
    volume: Option<String>,
    /// How writes are treated from now on.
    #[arg(long, value_parser = choice::mode())]
    mode: Option<Mode>,
    /// The most that may be dirty, a share or a size ("50%", "20 GiB").
    #[arg(long, value_name = "LIMIT")]
    dirty_limit: Option<DirtyLimit>,
    /// Streams longer than this bypass the cache; 0B = never.
    #[arg(long, value_name = "SIZE")]
    sequential_bypass: Option<Size>,
    /// Print the daemon's status afterwards, as JSON.
    #[arg(long)]
    json: bool,
}

impl Set {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut client = connect(&self.socket.path())?;
        client.call(&Command::Set {
            volume: self.volume,
            mode: self.mode,
            dirty_limit: self.dirty_limit,
            sequential_bypass: self.sequential_bypass,
        })?;
        if self.json {
            human::print_json(&client.status()?)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
